use burn::tensor::ops::DeformConvOptions;
use burn::tensor::{Shape, Tensor, module::deform_conv2d};

use super::columns::{Columns, Sizes};
use super::{Cost, Restriction, Rule, SquaredNorms};

/// The weight of a deformable convolution: the rule of a convolution, of which the kernel sees pixels
/// that are sampled where the offsets say.
///
/// # References
///
/// Dai et al., Deformable convolutional networks, 2017; Zhu et al., Deformable ConvNets v2: more
/// deformable, better results, 2019 (the mask).
#[derive(Clone, Debug)]
pub(crate) struct DeformConvWeight {
    /// `[batch_size, channels_in, height, width]`.
    pub(crate) input: Tensor<4>,
    /// Where to sample, `[batch_size, 2 · offset_groups · kernel values, height_out, width_out]`.
    pub(crate) offset: Tensor<4>,
    /// How much of it, `[batch_size, offset_groups · kernel values, height_out, width_out]`.
    pub(crate) mask: Option<Tensor<4>>,
    /// `[batch_size, channels_out, height_out, width_out]`.
    pub(crate) output_grad: Tensor<4>,
    /// `[channels_out, channels_in / weight_groups, kernel_height, kernel_width]`.
    pub(crate) weight: Shape,
    /// Options of the forward pass.
    pub(crate) options: DeformConvOptions<2>,
}

impl DeformConvWeight {
    fn sizes(&self) -> Sizes {
        let groups = self.options.weight_groups;
        let [_, channels, height, width] = self.output_grad.dims();
        Sizes {
            groups,
            positions: height * width,
            d_input: self.weight.iter().skip(1).product(),
            d_output: channels / groups,
        }
    }

    /// The samples are the output of a deformable convolution whose kernels select one value each.
    fn columns(&self) -> Columns {
        let Sizes { groups, positions, d_input, d_output } = self.sizes();
        let [batch_size, channels, ..] = self.input.dims();
        let [_, _, kernel_height, kernel_width] = self.weight.dims();
        let kernel_values = kernel_height * kernel_width;
        let select = Tensor::<2>::eye(kernel_values, &self.input.device())
            .reshape([kernel_values, 1, kernel_height, kernel_width])
            .repeat_dim(0, channels);
        let options = DeformConvOptions { weight_groups: channels, ..self.options.clone() };
        let samples = deform_conv2d(
            self.input.clone(),
            self.offset.clone(),
            select,
            self.mask.clone(),
            None,
            options,
        );
        let rows = batch_size * groups;
        Columns {
            columns: samples.reshape([rows, d_input, positions]),
            pixels: self.output_grad.clone().reshape([rows, d_output, positions]),
            groups,
        }
    }
}

impl Rule for DeformConvWeight {
    fn batch_size(&self) -> usize {
        self.output_grad.dims()[0]
    }

    fn cost(&self) -> Cost {
        self.sizes().cost()
    }

    fn ghost_norms(&self) -> Option<SquaredNorms> {
        Some(self.columns().ghost_norms())
    }

    fn magnitudes(&self) -> Option<Tensor<1>> {
        Some(self.columns().magnitudes())
    }

    fn instantiate(&self) -> Tensor<2> {
        self.columns().instantiate()
    }

    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        self.columns().weighted_sum(coefficients)
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self {
            input: examples.apply(&self.input),
            offset: examples.apply(&self.offset),
            mask: self.mask.as_ref().map(|mask| examples.apply(mask)),
            output_grad: examples.apply(&self.output_grad),
            weight: self.weight.clone(),
            options: self.options.clone(),
        })
    }
}
