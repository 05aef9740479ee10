//! The logical batches of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::draw::Draw;
use super::logical_batch::LogicalBatch;
use super::row_loader::RowLoader;
use super::sampler::Sampler;
use super::sampler::sealed::Sealed;
use crate::DpError;

/// The logical batches of a run, one for each step, in order.
///
/// Draws are functions of the key and the step: [`skip_to`](Self::skip_to) with the number of
/// released steps continues a run exactly as if it had not been interrupted.
pub struct LogicalBatches<O> {
    sampler: Box<dyn Sampler>,
    loader: Arc<dyn RowLoader<O>>,
    prefetch: usize,
    source: usize,
    next: u64,
    steps: u64,
}

/// The number of the next [`LogicalBatches`] of this process.
static SOURCES: AtomicUsize = AtomicUsize::new(0);

impl<O> LogicalBatches<O> {
    pub(super) fn new(
        sampler: Box<dyn Sampler>,
        loader: Arc<dyn RowLoader<O>>,
        prefetch: usize,
        steps: u64,
    ) -> Self {
        let source = SOURCES.fetch_add(1, Ordering::Relaxed);
        Self { sampler, loader, prefetch, source, next: 0, steps }
    }

    /// Returns the sampler, which draws the batches and describes the draws for the accountant.
    pub fn sampler(&self) -> &dyn Sampler {
        &*self.sampler
    }

    /// Returns the logical batch of any draw.
    #[cfg(feature = "train")]
    pub(crate) fn with_draw(&self, draw: Draw) -> LogicalBatch<O>
    where
        O: Send + 'static,
    {
        self.of_draw(draw)
    }

    fn of_draw(&self, draw: Draw) -> LogicalBatch<O>
    where
        O: Send + 'static,
    {
        let key = self.sampler.population().key();
        LogicalBatch::new(draw, self.loader.clone(), (self.prefetch, self.source), key)
    }

    /// Continues with `step`, the number of steps that were released so far.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `step` is before the next step, because its units
    /// were already used, or after the last.
    pub fn skip_to(self, step: u64) -> Result<Self, DpError> {
        if !(self.next..=self.steps).contains(&step) {
            return Err(DpError::invalid(
                "step",
                format!("must be from {} to {}, got {step}", self.next, self.steps),
            ));
        }
        Ok(Self { next: step, ..self })
    }
}

impl<O: Send + 'static> Iterator for LogicalBatches<O> {
    type Item = Result<LogicalBatch<O>, DpError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.steps {
            return None;
        }
        let draw = self.sampler.draw(self.next);
        self.next += 1;
        Some(draw.map(|draw| self.of_draw(draw)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.steps - self.next);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

opaque_debug!(LogicalBatches<O>, |this| sampler: this.sampler, next: this.next, steps: this.steps);
