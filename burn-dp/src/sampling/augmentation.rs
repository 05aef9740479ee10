//! Several augmentations of every unit.

use std::marker::PhantomData;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Device;

use crate::DpError;

/// A batcher that puts K augmentations of every unit into consecutive rows.
///
/// The losses are then `[units · K]`, and `PrivateBackward::with_group_size` declares that K rows
/// are one unit: their gradients are averaged before clipping, so a unit contributes once and the
/// guarantee does not depend on K.
///
/// # Example
///
/// ```
/// use burn::data::dataloader::batcher::Batcher;
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::sampling::AugmentationBatcher;
///
/// struct Rows;
/// impl Batcher<f32, Tensor<1>> for Rows {
///     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
///         Tensor::from_floats(items.as_slice(), device)
///     }
/// }
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let mirrored = |item: &f32, number: usize| if number == 0 { *item } else { -item };
/// let batcher = AugmentationBatcher::new(Rows, 2, mirrored)?;
/// let batch = batcher.batch(vec![1.0, 5.0], &Device::flex());
/// assert_eq!(batch.into_data().as_slice::<f32>().unwrap(), [1.0, -1.0, 5.0, -5.0]);
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// S. De, L. Berrada, J. Hayes, S. L. Smith, B. Balle, "Unlocking High-Accuracy Differentially
/// Private Image Classification through Scale", 2022, section 3.2 (augmentation multiplicity).
pub struct AugmentationBatcher<B, F, I> {
    inner: B,
    multiplicity: usize,
    augment: F,
    item: PhantomData<fn(I)>,
}

impl<B, F, I> AugmentationBatcher<B, F, I>
where
    F: Fn(&I, usize) -> I + Send + Sync,
{
    /// Returns a batcher with `multiplicity` augmentations of every unit.
    ///
    /// # Arguments
    ///
    /// - `inner`: creates the batch from the augmented items
    /// - `multiplicity`: K, the number of augmentations of a unit
    /// - `augment`: returns the augmentation of an item for a number from 0 to K - 1
    ///
    /// # Privacy
    ///
    /// An augmentation must depend only on its own item and its number. Values from a generator
    /// that all items share would depend on the items before; derive them from the item instead,
    /// for example from an index that it contains. The test of independence [by
    /// value](crate::optim::IndependenceCheck) rejects augmentations that differ when an item is
    /// loaded again.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `multiplicity` is 0.
    pub fn new(inner: B, multiplicity: usize, augment: F) -> Result<Self, DpError> {
        if multiplicity == 0 {
            return Err(DpError::invalid("multiplicity", "must be at least 1, got 0"));
        }
        Ok(Self { inner, multiplicity, augment, item: PhantomData })
    }
}

impl<B, F, I, O> Batcher<I, O> for AugmentationBatcher<B, F, I>
where
    B: Batcher<I, O>,
    F: Fn(&I, usize) -> I + Send + Sync,
    I: Send,
{
    fn batch(&self, items: Vec<I>, device: &Device) -> O {
        let augmented = items
            .iter()
            .flat_map(|item| (0..self.multiplicity).map(|number| (self.augment)(item, number)))
            .collect();
        self.inner.batch(augmented, device)
    }
}

opaque_debug!(AugmentationBatcher<B, F, I>, |this| multiplicity: this.multiplicity);
