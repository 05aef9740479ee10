//! Turns the clipped sum into the gradients that Burn's optimizer receives.

use burn::module::Module;
use burn::optim::GradientsParams;

use super::releases::Mark;
use super::sums::{Hashing, Placement, Sum, Sums, unreadable};
use crate::DpError;
use crate::clipping::{ClippedSum, ClippingStatistics, Count, StepNoise, Thresholds};
use crate::device_read::{read_f32, read_together};
use crate::model::for_each_trained;
use crate::noise::{CorrelatedNoise, CorrelatedStep, GaussianMechanism, NoiseAhead, not_finite};
use crate::ops::{Part, native_part, row_sums};
use crate::random::NoiseStep;

/// A release that has been checked and may start.
pub(crate) struct Release {
    /// Group of each trained parameter, in the order in which the model visits them.
    groups: Vec<usize>,
    /// Mechanism of each group.
    mechanisms: Vec<GaussianMechanism>,
    /// Mechanism of the counts, if there are any.
    counts: Option<GaussianMechanism>,
    /// The constants that were subtracted from the contributions to each count.
    centers: Vec<f64>,
    /// Standard deviations, which the noise is bound to: if a repeated step has the same sum and
    /// other deviations, its noise must be independent.
    stds: Vec<f64>,
}

impl Release {
    /// Returns the mechanisms that the noise of a step needs.
    ///
    /// # Arguments
    ///
    /// - `unit`: the standard deviation of the step's [independent part](CorrelatedNoise::unit), as
    ///   a multiple of the run's
    ///
    /// # Errors
    ///
    /// Returns an error if a trained parameter of `model` belongs to no group, or if a deviation is
    /// beyond what a mechanism supports.
    pub(crate) fn new<M: Module>(
        model: &M,
        thresholds: &Thresholds,
        noise: &StepNoise,
        expected_batch_size: f64,
        unit: f64,
    ) -> Result<Self, DpError> {
        let mechanism = |std: f64| GaussianMechanism::new(std, 1.0 / expected_batch_size);
        Ok(Self {
            groups: thresholds.groups().of_model(model)?,
            mechanisms: noise
                .group_stds
                .iter()
                .map(|&std| mechanism(unit * std))
                .collect::<Result<_, _>>()?,
            counts: noise.count_std.map(mechanism).transpose()?,
            centers: thresholds.counts().iter().map(Count::center).collect(),
            stds: noise.group_stds.iter().copied().chain(noise.count_std).collect(),
        })
    }

    /// Returns an error unless each parameter of `model` is in the group that it was clipped in: a
    /// path has the noise of its group, and a layer that was moved has another path.
    pub(crate) fn check_groups<M: Module>(
        &self,
        model: &M,
        sum: &ClippedSum,
    ) -> Result<(), DpError> {
        let (mut groups, mut moved) = (self.groups.iter(), None);
        for_each_trained(model, |path, parameter| {
            let (now, clipped) = (groups.next(), sum.sums.get(&parameter.id));
            if clipped.is_some_and(|(group, _)| now != Some(group)) {
                moved.get_or_insert_with(|| path.to_string());
            }
        });
        match moved.filter(|_| sum.thresholds().releases_sum()) {
            None => Ok(()),
            Some(path) => Err(DpError::OtherModel {
                path,
                reason: "it was in another clipping group when its gradients were clipped, and \
                         would get the noise of this one; make the step with every layer where it \
                         was, or `discard` the logical batch"
                    .into(),
            }),
        }
    }

    /// Adds noise to the counts. Returns the noisy mean of the units' contributions to each.
    fn counts(&self, count_sums: &[f64], noise: Option<NoiseStep>) -> Result<Vec<f64>, DpError> {
        let (Some(mechanism), Some(mut noise)) = (self.counts, noise) else {
            return Ok(Vec::new());
        };
        (0u32..)
            .zip(count_sums.iter().zip(&self.centers))
            .map(|(position, (&balance, center))| {
                Ok(mechanism.release_scalar(noise.stream(position)?, balance)? + center)
            })
            .collect()
    }

