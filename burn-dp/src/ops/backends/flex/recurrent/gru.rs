use burn::backend::{Flex, tensor::FloatTensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::activation::{apply, apply_backward};
use super::{columns, fits, matrix, rows_of_task};
use crate::ops::GruCell;

/// Returns the values of the gates and the candidate, and the hidden state; see
/// [`FusedOps::gru`](crate::ops::FusedOps::gru).
pub(in crate::ops::backends::flex) fn gru(
    projected: &FloatTensor<Flex>,
    product: &FloatTensor<Flex>,
    hidden: &FloatTensor<Flex>,
    gru: GruCell,
) -> Option<[FloatTensor<Flex>; 2]> {
    let size = columns(hidden)?;
    let fits = [projected, product].into_iter().all(|sum| fits(sum, hidden, 3 * size));
    if gru.clip.is_some() || !gru.reset_after || !fits {
        return None;
    }
    let projected = projected.as_slice::<f32>()?;
    let product = product.as_slice::<f32>()?;
    let before = hidden.as_slice::<f32>()?;
    let mut gates = vec![0.0; projected.len()];
    let mut hidden = vec![0.0; before.len()];
    let rows = rows_of_task(3 * size);
    (
        projected.par_chunks(rows * 3 * size),
        product.par_chunks(rows * 3 * size),
        before.par_chunks(rows * size),
        gates.par_chunks_mut(rows * 3 * size),
        hidden.par_chunks_mut(rows * size),
    )
        .into_par_iter()
        .for_each(|(projected, product, before, gates, hidden)| {
            let inputs = (projected, product, before);
            Arch::new().dispatch(Forward { gru, size, inputs, outputs: (gates, hidden) });
        });
    Some([matrix(gates, 3 * size), matrix(hidden, size)])
}

/// Returns the gradients of the projection, of the product, and the part of the gradient of the
/// previous hidden state that does not pass through the product; see
/// [`FusedOps::gru_backward`](crate::ops::FusedOps::gru_backward).
pub(in crate::ops::backends::flex) fn gru_backward(
    kept: [&FloatTensor<Flex>; 3],
    grad: &FloatTensor<Flex>,
    gru: GruCell,
) -> Option<[FloatTensor<Flex>; 3]> {
    let size = columns(grad)?;
    let fits = [kept[0], kept[1]].into_iter().all(|sum| fits(sum, grad, 3 * size))
        && fits(kept[2], grad, size);
    if gru.clip.is_some() || !gru.reset_after || !fits {
        return None;
    }
    let [gates, product, before] = kept.map(|tensor| tensor.as_slice::<f32>());
    let (gates, product, before) = (gates?, product?, before?);
    let grad = grad.as_slice::<f32>()?;
    let [mut projected, mut of_product] = [(); 2].map(|()| vec![0.0; gates.len()]);
    let mut carried = vec![0.0; grad.len()];
    let rows = rows_of_task(3 * size);
    (
        gates.par_chunks(rows * 3 * size),
        product.par_chunks(rows * 3 * size),
        before.par_chunks(rows * size),
        grad.par_chunks(rows * size),
        projected.par_chunks_mut(rows * 3 * size),
        of_product.par_chunks_mut(rows * 3 * size),
        carried.par_chunks_mut(rows * size),
    )
        .into_par_iter()
        .for_each(|(gates, product, before, grad, projected, of_product, carried)| {
            let inputs = (gates, product, before, grad);
            let outputs = (projected, of_product, carried);
            Arch::new().dispatch(Backward { gru, size, inputs, outputs });
        });
    Some([matrix(projected, 3 * size), matrix(of_product, 3 * size), matrix(carried, size)])
}

/// Some rows of the forward pass, compiled for each vector unit.
struct Forward<'a> {
    gru: GruCell,
    size: usize,
    /// Contributions of input and hidden state, and the previous hidden state.
    inputs: (&'a [f32], &'a [f32], &'a [f32]),
    /// Gates and candidate, hidden state.
    outputs: (&'a mut [f32], &'a mut [f32]),
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { gru, size, inputs, outputs } = self;
        let of_gates = inputs.0.chunks_exact(3 * size).zip(inputs.1.chunks_exact(3 * size));
        let outputs = outputs.0.chunks_exact_mut(3 * size).zip(outputs.1.chunks_exact_mut(size));
        for (((projected, product), before), (gates, hidden)) in
            of_gates.zip(inputs.2.chunks_exact(size)).zip(outputs)
        {
            let (gates, candidate) = gates.split_at_mut(2 * size);
            for ((gate, projected), product) in gates.iter_mut().zip(projected).zip(product) {
                *gate = projected + product;
            }
            apply(gru.gates, gates);
            let (update, reset) = gates.split_at(size);
            let of_candidate = projected[2 * size..].iter().zip(&product[2 * size..]);
            for ((candidate, (projected, product)), reset) in
                candidate.iter_mut().zip(of_candidate).zip(reset)
            {
                *candidate = projected + reset * product;
            }
            apply(gru.candidate, candidate);
            for index in 0..size {
                hidden[index] =
                    candidate[index] * (1.0 - update[index]) + update[index] * before[index];
            }
        }
    }
}

/// Some rows of the backward pass, compiled for each vector unit.
struct Backward<'a> {
    gru: GruCell,
    size: usize,
    /// Gates and candidate, product, the previous hidden state, and the gradient of the hidden
    /// state.
    inputs: (&'a [f32], &'a [f32], &'a [f32], &'a [f32]),
    /// Gradients of the projection, of the product, and of the previous hidden state.
    outputs: (&'a mut [f32], &'a mut [f32], &'a mut [f32]),
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { gru, size, inputs, outputs } = self;
        let kept = inputs.0.chunks_exact(3 * size).zip(inputs.1.chunks_exact(3 * size));
        let states = inputs.2.chunks_exact(size).zip(inputs.3.chunks_exact(size));
        let grads = outputs.0.chunks_exact_mut(3 * size).zip(outputs.1.chunks_exact_mut(3 * size));
        for ((((gates, product), (before, grad)), (projected, of_product)), carried) in
            kept.zip(states).zip(grads).zip(outputs.2.chunks_exact_mut(size))
        {
            let (gates, candidate) = gates.split_at(2 * size);
            let (update, reset) = gates.split_at(size);
            let (gate_grads, candidate_grad) = projected.split_at_mut(2 * size);
            for index in 0..size {
                candidate_grad[index] = grad[index] * (1.0 - update[index]);
                carried[index] = grad[index] * update[index];
            }
            apply_backward(gru.candidate, candidate, candidate_grad);
            let (update_grad, reset_grad) = gate_grads.split_at_mut(size);
            for index in 0..size {
                update_grad[index] = grad[index] * (before[index] - candidate[index]);
                reset_grad[index] = candidate_grad[index] * product[2 * size + index];
                of_product[2 * size + index] = candidate_grad[index] * reset[index];
            }
            apply_backward(gru.gates, gates, gate_grads);
            of_product[..2 * size].copy_from_slice(gate_grads);
        }
    }
}
