use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn_dp_kernels::{Matrix, Packed};
use rayon::prelude::*;

use super::{EXAMPLES_APART, matrix};
use crate::ops::backends::flex::matrices;

/// Packs a weight; see [`FusedOps::pack`](crate::ops::FusedOps::pack).
pub(in crate::ops::backends::flex) fn pack(weight: &FloatTensor<Flex>) -> Option<Packed> {
    let matrix = matrices::matrix(weight)?;
    (!matrix.dims().contains(&0)).then(|| Packed::new(matrix))
}

/// Returns the product with a packed weight; see [`FusedOps::product`](crate::ops::FusedOps).
pub(in crate::ops::backends::flex) fn product(
    left: &FloatTensor<Flex>,
    weight: &Packed,
    bias: Option<&FloatTensor<Flex>>,
) -> Option<FloatTensor<Flex>> {
    let [rows, depth] = left.shape().dims();
    let left = left.as_slice::<f32>()?;
    if rows == 0 || depth != weight.depth() {
        return None;
    }
    let columns = weight.columns();
    let mut sums = match bias {
        Some(bias) => bias.as_slice::<f32>()?.repeat(rows),
        None => vec![0.0; rows * columns],
    };
    // The examples of one core, or the positions of all.
    let part = EXAMPLES_APART;
    let add = |(left, sums): (&[f32], &mut [f32])| {
        weight.add_product(Matrix::new(left, [left.len() / depth, depth]), sums);
    };
    if rows <= part {
        add((left, &mut sums));
    } else {
        left.par_chunks(part * depth).zip(sums.par_chunks_mut(part * columns)).for_each(add);
    }
    Some(matrix(sums, columns))
}
