//! Norms of sums of outer products from Gram matrices.

use burn::tensor::{Int, Tensor};

use super::{Rounding, SquaredNorms};
use crate::ops::{self, row_squared_norms, row_sums};

/// Returns the squared Frobenius norms of `Σ_t a_tᵀ g_t` per example, rounded up.
///
/// For one position this is `‖a‖²‖g‖²`. For several it is `Σ_{t,s} (a_t · a_s)(g_t · g_s)`, whose
/// terms can cancel. A tiny factor can underflow although the other factor is huge; a bound on that
/// loss is added.
///
/// # Shapes
///
/// - a: `[batch_size, positions, d]`
/// - g: `[batch_size, positions, p]`
pub(super) fn outer(a: Tensor<3>, g: Tensor<3>) -> SquaredNorms {
    let [batch_size, positions, d] = a.dims();
    let p = g.dims()[2];
    if positions == 1 {
        let values = (position_norms(a) * position_norms(g)).reshape([batch_size]);
        return SquaredNorms { values, rounding: Rounding::Relative };
    }
    let (lengths_a, lengths_g) = (lengths(a.clone()), lengths(g.clone()));
    let underflow = squared_totals(lengths_a.clone()).mul_scalar(lost_squares(p))
        + squared_totals(lengths_g.clone()).mul_scalar(lost_squares(d));

    let gram_a = a.clone().matmul(a.swap_dims(1, 2));
    let gram_g = g.clone().matmul(g.swap_dims(1, 2));
    SquaredNorms {
        values: totals(gram_a * gram_g) + underflow,
        rounding: Rounding::Gram(squared_totals(lengths_a * lengths_g)),
    }
}

/// Returns the squared norms of `Σ_t e_{ids[t]} g_tᵀ` per example, where e_v is a unit vector,
/// rounded up: positions with equal ids are added first.
///
/// # Shapes
///
/// - ids: `[batch_size, positions]`
/// - g: `[batch_size, positions, p]`
pub(super) fn indexed(ids: Tensor<2, Int>, g: Tensor<3>) -> SquaredNorms {
    let [_, positions, p] = g.dims();
    let magnitudes = squared_totals(lengths(g.clone()));
    if let Some(values) = ops::indexed_squared_norms(ids.clone(), g.clone()) {
        return SquaredNorms { values, rounding: Rounding::Reordered(magnitudes) };
    }
    let equal = ids.clone().unsqueeze_dim::<3>(2).equal(ids.unsqueeze_dim::<3>(1));
    let gram = g.clone().matmul(g.swap_dims(1, 2));
    let underflow = (positions * positions) as f64 * lost_squares(p);
    SquaredNorms {
        values: totals(gram.mask_fill(equal.bool_not(), 0.0)).add_scalar(underflow),
        rounding: Rounding::Gram(magnitudes),
    }
}

/// Returns `2 · ⟨Σ_s a_sᵀ g_s, Σ_t e_{ids[t]} h_tᵀ⟩` per example, rounded up by the largest loss
/// to underflow.
///
/// # Shapes
///
/// - a: `[batch_size, positions_a, d]`
/// - g: `[batch_size, positions_a, p]`
/// - ids: `[batch_size, positions]`, below d
/// - h: `[batch_size, positions, p]`
pub(super) fn cross(a: Tensor<3>, g: Tensor<3>, ids: Tensor<2, Int>, h: Tensor<3>) -> Tensor<1> {
    let [batch_size, positions_a, _] = a.dims();
    let [_, positions, p] = h.dims();
    let ids = ids.unsqueeze_dim::<3>(1).expand([batch_size, positions_a, positions]);
    let products = g.matmul(h.swap_dims(1, 2));
    let total = totals(a.clone().gather(2, ids) * products);
    // An inner product g · h can lose this much, and is multiplied by a component of a, which is
    // not larger than the norm of its position.
    let underflow = row_sums(lengths(a)).add_scalar(positions_a as f64);
    total.mul_scalar(2.0) + underflow.mul_scalar(2.0 * positions as f64 * lost_squares(p))
}

/// Returns `(Σ_t ‖a_t‖‖g_t‖)²` per example, `[batch_size]`.
pub(super) fn magnitudes(a: Tensor<3>, g: Tensor<3>) -> Tensor<1> {
    squared_totals(lengths(a) * lengths(g))
}

/// Returns the norms of the positions, rounded up: `[batch_size, positions]`.
pub(super) fn lengths(x: Tensor<3>) -> Tensor<2> {
    position_norms(x).sqrt()
}

/// Returns the squared norms of the positions, rounded up by the largest loss to underflow:
/// `[batch_size, positions]`.
fn position_norms(x: Tensor<3>) -> Tensor<2> {
    let [batch_size, positions, features] = x.dims();
    row_squared_norms(x.reshape([batch_size * positions, features]))
        .add_scalar(lost_squares(features))
        .reshape([batch_size, positions])
}

/// Returns the squares of sums over the positions.
pub(super) fn squared_totals(lengths: Tensor<2>) -> Tensor<1> {
    row_sums(lengths).square()
}

fn totals(products: Tensor<3>) -> Tensor<1> {
    let [batch_size, rows, columns] = products.dims();
    row_sums(products.reshape([batch_size, rows * columns]))
}

/// Returns an upper bound on what `terms` squares lose to underflow.
fn lost_squares(terms: usize) -> f64 {
    terms as f64 * f64::from(f32::MIN_POSITIVE)
}