    /// Binds the noise to everything that will be released. Nothing is released yet.
    ///
    /// Sums whose device has kernels for the release stay there: only their hashes are read, with
    /// the norms of the units.
    ///
    pub(crate) async fn bind<M: Module>(
        self,
        model: &M,
        mut sum: ClippedSum,
        gradient_noise: NoiseStep,
        count_noise: Option<NoiseStep>,
        placement: Placement,
    ) -> Result<BoundRelease, DpError> {
        let releases_sum = sum.thresholds().releases_sum();
        let stds: &[f32] = bytemuck::cast_slice(&self.stds);
        let mut found = Vec::new();
        if releases_sum {
            let mut clipped = std::mem::take(&mut sum.sums);
            for_each_trained(model, |_, parameter| {
                let sum = clipped.remove(&parameter.id).map(|(_, sum)| sum);
                let device = match &sum {
                    Some(sum) => sum.device(),
                    None => parameter.value.flat().device(),
                };
                found.push((sum, parameter.value.shape().num_elements(), device));
            });
        }
        let sums = Sums::new(found, placement).await?;
        let key = gradient_noise.content_key();
        let hashing = Hashing::start(&sums, key.as_ref());
        let read = read_together(sum.unread(), hashing.words(), "the norms and hashes of a step");
        let (norms, words) = read.await?;
        let (statistics, count_sums) = sum.counted(&norms);
        let counts =
            count_noise.map(|noise| noise.bound_to([bytemuck::cast_slice(&count_sums), stds]));
        let (mut marks, is_finite) = hashing.marks(words, &sums.parameters, key.as_ref())?;
        let gradient = match &key {
            Some(key) => {
                marks.push(key.mark(sums.parameters.len() as u32, stds));
                gradient_noise.bound_to_marks(marks)
            }
            None => gradient_noise,
        };
        let prepared = self;
        Ok(BoundRelease {
            prepared,
            statistics,
            count_sums,
            sums,
            releases_sum,
            is_finite,
            gradient,
            counts,
        })
    }
}

/// The content of a release, and the noise that is bound to it.
pub(crate) struct BoundRelease {
    prepared: Release,
    statistics: ClippingStatistics,
    count_sums: Vec<f64>,
    sums: Sums,
    releases_sum: bool,
    /// Whether all sums on devices are finite.
    is_finite: bool,
    gradient: NoiseStep,
    counts: Option<NoiseStep>,
}

impl BoundRelease {
    /// Returns how many examples were clipped.
    pub(crate) fn statistics(&self) -> ClippingStatistics {
        self.statistics
    }

