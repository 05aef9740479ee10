//! Brackets of ε by repeated squaring, for losses that differ by orders of magnitude.
//!
//! With a small sampling probability nearly all losses are tiny, and a few rare ones, larger by
//! orders of magnitude, decide δ. One grid width for both needs too many points. Here the cells are
//! as wide as the loss is far from 0, except near ε.

mod atoms;
mod grid;
mod products;
mod sampled;

use atoms::Atoms;
use grid::Grid;
use sampled::SampledRelease;

use super::bounds::Bracket;
use crate::dominating_pairs::{Direction, Pair};
use crate::math::normal;
use crate::math::side::Side;
use crate::threads;

/// The most products of two masses, on both sides together: about three seconds.
const MOST_PRODUCTS: f64 = 1.5e9;

/// Relative width of a bracket that is too wide to choose a grid by.
const ROUGH: f64 = 0.05;

/// The next width to aim at, relative to the requested one.
const AIM: f64 = 0.9;

/// Fineness of the first grid for a bracket that is known well enough.
const FIRST_FINENESS: f64 = 3.0;

/// Relative share of δ in the outcomes that are cut.
const TAIL_SHARE: f64 = 1e-7;

/// Relative share of δ in the products that are not computed.
const NEGLIGIBLE_SHARE: f64 = 1e-5;

/// Largest distance of an outcome from the mean without sampling. The bounds of the rounding hold
/// up to there, where no density underflows and no exponential overflows.
const LARGEST_OUTCOME: f64 = 24.0;

/// Returns the bracket of ε at `delta` in one direction within a known one, as narrow as
/// `relative_width` if that is possible with bounded work. `None` if the composition is not of one
/// sampled pair, or if its outcomes are beyond the range in which the bounds of the rounding hold.
pub(super) fn epsilon(
    parts: &[(Pair, u64)],
    direction: Direction,
    delta: f64,
    relative_width: f64,
    known: &Bracket,
    known_lower: f64,
) -> Option<Bracket> {
    let [(Pair::Sampled { q, mu }, count)] = *parts else { return None };
    if q > 0.5 {
        return None;
    }
    let release = SampledRelease { q, mu, direction };
    let search = Search::new(release, count, delta);
    if !search.is_in_range() {
        return None;
    }
    let mut best = Bracket { lower: known.lower, upper: known.upper, ..Bracket::default() };
    // The bracket of the squarings alone, from which the next fineness follows.
    let mut own = Bracket::unknown();
    let known_well = best.upper.is_finite() && best.upper - best.lower <= ROUGH * best.upper;
    let (first, mut fineness) = if known_well { (1, FIRST_FINENESS) } else { (0, 6.0) };
    let mut work = 0.0;
    let mut measured = f64::INFINITY;
    for pass in first..8 {
        let mut grid = search.grid((pass > 0).then_some(&best), fineness);
        let left = MOST_PRODUCTS - work;
        if search.work(&grid) > left {
            // The finest grid that the work left allows, if it is a gain.
            let coarser = fineness * (1.05 * search.work(&grid) / left.max(1.0)).sqrt();
            grid = search.grid(Some(&best), coarser);
            let excess = (best.upper - best.lower) / (best.upper * relative_width);
            let sufficient = (measured / coarser).powf(order(excess)) > excess;
            if coarser > 0.8 * measured && !sufficient || search.work(&grid) > left {
                break;
            }
            fineness = coarser;
        }
        work += search.work(&grid);
        measured = fineness;
        let (lower, upper) = search.bracket(&grid);
        let before = own.upper - own.lower;
        own.narrow(lower, upper.unwrap_or(f64::INFINITY));
        best.narrow(own.lower, own.upper);
        if best.contradicts {
            return Some(best);
        }
        if own.contradicts {
            return Some(own);
        }
        if own.upper.is_infinite() {
            return None;
        }
        let narrow = relative_width * best.upper;
        if best.upper - best.lower.max(known_lower) <= narrow {
            return Some(best);
        }
        let gap = own.upper - own.lower;
        let relative = gap / own.upper;
        if pass == 0 {
            fineness = FIRST_FINENESS;
        } else if relative < 1e-2 || gap > 0.5 * before {
            let excess = relative / relative_width;
            fineness *= (AIM / excess).powf(1.0 / order(excess)).clamp(0.1, 0.9);
        }
    }
    Some(best)
}

/// Returns a low estimate of the power of the fineness that the width of a bracket is proportional
/// to, where the bracket is this many times wider than requested.
///
/// The power is 2 for fine grids. It is less where a bracket is still narrow on a grid that is too
/// coarse for the distribution.
fn order(excess: f64) -> f64 {
    (1.2 + 0.3 * excess.ln()).clamp(1.7, 2.0)
}

