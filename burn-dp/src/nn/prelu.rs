use burn::nn::PRelu;
use burn::tensor::{Tensor, activation};

use super::Private;
use crate::ops::{self, Primitive};

impl Private<PRelu> {
    /// Applies the activation: negative values are scaled by the parameter.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch_size, channels, …]`; any shape with a batch axis if the layer has
    ///   one parameter
    ///
    /// # Panics
    ///
    /// Panics if the layer has several parameters and axis 1 of `input` has another length.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        prelu(&self.inner, input)
    }
}

/// See [`Private<PRelu>::forward`](Private).
pub(crate) fn prelu<const D: usize>(layer: &PRelu, input: Tensor<D>) -> Tensor<D> {
    let axis = (layer.alpha.dims() != [1]).then_some(1);
    let kept = input.clone();
    ops::apply(
        &layer.alpha,
        None,
        Primitive::Scale { axis, negative: true },
        || ops::keep(kept),
        |alpha, _| activation::prelu(input, alpha),
    )
}
