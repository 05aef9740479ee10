//! Discretization of privacy losses: one distribution that is worse than the true one, and one that
//! is better.
//!
//! With `z = e^{-Y}` the hockey-stick divergence of a composition is `E_P[(1 - e^ε Π z_t)^+]`,
//! convex in every `z_t` and decreasing in it. Hence
//!
//! - moving mass apart on the `z` axis without moving its mean (each loss between two grid points
//!   is split between them so that the masses under `P` and `Q` are both preserved), rounding a
//!   loss up, and moving mass to an infinite loss can only make δ larger: the **pessimistic**
//!   lattice ("connect the dots", Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022);
//! - dropping mass can only make δ smaller, and so does every lattice whose hockey-stick divergence
//!   is below the true one everywhere: the **optimistic** lattice.

use std::cmp::Ordering;

use super::convex_hull::lower_hull;
use super::masses::Lattice;
use super::quadrature::{GridMasses, MASS_ERROR};
use super::shape::Shape;
use crate::dominating_pairs::{Direction, Pair};
use crate::math::normal;
use crate::math::sum::CompensatedSum;

/// Both lattices of one pair in one direction.
#[derive(Debug, Clone)]
pub(crate) struct Discretized {
    pub(crate) pessimistic: Lattice,
    pub(crate) optimistic: Lattice,
    /// Mass of the pessimistic lattice at an infinite loss.
    pub(crate) infinite: f64,
    /// Sum of the masses of all cells, and the mass of the tails that they omit.
    total: f64,
    omitted: f64,
}

impl Discretized {
    /// Returns the pessimistic lattice without the error of its masses.
    ///
    /// The true masses of the cells are at least the lowered ones. The mass that is then missing,
    /// because all masses are at most 1 together, is at the largest loss.
    pub(crate) fn pessimistic_without_error(&self) -> Lattice {
        let lattice = &self.pessimistic;
        let rest = 1.0 - self.total * (1.0 - lattice.error) + SUM_ERROR;
        lattice.without_error(rest.max(0.0), lattice.mass.len() - 1)
    }

    /// Returns the optimistic lattice without the error of its masses: the missing part, up to the
    /// mass within the tails, is at the smallest loss.
    pub(crate) fn optimistic_without_error(&self) -> Lattice {
        let lattice = &self.optimistic;
        // Rounding of the hull can add to the masses.
        let mut total = CompensatedSum::default();
        lattice.mass.iter().for_each(|&mass| total.add(mass));
        let total = total.value().max(self.total);
        let rest = 1.0 - self.omitted - total * (1.0 - lattice.error) - SUM_ERROR;
        lattice.without_error(rest.max(0.0), 0)
    }
}

/// Missing mass above which the quadrature failed; its proven error is far below.
const LOST: f64 = 1e-8;

/// Bound on the rounding of the sum of all masses.
const SUM_ERROR: f64 = 8.0 * f64::EPSILON;

/// Returns the number of grid points that a discretization needs, without allocating them.
pub(crate) fn span(pair: &Pair, direction: Direction, width: f64, tail: f64) -> f64 {
    let (low, high) = range(&Shape::new(pair, direction, tail));
    let points = (high - low) / width + 4.0;
    // A loss that is not a number fits into no grid.
    if points.is_finite() { points } else { f64::INFINITY }
}

fn range(shape: &Shape) -> (f64, f64) {
    let mut low = f64::INFINITY;
    let mut high = f64::NEG_INFINITY;
    let mut include = |y: f64| {
        low = low.min(y);
        high = high.max(y);
    };
    for piece in &shape.pieces {
        let sign = if piece.reversed { -1.0 } else { 1.0 };
        include(sign * piece.loss(piece.low));
        include(sign * piece.loss(piece.high));
    }
    for &(y, _) in shape.atoms.iter().chain(&shape.worse).chain(&shape.better) {
        include(y);
    }
    (low, high)
}

