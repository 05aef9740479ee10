//! Scale and shift along one axis: the affine part of a norm.

use burn::module::Param;
use burn::tensor::Tensor;

use crate::ops::{self, Primitive};

/// Returns `input · gamma + beta` along `axis`.
///
/// # Shapes
///
/// - input, output: `[batch_size, …]`
/// - gamma, beta: `[length of axis]`
pub(crate) fn affine<const D: usize>(
    input: Tensor<D>,
    gamma: &Param<Tensor<1>>,
    beta: Option<&Param<Tensor<1>>>,
    axis: usize,
) -> Tensor<D> {
    assert!(axis > 0 && axis < D, "a private norm needs a batch axis, got rank {D}");
    let kept = input.clone();
    ops::apply(
        gamma,
        beta,
        Primitive::Scale { axis: Some(axis), negative: false },
        || ops::keep(kept),
        |gamma, beta| ops::affine(input, gamma, beta, axis),
    )
}
