//! A value of several seeds.

use serde::{Deserialize, Serialize};

/// A point of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigurePoint {
    /// Position.
    pub x: f64,
    /// Mean over the seeds; of times, the median of the steps.
    pub y: f64,
    /// Smallest value; of times, the lower quartile.
    pub low: f64,
    /// Largest value; of times, the upper quartile.
    pub high: f64,
}

impl FigurePoint {
    /// What was not measured: no comparison with it holds.
    pub(super) const MISSING: Self =
        Self { x: f64::NAN, y: f64::NAN, low: f64::NAN, high: f64::NAN };

    /// Returns the point of one value.
    pub fn exact(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }

    /// Returns the point for the values of several seeds; `None` if there are none.
    pub fn of(x: f64, values: &[f64]) -> Option<Self> {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Self { x, y: mean, low, high })
    }

    /// Returns the point with the largest mean.
    pub(super) fn largest<'a>(points: impl IntoIterator<Item = &'a Self>) -> Self {
        let larger = |a: &Self, b: &Self| a.y.total_cmp(&b.y);
        points.into_iter().copied().max_by(larger).unwrap_or(Self::MISSING)
    }

    /// Returns the point with the smallest mean.
    pub(super) fn smallest<'a>(points: impl IntoIterator<Item = &'a Self>) -> Self {
        let smaller = |a: &Self, b: &Self| a.y.total_cmp(&b.y);
        points.into_iter().copied().min_by(smaller).unwrap_or(Self::MISSING)
    }
}

/// Returns whether a value of a grid is inside of it: neither the smallest nor the largest one.
pub(super) fn is_inside(grid: impl IntoIterator<Item = f64>, value: f64) -> bool {
    let (mut is_below, mut is_above) = (false, false);
    for other in grid {
        is_below |= value < other;
        is_above |= value > other;
    }
    is_below && is_above
}

/// Returns a number with four significant digits.
pub(super) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    match digits {
        -6..=8 => {
            let text = format!("{value:.*}", digits.max(0) as usize);
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text,
            }
        }
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_largest_and_the_smallest_mean_are_found() {
        let points = [2.0, 3.0, 1.0].map(|y| FigurePoint::exact(0.0, y));
        assert_eq!((FigurePoint::largest(&points).y, FigurePoint::smallest(&points).y), (3.0, 1.0));
        assert!(FigurePoint::largest(&[]).y.is_nan());
    }

    #[test]
    fn the_ends_of_a_grid_are_not_inside() {
        let grid = [1.0, 2.0, 4.0];
        assert_eq!(grid.map(|value| is_inside(grid, value)), [false, true, false]);
        assert!(!is_inside([], 1.0) && !is_inside(grid, f64::NAN));
    }

    #[test]
    fn numbers_have_four_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (12.3456, "12.35"),
            (0.00123456, "0.001235"),
            (5e-12, "5.000e-12"),
            (123456.0, "123456"),
        ] {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn a_point_of_several_seeds_has_mean_and_range() {
        let point = FigurePoint::of(2.0, &[1.0, 4.0, 1.0]).unwrap();
        assert_eq!((point.y, point.low, point.high), (2.0, 1.0, 4.0));
        assert_eq!(FigurePoint::of(2.0, &[]), None);
    }
}
