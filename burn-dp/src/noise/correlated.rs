//! Noise that is correlated over the steps of a run.

use burn::tensor::Device;
use burn_dp_accountant::correlated_noise::Strategy;
use zeroize::Zeroizing;

use super::correlated_step::CorrelatedStep;
use super::kept_values::KeptValues;
use super::recurrence::{Impulse, Recurrences, rounding_gain};
use crate::DpError;
use crate::random::{GROUP_WORDS, Key, NoiseSource};

/// Default memory for values of earlier steps. Beyond it, they are drawn again where the strategy
/// allows it.
pub(crate) const DEFAULT_MEMORY: usize = 1 << 30;

/// Stands for a slot without a key. No key consists of zeros.
const NO_KEY: [u8; 32] = [0; 32];

/// The noise of a run whose step t adds `(C⁻¹ Z)_t` in place of `Z_t`.
///
/// # Privacy
///
/// It holds values that follow from the key of the run and is as secret as the key: with it, the
/// noise of later steps can be partly subtracted. The memory is erased on drop; on a device, as far
/// as [`DeviceValues`](super::kept_values::DeviceValues) describes.
pub(crate) struct CorrelatedNoise {
    recurrences: Recurrences,
    rounding_gain: f64,
    step: u64,
    impulse: Impulse,
    /// Number of values of each parameter.
    lengths: Vec<usize>,
    memory: Memory,
    /// Maximum number of bytes that [`Memory::Values`] may use.
    limit: usize,
}

/// What is kept of earlier steps, for each slot of the recurrence.
enum Memory {
    /// Nothing yet: the sizes of the parameters are not known before the first step.
    Empty,
    /// For each parameter, where its sums are.
    Values(Vec<KeptValues>),
    /// The keys of the steps whose independent values the slots would hold.
    Keys(Vec<Option<Key>>),
}

/// What a checkpoint stores of correlated noise, apart from the [memory](CorrelatedNoise::memory).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CorrelatedNoiseState {
    /// Number of values of each parameter.
    lengths: Vec<usize>,
    /// Whether keys are kept, and not values.
    keys: bool,
    /// The number under which the memory is encrypted.
    nonce: u64,
}

impl CorrelatedNoise {
    /// Returns the noise before the first step.
    ///
    /// # Arguments
    ///
    /// - `limit`: bytes that values of earlier steps may use
    pub(crate) fn new(strategy: &Strategy, limit: usize) -> Self {
        Self {
            recurrences: Recurrences::new(strategy),
            rounding_gain: rounding_gain(strategy),
            step: 0,
            impulse: Impulse::default(),
            lengths: Vec::new(),
            memory: Memory::Empty,
            limit,
        }
    }

    /// Returns the standard deviation of the next step's independent part, as a multiple of the
    /// run's. The grid of the step is a multiple of it.
    pub(crate) fn unit(&self) -> f64 {
        self.recurrences.unit(self.step)
    }

    /// Returns the standard deviation of the noise of the next step, as a multiple of the run's.
    pub(crate) fn deviation(&mut self) -> f64 {
        self.recurrences.deviation(self.step, &mut self.impulse)
    }

    /// Returns how much more than independent noise the run loses to rounding, for
    /// [`GaussianMechanism::snapping_factor`](super::GaussianMechanism::snapping_factor).
    pub(crate) fn rounding_gain(&self) -> f64 {
        self.rounding_gain
    }

    /// Returns whether the noise is combined on the host, wherever the sums are, because its values
    /// need more than the limit and cannot be drawn again.
    ///
    /// # Arguments
    ///
    /// - `values`: number of all values of the model
    pub(crate) fn stays_on_host(&self, values: u64) -> bool {
        let bytes = values.saturating_mul((self.recurrences.slots() * size_of::<f64>()) as u64);
        !self.recurrences.only_independent() && bytes > self.limit as u64
    }

    /// Moves the memory of each parameter to where its sum is.
    ///
    /// # Arguments
    ///
    /// - `sums`: the length of each sum, and its device if the sum is released there
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the parameters changed since the steps before, and
    /// [`DpError::Device`] if a device that has the memory cannot be read.
    pub(crate) async fn place(&mut self, sums: &[(usize, Option<Device>)]) -> Result<(), DpError> {
        let lengths: Vec<usize> = sums.iter().map(|(length, _)| *length).collect();
        self.prepare(&lengths)?;
        if let Memory::Values(values) = &mut self.memory {
            for (values, (_, device)) in values.iter_mut().zip(sums) {
                values.place(device.as_ref()).await?;
            }
        }
        Ok(())
    }

