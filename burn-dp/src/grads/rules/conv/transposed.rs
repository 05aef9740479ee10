//! Transposed convolutions.
//!
//! A transposed convolution is the adjoint of a convolution: its kernel slides over the output. Its
//! rule is therefore the rule of that convolution with the input and the output gradient swapped:
//! `Σ_l U(output_grad_i)_l ⊗ input[i, ·, l]`, where `U` are the patches and `l` the input pixels.
//! The rule itself is [`ConvWeight`](super::ConvWeight).
//!
//! # References
//!
//! Dumoulin and Visin, A guide to convolution arithmetic for deep learning, 2016, section 4.

use burn::tensor::Tensor;

/// Returns the image under the kernel and the pixels paired with its positions, from the input and
/// the gradient of the output; and vice versa.
pub(super) fn exchange<const D: usize>(
    transposed: bool,
    first: Tensor<D>,
    second: Tensor<D>,
) -> (Tensor<D>, Tensor<D>) {
    if transposed { (second, first) } else { (first, second) }
}

#[cfg(test)]
mod tests {
    use burn::nn::conv::{ConvTranspose1dConfig, ConvTranspose2dConfig, ConvTranspose3dConfig};
    use proptest::prelude::*;

    use crate::grads::oracle::{cases, check_convolution};
    use crate::test_devices::training_devices;

    #[test]
    fn every_option_of_conv_transpose2d_equals_the_loop_over_examples() {
        let config = || ConvTranspose2dConfig::new([4, 6], [3, 2]);
        for device in training_devices() {
            for config in [
                config(),
                config().with_bias(false),
                config().with_stride([2, 3]),
                config().with_stride([2, 3]).with_padding_out([1, 2]),
                config().with_dilation([2, 2]),
                config().with_groups(2),
                config().with_padding([1, 1]),
                config().with_padding([1, 0]).with_stride([2, 2]).with_padding_out([1, 1]),
                config()
                    .with_padding([1, 1])
                    .with_stride([2, 1])
                    .with_dilation([1, 2])
                    .with_groups(2),
            ] {
                check_convolution!(config, [3, 4, 3, 4], &device);
            }
        }
    }

    #[test]
    fn every_option_of_conv_transpose1d_equals_the_loop_over_examples() {
        let config = || ConvTranspose1dConfig::new([4, 2], 3);
        for device in training_devices() {
            for config in [
                config(),
                config().with_stride(2).with_padding_out(1),
                config().with_padding(1).with_dilation(2),
                config().with_groups(2).with_bias(false),
            ] {
                check_convolution!(config, [3, 4, 5], &device);
            }
        }
    }

    #[test]
    fn every_option_of_conv_transpose3d_equals_the_loop_over_examples() {
        let config = || ConvTranspose3dConfig::new([2, 4], [2, 3, 2]);
        for device in training_devices() {
            for config in [
                config(),
                config().with_stride([2, 1, 2]).with_padding_out([1, 0, 1]),
                config().with_padding([1, 0, 1]).with_groups(2),
                config().with_bias(false).with_dilation([1, 2, 2]),
            ] {
                check_convolution!(config, [2, 2, 2, 3, 3], &device);
            }
        }
    }

    proptest! {
        #![proptest_config(cases(8))]

        #[test]
        fn random_conv_transpose2d_equals_the_loop_over_examples(
            batch_size in 1usize..4,
            groups in 1usize..3,
            channels in [1usize..3, 1usize..3],
            kernel in [1usize..4, 1usize..4],
            stride in [1usize..4, 1usize..4],
            dilation in [1usize..3, 1usize..3],
            padding in [0usize..2, 0usize..2],
            size in [3usize..6, 3usize..6],
        ) {
            let channels = channels.map(|channels| channels * groups);
            let config = ConvTranspose2dConfig::new(channels, kernel)
                .with_stride(stride)
                .with_dilation(dilation)
                .with_groups(groups)
                .with_padding(padding)
                .with_padding_out(stride.map(|stride| stride - 1));
            for device in training_devices() {
                let input = [batch_size, channels[0], size[0], size[1]];
                check_convolution!(config, input, &device);
            }
        }
    }
}
