use burn::nn::Dropout;
use burn::tensor::{Tensor, TensorData};

use super::private::Private;
use super::unit_scope::{count_unkeyed, unit_words};
use crate::ops;

impl Private<Dropout> {
    /// Applies the layer: sets random values to zero during training, and scales the others.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, …]`
    /// - output: the shape of the input
    ///
    /// # Privacy
    ///
    /// In a private step, the mask of a unit is derived from the key of the run, the step, the
    /// unit, the path of the layer, and the position of the value, through ChaCha12. It does not
    /// depend on the other units in the batch. Burn's own layer takes the next values of the
    /// device's generator for each row: with a known seed, removing one unit changes the masks of
    /// all units after it.
    ///
    /// The units are known inside the closures of
    /// [`DpOptimizer::backward_batch`](crate::optim::DpOptimizer::backward_batch), `backward`,
    /// `unit_updates` and `backward_each`, in federated rounds, and in `PrivateTraining`.
    /// Elsewhere, in training mode, the layer draws from the device like Burn's layer, and a
    /// private backward pass through it is rejected.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::nn::DropoutConfig;
    /// use burn::tensor::{Device, Tensor};
    /// use burn_dp::nn::IntoPrivate;
    ///
    /// let dropout = DropoutConfig::new(0.5).init().private();
    /// let x = Tensor::<2>::ones([2, 3], &Device::flex());
    /// // Without autodiff it is the identity.
    /// dropout.forward(x.clone()).into_data().assert_eq(&x.into_data(), true);
    /// ```
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        dropout(&self.inner, input)
    }
}

/// Computes the forward pass of the layer on its own or as part of another layer.
pub(super) fn dropout<const D: usize>(layer: &Dropout, input: Tensor<D>) -> Tensor<D> {
    let training = layer.training.is_enabled() && input.device().is_autodiff();
    if !training || layer.prob == 0.0 {
        return input;
    }
    let keep = 1.0 - layer.prob;
    let Some(words) = unit_words(layer.training.id, &input.dims()) else {
        count_unkeyed();
        return ops::mark_unkeyed(layer.forward(input), layer.training.id);
    };
    // The probability that a word is below this is the probability of keeping a value, up to 2^-32.
    let limit = (keep * 2f64.powi(32)).round() as u64;
    let scale = (1.0 / keep) as f32;
    let mask = |word| if u64::from(word) < limit { scale } else { 0.0 };
    let mask: Vec<f32> = words.into_iter().map(mask).collect();
    let mask = TensorData::new(mask, input.dims());
    let mask = Tensor::from_data(mask, (&input.device(), input.dtype()));
    input * mask
}
