//! Brackets of mechanisms that are close to their pairs in total variation.

use super::composition::Composition;
use crate::dominating_pairs::DominatingPairs;

/// Returns the bracket with the total variation `η` of the events: `δ ± (1 + e^ε) η`.
pub(super) fn with_variation(
    composition: &Composition,
    pairs: &DominatingPairs,
    delta: f64,
    left: f64,
    start: f64,
) -> (f64, Option<f64>) {
    let eta = pairs.total_variation;
    if eta == 0.0 {
        let (mut lower, upper) = composition.epsilon(left, start);
        let least = lower_delta(pairs, delta, left);
        if least > left {
            lower = composition.epsilon(least, start).0;
        }
        return (lower, upper);
    }
    let (mut lower, _) = composition.epsilon((delta + 2.0 * eta).min(1.0), start);
    let upper_delta =
        |e: f64| composition.delta(e).1 + pairs.mass_at_infinity + (1.0 + e.exp()) * eta;
    let least = |e: f64| composition.delta(e).0 - (1.0 + e.exp()) * eta;
    // Bisection downward from the value without the correction.
    if least(lower) < delta {
        let (mut a, mut b) = (0.0, lower);
        for _ in 0..60 {
            let middle = 0.5 * (a + b);
            if least(middle) >= delta { a = middle } else { b = middle }
        }
        lower = if least(a) >= delta { a } else { 0.0 };
    }
    let (_, Some(start)) = composition.epsilon(left, start) else { return (lower, None) };
    if upper_delta(start) <= delta {
        return (lower, Some(start));
    }
    let (mut a, mut b) = (start, start.max(1e-6));
    let mut step = 1e-6;
    while upper_delta(b) > delta {
        b += step;
        step *= 2.0;
        if b > 700.0 {
            return (lower, None);
        }
    }
    for _ in 0..80 {
        let middle = 0.5 * (a + b);
        if upper_delta(middle) <= delta { b = middle } else { a = middle }
    }
    (lower, Some(b))
}

/// Returns the δ of the lower end of ε: all of it, because the mass at infinity is a bound, which
/// need not be attained. What is `left` of it for loose pairs, whose lower end is not used: both
/// ends are then close.
pub(super) fn lower_delta(pairs: &DominatingPairs, delta: f64, left: f64) -> f64 {
    if pairs.loose { left } else { delta }
}