/// What the grids of one search have in common.
struct Search {
    release: SampledRelease,
    count: u64,
    delta: f64,
    /// Outcomes between which the losses are not cut.
    ends: (f64, f64),
    /// Standard deviation of `f` of one release without the rare losses.
    scale: f64,
    /// Lowest position of a grid.
    bottom: f64,
}

impl Search {
    fn new(release: SampledRelease, count: u64, delta: f64) -> Self {
        let SampledRelease { q, mu, direction } = release;
        let n = count as f64;
        let reach = -normal::quantile(TAIL_SHARE * delta / n);
        let high = if direction == Direction::Remove { mu + reach } else { reach };
        // Losses that are exceeded in a tenth of all compositions are not rare.
        let frequent = -normal::quantile(0.1 / (n + 1.0));
        let second = (mu * mu).exp() * normal::cdf(frequent - 2.0 * mu)
            - 2.0 * normal::cdf(frequent - mu)
            + normal::cdf(frequent);
        let scale = q * second.max(1e-3 * mu * mu).min(1e12).sqrt();
        let mut bottom = -9.0 * scale * n.sqrt() - 4.0 * q;
        if direction == Direction::Add {
            // Rare losses far below 0.
            bottom = bottom.min(2.0 * release.position(-normal::quantile(1e-7 / n)));
        }
        Self { release, count, delta, ends: (-reach, high), scale, bottom }
    }

    /// Whether all outcomes are within [`LARGEST_OUTCOME`]; false for NaN.
    fn is_in_range(&self) -> bool {
        self.release.mu - self.ends.0 <= LARGEST_OUTCOME
    }

    fn grid(&self, known: Option<&Bracket>, fineness: f64) -> Grid {
        let n = self.count as f64;
        let spread = self.scale * n.sqrt();
        let known = known.map(|known| (known.lower, known.upper));
        Grid::new(self.scale, spread, self.bottom, known, fineness)
    }

    fn work(&self, grid: &Grid) -> f64 {
        let points = grid.points(self.count as f64).len() as f64;
        let squarings = (self.count as f64).log2().floor();
        let products = f64::from(self.count.count_ones()) - 1.0;
        // The last one is on a grid with few cells.
        let last = if self.count.is_multiple_of(2) { 1.0 } else { 0.5 };
        points * points * (squarings + 0.5 * products - last).max(0.0)
    }

    /// Returns a lower and an upper bound of ε.
    fn bracket(&self, grid: &Grid) -> (f64, Option<f64>) {
        let side = |side| self.composed(grid, side).epsilon(self.delta, grid.largest_bound());
        let (upper, lower) = threads::both(|| side(Side::Upper), || side(Side::Lower));
        (lower.flatten().unwrap_or(0.0), upper)
    }

    /// Returns the composition, by squarings and products from the highest bit of the count.
    fn composed(&self, grid: &Grid, side: Side) -> Atoms {
        let one = self.release.atoms(side, &grid.points(1.0), self.ends);
        // A single release may be coarser where there are many others.
        let coarse = self.release.atoms(side, &grid.coarser().points(1.0), self.ends);
        let mut power = one.clone();
        // A mass of this many releases is in the composition `times` times. There are at most
        // two compositions for each bit of the count.
        let negligible = |releases: u64| {
            let times = self.count as f64 / releases as f64;
            NEGLIGIBLE_SHARE * self.delta / (2.0 * f64::from(u64::BITS) * times)
        };
        let points = |releases: u64| {
            let all = releases == self.count;
            let releases = releases as f64;
            if all { grid.last_points(releases) } else { grid.points(releases) }
        };
        let mut releases = 1u64;
        for bit in (0..self.count.ilog2()).rev() {
            releases *= 2;
            power = power.compose(&power, &points(releases), negligible(releases));
            if self.count >> bit & 1 == 1 {
                releases += 1;
                let other = if releases < 64 { &one } else { &coarse };
                power = power.compose(other, &points(releases), negligible(releases));
            }
        }
        power
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_beyond_the_range_of_the_rounding_have_no_bracket() {
        for mu in [24.0, 33.0, 40.0, 1e3, 1e9] {
            for direction in [Direction::Add, Direction::Remove] {
                for (count, delta) in [(1, 5e-7), (4, 5e-7), (1, 1e-300)] {
                    let parts = [(Pair::Sampled { q: 1e-6, mu }, count)];
                    assert!(
                        epsilon(&parts, direction, delta, 1e-4, &Bracket::unknown(), 0.0).is_none(),
                        "{mu} {delta}"
                    );
                }
            }
        }
    }
}
