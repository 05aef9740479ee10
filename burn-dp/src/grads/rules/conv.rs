use burn::tensor::module::conv2d_weight_backward;
use burn::tensor::ops::{ConvOptions, PadMode};
use burn::tensor::{Slice, Tensor};

use super::linear::ghost_norms;
use super::{Cost, SquaredNorms};

/// The weight of a two-dimensional convolution.
///
/// With `U` the patches that the kernel sees (im2col), the gradient of example i is
/// `Σ_l U(input_i)_l ⊗ output_grad[i, ·, l]`, per group: the linear rule with output pixels as
/// positions.
///
/// # References
///
/// Rochette, Manoel, Tramel, Efficient per-example gradient computations in convolutional neural
/// networks, 2019; Lee and Kifer 2021, section 5.2.
#[derive(Clone, Debug)]
pub(crate) struct ConvWeight {
    /// `[batch_size, channels_in, height, width]`.
    pub(crate) input: Tensor<4>,
    /// `[batch_size, channels_out, height_out, width_out]`.
    pub(crate) output_grad: Tensor<4>,
    /// `[channels_out, channels_in / groups, kernel_height, kernel_width]`.
    pub(crate) weight: [usize; 4],
    /// Options of the forward pass.
    pub(crate) options: ConvOptions<2>,
}

impl ConvWeight {
    fn sizes(&self) -> Sizes {
        let [batch_size, channels_out, height, width] = self.output_grad.dims();
        let groups = self.options.groups;
        let [_, channels, kernel_height, kernel_width] = self.weight;
        Sizes {
            batch_size,
            groups,
            positions: height * width,
            d_input: channels * kernel_height * kernel_width,
            d_output: channels_out / groups,
        }
    }

    pub(crate) fn cost(&self) -> Cost {
        let Sizes { groups, positions, d_input, d_output, .. } = self.sizes();
        let features = (d_input + d_output) as f64;
        let positions_f = positions as f64;
        Cost {
            ghost_flops: Some(2.0 * groups as f64 * positions_f * positions_f * features),
            values: groups * d_input * d_output,
            temporary: groups * positions * d_input,
        }
    }

    pub(crate) fn ghost_norms(&self) -> SquaredNorms {
        let Sizes { batch_size, groups, .. } = self.sizes();
        let norms =
            ghost_norms(self.patches().swap_dims(1, 2), self.grad_positions().swap_dims(1, 2));
        let sum_groups = |norms: Tensor<1>| {
            norms.reshape([batch_size, groups]).sum_dim(1).reshape([batch_size])
        };
        SquaredNorms {
            values: sum_groups(norms.values),
            magnitude: norms.magnitude.map(sum_groups),
        }
    }

    pub(crate) fn instantiate(&self) -> Tensor<2> {
        let Sizes { batch_size, groups, d_input, d_output, .. } = self.sizes();
        // [B·G, P, T] @ [B·G, T, K] is laid out as the weight is: [B, O, C/G·kh·kw].
        self.grad_positions()
            .matmul(self.patches().swap_dims(1, 2))
            .reshape([batch_size, groups * d_output * d_input])
    }

    pub(crate) fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        let batch_size = self.output_grad.dims()[0];
        let scaled = self.output_grad.clone() * coefficients.reshape([batch_size, 1, 1, 1]);
        let shape_only = Tensor::zeros(self.weight, &scaled.device());
        let values = self.weight.iter().product::<usize>();
        conv2d_weight_backward(self.input.clone(), shape_only, scaled, self.options.clone())
            .reshape([values])
    }

    /// `[batch_size · groups, d_output, positions]`.
    fn grad_positions(&self) -> Tensor<3> {
        let Sizes { batch_size, groups, positions, d_output, .. } = self.sizes();
        self.output_grad.clone().reshape([batch_size * groups, d_output, positions])
    }

    /// The patches, `[batch_size · groups, d_input, positions]`.
    fn patches(&self) -> Tensor<3> {
        let Sizes { batch_size, groups, positions, d_input, .. } = self.sizes();
        let [_, _, kernel_height, kernel_width] = self.weight;
        let [_, _, height_out, width_out] = self.output_grad.dims();
        let ConvOptions { stride, padding, dilation, .. } = &self.options;

        let [(top, bottom), (left, right)] = *padding;
        let mut input = self.input.clone();
        if [top, bottom, left, right] != [0; 4] {
            input = input.pad([(top, bottom), (left, right)], PadMode::Constant(0.0));
        }
        let rows: Tensor<5> = input.unfold(2, dilation[0] * (kernel_height - 1) + 1, stride[0]);
        let rows = every_nth(rows, dilation[0]);
        let patches: Tensor<6> =
            rows.unfold(3, dilation[1] * (kernel_width - 1) + 1, stride[1]);
        // [batch, channels, height_out, width_out, kernel_height, kernel_width]
        let patches = every_nth(patches, dilation[1]);
        debug_assert_eq!(patches.dims()[2..4], [height_out, width_out]);
        patches.permute([0, 1, 4, 5, 2, 3]).reshape([batch_size * groups, d_input, positions])
    }
}

/// Every n-th element of the last axis.
fn every_nth<const D: usize>(tensor: Tensor<D>, n: usize) -> Tensor<D> {
    if n == 1 {
        return tensor;
    }
    let mut slices = [Slice::full(); D];
    slices[D - 1] = Slice::new(0, None, n as isize);
    tensor.slice(slices)
}

/// The sizes of the linear rule that a convolution becomes.
struct Sizes {
    batch_size: usize,
    groups: usize,
    positions: usize,
    d_input: usize,
    d_output: usize,
}

/// The bias of a convolution: the sum over the pixels of each channel.
#[derive(Clone, Debug)]
pub(crate) struct ConvBias {
    /// `[batch_size, channels_out, height_out, width_out]`.
    pub(crate) output_grad: Tensor<4>,
}

impl ConvBias {
    pub(crate) fn cost(&self) -> Cost {
        Cost { ghost_flops: None, values: self.output_grad.dims()[1], temporary: 0 }
    }

    pub(crate) fn instantiate(&self) -> Tensor<2> {
        let [batch_size, channels, height, width] = self.output_grad.dims();
        self.output_grad
            .clone()
            .reshape([batch_size * channels, height * width])
            .sum_dim(1)
            .reshape([batch_size, channels])
    }
}
