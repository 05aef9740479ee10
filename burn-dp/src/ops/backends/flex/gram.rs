//! Gram matrices of examples and their products.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::TensorData;
use burn_dp_kernels::{DEPTH, DOT_ROUNDINGS, dot};
use rayon::prelude::*;

use super::matrices;
use super::tasks::TASK_VALUES;
use crate::ops::row_sums::{GRAM_BLOCK, PRODUCT_ROUNDINGS};

// The margins of norms assume the order in which the kernels add.
const _: () = assert!(DEPTH == GRAM_BLOCK && DOT_ROUNDINGS <= PRODUCT_ROUNDINGS);

/// Returns the Gram matrices of the positions of each example,
/// `[batch_size, positions, features]` to `[batch_size, positions, positions]`, and the squared
/// norms of the positions, `[batch_size, positions]`.
pub(super) fn gram(values: FloatTensor<Flex>) -> Option<(FloatTensor<Flex>, FloatTensor<Flex>)> {
    let [batch_size, positions, _] = values.shape().dims();
    // The columns of a convolution and the steps of a recurrent layer are read in place.
    let contiguous: FloatTensor<Flex>;
    let examples = match matrices::matrices(&values) {
        Some(examples) => examples,
        None => {
            contiguous = values.to_contiguous();
            matrices::matrices(&contiguous)?
        }
    };
    let mut products = vec![0.0; batch_size * positions * positions];
    let sums = products.par_chunks_exact_mut(positions * positions);
    examples.into_par_iter().zip(sums).for_each(|(matrix, to)| burn_dp_kernels::gram(matrix, to));
    let squares: Vec<f32> = products
        .chunks_exact(positions * positions)
        .flat_map(|matrix| matrix.iter().step_by(positions + 1).copied())
        .collect();
    Some((
        FloatTensor::<Flex>::from_data(TensorData::new(
            products,
            [batch_size, positions, positions],
        )),
        FloatTensor::<Flex>::from_data(TensorData::new(squares, [batch_size, positions])),
    ))
}

/// Returns the inner products of rows, `[rows, values]` twice to `[rows]`.
pub(super) fn row_products(
    first: &FloatTensor<Flex>,
    second: &FloatTensor<Flex>,
) -> Option<FloatTensor<Flex>> {
    let [count, length] = first.shape().dims();
    let (first, second) = (first.as_slice::<f32>()?, second.as_slice::<f32>()?);
    if first.is_empty() {
        return None;
    }
    let rows = first.par_chunks_exact(length).zip(second.par_chunks_exact(length));
    let products: Vec<f32> = rows
        .with_min_len(TASK_VALUES.div_ceil(length))
        .map(|(first, second)| dot(first, second))
        .collect();
    Some(FloatTensor::<Flex>::from_data(TensorData::new(products, [count])))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::{Shape, Tolerance};
    use proptest::prelude::*;

    use super::*;
    use crate::ops::backends::flex::arbitrary;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 60, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_gram_matrices_equal_products_of_burn(
            batch_size in 1usize..6,
            positions in 1usize..80,
            features in 1usize..90,
            view in 0..3,
        ) {
            let tensor =
                |shape: [usize; 3]| FloatTensor::<Flex>::from_data(arbitrary(shape).into_data());
            let values = match view {
                0 => tensor([batch_size, positions, features]),
                1 => tensor([positions, batch_size, features]).transpose(0, 1),
                _ => tensor([batch_size, features, positions]).transpose(1, 2),
            };
            let (matrices, squares) = gram(values.clone()).unwrap();
            let transposed = Flex::float_swap_dims(values.clone(), 1, 2);
            let expected = Flex::float_matmul(values.clone(), transposed);
            let tolerance = Tolerance::<f32>::absolute(1e-4).set_relative(1e-4);
            let (found, exact) = (matrices.clone().into_data(), expected.clone().into_data());
            found.assert_approx_eq::<f32>(&exact, tolerance);

            let expected_squares = Flex::float_sum_dim(Flex::float_mul(values.clone(), values), 2);
            let shape = Shape::new([batch_size, positions]);
            let expected_squares = Flex::float_reshape(expected_squares, shape).into_data();
            squares.into_data().assert_approx_eq::<f32>(&expected_squares, tolerance);

            let rows = Shape::new([batch_size, positions * positions]);
            let as_rows = |matrices| Flex::float_reshape(matrices, rows.clone());
            let [first, second] = [matrices, expected].map(as_rows);
            let native = row_products(&first, &second).unwrap();
            let burn = Flex::float_sum_dim(Flex::float_mul(first, second), 1);
            let burn = Flex::float_reshape(burn, Shape::new([batch_size]));
            let tolerance = Tolerance::<f32>::absolute(1e-2).set_relative(1e-4);
            native.into_data().assert_approx_eq::<f32>(&burn.into_data(), tolerance);
        }
    }
}
