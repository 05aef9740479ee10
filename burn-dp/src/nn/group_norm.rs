use burn::module::Param;
use burn::nn::{GroupNorm, InstanceNorm};
use burn::tensor::{Tensor, assert_shape};

use super::{Private, affine::affine};

impl Private<GroupNorm> {
    /// Applies the norm over groups of channels.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch_size, num_channels, …]`
    ///
    /// # Panics
    ///
    /// Panics if axis 1 of `input` is not `num_channels`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        group_norm(&self.inner, input)
    }
}

impl Private<InstanceNorm> {
    /// Applies the norm over each channel.
    ///
    /// # Shapes
    ///
    /// - input, output: `[batch_size, num_channels, …]`
    ///
    /// # Panics
    ///
    /// Panics if axis 1 of `input` is not `num_channels`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        instance_norm(&self.inner, input)
    }
}

/// Implements [`Private<GroupNorm>::forward`](Private).
pub(crate) fn group_norm<const D: usize>(layer: &GroupNorm, input: Tensor<D>) -> Tensor<D> {
    let GroupNorm { num_groups, num_channels, epsilon, .. } = *layer;
    let parameters = layer.affine.then_some((&layer.gamma, &layer.beta));
    normalize_groups(input, [num_groups, num_channels], epsilon, parameters)
}

/// Implements [`Private<InstanceNorm>::forward`](Private).
pub(crate) fn instance_norm<const D: usize>(layer: &InstanceNorm, input: Tensor<D>) -> Tensor<D> {
    let InstanceNorm { num_channels, epsilon, .. } = *layer;
    let parameters = layer.affine.then_some((&layer.gamma, &layer.beta));
    normalize_groups(input, [num_channels, num_channels], epsilon, parameters)
}

type Parameter = Option<Param<Tensor<1>>>;

/// Applies Burn's norm without parameters, then the parameters.
fn normalize_groups<const D: usize>(
    input: Tensor<D>,
    [num_groups, num_channels]: [usize; 2],
    epsilon: f64,
    parameters: Option<(&Parameter, &Parameter)>,
) -> Tensor<D> {
    assert_shape!(input, [_, num_channels, ..]);
    let plain =
        GroupNorm { gamma: None, beta: None, num_groups, num_channels, epsilon, affine: false };
    let batch_size = input.dims()[0];
    let normalized = match input.shape().num_elements() {
        0 => return input,
        // Burn refuses an input of at most two values. More examples do not change the result.
        1 | 2 => plain.forward(Tensor::cat(vec![input; 3], 0)).narrow(0, 0, batch_size),
        _ => plain.forward(input),
    };
    match parameters {
        None => normalized,
        Some((Some(gamma), beta)) => affine(normalized, gamma, beta.as_ref(), 1),
        Some((None, _)) => panic!("affine is set to true, but gamma is None"),
    }
}
