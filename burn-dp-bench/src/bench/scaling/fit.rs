//! Exponents of power laws.

/// Returns the slope of the least-squares line through the logarithms of the points: `y` grows like
/// `x` to this power. Returns `None` without two different positive `x`, or if a value is not
/// positive.
pub(super) fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let valid = |&(x, y): &(f64, f64)| x > 0.0 && y > 0.0 && x.is_finite() && y.is_finite();
    if !points.iter().all(valid) {
        return None;
    }
    let logarithms: Vec<_> = points.iter().map(|&(x, y)| (x.ln(), y.ln())).collect();
    let count = logarithms.len() as f64;
    let mean_x = logarithms.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = logarithms.iter().map(|point| point.1).sum::<f64>() / count;
    let spread: f64 = logarithms.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let both: f64 = logarithms.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (spread > 0.0).then(|| both / spread)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_exponent_of_a_power_is_found_exactly() {
        for power in [-1.0, 0.0, 0.5, 2.0] {
            let points = [1.0, 2.0, 8.0, 32.0].map(|x: f64| (x, 3.0 * x.powf(power)));
            assert!((exponent(&points).unwrap() - power).abs() < 1e-12, "{power}");
        }
    }

    #[test]
    fn the_exponent_between_points_is_the_one_of_least_squares() {
        // Logarithms to the base 2: (0, 0), (1, 2), (2, 1); the slope is 1 / 2.
        let points = [(1.0, 1.0), (2.0, 4.0), (4.0, 2.0)];
        assert!((exponent(&points).unwrap() - 0.5).abs() < 1e-12);
    }

    #[test]
    fn there_is_no_exponent_without_two_sizes_or_with_a_value_of_zero() {
        for points in [
            &[][..],
            &[(2.0, 1.0)],
            &[(2.0, 1.0), (2.0, 3.0)],
            &[(1.0, 1.0), (2.0, 0.0)],
            &[(0.0, 1.0), (2.0, 1.0)],
            &[(1.0, f64::NAN), (2.0, 1.0)],
        ] {
            assert_eq!(exponent(points), None, "{points:?}");
        }
    }
}
