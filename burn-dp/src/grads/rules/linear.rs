use burn::tensor::Tensor;

use super::{Cost, SquaredNorms, row_squared_norms};

/// The weight of `output = input @ weight`.
///
/// The gradient of example i is `Σ_t input[i, t]ᵀ output_grad[i, t]`.
///
/// # References
///
/// Goodfellow, Efficient per-example gradient computations, 2015; Lee and Kifer, Scaling up
/// differentially private deep learning with fast per-example gradient clipping, 2021, section 5;
/// Li, Tramèr, Liang, Hashimoto, Large language models can be strong differentially private
/// learners, 2022 (the norm for several positions); Bu, Wang, Zha, Karypis, Differentially private
/// optimization on large model at small cost, 2023 (the weighted sum in the same pass).
#[derive(Clone, Debug)]
pub(crate) struct LinearWeight {
    /// `[batch_size, positions, d_input]`.
    pub(crate) input: Tensor<3>,
    /// `[batch_size, positions, d_output]`.
    pub(crate) output_grad: Tensor<3>,
}

impl LinearWeight {
    /// The contributions of several uses of one weight: the positions of all of them.
    pub(crate) fn concatenate(uses: Vec<Self>) -> Self {
        let (inputs, grads) = uses
            .into_iter()
            .map(|part| (part.input, part.output_grad))
            .unzip::<_, _, Vec<_>, Vec<_>>();
        Self { input: Tensor::cat(inputs, 1), output_grad: Tensor::cat(grads, 1) }
    }

    /// The rows of every `group_size` as positions of one.
    pub(crate) fn regroup(self, group_size: usize) -> Self {
        let [rows, positions, d_input] = self.input.dims();
        let d_output = self.output_grad.dims()[2];
        let (units, positions) = (rows / group_size, positions * group_size);
        Self {
            input: self.input.reshape([units, positions, d_input]),
            output_grad: self.output_grad.reshape([units, positions, d_output]),
        }
    }

    pub(crate) fn cost(&self) -> Cost {
        let [_, positions, d_input] = self.input.dims();
        let d_output = self.output_grad.dims()[2];
        let features = (d_input + d_output) as f64;
        let positions_f = positions as f64;
        Cost {
            ghost_flops: Some(2.0 * positions_f * positions_f * features),
            values: d_input * d_output,
            temporary: 0,
        }
    }

    pub(crate) fn ghost_norms(&self) -> SquaredNorms {
        ghost_norms(self.input.clone(), self.output_grad.clone())
    }

    pub(crate) fn instantiate(&self) -> Tensor<2> {
        let [batch_size, _, d_input] = self.input.dims();
        let d_output = self.output_grad.dims()[2];
        self.input
            .clone()
            .swap_dims(1, 2)
            .matmul(self.output_grad.clone())
            .reshape([batch_size, d_input * d_output])
    }

    pub(crate) fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        let [batch_size, positions, d_input] = self.input.dims();
        let d_output = self.output_grad.dims()[2];
        let rows = batch_size * positions;
        let scaled = self.output_grad.clone() * coefficients.reshape([batch_size, 1, 1]);
        let input = self.input.clone().reshape([rows, d_input]);
        input.transpose().matmul(scaled.reshape([rows, d_output])).reshape([d_input * d_output])
    }
}

/// Squared Frobenius norms of `Σ_t a_tᵀ g_t` per example, rounded up.
///
/// One position: `‖a‖²‖g‖²`. Several: `Σ_{t,s} (a_t · a_s)(g_t · g_s)`, whose terms can cancel, so the
/// bound `(Σ_t ‖a_t‖‖g_t‖)²` on the sum of their magnitudes is returned too. A factor that is tiny
/// while the other is huge can underflow; what that may have lost is added.
///
/// # Shapes
///
/// - a: `[batch_size, positions, d]`
/// - g: `[batch_size, positions, p]`
pub(crate) fn ghost_norms(a: Tensor<3>, g: Tensor<3>) -> SquaredNorms {
    let [batch_size, positions, d] = a.dims();
    let p = g.dims()[2];
    let lost = |terms: usize| terms as f64 * f64::from(f32::MIN_POSITIVE);
    let row_norms = |x: Tensor<3>, features: usize| {
        row_squared_norms(x.reshape([batch_size * positions, features])).add_scalar(lost(features))
    };
    if positions == 1 {
        return SquaredNorms { values: row_norms(a, d) * row_norms(g, p), magnitude: None };
    }

    let lengths =
        |x: Tensor<3>, features| row_norms(x, features).sqrt().reshape([batch_size, positions]);
    let (lengths_a, lengths_g) = (lengths(a.clone(), d), lengths(g.clone(), p));
    let squared_total = |lengths: Tensor<2>| lengths.sum_dim(1).square().reshape([batch_size]);
    let underflow = squared_total(lengths_a.clone()).mul_scalar(lost(p))
        + squared_total(lengths_g.clone()).mul_scalar(lost(d));

    let gram_a = a.clone().matmul(a.swap_dims(1, 2));
    let gram_g = g.clone().matmul(g.swap_dims(1, 2));
    let products = (gram_a * gram_g).reshape([batch_size, positions * positions]);
    SquaredNorms {
        values: products.sum_dim(1).reshape([batch_size]) + underflow,
        magnitude: Some(squared_total(lengths_a * lengths_g)),
    }
}

/// The bias: the gradient of example i is `Σ_t output_grad[i, t]`.
#[derive(Clone, Debug)]
pub(crate) struct LinearBias {
    /// `[batch_size, positions, d_output]`.
    pub(crate) output_grad: Tensor<3>,
}

impl LinearBias {
    pub(crate) fn cost(&self) -> Cost {
        Cost { ghost_flops: None, values: self.output_grad.dims()[2], temporary: 0 }
    }

    pub(crate) fn instantiate(&self) -> Tensor<2> {
        let [batch_size, positions, d_output] = self.output_grad.dims();
        let grad = self.output_grad.clone();
        let grad = if positions == 1 { grad } else { grad.sum_dim(1) };
        grad.reshape([batch_size, d_output])
    }
}
