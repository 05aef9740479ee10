use burn::module::Param;
use burn::nn::{BatchNorm, GroupNorm, GroupNormConfig, InstanceNorm};
use burn::tensor::{DType, Tensor, assert_shape};

use super::{Private, affine::affine, backend::has_native_kernels};
use crate::ops;

impl Private<GroupNorm> {
    /// Creates the layer that replaces a BatchNorm.
    ///
    /// Scale, shift, epsilon, and paths are kept, so gamma and beta of a record of `layer` can be
    /// loaded. The running statistics have no counterpart and are dropped: the outputs change, and
    /// a pre-trained network needs some training to recover. There are 32 groups, or the largest
    /// smaller number that divides both 32 and the number of channels.
    ///
    /// # References
    ///
    /// Wu and He, Group normalization, 2018 (32 groups).
    pub fn in_place_of(layer: BatchNorm) -> Self {
        let [num_channels] = layer.gamma.dims();
        let num_groups = 1 << num_channels.trailing_zeros().min(5);
        let config = GroupNormConfig::new(num_groups, num_channels).with_epsilon(layer.epsilon);
        let GroupNorm { num_groups, num_channels, epsilon, affine, .. } =
            config.init(&layer.gamma.lazy_device());
        let (gamma, beta) = (Some(layer.gamma), Some(layer.beta));
        Self::new(GroupNorm { gamma, beta, num_groups, num_channels, epsilon, affine })
    }

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
        _ if input.dtype() == DType::F32 && has_native_kernels(&input.device()) => {
            let shape = input.shape();
            let groups = input.reshape([batch_size as i32, num_groups as i32, -1]);
            ops::row_normalize(groups, epsilon).reshape(shape)
        }
        // Burn rejects an input of at most two values. More examples do not change the result.
        1 | 2 => plain.forward(Tensor::cat(vec![input; 3], 0)).narrow(0, 0, batch_size),
        _ => plain.forward(input),
    };
    match parameters {
        None => normalized,
        Some((Some(gamma), beta)) => affine(normalized, gamma, beta.as_ref(), 1),
        Some((None, _)) => panic!("affine is set to true, but gamma is None"),
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::BatchNormConfig;
    use burn::tensor::{Device, Distribution};

    use super::*;
    use crate::nn::IntoPrivate;

    #[test]
    fn group_norm_in_place_of_a_batch_norm_keeps_scale_shift_and_epsilon() {
        let device = Device::flex().autodiff();
        for (channels, groups) in [(64, 32), (48, 16), (6, 2), (7, 1), (1, 1)] {
            let mut batch_norm = BatchNormConfig::new(channels).with_epsilon(1e-3).init(&device);
            let values = || Tensor::random([channels], Distribution::Default, &device);
            batch_norm.gamma = Param::from_tensor(values());
            batch_norm.beta = Param::from_tensor(values());
            let layer = Private::<GroupNorm>::in_place_of(batch_norm.clone()).into_inner();
            assert_eq!((layer.num_groups, layer.num_channels), (groups, channels));
            assert_eq!(layer.epsilon, 1e-3);
            for (found, expected) in
                [(&layer.gamma, &batch_norm.gamma), (&layer.beta, &batch_norm.beta)]
            {
                let found = found.as_ref().expect("the layer is affine");
                assert_eq!(found.id, expected.id);
                found.val().into_data().assert_eq(&expected.val().into_data(), true);
            }
            let output = layer.private().forward(Tensor::<4>::ones([2, channels, 3, 3], &device));
            assert_eq!(output.dims(), [2, channels, 3, 3]);
        }
    }
}
