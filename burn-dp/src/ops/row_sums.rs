//! Sums and squared norms of rows whose rounding is bounded on every backend.

use burn::backend::Dispatch;
use burn::tensor::{Bool, Tensor};

use super::ParametricOps;
use super::primitives::axes::sum_axis;

/// Number of products that a native kernel for Gram matrices adds in one register. The sums of such
/// blocks are added one after another.
pub(crate) const GRAM_BLOCK: usize = 256;

/// Upper bound on the roundings of a product in a native kernel for inner products of rows.
pub(crate) const PRODUCT_ROUNDINGS: usize = 38;

/// Returns an upper bound on the roundings of a product in an entry of native Gram matrices.
pub(crate) fn gram_roundings(features: usize) -> usize {
    block_roundings(features, GRAM_BLOCK)
}

/// Returns an upper bound on the roundings of a product, in its block of `block` products and in
/// the sum of the blocks, which are added one after another.
pub(crate) fn block_roundings(products: usize, block: usize) -> usize {
    products.min(block) + products.div_ceil(block).saturating_sub(1)
}

/// Returns the inner products of rows, and an upper bound on the roundings of a product.
///
/// # Shapes
///
/// - first, second: `[rows, values]`, on a device without autodiff
/// - output: `[rows]`
pub(crate) fn row_products(first: Tensor<2>, second: Tensor<2>) -> (Tensor<1>, usize) {
    let operands = (first.clone().into_dispatch(), second.clone().into_dispatch());
    match Dispatch::native_row_products(operands.0, operands.1) {
        Some(native) => (Tensor::from_dispatch(native), PRODUCT_ROUNDINGS),
        None => {
            let [_, values] = first.dims();
            (row_sums(first * second), additions(values) + 1)
        }
    }
}

/// Returns `Σ_i coefficients[i] · rows[i]`.
///
/// # Shapes
///
/// - coefficients: `[rows]`, on a device without autodiff
/// - rows: `[rows, values]`
/// - output: `[values]`
pub(crate) fn weighted_rows(coefficients: Tensor<1>, rows: Tensor<2>) -> Tensor<1> {
    let operands = (coefficients.clone().into_dispatch(), rows.clone().into_dispatch());
    match Dispatch::native_weighted_rows(operands.0, operands.1) {
        Some(native) => Tensor::from_dispatch(native),
        None => {
            let values = rows.dims()[1];
            coefficients.unsqueeze::<2>().matmul(rows).reshape([values])
        }
    }
}

/// Returns the sums of `first ∘ second` over all axes except the examples and the parameters.
///
/// # Shapes
///
/// - first, second: `[batch_size, outer, parameters, inner]`, on a device without autodiff
/// - output: `[batch_size, parameters]`
pub(crate) fn axis_product_sums(first: Tensor<4>, second: Tensor<4>) -> Tensor<2> {
    let operands = (first.clone().into_dispatch(), second.clone().into_dispatch());
    match Dispatch::native_axis_product_sums(operands.0, operands.1) {
        Some(native) => Tensor::from_dispatch(native),
        None => axis_sums(first * second),
    }
}

/// Returns the sums over all axes except the examples and the parameters.
///
/// # Shapes
///
/// - values: `[batch_size, outer, parameters, inner]`, on a device without autodiff
/// - output: `[batch_size, parameters]`
pub(crate) fn axis_sums(values: Tensor<4>) -> Tensor<2> {
    if let Some(native) = Dispatch::native_axis_sums(values.clone().into_dispatch()) {
        return Tensor::from_dispatch(native);
    }
    let [batch_size, outer, parameters, inner] = values.dims();
    let mut rows: Tensor<2> = values.reshape([batch_size * outer * parameters, inner]);
    if inner != 1 {
        rows = Tensor::from_dispatch(sum_axis::<Dispatch>(rows.into_dispatch(), 1));
    }
    let mut rows: Tensor<3> = rows.reshape([batch_size, outer, parameters]);
    if outer != 1 {
        rows = Tensor::from_dispatch(sum_axis::<Dispatch>(rows.into_dispatch(), 1));
    }
    rows.reshape([batch_size, parameters])
}

/// Returns whether any flag is set, `[1]`, for any number of flags; see
/// [`LOOP`](super::primitives::axes::LOOP).
pub(crate) fn any(mut flags: Tensor<1, Bool>) -> Tensor<1, Bool> {
    /// A reduction of flags takes more iterations than it has flags.
    const FLAGS: usize = 1 << 12;
    let mut length = flags.dims()[0];
    while length > FLAGS {
        let (blocks, rest) = (length / FLAGS, length % FLAGS);
        let whole = flags.clone().narrow(0, 0, blocks * FLAGS).reshape([blocks, FLAGS]);
        let found = whole.any_dim(1).reshape([blocks]);
        flags = match rest {
            0 => found,
            _ => Tensor::cat(vec![found, flags.narrow(0, blocks * FLAGS, rest).any()], 0),
        };
        length = length.div_ceil(FLAGS);
    }
    flags.any()
}

