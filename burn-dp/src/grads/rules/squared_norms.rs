use burn::tensor::Tensor;

/// Squared norms of the per-example gradients of one parameter.
pub(in crate::grads) struct SquaredNorms {
    /// `[batch_size]`.
    pub(in crate::grads) values: Tensor<1>,
    /// Their rounding error.
    pub(in crate::grads) rounding: Rounding,
}

/// Bounds on the terms that add up to a gradient, and on the rounding of their sum.
pub(in crate::grads) struct Magnitudes {
    /// `(Σ_t ‖a_t‖‖g_t‖)²` per example, `[batch_size]`. They are larger than the squared norms if
    /// terms cancel.
    pub(in crate::grads) squared: Tensor<1>,
    /// Upper bound on the number of operations in f32 that round a term whenever the gradient is
    /// summed, with or without a coefficient, in any order.
    pub(in crate::grads) roundings: usize,
}

/// The difference between a squared norm and the squared norm of the gradient that the weighted sum
/// adds.
pub(in crate::grads) enum Rounding {
    /// The relative precision of f32.
    Relative,
    /// The squared norm is a sum of products of two terms: its error is relative to the squared
    /// magnitude. The error of the weighted sum is relative to the magnitude.
    Gram {
        magnitudes: Magnitudes,
        /// Upper bound on the number of operations in f32 that round a product of two terms.
        roundings: usize,
    },
    /// The gradient was summed in another order than in the weighted sum: the error of the norm is
    /// relative to the magnitude.
    Reordered(Magnitudes),
}

impl SquaredNorms {
    /// Concatenates the norms of the parts of a batch, which one rule computed in one way.
    pub(in crate::grads) fn concatenate(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let (mut values, mut magnitudes, mut gram) = (Vec::new(), Vec::new(), None);
        for part in parts {
            values.push(part.values);
            match part.rounding {
                Rounding::Relative => {}
                Rounding::Gram { magnitudes: part, roundings } => {
                    gram = gram.max(Some(roundings));
                    magnitudes.push(part);
                }
                Rounding::Reordered(part) => magnitudes.push(part),
            }
        }
        let rounding = match (Magnitudes::concatenate(magnitudes), gram) {
            (None, _) => Rounding::Relative,
            (Some(magnitudes), Some(roundings)) => Rounding::Gram { magnitudes, roundings },
            (Some(magnitudes), None) => Rounding::Reordered(magnitudes),
        };
        Self { values: Tensor::cat(values, 0), rounding }
    }
}

impl Magnitudes {
    fn concatenate(parts: Vec<Self>) -> Option<Self> {
        let roundings = parts.iter().map(|part| part.roundings).max()?;
        let squared = parts.into_iter().map(|part| part.squared).collect();
        Some(Self { squared: Tensor::cat(squared, 0), roundings })
    }
}

impl Rounding {
    /// Returns an upper bound on the number of operations in f32 that round a product of two terms
    /// in the squared norm.
    pub(super) fn of_products(&self) -> usize {
        match self {
            // Norms of the factors are rounded up; what is left is their product.
            Self::Relative => 1,
            Self::Gram { roundings, .. } => *roundings,
            // Both terms of a product were rounded, and the sums of squares are rounded up.
            Self::Reordered(magnitudes) => 2 * magnitudes.roundings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_devices::devices;

    #[test]
    fn norms_of_parts_keep_the_magnitudes_and_the_most_roundings() {
        let device = devices().remove(0);
        let magnitudes = |roundings| Magnitudes { squared: Tensor::ones([2], &device), roundings };
        let rounding_of = |parts: Vec<Rounding>| {
            let part = |rounding| SquaredNorms { values: Tensor::ones([2], &device), rounding };
            SquaredNorms::concatenate(parts.into_iter().map(part).collect()).rounding
        };
        let parts = [3, 5, 4].map(|roundings| Rounding::Reordered(magnitudes(roundings)));
        let Rounding::Reordered(found) = rounding_of(parts.into()) else {
            panic!("the parts were added in another order");
        };
        assert_eq!((found.squared.dims(), found.roundings), ([6], 5));

        let gram =
            |of_terms, roundings| Rounding::Gram { magnitudes: magnitudes(of_terms), roundings };
        let Rounding::Gram { magnitudes: found, roundings } =
            rounding_of(vec![gram(3, 9), gram(5, 7)])
        else {
            panic!("the parts are products of Gram matrices");
        };
        assert_eq!((found.squared.dims(), found.roundings, roundings), ([4], 5, 9));
    }

    #[test]
    fn a_product_of_two_terms_has_the_roundings_of_both() {
        let device = devices().remove(0);
        let magnitudes = || Magnitudes { squared: Tensor::ones([2], &device), roundings: 5 };
        assert_eq!(Rounding::Relative.of_products(), 1);
        assert_eq!(Rounding::Gram { magnitudes: magnitudes(), roundings: 7 }.of_products(), 7);
        assert_eq!(Rounding::Reordered(magnitudes()).of_products(), 10);
    }
}
