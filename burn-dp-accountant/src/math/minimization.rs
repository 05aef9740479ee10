//! One-dimensional minimization.

/// Returns position and value of the minimum of a unimodal function on `[low, high]`, by
/// golden-section search.
pub(crate) fn minimize(
    mut low: f64,
    mut high: f64,
    tolerance: f64,
    mut f: impl FnMut(f64) -> f64,
) -> (f64, f64) {
    const RATIO: f64 = 0.618_033_988_749_894_9;
    let mut left = high - RATIO * (high - low);
    let mut right = low + RATIO * (high - low);
    let (mut value_left, mut value_right) = (f(left), f(right));
    while high - low > tolerance {
        if value_left <= value_right {
            high = right;
            right = left;
            value_right = value_left;
            left = high - RATIO * (high - low);
            value_left = f(left);
        } else {
            low = left;
            left = right;
            value_left = value_right;
            right = low + RATIO * (high - low);
            value_right = f(right);
        }
    }
    if value_left <= value_right { (left, value_left) } else { (right, value_right) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_of_a_parabola_is_found() {
        let (x, value) = minimize(-3.0, 8.0, 1e-9, |x| (x - 1.5).powi(2) + 2.0);
        assert!((x - 1.5).abs() < 1e-4 && (value - 2.0).abs() < 1e-12);
    }
}
