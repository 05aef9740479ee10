use std::ops::Range;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::TensorData;
use rayon::prelude::*;

use crate::ops::backends::flex::tasks::TASK_VALUES;

/// Returns some columns of values, ordered by example; see
/// [`FusedOps::by_example`](crate::ops::FusedOps::by_example).
pub(in crate::ops::backends::flex) fn by_example(
    values: &[&FloatTensor<Flex>],
    positions: usize,
    columns: Range<usize>,
) -> Option<FloatTensor<Flex>> {
    let parts = values.len() / positions.max(1);
    let [_, width] = values.first()?.shape().dims();
    let sizes: Vec<usize> = values[..parts].iter().map(|part| part.shape()[0]).collect();
    let (batch_size, features) = (sizes.iter().sum::<usize>(), columns.len());
    if batch_size * features == 0 {
        return None;
    }
    let slices: Option<Vec<&[f32]>> = values.iter().map(|value| value.as_slice::<f32>()).collect();
    let slices = slices?;
    let rows: Vec<(usize, usize)> = sizes
        .iter()
        .enumerate()
        .flat_map(|(part, &size)| (0..size).map(move |row| (part, row * width + columns.start)))
        .collect();

    let example = positions * features;
    let mut output = vec![0.0; batch_size * example];
    let tasks = output.par_chunks_mut(example).zip(&rows);
    tasks.with_min_len(TASK_VALUES.div_ceil(example)).for_each(|(to, &(part, start))| {
        for (position, to) in to.chunks_exact_mut(features).enumerate() {
            to.copy_from_slice(&slices[position * parts + part][start..start + features]);
        }
    });
    Some(FloatTensor::<Flex>::from_data(TensorData::new(output, [batch_size, positions, features])))
}