/// Discretizes the privacy loss of `pair` on a grid of this width. The tails, of probability `tail`
/// on each side of each piece, are moved to infinity (pessimistic) or dropped (optimistic).
pub(crate) fn discretize(pair: &Pair, direction: Direction, width: f64, tail: f64) -> Discretized {
    let shape = Shape::new(pair, direction, tail);
    let (low, high) = range(&shape);
    let offset = bulk(pair, direction, width);
    let first = ((low - offset) / width).floor() as i64 - 1;
    let last = ((high - offset) / width).ceil() as i64 + 1;
    let size = (last - first + 1) as usize;
    let mut sums = GridMasses::new(width, offset, first, size);
    for piece in &shape.pieces {
        sums.add_piece(piece);
    }
    let add = |sums: &mut GridMasses, atoms: &[(f64, f64)]| {
        for &(y, mass) in atoms {
            let cell = (((y - offset) / width).floor() as i64).clamp(first, last - 1);
            sums.add(cell, y, mass);
        }
    };
    add(&mut sums, &shape.atoms);
    let mut total = CompensatedSum::default();
    sums.mass.iter().for_each(|&mass| total.add(mass));
    // The part of a mass that the quadrature may have split wrongly goes to the safe side.
    let (mut optimistic, mut pessimistic) = (sums.mass.clone(), sums.mass.clone());
    if !shape.worse.is_empty() {
        let mut worse = sums.clone();
        add(&mut worse, &shape.worse);
        pessimistic = worse.mass;
        add(&mut sums, &shape.better);
        optimistic = sums.mass.clone();
    }
    for (i, &uncertain) in sums.uncertain.iter().enumerate().take(size - 1) {
        let up = uncertain.min(pessimistic[i]);
        pessimistic[i] -= up;
        pessimistic[i + 1] += up;
        let down = uncertain.min(optimistic[i + 1]);
        optimistic[i + 1] -= down;
        optimistic[i] += down;
    }
    subtract_gaps(&mut optimistic, &sums.gap, width.exp());
    let removed = lower_hull(&mut optimistic, width);
    // The tails that the shape omits, on either side of each piece, become infinite losses, because
    // a piece can end anywhere among the others.
    let omitted = 2.0 * tail * shape.pieces.len() as f64;
    // A quadrature that lost more than its proven error says nothing about the rest.
    let lost = 1.0 - omitted - total.value();
    let lost = if shape.worse.is_empty() && lost > LOST { lost } else { 0.0 };
    let infinite = omitted + shape.infinite + lost;
    let lattice = |mass, error| Lattice { offset, first, mass, error };
    Discretized {
        pessimistic: lattice(pessimistic, MASS_ERROR),
        // Each kink that the hull removed rounds a mass once.
        optimistic: lattice(optimistic, MASS_ERROR + removed as f64 * f64::EPSILON),
        infinite,
        total: total.value(),
        omitted,
    }
}

/// Returns the loss of the bulk of a rarely sampled mechanism, as the offset of the grid. With
/// small `q` nearly all losses are within `q` of one value. If that is less than a cell, the value
/// itself must be a grid point.
fn bulk(pair: &Pair, direction: Direction, width: f64) -> f64 {
    let (q, mu) = match *pair {
        Pair::Sampled { q, mu } => (q, mu),
        Pair::Line { ref components } => {
            let contributing = || components.iter().filter(|(_, mu)| *mu > 0.0);
            let q = contributing().map(|(weight, _)| weight).sum::<f64>();
            let mean = contributing().map(|(weight, mu)| weight * mu).sum::<f64>();
            (q, mean / q)
        }
        // The component with the largest weight determines it.
        Pair::Mixture { ref components, .. } => {
            let heaviest = components.iter().max_by(|a, b| a.0.total_cmp(&b.0));
            return heaviest.map_or(0.0, |(_, pair)| bulk(pair, direction, width));
        }
        _ => return 0.0,
    };
    // The bulk ends at the loss of half a cell.
    let end = (((0.5 * width).exp_m1() / q).ln_1p() + 0.5 * mu * mu) / mu;
    let ratio = (normal::ln_cdf(end - mu) - normal::ln_cdf(end)).exp();
    let value = (q * (ratio - 1.0)).ln_1p();
    match direction {
        Direction::Remove => value,
        Direction::Add => -value,
    }
}

/// Lowers the piecewise linear divergence at every grid point by the larger gap of its two cells,
/// so that it is below the true divergence everywhere. In masses under `P` the result may be
/// negative if the loss varies faster than the grid; the convex hull repairs that.
///
/// At the left end the tangent at 0, `E_P[1] - α E_Q[1]`, is the better lower bound: the result
/// follows the tangent up to the first grid point at which the tangent is the lower of the two.
/// (Lowering the first point instead would move the mean of a distribution whose bulk is narrower
/// than a few cells.)
fn subtract_gaps(mass: &mut [f64], gap: &[f64], growth: f64) {
    let cell = |i: isize| if i < 0 { 0.0 } else { gap.get(i as usize).copied().unwrap_or(0.0) };
    let mut lowered: Vec<f64> =
        (0..=mass.len() as isize).map(|i| cell(i - 1).max(cell(i))).collect();
    // Distance of the divergence from the tangent, in the same unit, without cancellation:
    // d_i = Σ_{j<i} m_j (e^{(i-j)h} - 1)/(e^h - 1), hence d_{i+1} = e^h d_i + Σ_{j<=i} m_j.
    let (mut distance, mut below) = (0.0, 0.0);
    let (mut joint, mut below_joint) = (0, 0.0);
    for i in 0..mass.len() {
        let leaves = distance > lowered[i];
        lowered[i] = distance;
        (joint, below_joint) = (i, below);
        if leaves {
            break;
        }
        below += mass[i];
        distance = distance * growth + below;
    }
    for (i, m) in mass.iter_mut().enumerate() {
        *m -= match i.cmp(&joint) {
            Ordering::Less => *m,
            // d_i - e^h d_{i-1} is the sum of the masses below. A difference of the two would lose
            // the digits that many releases need.
            Ordering::Equal => lowered[i + 1] - lowered[i] * growth - below_joint,
            Ordering::Greater => {
                lowered[i + 1] - lowered[i] * (1.0 + growth) + lowered[i - 1] * growth
            }
        };
    }
}

