//! Bounds the effect of rounding on the loss and the gradient of an example in different batches.

use burn::module::Module;
use burn::tensor::{DType, Device, FloatDType, Tensor};

use super::observed::Observed;
use crate::grads::precision::Precision;
use crate::model::{for_each_parameter, map_parameters};
use crate::random::{Domain, InsecureSeed, Stream};

/// A change of the parameters of relative size √ε moves a value by far more than the rounding of
/// its pass, whose size is ε times a small factor. This factor covers values that this particular
/// change moves less than usual.
const MARGIN: f64 = 8.0;

/// A pass rounds like a change of the parameters by at most this many ε.
const ROUNDINGS: f64 = 64.0;

/// The rounding of the passes of one model.
///
/// Kernels may add in another order for another batch size. By backward error analysis, a product
/// that is computed with rounding is the exact product of parameters that are changed by the size
/// of the rounding. The tolerance is therefore measured: the parameters are changed by √ε, each up
/// or down, and a value may differ by eight times the resulting change, plus √ε of its size. Values
/// that are ill-conditioned (differences of nearly equal numbers, a ReLU at its kink in half
/// precision) get a large tolerance, and others a small one.
///
/// The rounding itself is only a few ε, but at a jump (a ReLU at its kink) it moves the gradient of
/// a unit as much as √ε does. That happens to few units. So half of the units may only differ by
/// the share of that tolerance that 64 ε are of √ε.
///
/// # References
///
/// N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, sections 1.5 and 3.5.
pub(super) struct Rounding {
    /// √ε of the lowest precision.
    relative: f64,
}

impl Rounding {
    /// Returns the rounding of a model whose losses have this type, on this device.
    pub(super) fn of<M: Module>(model: &M, (losses, device): &(DType, Device)) -> Self {
        let epsilon = |dtype: DType| dtype.finfo().unwrap_or(FloatDType::F32.finfo()).epsilon;
        // Norms are computed in single precision.
        let single = epsilon(DType::F32);
        let mut largest = single.max(epsilon(*losses)).max(Precision::of(device).epsilon());
        for_each_parameter(model, |_, parameter| {
            largest = largest.max(epsilon(parameter.value.dtype()));
        });
        Self { relative: largest.sqrt() }
    }

    /// Returns the model with every parameter and buffer changed by √ε.
    pub(super) fn perturb<M: Module>(&self, model: M) -> M {
        let mut words =
            Stream::new(&InsecureSeed(0).into(), Domain::Independence, 0, 0).into_words();
        map_parameters(model, |_, parameter| {
            if matches!(parameter.value.dtype(), DType::QFloat(_)) {
                return None;
            }
            let length = parameter.value.shape().num_elements();
            let signs = words.by_ref().flat_map(|word| (0..64).map(move |bit| word >> bit & 1));
            let factor = |sign| if sign == 1 { 1.0 + self.relative } else { 1.0 - self.relative };
            let factors: Vec<f32> = signs.map(|sign| factor(sign) as f32).take(length).collect();
            let values = parameter.value.flat();
            let options = (&values.device(), values.dtype());
            let factors = Tensor::<1>::from_data(factors.as_slice(), options);
            Some(values * factors)
        })
    }

    /// Returns the first quantity that differs for two units when the same batch is computed again,
    /// or `None` if all repeat.
    ///
    /// The change of the parameters moves a value at least as much as random values do, because its
    /// pass draws different ones. The tolerance is therefore a fraction of the change of the median
    /// unit.
    pub(super) fn repeats(
        &self,
        batch: &Observed,
        again: &Observed,
        perturbed: &Observed,
    ) -> Option<usize> {
        (0..batch.values.len()).find(|&quantity| {
            let values = &batch.values[quantity];
            let tolerance = median(&moved(values, &perturbed.values[quantity])) / MARGIN;
            let moved = moved(values, &again.values[quantity]);
            let differs =
                |(moved, scale): &(&f64, &f64)| **moved > tolerance + self.relative * **scale;
            moved.iter().zip(&batch.scales[quantity]).filter(differs).count() >= 2
        })
    }

    /// Returns how much each value of a batch may differ in another batch: `[quantities][units]`.
    pub(super) fn tolerances(&self, batch: &Observed, perturbed: &Observed) -> Vec<Vec<f64>> {
        let quantities = batch.values.iter().zip(&perturbed.values).zip(&batch.scales);
        quantities
            .map(|((values, perturbed), scales)| {
                let moved = moved(values, perturbed);
                let median = median(&moved);
                let tolerance = |(moved, scale): (&f64, &f64)| {
                    let tolerance = MARGIN * (moved + median) + self.relative * scale;
                    // What cannot be judged is not judged.
                    if tolerance.is_nan() { f64::INFINITY } else { tolerance }
                };
                moved.iter().zip(scales).map(tolerance).collect()
            })
            .collect()
    }

    /// Returns the share of the tolerances by which half of the units may differ.
    pub(super) fn share_of_half(&self) -> f64 {
        (ROUNDINGS * self.relative).min(1.0)
    }
}

/// Returns the change of each value.
fn moved(values: &[f64], others: &[f64]) -> Vec<f64> {
    values.iter().zip(others).map(|(value, other)| (value - other).abs()).collect()
}

/// Returns the upper median of the finite values; 0 without any.
fn median(values: &[f64]) -> f64 {
    let mut finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    finite.sort_by(f64::total_cmp);
    finite.get(finite.len() / 2).copied().unwrap_or(0.0)
}
