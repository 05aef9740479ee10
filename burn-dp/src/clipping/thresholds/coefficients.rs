use super::bound::Bound;
use super::count::{Count, ROUNDING};
use super::statistics::ClippingStatistics;

/// How a gradient is scaled to its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scaling {
    /// `min(1, C/‖g‖)`.
    Clip,
    /// `C/(‖g‖ + stability)`.
    Normalize { stability: f64 },
}

impl Scaling {
    /// Returns the coefficient of a gradient whose squared norm is finite.
    fn coefficient(self, squared_norm: f64, threshold: f64) -> f32 {
        let norm = squared_norm.sqrt() * (1.0 + ROUNDING);
        let exact = match self {
            Self::Clip if norm <= threshold => return 1.0,
            Self::Clip => threshold / norm,
            Self::Normalize { stability } => threshold / (norm + stability),
        };
        let rounded = exact.min(f64::from(f32::MAX)) as f32;
        if f64::from(rounded) > exact { rounded.next_down() } else { rounded }
    }
}

/// The clipping coefficients of units: the factors of their gradients, for each group.
///
/// | norm of the group | clipping | normalizing |
/// |---|---|---|
/// | 0 | 1 | threshold / stability |
/// | at most the threshold | 1 | threshold / (norm + stability), rounded down |
/// | larger | threshold / norm, rounded down | threshold / (norm + stability), rounded down |
/// | of any group infinite or NaN, also by overflow | unit left out | unit left out |
pub(crate) struct Coefficients {
    /// One row for each bounded norm, with one value for each unit. Units that are left out have 0.
    pub(super) rows: Vec<Vec<f32>>,
    /// `false` for units that are left out by selection: a product with 0 would keep NaN.
    pub(crate) keep: Vec<bool>,
    pub(crate) statistics: ClippingStatistics,
    /// `Σ_i (b_i - ½)` of each count (of slack: `Σ_i b_i`), exact.
    pub(crate) count_sums: Vec<f64>,
}

impl Coefficients {
    /// Returns the coefficients of units with these squared norms.
    ///
    /// # Arguments
    ///
    /// - `squared_norms`: for each group, a row with one value per unit, not underestimated
    /// - `is_real`: `false` for units that only pad the batch
    pub(super) fn new(
        bound: &Bound,
        scaling: Scaling,
        counts: &[Count],
        squared_norms: &[Vec<f64>],
        is_real: impl Fn(usize) -> bool,
    ) -> Self {
        let units = squared_norms.first().map_or(0, Vec::len);
        let rows = bound.norms().len();
        let mut found = Self {
            rows: vec![Vec::with_capacity(units); rows],
            keep: Vec::with_capacity(units),
            statistics: ClippingStatistics::default(),
            count_sums: vec![0.0; counts.len()],
        };
        for unit in 0..units {
            let of_group = |group: usize| squared_norms[group][unit];
            let total: f64 = (0..squared_norms.len()).map(of_group).sum();
            let whole = bound.whole_squared_norm(total, of_group);
            let finite = (total * (1.0 + ROUNDING)).is_finite() && whole.is_finite();
            found.keep.push(finite);
            if !is_real(unit) {
                found.rows.iter_mut().for_each(|row| row.push(0.0));
                continue;
            }
            let mut clipped = false;
            for (index, row) in found.rows.iter_mut().enumerate() {
                let (squared_norm, threshold) = match bound {
                    Bound::Whole { norm, .. } => (whole, *norm),
                    Bound::PerGroup { norms, .. } => (of_group(index), norms[index]),
                };
                let coefficient =
                    if finite { scaling.coefficient(squared_norm, threshold) } else { 0.0 };
                clipped |= finite && coefficient < 1.0;
                row.push(coefficient);
            }
            found.statistics.examples += 1;
            found.statistics.clipped += usize::from(clipped);
            found.statistics.non_finite += usize::from(!finite);
            for (sum, count) in found.count_sums.iter_mut().zip(counts) {
                let squared_norm = count.group.map_or(whole, of_group);
                *sum += count.contribution(finite.then(|| squared_norm.sqrt())) - count.center();
            }
        }
        found
    }

