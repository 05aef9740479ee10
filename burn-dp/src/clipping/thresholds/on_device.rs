//! Clipping coefficients on a device, where numbers have single precision.
//!
//! The norms stay on the device until the step reads them for its counts. With ε = 2⁻²², which
//! bounds what a device can change in one operation, square roots included, by a factor of two:
//!
//! - The squared norm of a parameter is off by at most 24 ε: two square roots, two products, the
//!   sums, and a square. Each parameter of a group adds one ε, and the slack of the group covers
//!   all.
//! - The norm of all groups is a sum of squared norms with multipliers; each group adds two ε.
//! - The coefficient is a threshold, rounded down, over a square root: 8 ε, which `ROUNDING`
//!   covers. What is left of it covers the rounding of the weighted sum, as on the host.

use super::bound::Bound;
use super::coefficients::Scaling;
use crate::grads::NormTable;
use crate::ops::{DeviceClipping, DeviceGroup};

/// Bounds the relative error of one operation of a device; WGSL allows 2.5 · 2⁻²³ for a division,
/// and a square root is an inverse square root with 2 · 2⁻²³ and a division.
const OPERATION: f64 = 1.0 / (1 << 22) as f64;

/// The relative increase of a norm, as on the host and 12 operations more.
const ROUNDING: f64 = super::count::ROUNDING + 12.0 * OPERATION;

/// Bounds what a square root of a sum can lose if the device flushes a subnormal term to zero.
const FLUSHED: f64 = 1.0 / (1u128 << 100) as f64;

/// Thresholds outside of this range, and squared multipliers, would come too close to underflow or
/// overflow in single precision; the host computes their coefficients.
const RANGE: std::ops::RangeInclusive<f64> = 1e-12..=1e12;

/// Returns how a device clips, or `None` if a number is out of the range of single precision.
pub(super) fn device_clipping(
    bound: &Bound,
    scaling: Scaling,
    table: &NormTable,
    groups: usize,
    real: Option<&[bool]>,
) -> Option<DeviceClipping> {
    let stability = match scaling {
        Scaling::Clip => None,
        Scaling::Normalize { stability } => Some(stability),
    };
    let squared_multiplier = |group: usize| match bound {
        Bound::Whole { multipliers, .. } => multipliers[group] * multipliers[group],
        Bound::PerGroup { .. } => 1.0,
    };
    let multipliers = (0..groups).map(squared_multiplier);
    let mut numbers = bound.norms().iter().copied().chain(stability).chain(multipliers);
    if !numbers.all(|number| RANGE.contains(&number)) {
        return None;
    }
    let (per_group, threshold) = match bound {
        Bound::Whole { norm, .. } => (false, *norm),
        Bound::PerGroup { .. } => (true, 1.0),
    };
    let group = |group: usize| {
        let of_group = table.parameters.iter().filter(|row| row.group == group);
        let underflow: f64 = of_group.clone().map(|row| row.underflow + FLUSHED).sum();
        let parameters: Vec<_> = of_group.map(|row| row.on_device()).collect();
        // All groups add up to the norm of the whole gradient.
        let operations = parameters.len() + 2 * groups + 24;
        DeviceGroup {
            slack: up(1.0 + operations as f64 * OPERATION),
            added: up(underflow),
            squared_multiplier: match squared_multiplier(group) {
                1.0 => 1.0,
                factor => up(factor),
            },
            threshold: down(bound.norms()[if per_group { group } else { 0 }]),
            parameters,
        }
    };
    Some(DeviceClipping {
        per_group,
        stability: stability.map(|stability| stability as f32),
        threshold: down(threshold),
        rounding: up(1.0 + ROUNDING),
        groups: (0..groups).map(group).collect(),
        real: real.map(<[bool]>::to_vec),
    })
}

/// Rounds up to single precision.
fn up(value: f64) -> f32 {
    (value as f32).next_up()
}

/// Rounds down to single precision.
fn down(value: f64) -> f32 {
    let rounded = value as f32;
    if f64::from(rounded) > value { rounded.next_down() } else { rounded }
}
