//! The data of one step, worked off in physical batches.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use burn::tensor::Device;

use super::loader::LoadRows;
use super::{Draw, PhysicalBatch};
use crate::DpError;

/// The units of one step and the way to load them.
///
/// One logical batch is one noisy release. It may be empty, then there is no physical batch, and the
/// step still has to be made: noise alone.
///
/// # Privacy
///
/// The number of units is private; the type does not tell it. Nothing is loaded before
/// [`physical_batches`](Self::physical_batches) asks for it.
pub struct LogicalBatch<O> {
    draw: Draw,
    load: Arc<dyn LoadRows<O>>,
    prefetch: usize,
}

impl<O: Send + 'static> LogicalBatch<O> {
    pub(crate) fn new(draw: Draw, load: Arc<dyn LoadRows<O>>, prefetch: usize) -> Self {
        Self { draw, load, prefetch }
    }

    /// The step that the batch belongs to.
    pub fn step(&self) -> u64 {
        self.draw.step()
    }

    /// The drawn units.
    pub fn draw(&self) -> &Draw {
        &self.draw
    }

    /// The physical batches: every unit in exactly one, at most `physical_batch_size` rows in each,
    /// exactly as many if the loader pads. The result of the step does not depend on the size.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] if `physical_batch_size` is 0, [`DpError::Io`] if the background
    /// thread cannot be started.
    pub fn physical_batches(
        &self,
        physical_batch_size: usize,
    ) -> Result<PhysicalBatches<O>, DpError> {
        self.part(physical_batch_size, (0, 1), None)
    }

    /// Every `parts`-th of the physical batches from number `part` on, on `device`: those of all parts
    /// together are [`physical_batches`](Self::physical_batches).
    pub(crate) fn part(
        &self,
        physical_batch_size: usize,
        (part, parts): (usize, usize),
        device: Option<Device>,
    ) -> Result<PhysicalBatches<O>, DpError> {
        if physical_batch_size == 0 {
            return Err(DpError::invalid("physical_batch_size", "must be at least 1, got 0"));
        }
        let direct = Direct {
            indices: self.draw.private_indices().to_vec(),
            next: part.saturating_mul(physical_batch_size),
            size: physical_batch_size,
            stride: parts.saturating_mul(physical_batch_size),
            load: self.load.clone(),
            device,
        };
        let source = if self.prefetch == 0 {
            Source::Direct(Box::new(direct))
        } else {
            Source::background(direct, self.prefetch)?
        };
        Ok(PhysicalBatches { source })
    }
}

impl<O> From<LogicalBatch<O>> for Draw {
    fn from(batch: LogicalBatch<O>) -> Self {
        batch.draw
    }
}

impl<O> fmt::Debug for LogicalBatch<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogicalBatch").field("step", &self.draw.step()).finish_non_exhaustive()
    }
}

/// The physical batches of one logical batch, in the order of the units.
///
/// Ends after the first error: a step of which a part could not be loaded must not be released.
pub struct PhysicalBatches<O> {
    source: Source<O>,
}

impl<O> fmt::Debug for PhysicalBatches<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhysicalBatches").finish_non_exhaustive()
    }
}

enum Source<O> {
    /// Loaded when asked for.
    Direct(Box<Direct<O>>),
    /// Loaded ahead by a thread, as many batches as the channel holds.
    Background(Receiver<Result<PhysicalBatch<O>, DpError>>, JoinHandle<()>),
    /// All delivered, or failed.
    Done,
}

struct Direct<O> {
    indices: Vec<usize>,
    next: usize,
    size: usize,
    /// From the first unit of a batch to that of the next.
    stride: usize,
    load: Arc<dyn LoadRows<O>>,
    device: Option<Device>,
}

impl<O: Send + 'static> Source<O> {
    fn background(direct: Direct<O>, prefetch: usize) -> Result<Self, DpError> {
        let (sender, receiver) = sync_channel(prefetch);
        let thread = std::thread::Builder::new()
            .name("burn-dp-loader".into())
            .spawn(move || {
                for batch in direct {
                    // Nobody listens when the rest of the step was given up.
                    if sender.send(batch).is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| DpError::io("thread burn-dp-loader", error))?;
        Ok(Self::Background(receiver, thread))
    }
}

impl<O> Iterator for Direct<O> {
    type Item = Result<PhysicalBatch<O>, DpError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.indices.get(self.next..).filter(|rest| !rest.is_empty())?;
        let chunk = &rest[..rest.len().min(self.size)];
        let batch = self.load.load(chunk, self.size, self.device.as_ref());
        self.next = match batch.is_ok() {
            true => self.next.saturating_add(self.stride),
            false => self.indices.len(),
        };
        Some(batch)
    }
}

