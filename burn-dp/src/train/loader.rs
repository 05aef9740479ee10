//! The data loader of `SupervisedTraining`.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;

use super::PrivateBatch;
use super::session::Session;
use crate::DpError;
use crate::sampling::LogicalBatches;

/// Draws the logical batches of a run for Burn's loops.
///
/// One item is one logical batch of any size, or one device's part of it; an empty batch is an item
/// like any other. The iterations of the loop are therefore the steps of the plan, the learning
/// rate scheduler ticks once per step, and neither reveals how many units were drawn.
///
/// [`slice`](DataLoader::slice) splits every draw among as many devices as there are slices, which
/// take the physical batches in turn.
pub(super) struct PrivateDataLoader<O> {
    session: Arc<Session>,
    batches: Arc<LogicalBatches<O>>,
    device: Option<Device>,
    slice: Arc<Slice>,
    /// The slices of the data set that are in use.
    slices: Arc<Mutex<Vec<Weak<Slice>>>>,
}

/// Items `start..end` of the data set.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
struct Slice {
    start: usize,
    end: usize,
}

impl<O: Send + 'static> PrivateDataLoader<O> {
    pub(super) fn new(session: Arc<Session>, batches: LogicalBatches<O>) -> Self {
        let slice = Slice { start: 0, end: batches.sampler().dataset_size() };
        Self {
            session,
            batches: Arc::new(batches),
            device: None,
            slice: Arc::new(slice),
            slices: Arc::default(),
        }
    }

    /// Returns the number of this slice, and the number of slices.
    fn part(&self) -> Result<(usize, usize), DpError> {
        let size = self.batches.sampler().dataset_size();
        if *self.slice == (Slice { start: 0, end: size }) {
            return Ok((0, 1));
        }
        let slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slices: Vec<Slice> =
            slices.iter().filter_map(Weak::upgrade).map(|slice| *slice).collect();
        slices.sort();
        let mut end = 0;
        let whole = slices.iter().all(|slice| {
            let follows = slice.start == end;
            end = slice.end;
            follows
        });
        match slices.iter().position(|slice| *slice == *self.slice) {
            Some(part) if whole && end == size => Ok((part, slices.len())),
            _ => Err(DpError::state(format!(
                "the slices {slices:?} are not the {size} items of the data set, each once; a part \
                 of every draw would be left out or counted twice"
            ))),
        }
    }
}

impl<O: Send + 'static> DataLoader<PrivateBatch<O>> for PrivateDataLoader<O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<PrivateBatch<O>> + 'a> {
        let steps = self.session.rest_of_epoch();
        if steps == 0 {
            let steps = self.session.with_engine(|engine| engine.plan.steps());
            self.session.stop(format!("all {steps} planned steps were made"));
        }
        Box::new(PrivateIterator { loader: self, steps, made: 0, part: None })
    }

    fn num_items(&self) -> usize {
        self.slice.end - self.slice.start
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<PrivateBatch<O>>> {
        Arc::new(Self {
            session: self.session.clone(),
            batches: self.batches.clone(),
            device: Some(device.clone()),
            slice: self.slice.clone(),
            slices: self.slices.clone(),
        })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<PrivateBatch<O>>> {
        let slice = Arc::new(Slice { start, end });
        let mut slices = self.slices.lock().unwrap_or_else(PoisonError::into_inner);
        slices.retain(|slice| slice.strong_count() > 0);
        slices.push(Arc::downgrade(&slice));
        Arc::new(Self {
            session: self.session.clone(),
            batches: self.batches.clone(),
            device: self.device.clone(),
            slice,
            slices: self.slices.clone(),
        })
    }
}

/// The remaining steps of an epoch.
struct PrivateIterator<'a, O> {
    loader: &'a PrivateDataLoader<O>,
    steps: u64,
    made: u64,
    part: Option<(usize, usize)>,
}

impl<O: Send + 'static> PrivateIterator<'_, O> {
    fn load(&mut self) -> Result<Option<PrivateBatch<O>>, DatasetError> {
        let session = &self.loader.session;
        let (part, parts) = match self.part {
            Some(part) => part,
            None => self.loader.part().map_err(DatasetError::new)?,
        };
        self.part = Some((part, parts));
        let begun = session.begin(part, parts).map_err(DatasetError::new)?;
        Ok(begun.map(|begun| PrivateBatch {
            batch: self.loader.batches.with_draw(begun.draw),
            part: (part, parts),
            device: self.loader.device.clone(),
            slot: begun.slot,
        }))
    }
}

impl<O: Send + 'static> Iterator for PrivateIterator<'_, O> {
    type Item = Result<PrivateBatch<O>, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.made == self.steps {
            return None;
        }
        let item = self.load().transpose();
        self.made = if item.is_some() { self.made + 1 } else { self.steps };
        item
    }
}

impl<O: Send + 'static> DataLoaderIterator<PrivateBatch<O>> for PrivateIterator<'_, O> {
    /// Returns the progress within the epoch, in items of the data set, which the loop counts.
    fn progress(&self) -> Progress {
        let items = self.loader.num_items();
        let epoch = self.loader.session.steps_per_epoch.max(self.steps);
        let left = (self.steps - self.made) as u128 * items as u128 / u128::from(epoch.max(1));
        Progress::new(items - left as usize, items, Some("items".to_string()))
    }
}

opaque_debug!(PrivateDataLoader<O>, |this| slice: this.slice);
