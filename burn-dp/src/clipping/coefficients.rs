//! From norms to factors.

use super::thresholds::{Bound, Scaling};
use super::{ClippingStatistics, Thresholds};

/// Relative excess of the measured norm that is taken off the coefficient, so that rounding in f32
/// does not lift a clipped gradient over the threshold.
const ROUNDING: f64 = 1.0 / (1 << 20) as f64;

/// What a source of gradients multiplies the parts of its units with.
///
/// | norm of the part | clipping | normalising |
/// |---|---|---|
/// | 0 | 1 | threshold / stability |
/// | at most the threshold | 1 | threshold / (norm + stability), rounded down |
/// | larger | threshold / norm, rounded down | the same |
/// | any group infinite or NaN, also by overflow | unit left out | unit left out |
pub(crate) struct Coefficients {
    /// One row for each norm that is bounded, one value for each unit. Units that are left out have 0.
    rows: Vec<Vec<f32>>,
    /// `false` for units to leave out by selection: a product with 0 would keep NaN.
    pub(crate) keep: Vec<bool>,
    pub(crate) statistics: ClippingStatistics,
    /// `Σ_i (b_i - ½)` of each count, exact.
    pub(crate) balances: Vec<f64>,
}

impl Coefficients {
    /// The coefficients of a group of parameters, one for each unit.
    pub(crate) fn of_group(&self, group: usize) -> &[f32] {
        match self.rows.as_slice() {
            [row] => row,
            rows => &rows[group],
        }
    }

    /// Whether the groups have coefficients of their own.
    pub(crate) fn per_group(&self) -> bool {
        self.rows.len() > 1
    }
}

impl Thresholds {
    /// The coefficients of units with these squared norms.
    ///
    /// # Arguments
    ///
    /// - `squared_norms`: for each group a row with one value for each unit, not underestimated
    /// - `is_real`: `false` for units that only pad the batch
    pub(crate) fn coefficients(
        &self,
        squared_norms: &[Vec<f64>],
        is_real: impl Fn(usize) -> bool,
    ) -> Coefficients {
        let units = squared_norms.first().map_or(0, Vec::len);
        let rows = self.norms().len();
        let mut found = Coefficients {
            rows: vec![Vec::with_capacity(units); rows],
            keep: Vec::with_capacity(units),
            statistics: ClippingStatistics::default(),
            balances: vec![0.0; self.counts().len()],
        };
        for unit in 0..units {
            let of_group = |group: usize| squared_norms[group][unit];
            let total: f64 = (0..squared_norms.len()).map(of_group).sum();
            let finite = self.is_finite(total, of_group);
            found.keep.push(finite);
            if !is_real(unit) {
                found.rows.iter_mut().for_each(|row| row.push(0.0));
                continue;
            }
            let mut clipped = false;
            for (index, row) in found.rows.iter_mut().enumerate() {
                let (squared_norm, norm) = match self.bound() {
                    Bound::Whole { norm, .. } => (self.whole_squared_norm(total, of_group), *norm),
                    Bound::PerGroup { norms, .. } => (of_group(index), norms[index]),
                };
                let coefficient =
                    if finite { coefficient(squared_norm, norm, self.scaling()) } else { 0.0 };
                clipped |= finite && coefficient < 1.0;
                row.push(coefficient);
            }
            found.statistics.examples += 1;
            found.statistics.clipped += usize::from(clipped);
            found.statistics.non_finite += usize::from(!finite);
            for (balance, count) in found.balances.iter_mut().zip(self.counts()) {
                let squared_norm =
                    count.group.map_or_else(|| self.whole_squared_norm(total, of_group), of_group);
                *balance += count.of_unit(finite.then(|| squared_norm.sqrt())) - 0.5;
            }
        }
        found
    }

    /// The squared norm of the whole gradient, multipliers included.
    fn whole_squared_norm(&self, total: f64, of_group: impl Fn(usize) -> f64) -> f64 {
        match self.bound() {
            Bound::Whole { multipliers, .. } if multipliers.iter().any(|&factor| factor != 1.0) => {
                multipliers.iter().enumerate().map(|(group, m)| m * m * of_group(group)).sum()
            }
            _ => total,
        }
    }

    /// Whether every norm of the unit is known.
    fn is_finite(&self, total: f64, of_group: impl Fn(usize) -> f64) -> bool {
        (total * (1.0 + ROUNDING)).is_finite()
            && self.whole_squared_norm(total, of_group).is_finite()
    }
}

