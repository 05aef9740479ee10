//! One-dimensional root finding and minimisation.

/// Root of a monotone function by bisection with secant steps (the ITP-like safeguard keeps the
/// worst case at bisection). `low` and `high` must bracket the root.
///
/// Returns the final bracket `(low, high)` whose width is at most
/// `tolerance · max(|low|, |high|) + absolute`.
pub(crate) fn bracket_root(
    mut low: f64,
    mut high: f64,
    mut value_low: f64,
    mut value_high: f64,
    tolerance: f64,
    mut f: impl FnMut(f64) -> f64,
) -> (f64, f64) {
    let sign = value_low.signum();
    let mut side = 0i8;
    for iteration in 0..200 {
        if high - low <= tolerance * low.abs().max(high.abs()) {
            break;
        }
        // The Illinois variant of regula falsi, and a bisection every third time.
        let mut x = (low * value_high - high * value_low) / (value_high - value_low);
        if iteration % 3 == 2 || !(x > low && x < high) {
            x = 0.5 * (low + high);
        }
        // Never closer to an end than half the tolerance, so that the bracket closes on both sides.
        let margin = 0.5 * tolerance * low.abs().max(high.abs());
        x = x.clamp(low + margin.min(0.5 * (high - low)), high - margin.min(0.5 * (high - low)));
        if x <= low || x >= high {
            break;
        }
        let value = f(x);
        if value.signum() == sign {
            low = x;
            value_low = value;
            if side == 1 {
                value_high *= 0.5;
            }
            side = 1;
        } else {
            high = x;
            value_high = value;
            if side == -1 {
                value_low *= 0.5;
            }
            side = -1;
        }
    }
    (low, high)
}

/// Minimum of a unimodal function on `[low, high]` by golden-section search.
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
    fn the_bracket_closes_around_the_root() {
        let f = |x: f64| x.exp() - 5.0;
        let (low, high) = bracket_root(0.0, 10.0, f(0.0), f(10.0), 1e-12, f);
        assert!(low <= 5f64.ln() && 5f64.ln() <= high && high - low < 1e-11);
    }

    #[test]
    fn the_minimum_of_a_parabola_is_found() {
        let (x, value) = minimize(-3.0, 8.0, 1e-9, |x| (x - 1.5).powi(2) + 2.0);
        assert!((x - 1.5).abs() < 1e-4 && (value - 2.0).abs() < 1e-12);
    }
}
