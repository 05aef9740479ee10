//! Several augmented copies of every unit.

use std::fmt;
use std::marker::PhantomData;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Device;

use crate::DpError;

/// A batcher that puts K augmented copies of every unit next to each other.
///
/// The losses are then `[units · K]`, and the backward pass is told with
/// [`PrivateBackward::with_group_size`](crate::grads::PrivateBackward::with_group_size) that K rows are one
/// unit: their gradients are averaged before clipping, so a unit counts once and the guarantee is that of
/// one copy.
///
/// # Example
///
/// ```
/// use burn::data::dataloader::batcher::Batcher;
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::sampling::CopiesBatcher;
///
/// struct Rows;
/// impl Batcher<f32, Tensor<1>> for Rows {
///     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
///         Tensor::from_floats(items.as_slice(), device)
///     }
/// }
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let mirrored = |item: &f32, copy: usize| if copy == 0 { *item } else { -item };
/// let batcher = CopiesBatcher::new(Rows, 2, mirrored)?;
/// let batch = batcher.batch(vec![1.0, 5.0], &Device::flex());
/// assert_eq!(batch.into_data().as_slice::<f32>().unwrap(), [1.0, -1.0, 5.0, -5.0]);
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// De, Berrada, Hayes, Smith, Balle, Unlocking high-accuracy differentially private image classification
/// through scale, 2022, section 3.2 (augmentation multiplicity).
pub struct CopiesBatcher<B, F, I> {
    inner: B,
    copies: usize,
    augment: F,
    item: PhantomData<fn(I)>,
}

impl<B, F, I> CopiesBatcher<B, F, I>
where
    F: Fn(&I, usize) -> I + Send + Sync,
{
    /// `copies` times every unit; `augment` makes the copy of that number, from 0, of a unit.
    ///
    /// # Privacy
    ///
    /// A copy may depend on its own unit and on randomness, not on other units.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] for no copy at all.
    pub fn new(inner: B, copies: usize, augment: F) -> Result<Self, DpError> {
        if copies == 0 {
            return Err(DpError::invalid("copies", "must be at least 1, got 0"));
        }
        Ok(Self { inner, copies, augment, item: PhantomData })
    }
}

impl<B, F, I, O> Batcher<I, O> for CopiesBatcher<B, F, I>
where
    B: Batcher<I, O>,
    F: Fn(&I, usize) -> I + Send + Sync,
    I: Send,
{
    fn batch(&self, items: Vec<I>, device: &Device) -> O {
        let copies = items
            .iter()
            .flat_map(|item| (0..self.copies).map(|copy| (self.augment)(item, copy)))
            .collect();
        self.inner.batch(copies, device)
    }
}

impl<B, F, I> fmt::Debug for CopiesBatcher<B, F, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopiesBatcher").field("copies", &self.copies).finish_non_exhaustive()
    }
}
