use burn::backend::{Flex, tensor::FloatTensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::activation::{apply, apply_backward};
use super::{columns, fits, matrix, rows_of_task};
use crate::ops::LstmCell;

/// Returns the values of the gates and the candidate, the cell, its activation, and the hidden
/// state; see [`FusedOps::lstm`](crate::ops::FusedOps::lstm).
pub(in crate::ops::backends::flex) fn lstm(
    projected: &FloatTensor<Flex>,
    product: &FloatTensor<Flex>,
    cell: &FloatTensor<Flex>,
    lstm: LstmCell,
) -> Option<[FloatTensor<Flex>; 4]> {
    let (size, width) = (columns(cell)?, columns(projected)?);
    let fits = [projected, product].into_iter().all(|sum| fits(sum, cell, width));
    if lstm.clip.is_some() || !fits || width != (lstm.sigmoid_gates() + 1) * size {
        return None;
    }
    let projected = projected.as_slice::<f32>()?;
    let product = product.as_slice::<f32>()?;
    let before = cell.as_slice::<f32>()?;
    let mut gates = vec![0.0; projected.len()];
    let [mut cell, mut activated, mut hidden] = [(); 3].map(|()| vec![0.0; before.len()]);
    let rows = rows_of_task(width);
    (
        projected.par_chunks(rows * width),
        product.par_chunks(rows * width),
        before.par_chunks(rows * size),
        gates.par_chunks_mut(rows * width),
        cell.par_chunks_mut(rows * size),
        activated.par_chunks_mut(rows * size),
        hidden.par_chunks_mut(rows * size),
    )
        .into_par_iter()
        .for_each(|(projected, product, before, gates, cell, activated, hidden)| {
            let inputs = (projected, product, before);
            let outputs = (gates, cell, activated, hidden);
            Arch::new().dispatch(Forward { lstm, size, width, inputs, outputs });
        });
    Some([matrix(gates, width), matrix(cell, size), matrix(activated, size), matrix(hidden, size)])
}

/// Returns the gradients of the projection and of the previous cell; see
/// [`FusedOps::lstm_backward`](crate::ops::FusedOps::lstm_backward).
pub(in crate::ops::backends::flex) fn lstm_backward(
    kept: [&FloatTensor<Flex>; 3],
    grads: [&FloatTensor<Flex>; 2],
    lstm: LstmCell,
) -> Option<[FloatTensor<Flex>; 2]> {
    let (size, width) = (columns(kept[1])?, columns(kept[0])?);
    let states = [kept[2], grads[0], grads[1]];
    let fits =
        fits(kept[0], kept[1], width) && states.iter().all(|state| fits(state, kept[1], size));
    if lstm.clip.is_some() || !fits || width != (lstm.sigmoid_gates() + 1) * size {
        return None;
    }
    let [gates, before, activated] = kept.map(|tensor| tensor.as_slice::<f32>());
    let [hidden_grad, cell_grad] = grads.map(|tensor| tensor.as_slice::<f32>());
    let (gates, before, activated) = (gates?, before?, activated?);
    let (hidden_grad, cell_grad) = (hidden_grad?, cell_grad?);
    let mut projected = vec![0.0; gates.len()];
    let mut carried = cell_grad.to_vec();
    let rows = rows_of_task(width);
    (
        gates.par_chunks(rows * width),
        before.par_chunks(rows * size),
        activated.par_chunks(rows * size),
        hidden_grad.par_chunks(rows * size),
        projected.par_chunks_mut(rows * width),
        carried.par_chunks_mut(rows * size),
    )
        .into_par_iter()
        .for_each(|(gates, before, activated, hidden_grad, projected, carried)| {
            let inputs = (gates, before, activated, hidden_grad);
            let outputs = (projected, carried);
            Arch::new().dispatch(Backward { lstm, size, width, inputs, outputs });
        });
    Some([matrix(projected, width), matrix(carried, size)])
}

/// Some rows of the forward pass, compiled for each vector unit.
struct Forward<'a> {
    lstm: LstmCell,
    size: usize,
    width: usize,
    /// Contributions of input and hidden state, and the previous cell.
    inputs: (&'a [f32], &'a [f32], &'a [f32]),
    /// Gates and candidate, cell, its activation, hidden state.
    outputs: (&'a mut [f32], &'a mut [f32], &'a mut [f32], &'a mut [f32]),
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { lstm, size, width, inputs, outputs } = self;
        let of_gates = inputs.0.chunks_exact(width).zip(inputs.1.chunks_exact(width));
        let states = inputs.2.chunks_exact(size);
        let gates = outputs.0.chunks_exact_mut(width);
        let cells = outputs.1.chunks_exact_mut(size).zip(outputs.2.chunks_exact_mut(size));
        let hidden = outputs.3.chunks_exact_mut(size);
        for (((((projected, product), before), gates), (cell, activated)), hidden) in
            of_gates.zip(states).zip(gates).zip(cells).zip(hidden)
        {
            for ((gate, projected), product) in gates.iter_mut().zip(projected).zip(product) {
                *gate = projected + product;
            }
            let (sigmoid_gates, candidate) = gates.split_at_mut(width - size);
            apply(lstm.gates, sigmoid_gates);
            apply(lstm.candidate, candidate);

            let (input, forget, output) = split(sigmoid_gates, size);
            for index in 0..size {
                let forget = if lstm.coupled { 1.0 - input[index] } else { forget[index] };
                cell[index] = forget * before[index] + input[index] * candidate[index];
            }
            activated.copy_from_slice(cell);
            apply(lstm.hidden, activated);
            for ((hidden, output), activated) in hidden.iter_mut().zip(output).zip(activated) {
                *hidden = output * *activated;
            }
        }
    }
}