    /// Stores the lengths of the parameters in the first step, and compares them in every later
    /// one.
    fn prepare(&mut self, lengths: &[usize]) -> Result<(), DpError> {
        if let Memory::Empty = self.memory {
            self.lengths = lengths.to_vec();
            let bytes = self.bytes();
            let keys = self.recurrences.only_independent() && bytes > self.limit as u64;
            if !keys && bytes > isize::MAX as u64 {
                let reason = format!(
                    "needs {bytes} bytes for values of earlier steps, more than a process can \
                     have; use a strategy with fewer bands or buffers"
                );
                return Err(DpError::invalid("correlated_noise", reason));
            }
            self.memory = self.new_memory(keys);
        }
        if self.lengths == lengths {
            return Ok(());
        }
        Err(DpError::state(format!(
            "the trained parameters of a run with correlated noise must not change: they had {:?} \
             values and have {lengths:?}",
            self.lengths
        )))
    }

    /// Returns an error unless `step` is the next one and the parameters are as before. The engine
    /// calls this before it records a release.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if an earlier step failed after it was recorded, so that
    /// later noise would not cancel what it should, and if the parameters changed.
    pub(crate) fn check_next(&mut self, step: u64, lengths: &[usize]) -> Result<(), DpError> {
        self.check_step(step)?;
        self.prepare(lengths)
    }

    fn check_step(&self, step: u64) -> Result<(), DpError> {
        if self.step == step {
            return Ok(());
        }
        Err(DpError::state(format!(
            "step {} of a run with correlated noise failed after it was recorded, and the noise \
             of step {step} would not belong to it; restore the last checkpoint, which repeats \
             the step without cost",
            self.step
        )))
    }

