use burn::backend::{
    Flex, TensorMetadata,
    tensor::{FloatTensor, IntTensor},
};
use burn::tensor::TensorData;
use rayon::prelude::*;

use super::row_norms::{sum_of_squares, upwards};
use super::tasks::TASK_VALUES;

/// Returns `Σ_v ‖Σ_{t: ids[t] = v} rows[t]‖²` for each example, `[batch_size]`.
///
/// - ids: `[batch_size, positions]`
/// - rows: `[batch_size, positions, features]`
pub(super) fn indexed_squared_norms(
    ids: IntTensor<Flex>,
    rows: FloatTensor<Flex>,
) -> Option<FloatTensor<Flex>> {
    let [batch_size, positions, features] = rows.shape().dims();
    if positions * features == 0 {
        return None;
    }
    let values = rows.as_slice::<f32>()?;
    let ids: Vec<i64> = match (ids.as_slice::<i64>(), ids.as_slice::<i32>()) {
        (Some(ids), _) => ids.to_vec(),
        (None, Some(ids)) => ids.iter().map(|&id| i64::from(id)).collect(),
        (None, None) => return None,
    };
    let norms: Vec<f32> = values
        .par_chunks_exact(positions * features)
        .zip(ids.par_chunks_exact(positions))
        .with_min_len(TASK_VALUES.div_ceil(positions * features))
        .map(|(rows, ids)| indexed_squared_norm(ids, rows, features))
        .collect();
    Some(FloatTensor::<Flex>::from_data(TensorData::new(norms, [batch_size])))
}

/// Adds up the rows of one index after another, and the squared norms of the sums.
fn indexed_squared_norm(ids: &[i64], rows: &[f32], features: usize) -> f32 {
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_unstable_by_key(|&position| (ids[position], position));
    let row = |position: usize| &rows[position * features..(position + 1) * features];
    let mut sum = vec![0.0f32; features];
    let mut total = 0.0f64;
    for positions in order.chunk_by(|&a, &b| ids[a] == ids[b]) {
        if let [position] = positions {
            total += sum_of_squares(row(*position));
            continue;
        }
        sum.fill(0.0);
        for &position in positions {
            sum.iter_mut().zip(row(position)).for_each(|(sum, value)| *sum += value);
        }
        total += sum_of_squares(&sum);
    }
    upwards(total)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::Dispatch;
    use burn::tensor::{Device, Int, Tensor};
    use proptest::prelude::*;

    use super::*;
    use crate::ops::ParametricOps;
    use crate::ops::backends::flex::arbitrary;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 200, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_norms_of_indexed_rows_equal_norms_of_their_sums(
            batch_size in 1usize..4,
            positions in 1usize..20,
            features in 1usize..40,
            words in 1i64..10,
        ) {
            let rows = arbitrary([batch_size, positions, features]);
            let count = batch_size * positions;
            let ids: Vec<i64> = (0..count as i64).map(|i| (i * i + 3 * i) % words).collect();
            let values = rows.to_data();
            let values = values.as_slice::<f32>().unwrap();
            let expected: Vec<f64> = (0..batch_size)
                .map(|example| {
                    let mut sums = vec![0.0f64; words as usize * features];
                    for position in example * positions..(example + 1) * positions {
                        for feature in 0..features {
                            sums[ids[position] as usize * features + feature] +=
                                f64::from(values[position * features + feature]);
                        }
                    }
                    sums.iter().map(|sum| sum * sum).sum()
                })
                .collect();
            let ids = TensorData::new(ids, [batch_size, positions]);
            let ids = Tensor::<2, Int>::from_data(ids, &Device::flex());
            let native =
                Dispatch::native_indexed_squared_norms(ids.into_dispatch(), rows.into_dispatch());
            let native = Tensor::<1>::from_dispatch(native.unwrap()).into_data();
            for (native, expected) in native.as_slice::<f32>().unwrap().iter().zip(expected) {
                prop_assert!((f64::from(*native) - expected).abs() <= 1e-5 * expected.max(1e-3));
            }
        }
    }
}
