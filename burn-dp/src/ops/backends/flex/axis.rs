//! Scale and shift along one axis, and sums over the others.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{DType, TensorData};
use burn_dp_kernels::axis_sums;
use rayon::prelude::*;

use super::rows::in_one_piece;
use super::tasks::TASK_VALUES;

/// Number of values that one thread reads in the time it takes to wake the others.
const FEW_VALUES: usize = 1 << 16;

/// Returns `input ∘ weight + bias`, both along one axis; the input if the kernel does not handle
/// it.
///
/// - inner: number of values after the axis
pub(super) fn affine(
    input: FloatTensor<Flex>,
    weight: &FloatTensor<Flex>,
    bias: Option<&FloatTensor<Flex>>,
    inner: usize,
) -> Result<FloatTensor<Flex>, FloatTensor<Flex>> {
    let bias_values = bias.map(|bias| bias.as_slice::<f32>());
    let (Some(weight), false) = (weight.as_slice::<f32>(), bias_values == Some(None)) else {
        return Err(input);
    };
    if input.dtype() != DType::F32 || input.shape().num_elements() == 0 {
        return Err(input);
    }
    let mut values = in_one_piece(input);
    burn_dp_kernels::affine(values.storage_mut::<f32>(), weight, bias_values.flatten(), inner);
    Ok(values)
}

/// Returns the sums of the products of two tensors over all axes except the batch and one more,
/// `[batch_size, parameters]`; without the second tensor, the sums of the first.
///
/// - axes: batch size, values before the axis of the parameters, parameters, values after it
pub(super) fn example_sums(
    first: FloatTensor<Flex>,
    second: Option<FloatTensor<Flex>>,
    [batch_size, outer, parameters, inner]: [usize; 4],
) -> Option<FloatTensor<Flex>> {
    let size = outer * parameters * inner;
    if outer * inner == 1 || batch_size * size == 0 {
        return None;
    }
    let (first, second) = (first.to_contiguous(), second.map(|second| second.to_contiguous()));
    let first = first.as_slice::<f32>()?;
    let second = match &second {
        Some(second) => Some(second.as_slice::<f32>()?),
        None => None,
    };
    let mut sums = vec![0.0; batch_size * parameters];
    let example = |(index, sums): (usize, &mut [f32])| {
        let part = index * size..(index + 1) * size;
        axis_sums(&first[part.clone()], second.map(|second| &second[part]), sums, inner);
    };
    if first.len() <= FEW_VALUES {
        sums.chunks_exact_mut(parameters).enumerate().for_each(example);
    } else {
        let examples = sums.par_chunks_exact_mut(parameters).enumerate();
        examples.with_min_len(TASK_VALUES.div_ceil(size)).for_each(example);
    }
    Some(FloatTensor::<Flex>::from_data(TensorData::new(sums, [batch_size, parameters])))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::{Shape, Tolerance};
    use proptest::prelude::*;

    use super::*;
    use crate::ops::backends::flex::arbitrary;

    fn assert_equal(native: FloatTensor<Flex>, burn: FloatTensor<Flex>) {
        assert_eq!(native.shape(), burn.shape());
        let tolerance = Tolerance::<f32>::absolute(1e-3).set_relative(1e-4);
        native.into_data().assert_approx_eq::<f32>(&burn.into_data(), tolerance);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 100, failure_persistence: None, ..Default::default()
        })]

        #[test]
        fn native_scales_and_sums_equal_the_operations_of_burn(
            batch_size in 1usize..6,
            outer in 1usize..40,
            parameters in 1usize..40,
            inner in prop_oneof![Just(1usize), 2usize..40],
            with_bias: bool,
            view: bool,
        ) {
            let shape = [batch_size, outer, parameters, inner];
            let tensor = |phase: f32| {
                let values = match view {
                    true => arbitrary([inner, outer, parameters, batch_size]) + phase,
                    false => arbitrary(shape) + phase,
                };
                let values = FloatTensor::<Flex>::from_data(values.into_data());
                if view { values.transpose(0, 3) } else { values }
            };
            let (first, second) = (tensor(0.1), tensor(0.7));
            let along = |phase: f32| {
                FloatTensor::<Flex>::from_data((arbitrary([parameters]) + phase).into_data())
            };
            let (weight, bias) = (along(0.2), with_bias.then(|| along(0.3)));
            let native = affine(first.clone(), &weight, bias.as_ref(), inner).unwrap();
            let wide = |values: FloatTensor<Flex>| {
                Flex::float_reshape(values, Shape::new([1, 1, parameters, 1]))
            };
            let scaled = Flex::float_mul(first.clone(), wide(weight));
            let burn = match bias {
                Some(bias) => Flex::float_add(scaled, wide(bias)),
                None => scaled,
            };
            assert_equal(native, burn);

            let product = Flex::float_mul(first.clone(), second.clone());
            for (second, values) in [(None, first.clone()), (Some(second), product)] {
                let Some(native) = example_sums(first.clone(), second, shape) else {
                    assert_eq!(outer * inner, 1);
                    continue;
                };
                let sums = Flex::float_sum_dim(Flex::float_sum_dim(values, 3), 1);
                let sums = Flex::float_reshape(sums, Shape::new([batch_size, parameters]));
                assert_equal(native, sums);
            }
        }
    }
}