impl<O> Iterator for PhysicalBatches<O> {
    type Item = Result<PhysicalBatch<O>, DpError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = match &mut self.source {
            Source::Direct(direct) => direct.next(),
            Source::Background(receiver, _) => receiver.recv().ok(),
            Source::Done => None,
        };
        if item.is_none()
            && let Source::Background(_, thread) = std::mem::replace(&mut self.source, Source::Done)
            && let Err(panic) = thread.join()
        {
            // The batcher or the data set panicked there. To end here would drop units in silence.
            std::panic::resume_unwind(panic);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sampling::{ExampleWeights, SamplingMechanism};

    /// Gives the indices back; fails or panics on one unit if told to.
    struct Echo {
        fails_at: Option<usize>,
        panics_at: Option<usize>,
    }

    impl LoadRows<Vec<usize>> for Echo {
        fn load(
            &self,
            indices: &[usize],
            _: usize,
            _: Option<&Device>,
        ) -> Result<PhysicalBatch<Vec<usize>>, DpError> {
            if self.fails_at.is_some_and(|unit| indices.contains(&unit)) {
                return Err(DpError::state("planted"));
            }
            assert!(!self.panics_at.is_some_and(|unit| indices.contains(&unit)), "planted panic");
            let weights = ExampleWeights::new(indices.len(), indices.len(), Device::default());
            Ok(PhysicalBatch::new(indices.to_vec(), weights))
        }
    }

    fn batch(units: usize, prefetch: usize) -> LogicalBatch<Vec<usize>> {
        planted(units, prefetch, Echo { fails_at: None, panics_at: None })
    }

    fn planted(units: usize, prefetch: usize, echo: Echo) -> LogicalBatch<Vec<usize>> {
        let indices = (0..units).map(|i| 3 * i).collect();
        let mechanism = SamplingMechanism::Poisson { sampling_probability: 0.3 };
        let draw = Draw::new(5, indices, 3 * units + 1, mechanism, 0).unwrap();
        LogicalBatch::new(draw, Arc::new(echo), prefetch)
    }

    #[test]
    fn chunks_cover_each_unit_once_whatever_their_size_and_the_prefetching() {
        for prefetch in [0, 1, 3] {
            for units in [1, 2, 7, 8, 9, 100] {
                for size in [1, 2, 8, 9, 1000] {
                    let batch = batch(units, prefetch);
                    let chunks: Vec<_> = batch
                        .physical_batches(size)
                        .unwrap()
                        .map(|c| c.unwrap().into_parts().0)
                        .collect();
                    assert!(chunks.iter().all(|c| (1..=size).contains(&c.len())));
                    assert_eq!(chunks.len(), units.div_ceil(size));
                    assert_eq!(chunks.concat(), batch.draw().private_indices());
                }
            }
        }
    }

    #[test]
    fn the_parts_of_several_devices_are_the_chunks_of_one_in_turn() {
        for prefetch in [0, 2] {
            for (units, size, parts) in [(0, 2, 2), (1, 4, 3), (7, 2, 2), (100, 8, 3)] {
                let batch = batch(units, prefetch);
                let load = |chunks: PhysicalBatches<_>| -> Vec<Vec<usize>> {
                    chunks.map(|chunk| chunk.unwrap().into_parts().0).collect()
                };
                let whole = load(batch.physical_batches(size).unwrap());
                let mut found = vec![Vec::new(); whole.len()];
                for part in 0..parts {
                    let chunks = load(batch.part(size, (part, parts), None).unwrap());
                    for (turn, chunk) in chunks.into_iter().enumerate() {
                        found[part + turn * parts] = chunk;
                    }
                }
                assert_eq!(found, whole);
            }
        }
    }

    #[test]
    fn an_empty_draw_has_no_chunk_and_still_is_a_step() {
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
    fn a_panic_of_the_background_thread_arrives_instead_of_a_shorter_batch() {
        let batch = planted(9, 2, Echo { fails_at: None, panics_at: Some(12) });
        let _ = batch.physical_batches(2).unwrap().count();
    }

    #[test]
    fn a_batch_that_is_given_up_does_not_block() {
        let batch = batch(1000, 1);
        let mut chunks = batch.physical_batches(1).unwrap();
        assert!(chunks.next().unwrap().is_ok());
        drop(chunks);
    }

    #[test]
    fn the_debug_output_does_not_show_the_number_of_units() {
        assert_eq!(format!("{:?}", batch(0, 0)), format!("{:?}", batch(9, 0)));
    }
}
