//! The primitives on Burn's high-level tensors.

use burn::backend::Dispatch;
use burn::module::Param;
use burn::tensor::{Int, Shape, Tensor};

use super::{Bias, Kept, LayerIds, ParametricOps, Patches, Primitive, Slot};

/// Calls a layer's operation so that its parameters get their gradients from a tap.
///
/// `forward` is Burn's operation; it sees the parameters as constants where they are trained.
/// `kept` is asked for what the gradient of the weight needs, if it is trained; see [`Primitive`].
///
/// The batch must be axis 0 of the output and of what is kept.
pub(crate) fn apply<const W: usize, const D: usize>(
    weight: &Param<Tensor<W>>,
    bias: Option<&Param<Tensor<1>>>,
    primitive: Primitive,
    kept: impl FnOnce() -> Kept<Dispatch>,
    forward: impl FnOnce(Tensor<W>, Option<Tensor<1>>) -> Tensor<D>,
) -> Tensor<D> {
    let layer = LayerIds { weight: weight.id, bias: bias.map(|bias| bias.id) };
    let (weight, bias) = (weight.val(), bias.map(Param::val));
    let weight_trained = weight.is_tracked();
    if !weight_trained && !bias.as_ref().is_some_and(Tensor::is_tracked) {
        // What would be kept is dropped first, so that the operation may work in place.
        drop(kept);
        return forward(weight, bias);
    }
    let output = forward(constant(&weight), bias.as_ref().map(constant));
    let kept = if weight_trained { kept() } else { Kept::Nothing };
    Tensor::from_dispatch(Dispatch::tap(
        output.into_dispatch(),
        weight.into_dispatch(),
        bias_of(bias),
        kept,
        layer,
        primitive,
    ))
}

fn bias_of(bias: Option<Tensor<1>>) -> Bias<Dispatch> {
    match bias {
        Some(bias) => Bias::Present(bias.into_dispatch()),
        None => Bias::Absent,
    }
}

/// The convolution that `primitive` says, with parameters that are constants: gradients reach the
/// input alone.
///
/// # Shapes
///
/// As Burn's operation of that name.
pub(crate) fn convolution<const D: usize>(
    input: Tensor<D>,
    weight: Tensor<D>,
    bias: Option<Tensor<1>>,
    primitive: Primitive,
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::convolution(
        input.into_dispatch(),
        weight.into_dispatch(),
        bias_of(bias),
        primitive,
    ))
}

/// The same values outside of the graph.
fn constant<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    tensor.clone().set_require_grad(false)
}

/// Keeps an input.
pub(crate) fn keep<const D: usize>(input: Tensor<D>) -> Kept<Dispatch> {
    Kept::One(input.into_dispatch())
}

/// Keeps indices.
pub(crate) fn keep_ids(ids: Tensor<2, Int>) -> Kept<Dispatch> {
    Kept::Ids(ids.into_dispatch())
}

/// Keeps what a deformable convolution samples.
pub(crate) fn keep_deformed(
    input: Tensor<4>,
    offset: Tensor<4>,
    mask: Option<Tensor<4>>,
) -> Kept<Dispatch> {
    let (input, offset) = (input.into_dispatch(), offset.into_dispatch());
    match mask {
        Some(mask) => Kept::Modulated(input, offset, mask.into_dispatch()),
        None => Kept::Deformed(input, offset),
    }
}

/// The gradient of a weight, summed over the batch, flattened: `[values]`. All tensors are on a
/// device without autodiff.
pub(crate) fn weight_gradient<const D: usize>(
    output_grad: Tensor<D>,
    kept: Kept<Dispatch>,
    weight: Shape,
    primitive: Primitive,
) -> Tensor<1> {
    let grad = Dispatch::weight_gradient(output_grad.into_dispatch(), kept, weight, primitive);
    Tensor::from_dispatch(grad)
}

/// Takes a recorded tensor out of its slot, as a tensor of the backend of `witness`.
pub(crate) fn take<const D: usize>(witness: &Tensor<1>, slot: Slot) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::take_recorded(witness.clone().into_dispatch(), slot))
}

/// Takes a recorded tensor out of its slot, its rows flattened: `[batch_size, values]`.
pub(crate) fn take_rows(witness: &Tensor<1>, slot: Slot) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::take_recorded_rows(witness.clone().into_dispatch(), slot))
}

