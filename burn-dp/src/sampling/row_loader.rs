//! Loading the units of one physical batch.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Device;

use super::example_choice::ExampleChoice;
use super::records::{DistinctRecords, RecordFacts};
use crate::DpError;
use crate::ops::has_kernels;

/// Loads units into one physical batch. Hides the types of the item and of the data set's error.
pub(crate) trait RowLoader<O>: Send + Sync {
    /// Loads the units `indices` of one step into `rows` rows, on `device` or, if `None`, on the
    /// device of the loader. Returns the batch and the number of its rows: a loader without padding
    /// has one row for each unit, and loads no batch without units.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Dataset`] if an item cannot be loaded, and [`DpError::InvalidArgument`]
    /// if the data set returns another number of items, or a record that changed.
    fn load(
        &self,
        indices: &[usize],
        rows: usize,
        device: Option<&Device>,
        choice: &ExampleChoice,
    ) -> Result<(O, usize), DpError>;

    /// Returns whether every batch is to have the same number of rows.
    ///
    /// # Arguments
    ///
    /// - `computes`: whether the library computes the losses itself, so that no loop can mistake a
    ///   padding row for a unit
    /// - `device`: as in [`load`](Self::load)
    fn padding(&self, computes: bool, device: Option<&Device>) -> PaddingChoice;

    /// Returns what the data set states about its records.
    fn records(&self) -> &RecordFacts;
}

/// Whether physical batches have a fixed number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaddingChoice {
    No,
    /// The requested number.
    Asked,
    /// At most the usual size of a draw.
    Usual,
}

/// The content of the padding rows in a physical batch of fixed size.
pub(super) enum Padding<I> {
    /// The first unit again where the library computes the losses itself, on a device that compiles
    /// its kernels; otherwise there are no padding rows.
    Automatic,
    /// There are no padding rows.
    None,
    /// The first unit of the physical batch again, or item 0 of the data set if there is none.
    Repeat,
    /// An item that the user creates.
    Item(Arc<dyn Fn() -> I + Send + Sync>),
}

/// Loads units of a data set with Burn's batcher.
pub(super) struct DatasetLoader<D, I, E, O> {
    pub(super) dataset: D,
    pub(super) records: RecordFacts,
    pub(super) batcher: Arc<dyn Batcher<I, O>>,
    pub(super) padding: Padding<I>,
    pub(super) device: Device,
    pub(super) error: PhantomData<fn() -> E>,
}

impl<D, I, E, O> RowLoader<O> for DatasetLoader<D, I, E, O>
where
    D: DistinctRecords<I, E>,
    I: Send,
    E: std::error::Error + Send + Sync + 'static,
{
    fn load(
        &self,
        indices: &[usize],
        rows: usize,
        device: Option<&Device>,
        choice: &ExampleChoice,
    ) -> Result<(O, usize), DpError> {
        let failed = |error: E| DpError::Dataset { source: Box::new(error) };
        let load = |indices| self.dataset.items_of_step(indices, choice).map_err(failed);
        let mut items = load(indices.to_vec())?;
        if items.len() != indices.len() {
            return Err(DpError::invalid(
                "dataset",
                format!(
                    "must return one item for each index, got {} items for {} indices",
                    items.len(),
                    indices.len()
                ),
            ));
        }
        for (&index, item) in indices.iter().zip(&items) {
            self.dataset.check_record(index, item)?;
        }
        while items.len() < rows {
            match &self.padding {
                Padding::None => break,
                // Without units, any item has the right shape.
                Padding::Automatic | Padding::Repeat => {
                    items.extend(load(vec![indices.first().map_or(0, |&i| i)])?)
                }
                Padding::Item(item) => items.push(item()),
            }
        }
        let (device, rows) = (device.unwrap_or(&self.device), items.len());
        Ok((self.batcher.batch(items, device), rows))
    }

    fn padding(&self, computes: bool, device: Option<&Device>) -> PaddingChoice {
        match self.padding {
            Padding::Automatic if computes && has_kernels(device.unwrap_or(&self.device)) => {
                PaddingChoice::Usual
            }
            Padding::Automatic | Padding::None => PaddingChoice::No,
            Padding::Repeat | Padding::Item(_) => PaddingChoice::Asked,
        }
    }

    fn records(&self) -> &RecordFacts {
        &self.records
    }
}
