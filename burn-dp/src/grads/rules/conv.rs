use burn::tensor::Tensor;
use burn::tensor::module::conv2d_weight_backward;
use burn::tensor::ops::ConvOptions;

use super::{Cost, Restriction, Rounding, Rule, SquaredNorms, ghost};
use crate::ops::{self, Patches};

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

    /// `[batch_size · groups, d_output, positions]`.
    fn grad_positions(&self) -> Tensor<3> {
        let Sizes { batch_size, groups, positions, d_output, .. } = self.sizes();
        self.output_grad.clone().reshape([batch_size * groups, d_output, positions])
    }

    /// The patches, `[batch_size · groups, d_input, positions]`.
    fn patches(&self) -> Tensor<3> {
        let [_, _, kernel_height, kernel_width] = self.weight;
        let [_, _, height_out, width_out] = self.output_grad.dims();
        let patches = Patches {
            kernel_size: [kernel_height, kernel_width],
            output_size: [height_out, width_out],
            options: self.options.clone(),
        };
        ops::patches(self.input.clone(), &patches)
    }
}

impl Rule for ConvWeight {
    fn batch_size(&self) -> usize {
        self.output_grad.dims()[0]
    }

    fn cost(&self) -> Cost {
        let Sizes { groups, positions, d_input, d_output, .. } = self.sizes();
        let features = (d_input + d_output) as f64;
        let positions_f = positions as f64;
        Cost {
            ghost_flops: Some(2.0 * groups as f64 * positions_f * positions_f * features),
            ghost_temporary: groups * positions * (2 * positions + d_input),
            values: groups * d_input * d_output,
            temporary: groups * positions * d_input,
        }
    }

    fn ghost_norms(&self) -> Option<SquaredNorms> {
        let Sizes { batch_size, groups, .. } = self.sizes();
        let norms =
            ghost::outer(self.patches().swap_dims(1, 2), self.grad_positions().swap_dims(1, 2));
        let sum_groups =
            |norms: Tensor<1>| norms.reshape([batch_size, groups]).sum_dim(1).reshape([batch_size]);
        let rounding = match norms.rounding {
            Rounding::Relative => Rounding::Relative,
            Rounding::Gram(magnitudes) => Rounding::Gram(sum_groups(magnitudes)),
            Rounding::Reordered(magnitudes) => Rounding::Reordered(sum_groups(magnitudes)),
        };
        Some(SquaredNorms { values: sum_groups(norms.values), rounding })
    }

    fn magnitudes(&self) -> Option<Tensor<1>> {
        let Sizes { batch_size, groups, .. } = self.sizes();
        let magnitudes = ghost::magnitudes(
            self.patches().swap_dims(1, 2),
            self.grad_positions().swap_dims(1, 2),
        );
        Some(magnitudes.reshape([batch_size, groups]).sum_dim(1).reshape([batch_size]))
    }

    fn instantiate(&self) -> Tensor<2> {
        let Sizes { batch_size, groups, d_input, d_output, .. } = self.sizes();
        // [B·G, P, T] @ [B·G, T, K] is laid out as the weight is: [B, O, C/G·kh·kw].
        self.grad_positions()
            .matmul(self.patches().swap_dims(1, 2))
            .reshape([batch_size, groups * d_output * d_input])
    }

    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        let batch_size = self.output_grad.dims()[0];
        let scaled = self.output_grad.clone() * coefficients.reshape([batch_size, 1, 1, 1]);
        let shape_only = Tensor::zeros(self.weight, (&scaled.device(), scaled.dtype()));
        let values = self.weight.iter().product::<usize>();
        conv2d_weight_backward(self.input.clone(), shape_only, scaled, self.options.clone())
            .reshape([values])
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self {
            input: examples.apply(&self.input),
            output_grad: examples.apply(&self.output_grad),
            weight: self.weight,
            options: self.options.clone(),
        })
    }
}

/// The sizes of the linear rule that a convolution becomes.
struct Sizes {
    batch_size: usize,
    groups: usize,
    positions: usize,
    d_input: usize,
    d_output: usize,
}
