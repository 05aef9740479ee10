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
            Stream::new(&InsecureSeed(1).into(), Domain::Independence, 0, 0).into_words();
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

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDING: Rounding = Rounding { relative: 1.0 / 1024.0 };

    /// Returns one quantity of some units, whose rounding is relative to `scale`.
    fn observed<const N: usize>(values: [f64; N], scale: f64) -> Observed {
        Observed {
            values: vec![values.into()],
            scales: vec![vec![scale; N]],
            rounding: vec![vec![0.0; N]],
            precision: (DType::F32, Device::default()),
        }
    }

    #[test]
    fn the_upper_median_is_of_finite_values() {
        assert_eq!(median(&[4.0, 1.0, f64::NAN, 3.0, 2.0]), 3.0);
        assert_eq!(median(&[5.0, f64::INFINITY, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[f64::NAN]), 0.0);
    }

    #[test]
    fn a_tolerance_is_the_change_by_the_parameters_and_the_relative_rounding() {
        let batch = observed([1.0, 2.0, 4.0, 8.0], 1024.0);
        let perturbed = observed([1.5, 2.0, 4.25, f64::NAN], 1024.0);
        // The changes are 1/2, 0 and 1/4.
        let expected = [0.75, 0.25, 0.5].map(|moved| 8.0 * moved + 1.0);
        let tolerances = ROUNDING.tolerances(&batch, &perturbed).concat();
        assert_eq!(tolerances, [expected.as_slice(), &[f64::INFINITY]].concat());
    }

    #[test]
    fn two_units_that_do_not_repeat_are_random() {
        for (perturbed, scale, moved, is_random) in [
            // An eighth of the change by the parameters is 1/2.
            (4.0, 1.0, 0.4, false),
            (4.0, 1.0, 0.6, true),
            // The relative rounding is 1.
            (0.0, 1024.0, 0.9, false),
            (0.0, 1024.0, 1.1, true),
        ] {
            let batch = observed([10.0, 20.0, 30.0], scale);
            let perturbed = observed([10.0, 20.0, 30.0].map(|value| value + perturbed), scale);
            let two = observed([10.0 + moved, 20.0, 30.0 + moved], scale);
            let found = ROUNDING.repeats(&batch, &two, &perturbed);
            assert_eq!(found, is_random.then_some(0), "{moved}");
            let one = observed([10.0 + moved, 20.0, 30.0], scale);
            assert_eq!(ROUNDING.repeats(&batch, &one, &perturbed), None);
        }
    }
}