    /// Returns the coefficients of a group of parameters, one for each unit.
    pub(crate) fn of_group(&self, group: usize) -> &[f32] {
        match self.rows.as_slice() {
            [row] => row,
            rows => &rows[group],
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::clipping::{CountNoise, NoiseSplit, Thresholds};
    use crate::model::groups::three_groups;

    fn of_one(thresholds: &Thresholds, squared_norms: &[f64]) -> Coefficients {
        let table: Vec<Vec<f64>> = squared_norms.iter().map(|&value| vec![value]).collect();
        thresholds.coefficients(&table, |_| true)
    }

    #[test]
    fn product_with_the_coefficient_never_exceeds_the_threshold() {
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
    fn zero_gradient_is_kept_and_no_norm_is_amplified() {
        let clip = Thresholds::whole(1.0).unwrap();
        assert_eq!(of_one(&clip, &[0.0]).of_group(0), [1.0]);
        assert_eq!(of_one(&clip, &[1e-300]).of_group(0), [1.0]);
    }

    #[test]
    fn unit_with_a_norm_that_is_not_finite_is_left_out_of_every_group() {
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
    fn multipliers_enter_the_norm_of_one_coefficient_for_all_groups() {
        let thresholds = Thresholds::multiplied(three_groups(), 1.0, vec![1.0, 2.0, 3.0]).unwrap();
        let found = of_one(&thresholds, &[1.0, 1.0, 1.0]);
        let expected = 1.0 / 14f32.sqrt();
        for group in 0..3 {
            assert!((found.of_group(group)[0] - expected).abs() < 1e-6);
        }
        assert_eq!(found.rows.len(), 1);
    }

    #[test]
    fn counts_are_centered_at_one_half_and_exclude_padding() {
        let counts = vec![Count::whole(2.0), Count::of_group(1, 1.0)];
        let thresholds = Thresholds::whole(9.0).unwrap().with_groups(three_groups()).unwrap();
        let thresholds = thresholds.with_counts(counts, CountNoise::default()).unwrap();
        // Squared norms of five units, the last of which is padding.
        let table = vec![
            vec![1.0, 0.0, 9.0, f64::NAN, 0.0],
            vec![1.0, 1.0, 0.0, 0.0, 0.0],
            vec![1.0, 4.0, 0.0, 0.0, 0.0],
        ];
        let found = thresholds.coefficients(&table, |unit| unit < 4);
        // Whole norms √3, √5, 3, unknown: one is below 2. In group 1: 1, 1, 0, unknown: three are
        // below.
        assert_eq!(found.count_sums, [0.5 - 1.5, 1.5 - 0.5]);
        assert_eq!(found.statistics.examples, 4);
        assert_eq!(found.of_group(2)[4], 0.0);
    }

    #[test]
    fn coefficients_are_the_next_below_the_quotient() {
        for step in 0..2_000 {
            let norm = 1.0 + 1e-3 * f64::from(step) * 1.234_567;
            for scaling in [Scaling::Clip, Scaling::Normalize { stability: 0.01 }] {
                let stability = if scaling == Scaling::Clip { 0.0 } else { 0.01 };
                let exact = 0.7 / (norm * (1.0 + ROUNDING) + stability);
                let coefficient = scaling.coefficient(norm * norm, 0.7);
                // The root and the products round by less than this.
                let slack = 1.0 + 4.0 * f64::EPSILON;
                assert!(f64::from(coefficient) <= exact * slack, "{norm} {coefficient}");
                assert!(f64::from(coefficient.next_up()) * slack > exact, "{norm} {coefficient}");
            }
        }
    }
}