/// The factor of a gradient of that squared norm, which is finite.
fn coefficient(squared_norm: f64, threshold: f64, scaling: Scaling) -> f32 {
    let norm = squared_norm.sqrt() * (1.0 + ROUNDING);
    let exact = match scaling {
        Scaling::Clip if norm <= threshold => return 1.0,
        Scaling::Clip => threshold / norm,
        Scaling::Normalize { stability } => threshold / (norm + stability),
    };
    let rounded = exact.min(f64::from(f32::MAX)) as f32;
    if f64::from(rounded) > exact { rounded.next_down() } else { rounded }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clipping::{Count, CountNoise, NoiseSplit};
    use crate::model::groups::three_groups;

    fn of_one(thresholds: &Thresholds, squared_norms: &[f64]) -> Coefficients {
        let table: Vec<Vec<f64>> = squared_norms.iter().map(|&value| vec![value]).collect();
        thresholds.coefficients(&table, |_| true)
    }

    #[test]
    fn a_coefficient_never_lets_the_product_exceed_the_threshold() {
        for c in [1e-3, 0.1, 1.0, 7.3] {
            let clip = Thresholds::whole(c).unwrap();
            let normalize = clip.clone().normalized(0.01).unwrap();
            for exponent in -80..80 {
                let norm = 1.37f64 * 10f64.powf(f64::from(exponent) / 5.0);
                let coefficient = f64::from(of_one(&clip, &[norm * norm]).of_group(0)[0]);
                assert!(coefficient * norm <= c * (1.0 + 1e-12), "norm {norm}, threshold {c}");
                assert!(coefficient * norm >= c.min(norm) * (1.0 - 1.2e-6));
                let coefficient = f64::from(of_one(&normalize, &[norm * norm]).of_group(0)[0]);
                assert!(coefficient * norm <= c, "norm {norm}, threshold {c}");
                let exact = c * norm / (norm + 0.01);
                assert!(coefficient * norm >= exact * (1.0 - 1.2e-6));
            }
        }
    }

    #[test]
    fn the_zero_gradient_is_kept_and_no_other_norm_is_amplified() {
        let clip = Thresholds::whole(1.0).unwrap();
        assert_eq!(of_one(&clip, &[0.0]).of_group(0), [1.0]);
        assert_eq!(of_one(&clip, &[1e-300]).of_group(0), [1.0]);
    }

    #[test]
    fn norms_that_are_not_finite_leave_the_unit_out_of_every_group() {
        let thresholds =
            Thresholds::per_group(three_groups(), vec![1.0; 3], &NoiseSplit::Uniform).unwrap();
        for norm in [f64::NAN, f64::INFINITY, f64::MAX] {
            let found = of_one(&thresholds, &[0.5, norm, 2.0 * f64::MIN_POSITIVE + norm]);
            assert_eq!(found.keep, [false], "{norm}");
            assert_eq!((0..3).map(|group| found.of_group(group)[0]).sum::<f32>(), 0.0);
            assert_eq!((found.statistics.non_finite, found.statistics.clipped), (1, 0));
        }
    }

    #[test]
    fn each_group_is_scaled_by_its_own_norm() {
        let thresholds =
            Thresholds::per_group(three_groups(), vec![1.0, 0.5, 4.0], &NoiseSplit::Uniform)
                .unwrap();
        let found = of_one(&thresholds, &[4.0, 1.0, 9.0]);
        for (group, expected) in [0.5, 0.5, 1.0].into_iter().enumerate() {
            let coefficient = found.of_group(group)[0];
            assert!((coefficient - expected).abs() < 1e-6 && coefficient <= expected);
        }
        assert_eq!(found.statistics.clipped, 1);
    }

    #[test]
    fn multipliers_enter_the_norm_and_one_coefficient_serves_all_groups() {
        let thresholds = Thresholds::multiplied(three_groups(), 1.0, vec![1.0, 2.0, 3.0]).unwrap();
        let found = of_one(&thresholds, &[1.0, 1.0, 1.0]);
        let expected = 1.0 / 14f32.sqrt();
        for group in 0..3 {
            assert!((found.of_group(group)[0] - expected).abs() < 1e-6);
        }
        assert!(!found.per_group());
    }

    #[test]
    fn counts_are_of_half_units_and_padding_is_not_counted() {
        let counts = vec![Count::whole(2.0), Count::of_group(1, 1.0)];
        let thresholds = Thresholds::whole(9.0).unwrap().looking_at(three_groups()).unwrap();
        let thresholds = thresholds.counting(counts, CountNoise::default()).unwrap();
        // Squared norms of five units, the last of which is padding.
        let table = vec![
            vec![1.0, 0.0, 9.0, f64::NAN, 0.0],
            vec![1.0, 1.0, 0.0, 0.0, 0.0],
            vec![1.0, 4.0, 0.0, 0.0, 0.0],
        ];
        let found = thresholds.coefficients(&table, |unit| unit < 4);
        // Whole norms √3, √5, 3, unknown: one below 2. In group 1: 1, 1, 0, unknown: three below.
        assert_eq!(found.balances, [0.5 - 1.5, 1.5 - 0.5]);
        assert_eq!(found.statistics.examples, 4);
        assert_eq!(found.of_group(2)[4], 0.0);
    }
}
