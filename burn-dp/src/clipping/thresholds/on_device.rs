//! Clipping coefficients on a device, where numbers have single precision.
//!
//! The norms stay on the device until the step reads them for its counts. Let ε be 2⁻²². WGSL
//! allows an error of 1.25 ε in a division, and of 2.25 ε in a square root, which may be an inverse
//! square root and a division; any other operation is off by at most ε/2. So:
//!
//! - The squared norm of a parameter is the square of a sum of two square roots, or a product, and
//!   is off by less than 24 ε. Adding the parameters of a group and the groups costs at most ε for
//!   each. The slack of a group covers all of this.
//! - A coefficient is a threshold, rounded down, over a square root that is multiplied and perhaps
//!   increased: less than 12 ε. `ROUNDING` covers them, and as much for the weighted sum as on the
//!   host.

use super::bound::Bound;
use super::coefficients::Scaling;
use crate::grads::NormTable;
use crate::ops::{DeviceClipping, DeviceGroup, single_above};

/// The ε of the module's documentation.
const OPERATION: f64 = 1.0 / (1 << 22) as f64;

/// The relative increase of a norm: as on the host, and 12 ε more.
const ROUNDING: f64 = super::count::ROUNDING + 12.0 * OPERATION;

/// Bounds what a square root of a sum can lose if the device flushes a subnormal term to zero.
const FLUSHED: f64 = 1.0 / (1u128 << 100) as f64;

/// Thresholds outside of this range, and squared multipliers, would come too close to underflow or
/// overflow in single precision; the host computes their coefficients.
const RANGE: std::ops::RangeInclusive<f64> = 1e-12..=1e12;

/// Returns whether all numbers are in the range of single precision.
pub(super) fn fits(bound: &Bound, scaling: Scaling) -> bool {
    let multipliers = match bound {
        Bound::Whole { multipliers, .. } => multipliers.as_slice(),
        Bound::PerGroup { .. } => &[],
    };
    let numbers = bound.norms().iter().copied().chain(stability(scaling));
    let squares = multipliers.iter().map(|multiplier| multiplier * multiplier);
    numbers.chain(squares).all(|number| RANGE.contains(&number))
}

fn stability(scaling: Scaling) -> Option<f64> {
    match scaling {
        Scaling::Clip => None,
        Scaling::Normalize { stability } => Some(stability),
    }
}

/// Returns how a device clips. The numbers have to [fit](fits).
pub(super) fn device_clipping(
    bound: &Bound,
    scaling: Scaling,
    table: &NormTable,
    groups: usize,
    real: Option<&[bool]>,
) -> DeviceClipping {
    let squared_multiplier = |group: usize| match bound {
        Bound::Whole { multipliers, .. } => multipliers[group] * multipliers[group],
        Bound::PerGroup { .. } => 1.0,
    };
    let per_group = matches!(bound, Bound::PerGroup { .. });
    let group = |group: usize| {
        let of_group = table.parameters.iter().filter(|row| row.group == group);
        let underflow: f64 = of_group.clone().map(|row| row.underflow + FLUSHED).sum();
        let parameters: Vec<_> = of_group.map(|row| row.on_device()).collect();
        // All groups add up to the norm of the whole gradient.
        let operations = parameters.len() + 2 * groups + 24;
        DeviceGroup {
            slack: single_above(1.0 + operations as f64 * OPERATION),
            added: single_above(underflow),
            squared_multiplier: match squared_multiplier(group) {
                1.0 => 1.0,
                factor => single_above(factor),
            },
            threshold: down(bound.norms()[if per_group { group } else { 0 }]),
            parameters,
        }
    };
    DeviceClipping {
        per_group,
        stability: stability(scaling).map(|stability| stability as f32),
        rounding: single_above(1.0 + ROUNDING),
        groups: (0..groups).map(group).collect(),
        real: real.map(<[bool]>::to_vec),
    }
}

