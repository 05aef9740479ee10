//! The physical batches of a logical batch, one after another.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use burn::tensor::Device;

use super::draw::{Draw, DrawPart};
use super::example_choice::ExampleChoice;
use super::physical_batch::PhysicalBatch;
use super::row_loader::RowLoader;
use crate::DpError;

/// The physical batches of one logical batch, in the order of the units.
///
/// Ends after the first error: a step must not be released if a part of it could not be loaded.
pub struct PhysicalBatches<O> {
    source: Source<O>,
}

enum Source<O> {
    /// Loaded when requested.
    Direct(Box<UnitLoader<O>>),
    /// Loaded ahead by a thread, as many batches as the channel holds.
    Background(Receiver<Result<PhysicalBatch<O>, DpError>>, JoinHandle<()>),
    /// All delivered, or failed.
    Done,
}

/// Loads some of the units of a logical batch.
pub(super) struct UnitLoader<O> {
    pub(super) draw: Draw,
    pub(super) next: usize,
    pub(super) size: usize,
    /// Whether every batch has `size` rows.
    pub(super) pads: bool,
    /// Distance between the first units of two consecutive batches.
    pub(super) stride: usize,
    pub(super) loader: Arc<dyn RowLoader<O>>,
    pub(super) device: Option<Device>,
    pub(super) choice: ExampleChoice,
}

impl<O: Send + 'static> PhysicalBatches<O> {
    /// Returns the batches of `units`, with up to `prefetch` of them loaded ahead; in a browser,
    /// which has no threads, none is loaded ahead.
    pub(super) fn new(units: UnitLoader<O>, prefetch: usize) -> Result<Self, DpError> {
        if prefetch == 0 || cfg!(target_family = "wasm") {
            return Ok(Self { source: Source::Direct(Box::new(units)) });
        }
        let (sender, receiver) = sync_channel(prefetch);
        let thread = std::thread::Builder::new()
            .name("burn-dp-loader".into())
            .spawn(move || {
                for batch in units {
                    // The receiver is gone if the rest of the step was abandoned.
                    if sender.send(batch).is_err() {
                        return;
                    }
                }
            })
            .map_err(DpError::Thread)?;
        Ok(Self { source: Source::Background(receiver, thread) })
    }
}

impl<O> Iterator for UnitLoader<O> {
    type Item = Result<PhysicalBatch<O>, DpError>;

    fn next(&mut self) -> Option<Self::Item> {
        let count = self.draw.private_indices().len();
        // With padding, a public maximum size is the number of rows of every draw.
        let places = match self.draw.mechanism().max_batch_size() {
            Some(places) if self.pads => places,
            _ => count,
        };
        if self.next >= places {
            return None;
        }
        let range = count.min(self.next)..count.min(self.next.saturating_add(self.size));
        let units = &self.draw.private_indices()[range.clone()];
        let rows = if self.pads { self.size } else { units.len() };
        let loaded = self.loader.load(units, rows, self.device.as_ref(), &self.choice);
        self.next = match loaded.is_ok() {
            true => self.next.saturating_add(self.stride),
            false => places,
        };
        Some(loaded.map(|(batch, rows)| {
            let part = DrawPart::of(self.draw.clone(), range).with_rows(rows);
            PhysicalBatch::new(batch, part.with_records(self.loader.records().clone()))
        }))
    }
}

impl<O> Iterator for PhysicalBatches<O> {
    type Item = Result<PhysicalBatch<O>, DpError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = match &mut self.source {
            Source::Direct(units) => units.next(),
            Source::Background(receiver, _) => receiver.recv().ok(),
            Source::Done => None,
        };
        if item.is_none()
            && let Source::Background(_, thread) = std::mem::replace(&mut self.source, Source::Done)
            && let Err(panic) = thread.join()
        {
            // The batcher or the data set panicked. An end without a panic would drop units
            // silently.
            std::panic::resume_unwind(panic);
        }
        item
    }
}

opaque_debug!(PhysicalBatches<O>);
