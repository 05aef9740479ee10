//! Noise that is bound to the sums that it is added to.

use std::sync::atomic::{AtomicBool, Ordering};

use zeroize::{Zeroize, Zeroizing};

use super::gaussian::{TASK_VALUES, not_finite};
use super::keystream::Keystream;
use super::share::{share, share_in_turn};
use super::{GaussianMechanism, NoiseStep};
use crate::DpError;

type Digest = [u8; 32];

/// A part of the sums of one parameter.
struct Task<'a> {
    parameter: usize,
    /// Number of the task among those of its parameter.
    number: usize,
    values: &'a mut [f32],
}

impl NoiseStep {
    /// The same step with a key that depends on `content`, the sums that the noise will be added to.
    ///
    /// # Privacy
    ///
    /// A step that is made again after a crash has the same noise if the sums are the same, and then
    /// releases nothing new. If anything differs (a learning rate, the data, the order of a sum) the
    /// noise is independent, and the difference of the two releases hides what a difference should.
    /// The key is a pseudo-random function (keyed BLAKE3) of the content under the secret key of the
    /// step, so for any given sums the noise is as good as fresh.
    ///
    /// An insecure step stays as it is: its noise hides nothing, and tests compare it.
    pub fn bound_to<'a>(mut self, content: impl IntoIterator<Item = &'a [f32]>) -> Self {
        if !self.secure {
            return self;
        }
        let parts: Vec<&[f32]> = content.into_iter().collect();
        let mut digests: Vec<Vec<Digest>> =
            parts.iter().map(|part| vec![[0; 32]; part.len().div_ceil(TASK_VALUES)]).collect();
        let tasks = parts
            .iter()
            .zip(&mut digests)
            .flat_map(|(part, digests)| part.chunks(TASK_VALUES).zip(digests));
        share(tasks.collect(), |(values, digest)| *digest = self.digest(values));
        let lengths = parts.iter().map(|part| part.len());
        self.key = self.bound_key(lengths.zip(digests.iter().map(Vec::as_slice)));
        self
    }

    /// Adds noise to the sums of all parameters, each with its mechanism, bound to all of them and to
    /// `settings`, which are public: [`bound_to`](Self::bound_to) and one stream a parameter, in one
    /// pass.
    ///
    /// # Privacy
    ///
    /// That of [`GaussianMechanism::release`].
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] when a sum is not finite; then all are set to zero and nothing is
    /// released. The same when a stream of this step was taken before.
    pub fn release(
        mut self,
        mut parameters: Vec<(GaussianMechanism, &mut [f32])>,
        settings: &[f32],
    ) -> Result<(), DpError> {
        for position in (0u32..).take(parameters.len()) {
            self.take(position)?;
        }
        let lengths: Vec<usize> = parameters.iter().map(|(_, sums)| sums.len()).collect();
        let mechanisms: Vec<GaussianMechanism> =
            parameters.iter().map(|(mechanism, _)| *mechanism).collect();
        let tasks = parameters.iter_mut().enumerate().flat_map(|(parameter, (_, sums))| {
            let tasks = sums.chunks_mut(TASK_VALUES).enumerate();
            tasks.map(move |(number, values)| Task { parameter, number, values })
        });
        let keystreams = |digests: Vec<Option<Digest>>| -> Vec<Keystream> {
            let key = match digests.into_iter().collect::<Option<Vec<Digest>>>() {
                Some(digests) => self.key_of(&lengths, &digests, settings),
                None => self.key.clone(),
            };
            (0..lengths.len() as u64).map(|position| Keystream::new(&key, position)).collect()
        };
        let finite = AtomicBool::new(true);
        share_in_turn(
            tasks.collect(),
            |task| self.secure.then(|| self.digest(task.values)),
            keystreams,
            |task, keystreams| {
                let mechanism = mechanisms[task.parameter];
                let keystream = &keystreams[task.parameter];
                let finite_values = mechanism.release_task(keystream, task.number, task.values);
                finite.fetch_and(finite_values, Ordering::Relaxed);
            },
        );
        if finite.into_inner() {
            return Ok(());
        }
        parameters.iter_mut().for_each(|(_, sums)| sums.zeroize());
        Err(not_finite())
    }

    /// The key that is bound to parameters of these lengths, with the digests of their tasks one after
    /// another, and to the settings.
    fn key_of(
        &self,
        lengths: &[usize],
        digests: &[Digest],
        settings: &[f32],
    ) -> Zeroizing<[u8; 32]> {
        let mut rest = digests;
        let mut parts = Vec::with_capacity(lengths.len() + 1);
        for &length in lengths {
            let (part, others) = rest.split_at(length.div_ceil(TASK_VALUES));
            parts.push((length, part));
            rest = others;
        }
        let settings_digests: Vec<Digest> =
            settings.chunks(TASK_VALUES).map(|values| self.digest(values)).collect();
        parts.push((settings.len(), &settings_digests));
        self.bound_key(parts)
    }

    fn digest(&self, values: &[f32]) -> Digest {
        *blake3::keyed_hash(&self.key, bytemuck::cast_slice(values)).as_bytes()
    }

    /// A key from the length and the digests of each part of the content.
    fn bound_key<'a>(
        &self,
        parts: impl IntoIterator<Item = (usize, &'a [Digest])>,
    ) -> Zeroizing<[u8; 32]> {
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        for (length, digests) in parts {
            hash.update(&(length as u64).to_le_bytes());
            hash.update(digests.as_flattened());
        }
        // Values have four bytes: no part of the content is the content of another part.
        hash.update(&[1]);
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(hash.finalize().as_bytes());
        hash.reset();
        key
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::noise::{InsecureSeed, NoiseKey, NoiseSource, Purpose};

    fn step(key: &NoiseKey) -> NoiseStep {
        NoiseSource::resume(key.clone(), 0).begin_step(Purpose::Gradient, 3).unwrap()
    }

    fn sums() -> [Vec<f32>; 4] {
        [3 * TASK_VALUES + 17, 1, 0, TASK_VALUES]
            .map(|length| (0..length).map(|i| (i as f32).sin()).collect())
    }

    fn mechanisms() -> [GaussianMechanism; 4] {
        [1.0, 0.3, 2.0, 7.0].map(|std| GaussianMechanism::new(std, 0.1).unwrap())
    }

    #[test]
    fn bound_noise_repeats_for_the_same_sums_only() {
        let key = NoiseSource::from_os().unwrap().export_key();
        let noise = |sums: &[&[f32]]| {
            let mut step = step(&key).bound_to(sums.iter().copied());
            let mut words = [0; 4];
            step.stream(0).unwrap().words(&mut words);
            words
        };
        let once = noise(&[&[1.0, 2.0], &[3.0]]);
        assert_eq!(once, noise(&[&[1.0, 2.0], &[3.0]]));
        for other in [
            [&[1.0, 2.0][..], &[3.0_f32.next_up()]],
            [&[1.0][..], &[2.0, 3.0]],
            [&[1.0, 2.0][..], &[]],
        ] {
            assert_ne!(once, noise(&other));
        }
    }

    // Sharp edge: noise that is used again for other sums shows their difference.
    #[test]
    fn one_pass_releases_what_bound_streams_release_one_after_another() {
        let key = NoiseSource::from_os().unwrap().export_key();
        let seeded = || NoiseSource::insecure(InsecureSeed(5)).begin_step(Purpose::Gradient, 3);
        let settings = [0.5f32, 2.0];
        let steps: [&(dyn Fn() -> NoiseStep + Sync); 2] = [&|| step(&key), &|| seeded().unwrap()];
        for new_step in steps {
            let mut expected = sums();
            let content = expected.iter().map(Vec::as_slice).chain([settings.as_slice()]);
            let mut bound = new_step().bound_to(content);
            for (position, (sums, mechanism)) in (0u32..).zip(expected.iter_mut().zip(mechanisms()))
            {
                mechanism.release(bound.stream(position).unwrap(), sums).unwrap();
            }
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut found = sums();
                let parameters =
                    mechanisms().into_iter().zip(found.iter_mut().map(Vec::as_mut_slice));
                pool.install(|| new_step().release(parameters.collect(), &settings)).unwrap();
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn one_sum_that_is_not_finite_erases_the_sums_of_all_parameters() {
        let key = NoiseSource::from_os().unwrap().export_key();
        for bad in [f32::NAN, f32::INFINITY] {
            let mut sums = sums();
            sums[0][2 * TASK_VALUES + 5] = bad;
            let parameters = mechanisms().into_iter().zip(sums.iter_mut().map(Vec::as_mut_slice));
            let error = step(&key).release(parameters.collect(), &[]).unwrap_err();
            assert!(matches!(error, DpError::InvalidArgument { name: "sums", .. }), "{error}");
            assert!(sums.iter().flatten().all(|&sum| sum == 0.0));
        }
    }

    #[test]
    fn a_stream_that_was_taken_is_not_used_again() {
        let mut step = step(&NoiseSource::from_os().unwrap().export_key());
        let _ = step.stream(1).unwrap();
        let mut sums = sums();
        let parameters = mechanisms().into_iter().zip(sums.iter_mut().map(Vec::as_mut_slice));
        assert!(step.release(parameters.collect(), &[]).is_err());
    }
}