/// Takes recorded indices out of their slot.
pub(crate) fn take_ids(witness: &Tensor<1>, slot: Slot) -> Tensor<2, Int> {
    Tensor::from_dispatch(Dispatch::take_recorded_ids(witness.clone().into_dispatch(), slot))
}

/// The patches that the kernel of a convolution sees (im2col).
///
/// # Shapes
///
/// - input: `[batch_size, channels, …]` with one to three more axes, on a device without autodiff
/// - output: `[batch_size · groups, channels / groups · kernel values, positions]`
pub(crate) fn patches<const D: usize>(input: Tensor<D>, patches: &Patches) -> Tensor<3> {
    let dims = input.dims();
    let shape: [usize; 5] = std::array::from_fn(|axis| match axis {
        0 | 1 => dims[axis],
        _ if axis + D < 7 => 1,
        _ => dims[axis + D - 5],
    });
    patches_of_volumes(input.reshape(shape), patches)
}

fn patches_of_volumes(input: Tensor<5>, patches: &Patches) -> Tensor<3> {
    match Dispatch::native_patches(input.clone().into_dispatch(), patches.clone()) {
        Some(native) => Tensor::from_dispatch(native),
        None => patches.by_views(input),
    }
}

/// Squared norms of rows, not underestimated but for what underflow loses and a few units in the
/// last place.
///
/// # Shapes
///
/// - rows: `[rows, values]`, on a device without autodiff
/// - output: `[rows]`
pub(crate) fn row_squared_norms(rows: Tensor<2>) -> Tensor<1> {
    match Dispatch::native_row_squared_norms(rows.clone().into_dispatch()) {
        Some(native) => Tensor::from_dispatch(native),
        None => {
            let [_, values] = rows.dims();
            // The squares are rounded too, and what they are rounded up by.
            let rounding = (additions(values) + 3) as f64 * f64::from(f32::EPSILON);
            row_sums(rows.square()).mul_scalar(1.0 + rounding)
        }
    }
}

/// Values that are added one after another before their sums are.
const BLOCK: usize = 64;

/// Sums of rows: of blocks first, then of their sums, and so on, so that rounding grows with the
/// number of levels and not with that of the values. In whatever order a device adds up a block,
/// each value passes through `additions(values)` roundings at most.
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

/// Roundings of a value in [`row_sums`], at most.
fn additions(mut values: usize) -> usize {
    let mut additions = 0;
    while values > BLOCK {
        additions += BLOCK - 1;
        values = values.div_ceil(BLOCK);
    }
    additions + values.saturating_sub(1)
}

/// Per example, `Σ_v ‖Σ_{t: ids[t] = v} rows[t]‖²`, if the backend has a way that is linear in the
/// positions.
///
/// # Shapes
///
/// - ids: `[batch_size, positions]`
/// - rows: `[batch_size, positions, features]`
/// - output: `[batch_size]`
pub(crate) fn indexed_squared_norms(ids: Tensor<2, Int>, rows: Tensor<3>) -> Option<Tensor<1>> {
    Dispatch::native_indexed_squared_norms(ids.into_dispatch(), rows.into_dispatch())
        .map(Tensor::from_dispatch)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::TensorData;

    use super::*;
    use crate::test_devices::devices;

    /// Equal values are the worst for a sum of one after another: every addition rounds to the same
    /// side.
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
                    // A few units in the last place are below what every coefficient leaves.
                    assert!(
                        norm >= exact * (1.0 - 4.0 * f64::from(f32::EPSILON)),
                        "{norm} {exact} on {device:?}"
                    );
                    assert!(norm <= exact * (1.0 + 5e-5), "{norm} {exact} on {device:?}");
                }
            }
        }
    }

    #[test]
    fn rows_are_added_up_whatever_their_length() {
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
    fn a_value_passes_through_no_more_additions_than_said() {
        // Twice a block and the rest of 65: 63 in a block, 1 between the two sums.
        assert_eq!(
            [0, 1, 2, 64, 65, 128, 4096, 4097].map(additions),
            [0, 0, 1, 63, 64, 64, 126, 127]
        );
    }
}