    /// Starts the next step, for parameters of these lengths, whose memory is where their sums are.
    ///
    /// # Arguments
    ///
    /// - `key`: the key of the step's independent values
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the parameters changed since the steps before.
    pub(crate) fn begin(
        &mut self,
        key: &Key,
        lengths: &[usize],
    ) -> Result<CorrelatedStep<'_>, DpError> {
        self.prepare(lengths)?;
        let recurrence = self.recurrences.step(self.step);
        self.step += 1;
        let (values, keys): (&mut [KeptValues], &mut [Option<Key>]) = match &mut self.memory {
            Memory::Empty => (&mut [], &mut []),
            Memory::Values(values) => (values, &mut []),
            Memory::Keys(keys) => (&mut [], keys),
        };
        let earlier = keys.to_vec();
        if !keys.is_empty() {
            for write in &recurrence.write {
                keys[write.slot] = Some(key.clone());
            }
        }
        Ok(CorrelatedStep::new(self.recurrences.slots(), recurrence, values, earlier))
    }

    /// Returns the memory before the first step: of keys, or of values.
    fn new_memory(&self, keys: bool) -> Memory {
        if keys {
            return Memory::Keys(vec![None; self.recurrences.slots()]);
        }
        Memory::Values(self.new_values().collect())
    }

    fn new_values(&self) -> impl Iterator<Item = KeptValues> {
        self.lengths.iter().map(|&length| KeptValues::new(length, self.recurrences.slots()))
    }

    /// Returns the number of bytes that values would take, which can exceed the memory of a
    /// browser.
    fn bytes(&self) -> u64 {
        let slots = (self.recurrences.slots() * size_of::<f64>()) as u64;
        let groups = self.lengths.iter().map(|length| length.div_ceil(GROUP_WORDS) as u64);
        let bytes = |groups: u64| groups.saturating_mul(GROUP_WORDS as u64).saturating_mul(slots);
        groups.map(bytes).fold(0, u64::saturating_add)
    }

    /// Returns what a checkpoint needs to continue before `step`, and the memory, encrypted under
    /// the key of the run.
    ///
    /// # Privacy
    ///
    /// The keystream depends on a number that the operating system returns for each call, so two
    /// states of one step are not encrypted alike.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if a step failed after it was recorded,
    /// [`DpError::Device`] if the memory of a device cannot be read, and [`DpError::Entropy`] if
    /// the operating system returns no number.
    pub(crate) async fn save(
        &self,
        step: u64,
        source: &NoiseSource,
    ) -> Result<(CorrelatedNoiseState, Vec<u8>), DpError> {
        self.check_step(step)?;
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce).map_err(|error| DpError::Entropy(error.to_string()))?;
        let nonce = u64::from_le_bytes(nonce);
        let mut bytes = Vec::new();
        match &self.memory {
            Memory::Empty => {}
            Memory::Values(parameters) => {
                for values in parameters {
                    values.visit(|value| bytes.extend(value.to_le_bytes())).await?;
                }
            }
            Memory::Keys(keys) => keys.iter().for_each(|key| match key {
                Some(key) => bytes.extend(key.bytes()),
                None => bytes.extend(NO_KEY),
            }),
        }
        source.crypt(nonce, &mut bytes);
        let keys = matches!(self.memory, Memory::Keys(_));
        Ok((CorrelatedNoiseState { lengths: self.lengths.clone(), keys, nonce }, bytes))
    }

    /// Continues before `step` with a saved memory.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the memory does not belong to the state.
    pub(crate) fn restore(
        &mut self,
        step: u64,
        state: &CorrelatedNoiseState,
        bytes: &[u8],
        source: &NoiseSource,
    ) -> Result<(), DpError> {
        let damaged = || {
            DpError::saved_state(
                "the memory of the correlated noise does not belong to the run; restore the \
                 checkpoint from a backup, or start a new run",
            )
        };
        let mut bytes = Zeroizing::new(bytes.to_vec());
        source.crypt(state.nonce, &mut bytes);
        self.step = step;
        if step == 0 {
            return if bytes.is_empty() { Ok(()) } else { Err(damaged()) };
        }
        if state.keys && !self.recurrences.only_independent() {
            return Err(damaged());
        }
        self.lengths = state.lengths.clone();
        self.memory = self.new_memory(state.keys);
        match &mut self.memory {
            Memory::Keys(keys) if bytes.len() == keys.len() * NO_KEY.len() => {
                for (key, bytes) in keys.iter_mut().zip(bytes.as_chunks().0) {
                    *key = (*bytes != NO_KEY).then(|| source.key_of_state(bytes));
                }
            }
            Memory::Values(values) => {
                let total: usize = values.iter().map(KeptValues::len).sum();
                if bytes.len() != total * size_of::<f64>() {
                    return Err(damaged());
                }
                let numbers = bytes.as_chunks::<8>().0.iter().map(|&word| f64::from_le_bytes(word));
                // A device receives them in the next step.
                let all = values.iter_mut().filter_map(KeptValues::on_host).flatten();
                for (value, number) in all.zip(numbers) {
                    if !number.is_finite() {
                        return Err(damaged());
                    }
                    *value = number;
                }
            }
            _ => return Err(damaged()),
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::device_read::wait;
    use crate::noise::ahead::PIECE_VALUES;
    use crate::noise::release::TASK_VALUES;
    use crate::noise::{GaussianMechanism, NoiseAhead};
    use crate::random::{InsecureSeed, Purpose, Stream};

    /// Strategies of every kind.
    pub(in crate::noise) fn strategies(steps: u64) -> Vec<Strategy> {
        let rows = |i: u64| (0..=i).map(|j| 1.0 / (1.0 + (i - j) as f64).sqrt()).collect();
        let strategies = [
            Strategy::identity(steps),
            Strategy::optimal_toeplitz(steps),
            Strategy::banded_toeplitz(steps, &[0.9, 0.4, 0.2, 0.1]),
            Strategy::banded_inverse_square_root(steps, 5),
            Strategy::buffered(steps, &[0.9, 0.5], &[0.2, 0.1]),
            Strategy::tree(steps),
            Strategy::dense((0..steps).map(rows).collect()),
        ];
        let strategies = strategies.map(Result::unwrap);
        let normalized = strategies[2].clone().with_normalized_columns();
        strategies.into_iter().chain([normalized]).collect()
    }

    /// Releases sums with correlated noise.
    pub(in crate::noise) fn release_with(
        parameters: Vec<(GaussianMechanism, Stream, &mut [f32])>,
        ahead: Option<&NoiseAhead>,
        correlated: &mut CorrelatedNoise,
    ) -> Result<(), DpError> {
        let lengths: Vec<usize> = parameters.iter().map(|(_, _, sums)| sums.len()).collect();
        let unit = correlated.unit();
        let mut step = correlated.begin(parameters[0].1.identity().0, &lengths)?;
        let parameters = parameters.into_iter().zip(step.parameters());
        let parameters = parameters.map(|((mechanism, stream, sums), of)| {
            let std = unit * mechanism.noise_std();
            let mechanism = GaussianMechanism::new(std, mechanism.scale()).unwrap();
            (mechanism, stream, sums, Some(of))
        });
        GaussianMechanism::release_parameters(parameters.collect(), ahead)
    }

    // Nothing is allocated before the refusal; the keys of values are small.
    #[test]
    fn values_that_no_process_can_have_are_refused() {
        let prepare = |strategy, length| CorrelatedNoise::new(&strategy, 0).prepare(&[length]);
        let buffered = || Strategy::buffered(STEPS, &[0.9], &[0.2]).unwrap();
        let error = prepare(buffered(), 1 << 60).unwrap_err().to_string();
        assert!(error.contains("more than a process can have"), "{error}");
        prepare(buffered(), 1_000).unwrap();
        prepare(Strategy::banded_inverse_square_root(STEPS, 5).unwrap(), 1 << 60).unwrap();
    }

    const LENGTHS: [usize; 4] = [TASK_VALUES + PIECE_VALUES + 77, 1, 0, 300];
    const STEPS: u64 = 11;

    struct Run {
        source: NoiseSource,
        noise: CorrelatedNoise,
        step: u64,
    }

    impl Run {
        fn new(strategy: &Strategy, limit: usize) -> Self {
            let source = NoiseSource::insecure(InsecureSeed(5));
            Self { source, noise: CorrelatedNoise::new(strategy, limit), step: 0 }
        }

        /// Returns the noise of the next step, with a standard deviation of one.
        fn next(&mut self, ahead: bool) -> Vec<Vec<f32>> {
            let (purpose, step) = (Purpose::Gradient, self.step);
            let drawn = ahead
                .then(|| NoiseAhead::begin(&self.source, purpose, step, &LENGTHS, None).unwrap());
            let mut noise = self.source.begin_step(purpose, step).unwrap();
            let mut sums: Vec<_> = LENGTHS.iter().map(|&length| vec![0.0; length]).collect();
            let mechanism = GaussianMechanism::new(1.0, 1.0).unwrap();
            let parameters = (0..).zip(&mut sums).map(|(parameter, sums)| {
                (mechanism, noise.stream(parameter).unwrap(), sums.as_mut_slice())
            });
            let parameters = parameters.collect();
            release_with(parameters, drawn.as_ref(), &mut self.noise).unwrap();
            self.step += 1;
            sums
        }

        fn all(mut self) -> Vec<Vec<Vec<f32>>> {
            (self.step..STEPS).map(|step| self.next(step % 3 == 1)).collect()
        }
    }

    #[test]
    fn the_noise_of_a_run_is_the_inverse_of_its_strategy() {
        let identity = Strategy::identity(STEPS).unwrap();
        let independent = Run::new(&identity, usize::MAX).all();
        for strategy in strategies(STEPS) {
            let correlated = Run::new(&strategy, usize::MAX).all();
            for (parameter, &length) in LENGTHS.iter().enumerate() {
                for at in (0..length).step_by(97).chain(length.checked_sub(1)) {
                    let noising = strategy.noising();
                    let mut stream = noising.stream();
                    for step in 0..STEPS as usize {
                        let expected =
                            stream.next(independent[step][parameter][at].into()).unwrap();
                        let found = f64::from(correlated[step][parameter][at]);
                        // The independent values are rounded to single precision.
                        assert!((found - expected).abs() < 1e-5, "{strategy} {step}: {found}");
                    }
                }
            }
        }
    }

    #[test]
    fn noise_that_is_drawn_again_equals_noise_that_is_kept() {
        let mut drawn_again = 0;
        for strategy in strategies(STEPS) {
            let kept = Run::new(&strategy, usize::MAX).all();
            let mut run = Run::new(&strategy, 0);
            run.next(false);
            let draws_again = matches!(run.noise.memory, Memory::Keys(_));
            let slots = run.noise.recurrences.slots();
            assert_eq!(draws_again, run.noise.recurrences.only_independent() && slots > 0);
            assert_eq!(run.noise.rounding_gain(), rounding_gain(&strategy));
            drawn_again += usize::from(draws_again);
            assert!(run.all() == kept[1..], "{strategy}");
        }
        assert_eq!(drawn_again, 4);
    }

    #[test]
    fn a_restored_run_continues_bit_for_bit() {
        for (strategy, limit) in
            strategies(STEPS).iter().flat_map(|strategy| [(strategy, 0), (strategy, usize::MAX)])
        {
            let whole = Run::new(strategy, limit).all();
            for stop in [0, 1, 6] {
                let mut run = Run::new(strategy, limit);
                (0..stop).for_each(|_| drop(run.next(false)));
                let (state, memory) = wait(run.noise.save(run.step, &run.source)).unwrap();
                let mut resumed = Run::new(strategy, 1 << 20);
                resumed.step = stop;
                resumed.noise.restore(stop, &state, &memory, &run.source).unwrap();
                assert!(resumed.all() == whole[stop as usize..], "{strategy} {stop}");
            }
        }
    }

    #[test]
    fn the_saved_memory_is_encrypted_and_checked() {
        let strategy = Strategy::tree(STEPS).unwrap();
        let mut run = Run::new(&strategy, usize::MAX);
        (0..3).for_each(|_| drop(run.next(false)));
        let (state, memory) = wait(run.noise.save(run.step, &run.source)).unwrap();
        let Memory::Values(values) = &run.noise.memory else { panic!("values are kept") };
        let mut plain = Vec::new();
        wait(values[0].visit(|value| plain.extend(value.to_le_bytes()))).unwrap();
        let same = memory.iter().zip(&plain).filter(|(byte, plain)| byte == plain).count();
        assert!(same < memory.len() / 100, "{same} of {}", memory.len());
        let (other, again) = wait(run.noise.save(run.step, &run.source)).unwrap();
        assert!(other.nonce != state.nonce && again != memory);
        let restore = |state: &CorrelatedNoiseState, memory: &[u8]| {
            let mut noise = CorrelatedNoise::new(&strategy, usize::MAX);
            noise.restore(3, state, memory, &run.source)
        };
        restore(&state, &memory).unwrap();
        assert!(restore(&state, &memory[8..]).is_err());
        assert!(restore(&CorrelatedNoiseState { keys: true, ..state.clone() }, &memory).is_err());
        assert!(restore(&CorrelatedNoiseState { lengths: vec![3], ..state }, &memory).is_err());
        // Keys do not replace buffers, whatever a file says.
        let buffered = Strategy::buffered(STEPS, &[0.9, 0.5], &[0.2, 0.1]).unwrap();
        let keys = CorrelatedNoiseState { keys: true, ..other };
        let mut noise = CorrelatedNoise::new(&buffered, usize::MAX);
        assert!(noise.restore(3, &keys, &[1; 2 * NO_KEY.len()], &run.source).is_err());
    }

    #[test]
    fn a_step_without_a_finite_sum_still_enters_later_noise() {
        let strategy = Strategy::banded_toeplitz(STEPS, &[1.0, 0.5]).unwrap();
        let expected = Run::new(&strategy, usize::MAX).all();
        let mut run = Run::new(&strategy, usize::MAX);
        let mut noise = run.source.begin_step(Purpose::Gradient, 0).unwrap();
        let mut sums: Vec<_> = LENGTHS.iter().map(|&length| vec![f32::NAN; length]).collect();
        let mechanism = GaussianMechanism::new(1.0, 1.0).unwrap();
        let parameters = (0..).zip(&mut sums).map(|(parameter, sums)| {
            (mechanism, noise.stream(parameter).unwrap(), sums.as_mut_slice())
        });
        let parameters = parameters.collect();
        assert!(release_with(parameters, None, &mut run.noise).is_err());
        run.step = 1;
        assert!(run.all() == expected[1..]);
    }

    #[test]
    fn other_parameters_than_before_are_refused() {
        let strategy = Strategy::tree(STEPS).unwrap();
        let mut run = Run::new(&strategy, usize::MAX);
        run.next(false);
        let error = run.noise.begin(run.source.key(), &[3]).err().unwrap().to_string();
        assert!(error.contains("must not change"), "{error}");
        assert!(run.noise.check_next(1, &[3]).unwrap_err().to_string().contains("not change"));
        run.noise.check_next(1, &LENGTHS).unwrap();
    }

    #[test]
    fn a_step_that_failed_after_it_was_recorded_is_not_left_out() {
        let strategy = Strategy::tree(STEPS).unwrap();
        let mut run = Run::new(&strategy, usize::MAX);
        run.next(false);
        let error = run.noise.check_next(2, &LENGTHS).unwrap_err().to_string();
        assert!(error.starts_with("step 1 of a run with correlated noise failed"), "{error}");
        let error = wait(run.noise.save(2, &run.source)).err().unwrap().to_string();
        assert!(error.contains("restore the last checkpoint"), "{error}");
    }
}
