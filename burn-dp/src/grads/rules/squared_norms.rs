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