/// Returns the input, forget, and output gates. For a coupled forget gate, which is one minus the
/// input gate, it returns the input gate.
#[inline(always)]
fn split(gates: &[f32], size: usize) -> (&[f32], &[f32], &[f32]) {
    let forget = gates.len() - 2 * size;
    (&gates[..size], &gates[forget..forget + size], &gates[gates.len() - size..])
}

/// Some rows of the backward pass, compiled for each vector unit.
struct Backward<'a> {
    lstm: LstmCell,
    size: usize,
    width: usize,
    /// Gates and candidate, the previous cell, the activation of the cell, and the gradient of the
    /// hidden state.
    inputs: (&'a [f32], &'a [f32], &'a [f32], &'a [f32]),
    /// The gradient of the projection; and the gradient of the cell, which is replaced with the
    /// gradient of the previous cell.
    outputs: (&'a mut [f32], &'a mut [f32]),
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { lstm, size, width, inputs, outputs } = self;
        let kept = inputs.0.chunks_exact(width).zip(inputs.1.chunks_exact(size));
        let states = inputs.2.chunks_exact(size).zip(inputs.3.chunks_exact(size));
        let outputs = outputs.0.chunks_exact_mut(width).zip(outputs.1.chunks_exact_mut(size));
        let mut through = vec![0.0; size];
        for (((gates, before), (activated, hidden_grad)), (projected, carried)) in
            kept.zip(states).zip(outputs)
        {
            let (sigmoid_gates, candidate) = gates.split_at(width - size);
            let (input, forget, output) = split(sigmoid_gates, size);
            let (gate_grads, candidate_grad) = projected.split_at_mut(width - size);

            for ((through, grad), output) in through.iter_mut().zip(hidden_grad).zip(output) {
                *through = grad * output;
            }
            apply_backward(lstm.hidden, activated, &mut through);
            for (cell_grad, through) in carried.iter_mut().zip(&through) {
                *cell_grad += through;
            }
            let (of_input, rest) = gate_grads.split_at_mut(size);
            let (of_forget, of_output) = rest.split_at_mut(rest.len() - size);
            for index in 0..size {
                let cell_grad = carried[index];
                of_output[index] = hidden_grad[index] * activated[index];
                candidate_grad[index] = cell_grad * input[index];
                if lstm.coupled {
                    of_input[index] = cell_grad * (candidate[index] - before[index]);
                    carried[index] = cell_grad * (1.0 - input[index]);
                } else {
                    of_input[index] = cell_grad * candidate[index];
                    of_forget[index] = cell_grad * before[index];
                    carried[index] = cell_grad * forget[index];
                }
            }
            apply_backward(lstm.gates, sigmoid_gates, gate_grads);
            apply_backward(lstm.candidate, candidate, candidate_grad);
        }
    }
}
