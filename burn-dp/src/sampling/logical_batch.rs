//! The data of one step.

use std::sync::Arc;

use burn::tensor::Device;

use super::draw::Draw;
use super::example_choice::ExampleChoice;
use super::mechanism::SamplingMechanism;
use super::physical_batches::{PhysicalBatches, UnitLoader};
use super::row_loader::{PaddingChoice, RowLoader};
use crate::DpError;
use crate::random::Key;

/// The units of one step and the way to load them.
///
/// One logical batch is one noisy release. It may be empty: then it has no physical batch, and the
/// step releases only noise, but it still has to be taken.
///
/// # Privacy
///
/// The number of units is private, and the type does not expose it. Nothing is loaded before
/// [`physical_batches`](Self::physical_batches) is called.
pub struct LogicalBatch<O> {
    draw: Draw,
    loader: Arc<dyn RowLoader<O>>,
    prefetch: usize,
    source: usize,
    choice: ExampleChoice,
}

impl<O: Send + 'static> LogicalBatch<O> {
    pub(crate) fn new(
        draw: Draw,
        loader: Arc<dyn RowLoader<O>>,
        (prefetch, source): (usize, usize),
        key: &Key,
    ) -> Self {
        let choice = ExampleChoice::new(key, draw.step());
        Self { draw, loader, prefetch, source, choice }
    }

    /// Returns the step that the batch belongs to.
    pub fn step(&self) -> u64 {
        self.draw.step()
    }

    /// Returns the number of the [`LogicalBatches`](super::LogicalBatches) of this process that the
    /// batch is one of: others may load units in another way.
    pub(crate) fn source(&self) -> usize {
        self.source
    }

    /// Returns the drawn units.
    pub fn draw(&self) -> &Draw {
        &self.draw
    }

    /// Returns the physical batches; each unit appears exactly once.
    ///
    /// A physical batch has at most `physical_batch_size` rows, and exactly that number with
    /// [padding](super::PrivateDataLoaderBuilder::with_padding). The result of the step does not
    /// depend on the size. If the loader pads and the draws have a public maximum size, as with
    /// [`TruncatedPoissonSampler`](super::TruncatedPoissonSampler), every draw has the same number
    /// of physical batches, the last of which may consist of padding.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `physical_batch_size` is 0, and [`DpError::Thread`]
    /// if the background thread cannot be started.
    pub fn physical_batches(
        &self,
        physical_batch_size: usize,
    ) -> Result<PhysicalBatches<O>, DpError> {
        self.part(physical_batch_size, (0, 1), None)
    }

    /// Loads some units in this order, without padding. A unit may occur several times.
    pub(crate) fn load(&self, units: &[usize], device: Option<&Device>) -> Result<O, DpError> {
        Ok(self.loader.load(units, units.len(), device, &self.choice)?.0)
    }

    /// Returns every `parts`-th physical batch from number `part` on, on `device`. All parts
    /// together are [`physical_batches`](Self::physical_batches).
    pub(crate) fn part(
        &self,
        physical_batch_size: usize,
        (part, parts): (usize, usize),
        device: Option<Device>,
    ) -> Result<PhysicalBatches<O>, DpError> {
        let pads = self.loader.padding(false, device.as_ref()) != PaddingChoice::No;
        self.units(physical_batch_size, (part, parts), device, pads)
    }

    /// Returns the physical batches of [`part`](Self::part) for losses that the library computes
    /// itself: with a fixed number of rows on devices that compile their kernels, unless the loader
    /// is configured not to pad. A device keeps what it compiled and tuned for one shape.
    ///
    /// # Arguments
    ///
    /// - `expected_batch_size`: the value of the plan. No batch has more rows than two standard
    ///   deviations above it, so that a large `physical_batch_size` is not filled with padding
    pub(crate) fn computed(
        &self,
        physical_batch_size: usize,
        part: (usize, usize),
        device: Option<Device>,
        expected_batch_size: f64,
    ) -> Result<PhysicalBatches<O>, DpError> {
        let (size, pads) = match self.loader.padding(true, device.as_ref()) {
            PaddingChoice::No => (physical_batch_size, false),
            PaddingChoice::Asked => (physical_batch_size, true),
            PaddingChoice::Usual => {
                let mechanism = self.draw.mechanism();
                let deviations = match mechanism {
                    // Parts of a permutation have the same size.
                    SamplingMechanism::NoAmplification { .. } => 0.0,
                    _ => 2.0 * expected_batch_size.sqrt(),
                };
                let usual = (expected_batch_size + deviations).ceil() as usize;
                let usual = mechanism.max_batch_size().unwrap_or(usual);
                (physical_batch_size.min(usual.max(1)), true)
            }
        };
        self.units(size, part, device, pads)
    }

    fn units(
        &self,
        physical_batch_size: usize,
        (part, parts): (usize, usize),
        device: Option<Device>,
        pads: bool,
    ) -> Result<PhysicalBatches<O>, DpError> {
        if physical_batch_size == 0 {
            return Err(DpError::invalid("physical_batch_size", "must be at least 1, got 0"));
        }
        let units = UnitLoader {
            draw: self.draw.clone(),
            next: part.saturating_mul(physical_batch_size),
            size: physical_batch_size,
            pads,
            stride: parts.saturating_mul(physical_batch_size),
            loader: self.loader.clone(),
            device,
            choice: self.choice.clone(),
        };
        PhysicalBatches::new(units, self.prefetch)
    }
}

