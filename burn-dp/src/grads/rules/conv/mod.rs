//! Convolutions of one, two or three dimensions.
//!
//! With `U` the patches under the kernel (im2col), the gradient of the weight of example i is `Σ_l
//! U(input_i)_l ⊗ output_grad[i, ·, l]`, per group: the linear rule with the output pixels l as
//! positions. Norms and instantiated gradients are computed from these columns; the weighted sum is
//! Burn's ordinary gradient for pixels that are multiplied by the coefficients. For the bias, see
//! [`shift`].
//!
//! | file | content |
//! |---|---|
//! | `mod` | the lift and the rule |
//! | `columns` | the arithmetic on columns and pixels |
//! | `transposed` | transposed convolutions: the two factors are swapped |
//! | `standardized` | convolutions with standardized weights: the Jacobian of the weight |
//! | `deformable` | deformable convolutions: sampled columns |
//! | `tests` | all options against the loop over single examples |
//!
//! # References
//!
//! - Rochette, Manoel, Tramel, Efficient per-example gradient computations in convolutional neural
//!   networks, 2019.
//! - Lee and Kifer, Scaling up differentially private deep learning with fast per-example gradient
//!   clipping, 2021, section 5.2.

mod columns;
pub(super) mod deformable;
pub(super) mod standardized;
#[cfg(test)]
mod tests;
mod transposed;

use burn::tensor::{Shape, Tensor};

use super::record::Record;
use super::rule::size;
use super::{Restriction, Transposed, shift};
use crate::ops::{self, Convolution, Patches, Primitive};
use columns::{ColumnRule, Columns, Sizes};
use transposed::exchange;

/// Lifts the record of a convolution, which may be transposed.
pub(super) fn lift(record: &mut Record, convolution: Convolution) {
    match convolution {
        Convolution::Conv1d(_) | Convolution::Transpose1d(_) => lift_axes::<3>(record, convolution),
        Convolution::Conv2d(_) | Convolution::Transpose2d(_) => lift_axes::<4>(record, convolution),
        Convolution::Conv3d(_) | Convolution::Transpose3d(_) => lift_axes::<5>(record, convolution),
    }
}

fn lift_axes<const D: usize>(record: &mut Record, convolution: Convolution) {
    let output_grad = record.output_grad::<D>();
    shift::lift(record, &output_grad, 1);
    if let (Some(input), Some(weight)) = (record.kept::<D>(), record.weight()) {
        record.push(ConvWeight::new(convolution, weight, input, output_grad));
    }
}

/// The weight of a convolution, which may be transposed.
#[derive(Clone, Debug)]
struct ConvWeight<const D: usize> {
    /// The tensor that the kernel slides over, `[batch_size, channels, …]`.
    image: Tensor<D>,
    /// The tensor that its positions are paired with, `[batch_size, channels, …]`.
    pixels: Tensor<D>,
    patches: Patches,
    /// `[channels of the pixels, channels of the image / groups, …]`.
    weight: Shape,
    convolution: Convolution,
}

impl<const D: usize> ConvWeight<D> {
    fn new(
        convolution: Convolution,
        weight: Shape,
        input: Tensor<D>,
        output_grad: Tensor<D>,
    ) -> Self {
        let (image, pixels) = exchange(convolution.is_transposed(), input, output_grad);
        let patches = convolution.patches(&weight, &pixels.shape());
        Self { image, pixels, patches, weight, convolution }
    }
}

impl<const D: usize> ColumnRule for ConvWeight<D> {
    fn kept_values(&self) -> usize {
        size(self.image.shape()) + size(self.pixels.shape())
    }

    fn batch_size(&self) -> usize {
        self.pixels.dims()[0]
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

    fn without_columns(&self) -> Option<Transposed> {
        let (image, pixels) = (self.image.clone(), self.pixels.clone());
        let convolution = self.convolution.clone();
        ops::convolution_gradients(image, pixels, self.weight.clone(), convolution)
            .map(Transposed::new)
    }

    /// Computes the ordinary gradient for scaled pixels.
    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        let pixels = ops::scaled_examples(self.pixels.clone(), coefficients);
        let transposed = self.convolution.is_transposed();
        let (input, output_grad) = exchange(transposed, self.image.clone(), pixels);
        ops::weight_gradient(
            output_grad,
            ops::keep(input),
            self.weight.clone(),
            Primitive::Convolution { convolution: self.convolution.clone(), kernel: None },
        )
    }

    fn restrict(&self, examples: &Restriction) -> Self {
        Self {
            image: examples.apply(&self.image),
            pixels: examples.apply_scaled(&self.pixels),
            ..self.clone()
        }
    }
}
