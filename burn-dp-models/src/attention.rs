//! Scaled dot-product attention of projected sequences.

use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Tensor};

/// A score that has no weight after the softmax, whatever the other scores are. A finite one has
/// weight if the others are smaller, and a text would depend on the padding of its batch.
const MASKED: f32 = f32::NEG_INFINITY;

/// Returns the weighted values. Every query must have a key that is not masked.
///
/// # Shapes
///
/// - query, key, value, output: `[batch_size, positions, heads · size]`
/// - mask: broadcast to `[batch_size, heads, positions, positions]`; `true` masks
pub(crate) fn attend(
    [query, key, value]: [Tensor<3>; 3],
    heads: usize,
    mask: Option<Tensor<4, Bool>>,
) -> Tensor<3> {
    let [batch_size, positions, width] = query.dims();
    let size = width / heads;
    let split =
        |input: Tensor<3>| input.reshape([batch_size, positions, heads, size]).swap_dims(1, 2);
    let scores = split(query).matmul(split(key).transpose()).div_scalar((size as f32).sqrt());
    let scores = match mask {
        Some(mask) => scores.mask_fill(mask, MASKED),
        None => scores,
    };
    let context = softmax(scores, 3).matmul(split(value));
    context.swap_dims(1, 2).reshape([batch_size, positions, width])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn masked_keys_have_no_weight_next_to_very_low_scores() {
        let device = Device::flex().autodiff();
        let zeros_and_ones = |ones: &[usize]| {
            let values: Vec<f32> =
                (0..4).map(|position| f32::from(u8::from(ones.contains(&position)))).collect();
            Tensor::<3>::from_data(TensorData::new(values, [1, 4, 1]), &device)
        };
        // All scores are -65536 or 0; the last two keys are padding.
        let query = (zeros_and_ones(&[0, 1]) * 256).require_grad();
        let key = (zeros_and_ones(&[0, 1]) * -256).require_grad();
        let value = (zeros_and_ones(&[1, 2, 3]) * 2).require_grad();
        let mask = zeros_and_ones(&[2, 3]).equal_elem(1).reshape([1, 1, 1, 4]);
        let output = attend([query.clone(), key.clone(), value.clone()], 1, Some(mask));
        let values = |tensor: Tensor<3>| tensor.into_data().iter::<f32>().collect::<Vec<_>>();
        assert_eq!(values(output.clone()), [1.0; 4]);
        let grads = (output * zeros_and_ones(&[0])).sum().backward();
        let grad = |input: &Tensor<3>| {
            let grad = input.grad(&grads).map(|grad| grad.into_data());
            grad.into_iter().flat_map(|grad| grad.iter::<f32>().collect::<Vec<_>>()).collect()
        };
        let grads: [Vec<f32>; 3] = [&query, &key, &value].map(grad);
        assert_eq!(grads[0], [0.0; 4]);
        assert_eq!(grads[1], [-128.0, 128.0, 0.0, 0.0]);
        assert_eq!(grads[2], [0.5, 0.5, 0.0, 0.0]);
    }
}