impl<O> From<LogicalBatch<O>> for Draw {
    fn from(batch: LogicalBatch<O>) -> Self {
        batch.draw
    }
}

opaque_debug!(LogicalBatch<O>, |this| step: this.draw.step());

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSeed;
    use crate::sampling::RecordFacts;

    /// Returns the indices; fails or panics at a given unit.
    struct Echo {
        fails_at: Option<usize>,
        panics_at: Option<usize>,
    }

    impl RowLoader<Vec<usize>> for Echo {
        fn load(
            &self,
            indices: &[usize],
            _: usize,
            _: Option<&Device>,
            _: &ExampleChoice,
        ) -> Result<(Vec<usize>, usize), DpError> {
            if self.fails_at.is_some_and(|unit| indices.contains(&unit)) {
                return Err(DpError::state("planted"));
            }
            assert!(!self.panics_at.is_some_and(|unit| indices.contains(&unit)), "planted panic");
            Ok((indices.to_vec(), indices.len()))
        }

        fn padding(&self, _: bool, _: Option<&Device>) -> PaddingChoice {
            PaddingChoice::No
        }

        fn records(&self) -> &RecordFacts {
            &RecordFacts::UNKNOWN
        }
    }

    fn batch(units: usize, prefetch: usize) -> LogicalBatch<Vec<usize>> {
        planted(units, prefetch, Echo { fails_at: None, panics_at: None })
    }

    fn load(batches: PhysicalBatches<Vec<usize>>) -> Vec<Vec<usize>> {
        batches.map(|batch| batch.unwrap().into_parts().0).collect()
    }

    fn planted(units: usize, prefetch: usize, echo: Echo) -> LogicalBatch<Vec<usize>> {
        let indices = (0..units).map(|i| 3 * i).collect();
        let mechanism = SamplingMechanism::Poisson { sampling_probability: 0.3 };
        let draw = Draw::new(5, indices, 3 * units + 1, mechanism, 0).unwrap();
        LogicalBatch::new(draw, Arc::new(echo), (prefetch, 0), &InsecureSeed(0).into())
    }

    #[test]
    fn physical_batches_contain_each_unit_once_at_any_size() {
        for prefetch in [0, 1, 3] {
            for units in [1, 2, 7, 8, 9, 100] {
                for size in [1, 2, 8, 9, 1000] {
                    let batch = batch(units, prefetch);
                    let parts = load(batch.physical_batches(size).unwrap());
                    assert!(parts.iter().all(|part| (1..=size).contains(&part.len())));
                    assert_eq!(parts.len(), units.div_ceil(size));
                    assert_eq!(parts.concat(), batch.draw().private_indices());
                }
            }
        }
    }

    #[test]
    fn the_parts_of_several_devices_are_all_physical_batches() {
        for prefetch in [0, 2] {
            for (units, size, parts) in [(0, 2, 2), (1, 4, 3), (7, 2, 2), (100, 8, 3)] {
                let batch = batch(units, prefetch);
                let whole = load(batch.physical_batches(size).unwrap());
                let mut found = vec![Vec::new(); whole.len()];
                for part in 0..parts {
                    let batches = load(batch.part(size, (part, parts), None).unwrap());
                    for (turn, units) in batches.into_iter().enumerate() {
                        found[part + turn * parts] = units;
                    }
                }
                assert_eq!(found, whole);
            }
        }
    }

    #[test]
    fn an_empty_draw_is_a_step_without_physical_batches() {
        for prefetch in [0, 2] {
            let batch = batch(0, prefetch);
            assert_eq!(batch.step(), 5);
            assert!(batch.physical_batches(4).unwrap().next().is_none());
        }
    }

    #[test]
    fn a_physical_batch_size_of_zero_is_refused_by_name() {
        let error = batch(3, 0).physical_batches(0).unwrap_err().to_string();
        assert!(error.contains("physical_batch_size"), "{error}");
    }

    #[test]
    fn a_failure_is_reported_once_and_ends_the_batch() {
        for prefetch in [0, 2] {
            let batch = planted(9, prefetch, Echo { fails_at: Some(12), panics_at: None });
            let results: Vec<bool> =
                batch.physical_batches(2).unwrap().map(|c| c.is_ok()).collect();
            assert_eq!(results, [true, true, false]);
        }
    }

    #[test]
    #[should_panic(expected = "planted panic")]
    fn a_panic_of_the_background_thread_is_passed_on() {
        let batch = planted(9, 2, Echo { fails_at: None, panics_at: Some(12) });
        let _ = batch.physical_batches(2).unwrap().count();
    }

    #[test]
    fn an_abandoned_batch_does_not_block() {
        let batch = batch(1000, 1);
        let mut batches = batch.physical_batches(1).unwrap();
        assert!(batches.next().unwrap().is_ok());
        drop(batches);
    }

    #[test]
    fn debug_output_does_not_show_the_number_of_units() {
        assert_eq!(format!("{:?}", batch(0, 0)), format!("{:?}", batch(9, 0)));
    }
}