/// Returns losses and logarithms of their masses on a coarse grid.
pub(crate) fn points(pair: &Pair, direction: Direction, width: f64, tail: f64) -> Vec<(f64, f64)> {
    let grid = discretize(pair, direction, width, tail).pessimistic;
    let masses = grid.mass.iter().enumerate().filter(|(_, mass)| **mass > 0.0);
    let loss = |i: usize| grid.offset + (grid.first + i as i64) as f64 * width;
    masses.map(|(i, mass)| (loss(i), mass.ln())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(lattice: &Lattice, width: f64, infinite: f64, epsilon: f64) -> f64 {
        let terms = lattice.mass.iter().enumerate().map(|(i, mass)| {
            let loss = lattice.offset + (lattice.first + i as i64) as f64 * width;
            if loss > epsilon { mass * -(epsilon - loss).exp_m1() } else { 0.0 }
        });
        infinite + terms.sum::<f64>()
    }

    fn gaussian(mu: f64, epsilon: f64) -> f64 {
        use crate::math::normal::cdf;
        cdf(-epsilon / mu + 0.5 * mu) - epsilon.exp() * cdf(-epsilon / mu - 0.5 * mu)
    }

    /// Hockey-stick divergence of the sampled Gaussian, "remove": `q` times the divergence of the
    /// Gaussian at a shifted ε (Balle, Barthe, Gaboardi 2018, Theorem 2).
    fn sampled(q: f64, mu: f64, epsilon: f64) -> f64 {
        let shifted = (epsilon.exp() - 1.0 + q) / q;
        if shifted <= 0.0 {
            return 1.0 - epsilon.exp();
        }
        q * gaussian(mu, shifted.ln())
    }

    #[test]
    fn lattices_enclose_the_closed_form() {
        for (q, mu, width) in [(0.01, 1.0, 0.01), (0.2, 0.5, 0.02), (1e-4, 2.0, 0.001)] {
            let pair = Pair::Sampled { q, mu };
            let grid = discretize(&pair, Direction::Remove, width, 1e-18);
            for k in -40..200 {
                let epsilon = f64::from(k) * width * 0.37;
                let truth = sampled(q, mu, epsilon);
                let upper = delta(&grid.pessimistic, width, grid.infinite, epsilon);
                let lower = delta(&grid.optimistic, width, 0.0, epsilon);
                assert!(upper >= truth - 1e-15 - 1e-12 * truth, "{q} {epsilon}: {upper} {truth}");
                assert!(lower <= truth + 1e-15 + 1e-12 * truth, "{q} {epsilon}: {lower} {truth}");
            }
        }
    }

    #[test]
    fn lattices_without_the_error_of_the_masses_enclose_the_closed_form() {
        for (q, mu, width) in [(0.01, 1.0, 0.01), (0.2, 0.5, 0.02)] {
            let grid = discretize(&Pair::Sampled { q, mu }, Direction::Remove, width, 1e-18);
            let (worse, better) =
                (grid.pessimistic_without_error(), grid.optimistic_without_error());
            for (lattice, plain, end) in
                [(&worse, &grid.pessimistic, worse.mass.len() - 1), (&better, &grid.optimistic, 0)]
            {
                let total: f64 = lattice.mass.iter().sum();
                assert!((total - 1.0).abs() < 1e-14, "{total}");
                // Every other mass is lowered by its error, and the end has the missing part.
                let others = lattice.mass.iter().zip(&plain.mass).enumerate();
                for (i, (new, old)) in others.filter(|(i, _)| *i != end) {
                    assert!(*new <= old * (1.0 - 0.9 * MASS_ERROR), "{i}: {new} {old}");
                }
                let rest = lattice.mass[end] - plain.mass[end];
                assert!(rest > 0.1 * MASS_ERROR && rest < 2.0 * MASS_ERROR, "{rest:e}");
            }
            for k in -40..200 {
                let epsilon = f64::from(k) * width * 0.37;
                let truth = sampled(q, mu, epsilon);
                let upper = delta(&worse, width, grid.infinite, epsilon);
                let lower = delta(&better, width, 0.0, epsilon);
                assert!(
                    upper >= truth - 1e-15 && lower <= truth + 1e-15,
                    "{lower} {truth} {upper}"
                );
            }
        }
    }

    #[test]
    fn lattices_enclose_the_reverse_direction() {
        // H_α(Q||P) = 1 - α + α H_{1/α}(P||Q).
        let (q, mu, width) = (0.1, 1.0, 0.005);
        let grid = discretize(&Pair::Sampled { q, mu }, Direction::Add, width, 1e-18);
        for k in -100..20 {
            let epsilon = f64::from(k) * 0.0049;
            let truth = 1.0 - epsilon.exp() + epsilon.exp() * sampled(q, mu, -epsilon);
            let upper = delta(&grid.pessimistic, width, grid.infinite, epsilon);
            let lower = delta(&grid.optimistic, width, 0.0, epsilon);
            assert!(lower <= truth + 1e-14 && truth <= upper + 1e-14, "{lower} {truth} {upper}");
        }
    }

    #[test]
    fn lattices_enclose_the_tables_of_random_allocation() {
        use crate::dominating_pairs::dominating_pairs_of;
        use crate::event::DpEvent;
        use crate::relation::NeighboringRelation;
        let event = Box::new(DpEvent::gaussian(1.0));
        let event = DpEvent::RandomAllocation { steps: 10, participations: 1, epochs: 1, event };
        let relation = NeighboringRelation::AddOrRemoveOne;
        let pairs = dominating_pairs_of([(&event, 1)], relation).unwrap_or_default();
        let (width, tail) = (1e-3, 1e-15);
        // `balls_in_bins_exact` of golden/sampler_accounting.json.
        for (direction, epsilon, truth) in [
            (Direction::Remove, 0.5, 0.026850355983446317),
            (Direction::Remove, 1.0, 0.0027828689708644383),
            (Direction::Add, 0.5, 0.0190641129481348),
            (Direction::Add, 1.0, 0.00048618580849675217),
        ] {
            let grid = discretize(&pairs.parts[0].0, direction, width, tail);
            let upper = delta(&grid.pessimistic, width, grid.infinite, epsilon);
            let lower = delta(&grid.optimistic, width, 0.0, epsilon);
            assert!(lower < truth && truth < upper, "{direction:?}: {lower} {truth} {upper}");
            assert!(upper - lower < 2e-2 * truth, "{direction:?}: {lower} {upper}");
        }
    }

    // A better lattice with more mass than the true distribution is not better: each of millions of
    // steps multiplies it.
    #[test]
    fn better_lattices_keep_their_mass_on_fine_grids() {
        let widths = [1e-5, 7e-7, 7e-8, 2e-8];
        // The finest grids of the last pair would have over a hundred million points.
        for (q, mu, widths) in [
            (7.369_624e-7, 1.219_554, &widths[..]),
            (1e-6, 0.01, &widths[..]),
            (1e-3, 1.0, &widths[..2]),
        ] {
            for &width in widths {
                let pair = Pair::Sampled { q, mu };
                let Discretized { pessimistic, optimistic, .. } =
                    discretize(&pair, Direction::Remove, width, 1e-18);
                let sums = [optimistic, pessimistic].map(|lattice| {
                    let (mut mass, mut mean) = <(CompensatedSum, CompensatedSum)>::default();
                    for (i, m) in lattice.mass.iter().enumerate() {
                        let index = (lattice.first + i as i64) as f64;
                        mass.add(*m);
                        mean.add(m * (lattice.offset + index * width));
                    }
                    (mass.value() - 1.0, mean.value())
                });
                let context = format!("{q:e} {mu} {width:e}: {sums:?}");
                assert!(sums.iter().all(|(mass, _)| mass.abs() < 1e-13), "{context}");
                assert!(sums[0].1 < sums[1].1, "{context}");
            }
        }
    }

    #[test]
    fn a_hull_of_many_kinks_has_the_rounding_of_each_in_its_error() {
        let pair = Pair::Sampled { q: 0.01, mu: 10.0 };
        let grid = discretize(&pair, Direction::Add, 1.1e-4, 1e-18);
        let mut sum = CompensatedSum::default();
        grid.optimistic.mass.iter().for_each(|mass| sum.add(*mass));
        let excess = sum.value() - 1.0;
        assert!(excess > 1e-13, "{excess:e}");
        assert!(excess < grid.optimistic.error - MASS_ERROR, "{excess:e}");
        let lowered: f64 = grid.optimistic_without_error().mass.iter().sum();
        assert!(lowered <= 1.0 + 1e-15, "{:e}", lowered - 1.0);
    }

    #[test]
    fn masses_of_tiny_shifts_sum_to_one() {
        // Positions are logarithms near zero over the shift: digits that are lost there are
        // multiplied by the number of steps.
        for mu in [1e-3, 1e-6, 1e-8, 1e-9] {
            for direction in [Direction::Remove, Direction::Add] {
                let width = 0.013 * mu;
                let grid = discretize(&Pair::Sampled { q: 0.5, mu }, direction, width, 1e-16);
                for masses in [&grid.pessimistic.mass, &grid.optimistic.mass] {
                    let sum: f64 = masses.iter().sum();
                    assert!((sum - 1.0).abs() < 1e-11, "{mu:e} {direction:?}: {:e}", sum - 1.0);
                }
            }
        }
    }

    #[test]
    fn masses_of_every_pair_sum_to_one() {
        let pairs = [
            Pair::Gaussian { mu: 2.0 },
            Pair::Sampled { q: 0.3, mu: 0.4 },
            Pair::Substituted { q: 0.1, mu: 1.0 },
            Pair::Symmetrized { q: 0.1, components: vec![(0.75, 1.0), (0.25, 2.0)] },
            Pair::Laplace { mu: 0.8 },
            Pair::SampledLaplace { q: 0.2, mu: 1.5 },
            Pair::RandomizedResponse { epsilon: 0.5 },
            Pair::Mixture {
                components: vec![
                    (0.7, Pair::Sampled { q: 0.1, mu: 1.0 }),
                    (0.3, Pair::Sampled { q: 0.08, mu: 2.0 }),
                ],
                attained: None,
            },
        ];
        for pair in pairs {
            for direction in [Direction::Remove, Direction::Add] {
                let grid = discretize(&pair, direction, 0.013, 1e-16);
                let p: f64 = grid.pessimistic.mass.iter().sum();
                let q: f64 = (grid.pessimistic.mass.iter().enumerate())
                    .map(|(i, m)| {
                        let steps = (grid.pessimistic.first + i as i64) as f64;
                        m * (-(grid.pessimistic.offset + steps * 0.013)).exp()
                    })
                    .sum();
                assert!((p - 1.0).abs() < 1e-12, "{pair:?} {direction:?}: {p}");
                // The uncertain mass, 1.5e-7 of the mass of a cell, is moved up by one cell.
                assert!((q - 1.0).abs() < 3e-9, "{pair:?} {direction:?}: Q adds up to {q}");
                assert!(grid.optimistic.mass.iter().all(|&m| m >= 0.0));
            }
        }
    }

    #[test]
    fn small_cells_keep_the_mass_of_both_neighbors() {
        for (q, mu) in [(0.01, 1.0), (0.3, 0.1), (1e-4, 3.0), (0.9, 0.5)] {
            for (direction, width) in [(Direction::Remove, 1e-4), (Direction::Add, 3e-5)] {
                let tail = 1e-16;
                let grid = discretize(&Pair::Sampled { q, mu }, direction, width, tail);
                let mut sums = (0.0, 0.0);
                for (i, mass) in grid.pessimistic.mass.iter().enumerate() {
                    let steps = (grid.pessimistic.first + i as i64) as f64;
                    sums.0 += mass;
                    sums.1 += mass * (-(grid.pessimistic.offset + steps * width)).exp();
                }
                // Mass of Q at the tails of P; the tails themselves are infinite losses.
                let reach = -normal::quantile(tail);
                let inside = |mean: f64, low: f64, high: f64| {
                    1.0 - normal::cdf(low - mean) - normal::cdf(mean - high)
                };
                let expected = match direction {
                    Direction::Remove => inside(0.0, -reach, mu + reach),
                    Direction::Add => {
                        (1.0 - q) * inside(0.0, -reach, reach) + q * inside(mu, -reach, reach)
                    }
                };
                assert!((sums.0 - 1.0).abs() < 1e-12, "{q} {mu} {direction:?}: {sums:?}");
                // The uncertain mass was moved up, never down.
                let missing = expected - sums.1;
                assert!(
                    missing > -1e-12 && missing < 2e-7 * width,
                    "{q} {mu} {direction:?}: {sums:?}"
                );
            }
        }
    }
}