/// Number of values that are added one after another; their sums are added at the next level.
const BLOCK: usize = 64;

/// Returns the sums of rows: first of blocks, then of their sums, and so on. Rounding grows with
/// the number of levels, not with the number of values. Regardless of the order in which a device
/// adds up a block, each value passes through at most `additions(values)` roundings.
///
/// # Shapes
///
/// - rows: `[rows, values]`
/// - output: `[rows]`
pub(crate) fn row_sums(mut rows: Tensor<2>) -> Tensor<1> {
    let [count, mut values] = rows.dims();
    while values > BLOCK {
        let (blocks, rest) = (values / BLOCK, values % BLOCK);
        let whole = rows.clone().narrow(1, 0, blocks * BLOCK).reshape([count, blocks, BLOCK]);
        let sums = whole.sum_dim(2).reshape([count, blocks]);
        rows = match rest {
            0 => sums,
            _ => Tensor::cat(vec![sums, rows.narrow(1, blocks * BLOCK, rest).sum_dim(1)], 1),
        };
        values = values.div_ceil(BLOCK);
    }
    rows.sum_dim(1).reshape([count])
}

/// Returns an upper bound on the roundings of a value in [`row_sums`].
pub(crate) fn additions(mut values: usize) -> usize {
    let mut additions = 0;
    while values > BLOCK {
        additions += BLOCK - 1;
        values = values.div_ceil(BLOCK);
    }
    additions + values.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::TensorData;

    use super::*;
    use crate::grads::oracle::host;
    use crate::ops::primitives::axes::{LOOP, sum_over_examples};
    use crate::test_devices::devices;

    #[test]
    fn rows_of_every_length_are_summed() {
        for device in devices() {
            for values in [0usize, 1, 63, 64, 65, 127, 128, 4096, 4097, 9000] {
                let row: Vec<f32> = (0..2 * values).map(|i| (i % 7) as f32 - 2.0).collect();
                let expected: Vec<f32> =
                    (0..2).map(|i| row[i * values..(i + 1) * values].iter().sum()).collect();
                let rows = Tensor::from_data(TensorData::new(row, [2, values]), &device);
                let sums: Vec<f32> = row_sums(rows).into_data().try_into_vec().unwrap();
                assert_eq!(sums, expected, "{values} values on {device:?}");
            }
        }
    }

    #[test]
    fn long_axes_are_summed_to_their_end() {
        for device in devices() {
            for length in [LOOP, LOOP + 1, 300_001, 2_000_000] {
                let inner = host(axis_sums(Tensor::ones([2, 1, 1, length], &device)).reshape([2]));
                let outer = host(axis_sums(Tensor::ones([2, length, 1, 1], &device)).reshape([2]));
                let sums = [Some(1), Some(2)].map(|axis| {
                    let values = Tensor::<3>::ones([2, length, 1], &device).into_dispatch();
                    sum_over_examples::<Dispatch>(values, axis.filter(|axis| *axis == 2))
                });
                let sums = sums.map(|sum| host(Tensor::<1>::from_dispatch(sum))[0]);
                assert_eq!(inner, [length as f64; 2], "{device:?}");
                assert_eq!(outer, [length as f64; 2], "{device:?}");
                assert_eq!(sums, [2.0 * length as f64; 2], "{device:?}");
            }
        }
    }

    #[test]
    fn a_flag_is_found_anywhere() {
        for device in devices() {
            for length in [1, 4096, 4097, 65_536, 300_001, 2_000_000] {
                for place in [0, length / 2, length - 1, length] {
                    let flags: Vec<bool> = (0..length).map(|flag| flag == place).collect();
                    let flags = Tensor::from_data(flags.as_slice(), &device);
                    let found: Vec<bool> = any(flags).into_data().iter::<bool>().collect();
                    assert_eq!(found, [place < length], "{place} of {length} on {device:?}");
                }
            }
        }
    }

    #[test]
    fn a_value_passes_through_at_most_the_bounded_number_of_additions() {
        // 65 values are a block and a remainder: 63 additions in the block, and one for the two
        // sums.
        assert_eq!(
            [0, 1, 2, 64, 65, 128, 4096, 4097].map(additions),
            [0, 0, 1, 63, 64, 64, 126, 127]
        );
    }

    #[test]
    fn a_product_is_rounded_in_its_block_and_in_the_sum_of_the_blocks() {
        assert_eq!(
            [0, 1, 2, 255, 256, 257, 512, 513, 50_257].map(gram_roundings),
            [0, 1, 2, 255, 256, 257, 257, 258, 452]
        );
    }
}
