//! One-dimensional searches on the safe side of a target.

use crate::error::AccountantError;

/// Returns the smallest `x` in the range with `upper(x) <= target`, rounded up, for a decreasing
/// `upper`. At the returned value `upper` was evaluated and meets the target.
///
/// `exact` and `quick` are close to `upper` and cheap; either may have no value. The search begins
/// roughly on `quick`, which may jump by the width of a bracket. It continues
/// with `exact`, for a target lowered by the ratio of the two, until `upper` is just below the
/// target; and with `upper` itself where there is no exact value.
pub(super) fn smallest(
    target: f64,
    tolerance: f64,
    range: (f64, f64),
    upper: impl Fn(f64) -> Result<f64, AccountantError>,
    exact: impl Fn(f64) -> Option<f64>,
    quick: impl Fn(f64) -> Option<f64>,
) -> Result<f64, AccountantError> {
    let known = |value: Option<f64>| value.ok_or_else(|| AccountantError::numerical("no value"));
    let rough = search(range, Start::far(), target, ROUGH.max(tolerance), |x| known(quick(x)));
    let near = |x: f64, error: f64| Start { x, growth: 1.0 + error.clamp(tolerance, 1.0) };
    let mut start = rough.map_or(Start::far(), |x| near(x, ROUGH));
    let mut aim = target;
    for _ in 0..6 {
        let Ok(x) = search(range, start, aim, 0.1 * tolerance, |x| known(exact(x))) else { break };
        let value = upper(x)?;
        if value <= target && (value >= target * (1.0 - tolerance) || x <= range.0) {
            return Ok(x);
        }
        if !value.is_finite() || value <= 0.0 {
            break;
        }
        aim *= target * (1.0 - 0.5 * tolerance) / value;
        start = near(x, (value / target - 1.0).abs());
    }
    search(range, start, target, tolerance, upper)
}

/// Relative tolerance of the first search, far above the widths of brackets.
const ROUGH: f64 = 1e-3;

/// Where a search starts: at `x`, with neighbors by this factor, whose square and so on.
#[derive(Clone, Copy)]
struct Start {
    x: f64,
    growth: f64,
}

impl Start {
    /// Nothing is known.
    fn far() -> Self {
        Self { x: 1.0, growth: 2.0 }
    }
}

/// Returns the smallest `x` in the range with `upper(x) <= target`, by bracketing and secant steps.
fn search(
    range: (f64, f64),
    start: Start,
    target: f64,
    tolerance: f64,
    upper: impl Fn(f64) -> Result<f64, AccountantError>,
) -> Result<f64, AccountantError> {
    // ε is close to a power of x: secant steps on logarithms, guarded by bisection.
    let gap = |x: f64| {
        let value = upper(x)?;
        let gap = if value.is_finite() && value > 0.0 {
            (value / target).ln()
        } else if value <= 0.0 {
            -700.0
        } else {
            700.0
        };
        Ok((value, gap))
    };
    let mut growth = start.growth;
    let mut high = start.x.clamp(range.0, range.1);
    let mut low = high;
    let (mut value, mut gap_high) = gap(high)?;
    let mut gap_low = gap_high;
    if gap_high > 0.0 {
        while gap_high > 0.0 {
            (low, gap_low) = (high, gap_high);
            if high >= range.1 {
                return Err(AccountantError::infeasible(format!(
                    "at {high} epsilon is still {value}"
                )));
            }
            high = (high * growth).min(range.1);
            growth = (growth * growth).min(2.0);
            (value, gap_high) = gap(high)?;
        }
    } else {
        while gap_low <= 0.0 {
            (high, gap_high) = (low, gap_low);
            if low <= range.0 {
                return Ok(range.0);
            }
            low = (low / growth).max(range.0);
            growth = (growth * growth).min(2.0);
            (_, gap_low) = gap(low)?;
        }
    }
    // The last two values, whose secant leads to the root.
    let (mut before, mut last) = if gap_high > -gap_low {
        ((low.ln(), gap_low), (high.ln(), gap_high))
    } else {
        ((high.ln(), gap_high), (low.ln(), gap_low))
    };
    for iteration in 0..200 {
        if high / low - 1.0 <= tolerance {
            break;
        }
        let mut t = (before.0 * last.1 - last.0 * before.1) / (last.1 - before.1);
        // The next value is to be on the other side of the root, close to it.
        t += if last.1 <= 0.0 { -0.4 * tolerance } else { 0.4 * tolerance };
        if iteration % 6 == 5 || !(t > low.ln() && t < high.ln()) {
            t = 0.5 * (low.ln() + high.ln());
        }
        let x = t.exp();
        if x <= low || x >= high {
            break;
        }
        let (_, value) = gap(x)?;
        (before, last) = (last, (t, value));
        if value <= 0.0 { high = x } else { low = x }
    }
    Ok(high)
}