/// Rounds down to single precision.
fn down(value: f64) -> f32 {
    let rounded = value as f32;
    if f64::from(rounded) > value { rounded.next_down() } else { rounded }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Tensor, TensorData};

    use crate::clipping::{NoiseSplit, Thresholds};
    use crate::grads::{NormRow, NormTable};
    use crate::model::groups::three_groups;
    use crate::ops::{coefficients, has_kernels};
    use crate::test_devices::devices;

    const UNITS: usize = 500;

    /// Returns squared norms over many magnitudes; the last units have values that are not finite.
    fn table() -> Vec<Vec<f32>> {
        let value = |row: usize, unit: usize| {
            let place = (row * UNITS + unit) as f32;
            10f32.powf(24.0 * (place * 0.618).fract() - 12.0)
        };
        let mut rows: Vec<Vec<f32>> =
            (0..7).map(|row| (0..UNITS).map(|unit| value(row, unit)).collect()).collect();
        // Rounding can make a ghost norm negative.
        rows[1][3] = -1e-3;
        rows[0][4] = 0.0;
        for (row, unit, bad) in [
            (0, UNITS - 1, f32::NAN),
            (2, UNITS - 2, f32::INFINITY),
            (4, UNITS - 3, f32::NEG_INFINITY),
            (5, UNITS - 4, f32::MAX),
        ] {
            rows[row][unit] = bad;
        }
        rows
    }

    fn rows() -> Vec<NormRow> {
        vec![
            NormRow::new(0, 0, 1.0, None),
            NormRow::new(1, 1, 1.0, Some([1e-5, 3e-4])),
            NormRow::new(0, 3, 1.0, Some([0.0, 2e-3])),
            NormRow::new(2, 5, 1.004, None),
            NormRow::new(0, 6, 1.0, None),
        ]
    }

    fn host(tensor: Tensor<2>) -> Vec<Vec<f32>> {
        let [_, columns] = tensor.dims();
        let values: Vec<f32> = tensor.into_data().try_into_vec().unwrap();
        values.chunks(columns).map(<[f32]>::to_vec).collect()
    }

    fn of_device(
        thresholds: &Thresholds,
        real: Option<&[bool]>,
        device: &Device,
    ) -> [Vec<Vec<f32>>; 2] {
        let values = table().concat();
        let table = Tensor::from_data(TensorData::new(values, [7, UNITS]), device);
        let table = NormTable { table, parameters: rows() };
        let clipping = thresholds.device_clipping(&table, real);
        coefficients(table.table, &clipping).map(host)
    }

    /// Returns thresholds with the multipliers of the groups.
    fn thresholds() -> Vec<(Thresholds, [f64; 3])> {
        let groups = three_groups;
        let whole = Thresholds::whole(0.7).unwrap().with_groups(groups()).unwrap();
        let per_group = |norms| Thresholds::per_group(groups(), norms, &NoiseSplit::Uniform);
        let multipliers = [1.0, 0.3, 20.0];
        vec![
            (whole.clone(), [1.0; 3]),
            (whole.normalized(0.01).unwrap(), [1.0; 3]),
            (Thresholds::multiplied(groups(), 3.0, multipliers.into()).unwrap(), multipliers),
            (per_group(vec![1e-3, 2.0, 1e4]).unwrap(), [1.0; 3]),
            (per_group(vec![0.1; 3]).unwrap().normalized(1e-4).unwrap(), [1.0; 3]),
        ]
    }

    #[test]
    fn norms_of_a_device_are_never_below_the_exact_ones_and_contributions_never_above() {
        let table = table();
        for device in devices().iter().filter(|device| has_kernels(device)) {
            for (thresholds, multipliers) in thresholds() {
                let [norms, coefficients] = of_device(&thresholds, None, device);
                for unit in 0..UNITS - 4 {
                    let mut exact = [0.0f64; 3];
                    rows().iter().for_each(|row| exact[row.group] += row.exact(&table, unit));
                    for (norms, exact) in norms.iter().zip(exact) {
                        let found = f64::from(norms[unit]);
                        assert!(found >= exact, "{unit}: {found:e} {exact:e}");
                        assert!(found <= exact * (1.0 + 2e-5) + 1e-29, "{found:e} {exact:e}");
                    }
                    // The host rounds the same exact norms.
                    let expected = thresholds.coefficients(&exact.map(|norm| vec![norm]), |_| true);
                    let whole: f64 =
                        exact.iter().zip(multipliers).map(|(norm, m)| m * m * norm).sum();
                    for (group, row) in coefficients.iter().enumerate() {
                        let norm = if coefficients.len() == 1 { whole } else { exact[group] };
                        let (found, host) = (row[unit], expected.of_group(group)[0]);
                        assert!((found / host - 1.0).abs() < 2e-5, "{unit}: {found:e} {host:e}");
                        let contribution = f64::from(found) * norm.sqrt();
                        assert!(
                            contribution <= thresholds.norms()[group],
                            "{unit}: {contribution}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn units_that_are_not_finite_are_left_out_by_a_device() {
        for device in devices().iter().filter(|device| has_kernels(device)) {
            for (thresholds, _) in thresholds() {
                let mut real = vec![true; UNITS];
                real[7] = false;
                let [norms, coefficients] = of_device(&thresholds, Some(&real), device);
                for unit in (UNITS - 4)..UNITS {
                    assert!(norms.iter().all(|norms| norms[unit] == f32::INFINITY), "{unit}");
                    assert!(coefficients.iter().all(|row| row[unit] == 0.0), "{unit}");
                }
                // Padding is not counted, and its norm is known.
                assert!(norms.iter().all(|norms| norms[7].is_finite()));
                assert!(coefficients.iter().all(|row| row[7] == 0.0));
                assert!(coefficients.iter().all(|row| row[8] > 0.0));
            }
        }
    }

    #[test]
    fn thresholds_beyond_single_precision_are_left_to_the_host() {
        let on_device = |thresholds: Thresholds| thresholds.fits_device();
        assert!(on_device(Thresholds::multiplied(three_groups(), 1e-9, vec![1.0; 3]).unwrap()));
        for (norm, multiplier) in [(1e-13, 1.0), (1e13, 1.0), (1.0, 1e7), (1.0, 1e-7)] {
            let multipliers = vec![1.0, multiplier, 1.0];
            let thresholds = Thresholds::multiplied(three_groups(), norm, multipliers).unwrap();
            assert!(!on_device(thresholds.clone()), "{norm} {multiplier}");
        }
        let normalized = Thresholds::multiplied(three_groups(), 1.0, vec![1.0; 3]).unwrap();
        assert!(!on_device(normalized.normalized(1e-14).unwrap()));
    }
}
