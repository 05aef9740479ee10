use burn::tensor::{Shape, Tensor};

use super::columns::{Columns, Sizes};
use super::{Cost, Restriction, Rule, SquaredNorms};
use crate::ops::{self, Patches, Primitive};

/// The weight of a convolution of one, two or three dimensions, also of a transposed one.
///
/// With `U` the patches that the kernel sees (im2col), the gradient of example i is
/// `Σ_l U(input_i)_l ⊗ output_grad[i, ·, l]`, per group: the linear rule with output pixels as
/// positions. In a transposed convolution the kernel slides over the output, and input and gradient of
/// the output exchange their roles.
///
/// # References
///
/// Rochette, Manoel, Tramel, Efficient per-example gradient computations in convolutional neural
/// networks, 2019; Lee and Kifer 2021, section 5.2.
#[derive(Clone, Debug)]
pub(crate) struct ConvWeight<const D: usize> {
    /// What the kernel slides over, `[batch_size, channels, …]`.
    image: Tensor<D>,
    /// What its positions are paired with, `[batch_size, channels, …]`.
    pixels: Tensor<D>,
    patches: Patches,
    /// `[channels of the pixels, channels of the image / groups, …]`.
    weight: Shape,
    transposed: bool,
    primitive: Primitive,
}

impl<const D: usize> ConvWeight<D> {
    /// The rule of a convolution; `None` if `primitive` is none of that many axes.
    pub(crate) fn new(
        primitive: Primitive,
        weight: Shape,
        input: Tensor<D>,
        output_grad: Tensor<D>,
    ) -> Option<Self> {
        let transposed = matches!(
            primitive,
            Primitive::ConvTranspose1d(_)
                | Primitive::ConvTranspose2d(_)
                | Primitive::ConvTranspose3d(_)
        );
        let (image, pixels) = if transposed { (output_grad, input) } else { (input, output_grad) };
        let patches = primitive.patches(&weight, &pixels.shape())?;
        Some(Self { image, pixels, patches, weight, transposed, primitive })
    }

    fn sizes(&self) -> Sizes {
        let groups = self.patches.options.groups;
        Sizes {
            groups,
            positions: self.patches.output_size.iter().product(),
            d_input: self.weight.iter().skip(1).product(),
            d_output: self.weight[0] / groups,
        }
    }

    fn columns(&self) -> Columns {
        let Sizes { groups, positions, d_output, .. } = self.sizes();
        let rows = self.pixels.dims()[0] * groups;
        Columns {
            columns: ops::patches(self.image.clone(), &self.patches),
            pixels: self.pixels.clone().reshape([rows, d_output, positions]),
            groups,
        }
    }
}

impl<const D: usize> Rule for ConvWeight<D> {
    fn batch_size(&self) -> usize {
        self.pixels.dims()[0]
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

    /// The ordinary gradient for scaled pixels.
    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        let mut shape = [1; D];
        shape[0] = self.batch_size();
        let pixels = self.pixels.clone() * coefficients.reshape(shape);
        let image = self.image.clone();
        let (input, output_grad) = if self.transposed { (pixels, image) } else { (image, pixels) };
        ops::weight_gradient(
            output_grad,
            ops::keep(input),
            self.weight.clone(),
            self.primitive.clone(),
        )
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self {
            image: examples.apply(&self.image),
            pixels: examples.apply(&self.pixels),
            ..self.clone()
        })
    }
}