/// Returns the largest `n` up to `limit` with `upper(n) <= target`, for a non-decreasing `upper`;
/// `quick` is close to it and never above it.
pub(crate) fn largest_count(
    target: f64,
    limit: u64,
    upper: impl Fn(u64) -> Result<f64, AccountantError>,
    quick: impl Fn(u64) -> Option<f64>,
) -> Result<u64, AccountantError> {
    let fits = |n: u64| -> Result<bool, AccountantError> { Ok(n <= limit && upper(n)? <= target) };
    let quickly = |n: u64, share: f64| -> Result<bool, AccountantError> {
        match quick(n) {
            _ if n > limit => Ok(false),
            Some(value) => Ok(value <= share * target),
            None => fits(n),
        }
    };
    if !fits(1)? {
        return Ok(0);
    }
    let (low, high) = last_that_fits(1, 2, |n| quickly(n, 0.9998))?;
    // The quick value is below the bound, so that a number above the target is final. A number that
    // meets the target with a margin is checked.
    let (low, high) = if fits(low)? {
        if high == u64::MAX {
            return Ok(u64::MAX);
        }
        last_that_fits(low, high.saturating_add(low / 1_000).max(low + 1), fits)?
    } else {
        last_that_fits(1, 2, fits)?
    };
    Ok(if high == u64::MAX { u64::MAX } else { low })
}

