//! Squared norms of rows whose rounding is bounded on every backend.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use super::{ParametricOps, additions, kernels, row_sums};

/// Returns the squared norms of rows. They are not underestimated, except by the loss to underflow
/// and a few units in the last place.
///
/// # Shapes
///
/// - rows: `[rows, values]`, on a device without autodiff
/// - output: `[rows]`
pub(crate) fn row_squared_norms(rows: Tensor<2>) -> Tensor<1> {
    enlarged_squared_norms(rows, 0.0)
}

/// Returns the squared norms of rows like [`row_squared_norms`], plus `added`.
pub(crate) fn enlarged_squared_norms(rows: Tensor<2>, added: f64) -> Tensor<1> {
    if let Some(norms) = kernels::row_squared_norms(&rows, added) {
        return norms;
    }
    let norms = match Dispatch::native_row_squared_norms(rows.clone().into_dispatch()) {
        Some(native) => Tensor::from_dispatch(native),
        None => {
            let [_, values] = rows.dims();
            // One for each addition, one for the squares, the rest for this product itself.
            let rounding = (additions(values) + 3) as f64 * f64::from(f32::EPSILON);
            row_sums(rows.square()).mul_scalar(1.0 + rounding)
        }
    };
    if added == 0.0 { norms } else { norms.add_scalar(added) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::test_devices::devices;

    /// Equal values are the worst case of a running sum: every addition rounds in the same
    /// direction.
    #[test]
    fn squared_norms_of_many_equal_values_are_not_underestimated() {
        for device in devices() {
            for (values, value) in
                [(1 << 20, 0.1f32), (1_000_003, 0.3), (65, 0.7), (64, 0.7), (1, 0.7)]
            {
                let rows = Tensor::<2>::full([2, values], value, &device);
                let exact = f64::from(value).powi(2) * values as f64;
                let norms: Vec<f32> = row_squared_norms(rows).into_data().try_into_vec().unwrap();
                for norm in norms.into_iter().map(f64::from) {
                    // Every clipping coefficient leaves more room than a few units in the last
                    // place.
                    assert!(
                        norm >= exact * (1.0 - 4.0 * f64::from(f32::EPSILON)),
                        "{norm} {exact} on {device:?}"
                    );
                    assert!(norm <= exact * (1.0 + 5e-5), "{norm} {exact} on {device:?}");
                }
            }
        }
    }
}
