//! The certified bracket of ε: transforms and the inversion of moments until the bracket is narrow
//! enough.

use super::bounds::Bracket;
use super::grid_settings::GridSettings;
use super::inversion;
use super::tabulated::Tabulated;
use super::transforms::by_transforms;
use super::variation::lower_delta;
use crate::dominating_pairs::{Direction, DominatingPairs, Pair, directions, largest_loss};
use crate::math::gaussian_dp::gaussian_delta;

/// Number of grid points of the transforms before the inversion of moments.
const QUICK_POINTS: usize = 1 << 17;

/// Returns the bracket of ε at `delta` over both directions. `pairs` must have at least one part.
pub(crate) fn epsilon(pairs: &DominatingPairs, delta: f64, settings: &GridSettings) -> Bracket {
    let mut result = Bracket::default();
    let left = delta - pairs.mass_at_infinity;
    if left <= 0.0 {
        result.upper = f64::INFINITY;
        result.note = Some("the events' own δ already exceeds the target δ".to_string());
        return result;
    }
    if pairs.total_variation == 0.0 && total_variation_bound(&pairs.parts) <= left {
        return result;
    }
    for direction in directions(&pairs.parts) {
        let one = one_direction(pairs, direction, delta, left, settings, result.lower);
        if one.contradicts {
            return one;
        }
        result.lower = result.lower.max(one.lower);
        result.upper = result.upper.max(one.upper);
        result.grid = match (result.grid, one.grid) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        result.note = result.note.take().or(one.note);
    }
    result
}

/// Returns an upper bound of δ at ε = 0 of Gaussian releases: total variations add up at most. It
/// is infinite for other pairs.
fn total_variation_bound(parts: &[(Pair, u64)]) -> f64 {
    let one = |pair: &Pair| match *pair {
        Pair::Gaussian { mu } => gaussian_delta(mu, 0.0),
        Pair::Sampled { q, mu } => q * gaussian_delta(mu, 0.0),
        _ => f64::INFINITY,
    };
    let sum: f64 = parts.iter().map(|(pair, count)| *count as f64 * one(pair)).sum();
    // Above the errors of the closed form.
    sum * (1.0 + 1e-10)
}

/// Returns the bracket in one direction: by transforms on small grids; if the result is wide, by
/// the inversion of moments; if this is also wide, by transforms on large grids. The values in all
/// brackets remain.
fn one_direction(
    pairs: &DominatingPairs,
    direction: Direction,
    delta: f64,
    left: f64,
    settings: &GridSettings,
    known_lower: f64,
) -> Bracket {
    // A direction that cannot be the larger one needs no grid.
    let exact = pairs.total_variation == 0.0;
    let bounded = largest_loss(&pairs.parts, direction);
    if exact && bounded <= known_lower {
        return Bracket { upper: bounded, ..Bracket::default() };
    }
    if let Some(table) = Tabulated::of(pairs, direction) {
        return table.epsilon(left);
    }
    let width = settings.relative_width;
    let transforms =
        |points: usize| by_transforms(pairs, direction, delta, left, settings, points, known_lower);
    // Brackets that small grids leave wide are mostly dominated by a few rare losses, where one
    // width for all losses needs far more work.
    let first = settings.max_points.min(quick_points(&pairs.parts));
    let mut best = transforms(first);
    let aim = if exact { inversion::aim(&pairs.parts, width, best.upper) } else { width };
    if best.contradicts || best.note.is_none() && best.is_within(aim, known_lower) {
        return best;
    }
    let settle = |best: &mut Bracket, more: Bracket| {
        let note = best.note.take();
        best.narrow(more.lower, more.upper);
        best.grid = more.grid.or(best.grid);
        if !best.contradicts {
            best.note = more.note.or(note).filter(|_| !best.is_within(width, known_lower));
        }
        (best.note.is_none() || best.contradicts).then(|| best.clone())
    };
    if exact
        && let Some(more) = inversion::epsilon(
            &pairs.parts,
            direction,
            (lower_delta(pairs, delta, left), left),
            width,
            settings.max_points,
            known_lower,
        )
    {
        if more.contradicts {
            return more;
        }
        if let Some(done) = settle(&mut best, more) {
            return done;
        }
    }
    if settings.max_points > first && best.note.is_some() {
        let more = transforms(settings.max_points);
        if more.contradicts {
            return more;
        }
        settle(&mut best, more);
    }
    best
}

/// Returns the grid points that transforms may use before the inversion of moments.
fn quick_points(parts: &[(Pair, u64)]) -> usize {
    match *parts {
        [(Pair::Sampled { .. }, _)] => QUICK_POINTS,
        // The inversion is not available.
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epsilon_is_0_where_the_total_variations_add_up_to_less_than_delta() {
        let parts = vec![(Pair::Sampled { q: 1e-6, mu: 1.5 }, 8), (Pair::Gaussian { mu: 1e-5 }, 1)];
        let sum = total_variation_bound(&parts);
        // 8e-6 erf(1.5 / √8) + erf(1e-5 / √8), by hand.
        assert!(
            (sum / (8e-6 * 0.546_745_295_246 + 3.989_422_804e-6) - 1.0).abs() < 1e-9,
            "{sum:e}"
        );
        let pairs = DominatingPairs { parts, ..DominatingPairs::default() };
        let settings = GridSettings::default();
        let none = epsilon(&pairs, sum, &settings);
        assert!(none.lower == 0.0 && none.upper == 0.0 && none.note.is_none(), "{none:?}");
        // One release attains it.
        let parts = vec![(Pair::Sampled { q: 1e-6, mu: 1.5 }, 1)];
        let less = 0.999 * total_variation_bound(&parts);
        let pairs = DominatingPairs { parts, ..DominatingPairs::default() };
        assert!(epsilon(&pairs, less, &settings).lower > 0.0);
        assert!(total_variation_bound(&[(Pair::Laplace { mu: 1e-9 }, 1)]).is_infinite());
    }

    #[test]
    fn mass_at_infinity_that_need_not_be_attained_raises_the_upper_end_alone() {
        let of = |mass_at_infinity: f64| {
            let parts = vec![(Pair::Sampled { q: 0.01, mu: 1.0 }, 100)];
            let pairs = DominatingPairs { parts, mass_at_infinity, ..DominatingPairs::default() };
            epsilon(&pairs, 1e-6, &GridSettings::default())
        };
        let (without, with) = (of(0.0), of(5e-7));
        assert!(with.lower <= without.upper && with.lower > 0.99 * without.lower, "{with:?}");
        assert!(with.upper > 1.02 * without.upper && with.note.is_some(), "{with:?}");
    }
}
