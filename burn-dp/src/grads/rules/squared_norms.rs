use burn::tensor::Tensor;

/// Squared norms of the per-example gradients of one parameter.
pub(in crate::grads) struct SquaredNorms {
    /// `[batch_size]`.
    pub(in crate::grads) values: Tensor<1>,
    /// Their rounding error.
    pub(in crate::grads) rounding: Rounding,
}

/// The difference between a squared norm and the squared norm of the gradient that the weighted sum
/// adds.
///
/// The magnitudes, `[batch_size]`, are bounds `(Σ_t ‖a_t‖‖g_t‖)²` on the squared sum of the terms.
/// They are larger than the squared norm if terms cancel.
pub(in crate::grads) enum Rounding {
    /// The relative precision of f32.
    Relative,
    /// The squared norm is a sum of products of such terms: its error is a few units in the last
    /// place of the squared magnitude.
    Gram(Tensor<1>),
    /// The gradient was summed in another order than in the weighted sum: the error of the norm is
    /// a few units in the last place of the magnitude.
    Reordered(Tensor<1>),
}

impl SquaredNorms {
    /// Concatenates the norms of the parts of a batch.
    pub(in crate::grads) fn concatenate(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let (mut values, mut magnitudes, mut gram) = (Vec::new(), Vec::new(), false);
        for part in parts {
            values.push(part.values);
            match part.rounding {
                Rounding::Relative => {}
                Rounding::Gram(magnitude) => {
                    gram = true;
                    magnitudes.push(magnitude);
                }
                Rounding::Reordered(magnitude) => magnitudes.push(magnitude),
            }
        }
        let rounding = match magnitudes.is_empty() {
            true => Rounding::Relative,
            false if gram => Rounding::Gram(Tensor::cat(magnitudes, 0)),
            false => Rounding::Reordered(Tensor::cat(magnitudes, 0)),
        };
        Self { values: Tensor::cat(values, 0), rounding }
    }
}