    /// Returns the number of values of each parameter that the host adds noise to.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        let length = |sum: &Sum| match sum {
            Sum::Host(sum) => sum.num_elements(),
            Sum::Device(..) => 0,
        };
        self.sums.parameters.iter().map(length).collect()
    }

    /// Returns the mark of this release: equal for an equal release of the step, and only then.
    pub(crate) fn mark(&self) -> Mark {
        let parts = [Some(&self.gradient), self.counts.as_ref()];
        let mut hash = blake3::Hasher::new();
        for part in parts.into_iter().flatten().filter_map(NoiseStep::content_mark) {
            hash.update(&part);
        }
        let mut mark = [0; 16];
        hash.finalize_xof().fill(&mut mark);
        Mark(mark)
    }

    /// Adds the noise. Returns the gradients for the optimizer of Burn, if the sum is released, and
    /// the noisy fraction of units at or below each threshold.
    ///
    /// # Privacy
    ///
    /// The parameters that get noise are those that require gradients, in the order in which the
    /// model visits them, once each, no matter how many copies the model holds: a parameter that no
    /// example reached is released as noise, so the set of changed parameters reveals nothing. The
    /// noise is added in integers on a grid, where the sum is, and the result is divided by the
    /// expected batch size; the cast to the precision of the parameter is post-processing.
    ///
    /// # Arguments
    ///
    /// - `drawn`: noise that was drawn in advance; used if it is the noise of this step
    /// - `correlated`: combines the noise with the noise of earlier steps
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotFinite`] if a sum is not finite; nothing is released then, and
    /// the noise of the step still enters the noise of later steps.
    pub(crate) async fn release<M: Module>(
        self,
        model: &M,
        drawn: Option<&NoiseAhead>,
        correlated: Option<&mut CorrelatedNoise>,
    ) -> Result<(Option<GradientsParams>, Vec<f64>), DpError> {
        let Self { prepared, count_sums, sums, releases_sum, is_finite, .. } = self;
        let (mut noise, counts) = (self.gradient, self.counts);
        let fractions = prepared.counts(&count_sums, counts)?;
        if !releases_sum {
            return Ok((None, fractions));
        }
        let streams = (0u32..).zip(&sums.parameters).map(|(position, _)| noise.stream(position));
        let streams = streams.collect::<Result<Vec<_>, _>>()?;
        let mut step = match (correlated, streams.first()) {
            (Some(correlated), Some(stream)) => {
                let places = sums.places();
                correlated.place(&places).await?;
                let lengths: Vec<_> = places.iter().map(|(length, _)| *length).collect();
                Some(correlated.begin(stream.identity().0, &lengths)?)
            }
            _ => None,
        };
        let mut correlated = step.iter_mut().flat_map(CorrelatedStep::parameters);
        let Sums { mut parameters, memories } = sums;
        let mut on_device: Vec<_> = memories.iter().map(|_| Vec::new()).collect();
        let (mut on_host, mut found) = (Vec::new(), Vec::new());
        for ((sum, stream), &group) in parameters.iter_mut().zip(streams).zip(&prepared.groups) {
            let mechanism = prepared.mechanisms[group];
            found.push(match (sum, correlated.next()) {
                // In place, because a copy would cost as much as the hash.
                (Sum::Host(sum), correlated) => {
                    let values = sum.as_mut_slice::<f32>().map_err(unreadable)?;
                    on_host.push((mechanism, stream, values, correlated));
                    None
                }
                (Sum::Device(memory, Part { values: 0, .. }), _) => Some(memories[*memory].clone()),
                (Sum::Device(memory, part), Some(mut correlated)) => {
                    let values = native_part(&memories[*memory], *part);
                    Some(mechanism.release_correlated_on_device(stream, values, &mut correlated)?)
                }
                (Sum::Device(memory, part), None) => {
                    if is_finite {
                        on_device[*memory].push((*part, (mechanism, stream)));
                    }
                    None
                }
            });
        }
        let noisy =
            GaussianMechanism::release_all_on_device(memories.into_iter().zip(on_device).collect());
        GaussianMechanism::release_parameters(on_host, drawn)?;
        if !is_finite {
            return Err(not_finite());
        }
        // The parts of a memory are in the order of the parameters.
        let mut noisy: Vec<_> = noisy.into_iter().map(Vec::into_iter).collect();
        let (mut released, mut grads) = (parameters.into_iter().zip(found), GradientsParams::new());
        for_each_trained(model, |_, parameter| match released.next() {
            Some((Sum::Host(values), _)) => {
                parameter.value.register(parameter.id, &mut grads, values);
            }
            Some((Sum::Device(memory, _), found)) => {
                if let Some(values) = found.or_else(|| noisy[memory].next()) {
                    parameter.value.register_tensor(parameter.id, &mut grads, values);
                }
            }
            None => {}
        });
        Ok((Some(grads), fractions))
    }
}

/// Returns an estimate of ‖sum‖ / ‖noise‖ from the noisy gradient: the expectation of its squared
/// norm is the squared norm of the sum plus the known variance of the noise.
///
/// # Privacy
///
/// Post-processing of the released gradient.
pub(super) async fn signal_to_noise<M: Module>(
    model: &M,
    grads: &GradientsParams,
    thresholds: &Thresholds,
    noise: &StepNoise,
    expected_batch_size: f64,
) -> Result<f64, DpError> {
    let groups = thresholds.groups().of_model(model)?;
    let (mut squares, mut sizes) = (Vec::new(), Vec::new());
    for_each_trained(model, |_, parameter| {
        if let Some(grad) = parameter.value.registered(parameter.id, grads) {
            sizes.push(grad.dims()[0]);
            squares.push(row_sums(grad.powi_scalar(2).unsqueeze()));
        }
    });
    let mut squared_norm = 0.0;
    for square in squares {
        let square = read_f32(square, "the norm of a released gradient").await;
        squared_norm += square.map_or(f64::NAN, |square| square.into_iter().map(f64::from).sum());
    }
    let variance: f64 = (sizes.iter().zip(groups))
        .map(|(&size, group)| size as f64 * (noise.group_stds[group] / expected_batch_size).powi(2))
        .sum();
    Ok(((squared_norm - variance).max(0.0) / variance).sqrt())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::LinearConfig;
    use burn::tensor::Device;

    use super::*;
    use crate::device_read::blocking;
    use crate::nn::IntoPrivate;
    use crate::random::{NoiseSource, Purpose};

    #[test]
    fn releases_with_equal_sums_and_other_deviations_are_different() {
        let model = LinearConfig::new(2, 1).init(&Device::flex().autodiff()).private();
        let key = NoiseSource::from_os().unwrap().export_key();
        let thresholds = Thresholds::whole(1.0).unwrap();
        let mark = |noise_multiplier| {
            let noise = thresholds.noise(noise_multiplier, 10.0).unwrap();
            let release = Release::new(&model, &thresholds, &noise, 10.0, 1.0).unwrap();
            let mut source = NoiseSource::resume(key.clone(), 0);
            let step = source.begin_step(Purpose::Gradient, 0).unwrap();
            let sum = ClippedSum::empty(thresholds.clone());
            let bound =
                blocking(release.bind(&model, sum, step, None, Placement::Apart), "bind").unwrap();
            bound.mark()
        };
        assert_eq!(mark(1.0), mark(1.0));
        assert_ne!(mark(1.0), mark(2.0));
    }
}