/// Returns the last `n >= low` that fits, and `n + 1`. `low` must fit; `high` is the first
/// candidate. `(_, u64::MAX)` if there is no end.
fn last_that_fits(
    mut low: u64,
    mut high: u64,
    fits: impl Fn(u64) -> Result<bool, AccountantError>,
) -> Result<(u64, u64), AccountantError> {
    /// Number of releases at which the search ends, below the maximum: no training run has this
    /// many.
    const LIMIT: u64 = 1 << 40;
    while fits(high)? {
        low = high;
        if high >= LIMIT {
            // Only releases that cost nothing have no limit.
            return Ok((low, if fits(u64::MAX)? { u64::MAX } else { low + 1 }));
        }
        high = high.saturating_mul(2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok((low, high))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::RefCell;

    use super::*;

    const RANGE: (f64, f64) = (1e-3, 1e7);

    #[test]
    fn smallest_value_is_evaluated_and_within_the_tolerance() {
        let quick: [fn(f64) -> Option<f64>; 4] =
            [|_| None, |v| Some(v), |v| Some(0.9 * v), |v| Some(1.1 * v)];
        for power in [0.5f64, 1.0, 2.0, 7.0] {
            // upper(x) = x^-power is at the target at this x.
            for root in [0.00123, 0.3, 1.0, 1.7, 4e4, 9e6] {
                let target = f64::powf(root, -power);
                for (tolerance, quick) in [1e-3, 1e-6, 1e-9].into_iter().zip(quick.iter().cycle()) {
                    let evaluated = RefCell::new(Vec::new());
                    let upper = |x: f64| {
                        evaluated.borrow_mut().push(x);
                        Ok(x.powf(-power))
                    };
                    let guide = |x: f64| quick(x.powf(-power));
                    let x = smallest(target, tolerance, RANGE, upper, guide, guide).unwrap();
                    let name = format!("{power} {root} {tolerance}: {x}");
                    assert!(x.powf(-power) <= target && evaluated.borrow().contains(&x), "{name}");
                    let loss = x.powf(-power) / target;
                    assert!(
                        x / root - 1.0 <= tolerance * 1.01 || loss >= 1.0 - tolerance,
                        "{name}"
                    );
                    assert!(evaluated.borrow().len() < 45, "{name}: {}", evaluated.borrow().len());
                }
            }
        }
    }

    // An exact value exists at some places, and elsewhere the guide is the upper end of a bracket.
    #[test]
    fn a_guide_that_jumps_by_the_width_of_a_bracket_costs_few_evaluations() {
        let evaluated = RefCell::new(0);
        let has_exact = |x: f64| !((x * 1e8) as u64).is_multiple_of(3);
        let exact = |x: f64| {
            *evaluated.borrow_mut() += 1;
            has_exact(x).then_some(1.0 / x)
        };
        let upper = |x: f64| {
            *evaluated.borrow_mut() += 1;
            Ok((1.0 + 5e-5) / x)
        };
        let quick = |x: f64| exact(x).or_else(|| upper(x).ok());
        for root in [0.1, 0.7, 3.0, 14_620.0] {
            *evaluated.borrow_mut() = 0;
            let x = smallest(1.0 / root, 1e-6, RANGE, upper, exact, quick).unwrap();
            assert!((x / (root * (1.0 + 5e-5)) - 1.0).abs() < 2e-6, "{root}: {x}");
            assert!(*evaluated.borrow() < 80, "{root}: {}", evaluated.borrow());
        }
    }

    #[test]
    fn an_epsilon_that_is_not_a_number_meets_no_target() {
        let broken = |x: f64| Ok(if x > 2.0 { f64::NAN } else { 1.0 / x });
        assert!(smallest(0.1, 1e-6, (1e-3, 1e3), broken, |_| None, |_| None).is_err());
    }

    #[test]
    fn ends_of_the_range_are_an_answer_or_an_error() {
        let found = |target, quick: fn(f64) -> Option<f64>| {
            smallest(target, 1e-6, RANGE, |x| Ok(1.0 / x), quick, quick)
        };
        for quick in [|_| None, |x: f64| Some(1.0 / x)] as [fn(f64) -> Option<f64>; 2] {
            assert_eq!(found(1e4, quick).unwrap(), 1e-3);
            let error = found(1e-8, quick).unwrap_err().to_string();
            assert!(error.contains("at 10000000 epsilon is still 0.0000001"), "{error}");
            assert!(found(1e-7, quick).unwrap() <= 1e7);
        }
        // Steps of infinite and of no cost, as releases with almost no or infinite noise have.
        let step = |x: f64| Ok(if x < 2.5 { f64::INFINITY } else { 0.0 });
        let x = smallest(1.0, 1e-6, RANGE, step, |_| None, |_| None).unwrap();
        assert!((2.5..2.5 * (1.0 + 1e-6)).contains(&x), "{x}");
        let failing = |_| Err(AccountantError::numerical("planted"));
        let error = smallest(1.0, 1e-6, RANGE, failing, |_| Some(0.5), |_| Some(0.5)).unwrap_err();
        assert!(error.to_string().contains("planted"), "{error}");
    }

    #[test]
    fn largest_count_fits_and_one_more_does_not() {
        // A quick value that is missing, equal, close and far below.
        let shares = [None, Some(1.0), Some(1.0 - 1e-5), Some(0.5)];
        for expected in [1u64, 2, 3, 999, 1_000, 123_456, (1 << 33) + 1] {
            let cost = 1.0 / (expected as f64 + 0.5);
            for share in shares {
                let found = |limit| {
                    let upper = |n: u64| Ok(n as f64 * cost);
                    let quick = |n: u64| share.map(|share| share * n as f64 * cost);
                    largest_count(1.0, limit, upper, quick).unwrap()
                };
                assert_eq!(found(u64::MAX), expected, "{share:?}");
                assert_eq!(found(expected), expected, "{share:?}");
                assert_eq!(found(expected + 1), expected, "{share:?}");
                assert_eq!(found(expected - 1), expected - 1, "{share:?}");
            }
        }
        assert_eq!(largest_count(1.0, 9, |_| Ok(1.1), |_| None).unwrap(), 0);
        assert_eq!(largest_count(1.0, u64::MAX, |_| Ok(0.0), |_| None).unwrap(), u64::MAX);
        assert_eq!(largest_count(1.0, u64::MAX, |_| Ok(0.0), |_| Some(0.0)).unwrap(), u64::MAX);
        assert_eq!(largest_count(1.0, 9, |_| Ok(0.0), |_| Some(0.0)).unwrap(), 9);
    }
}
