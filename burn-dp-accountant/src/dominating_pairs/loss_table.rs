//! A pair that is known by upper bounds on its δ alone.

use std::sync::Arc;

/// Largest ε of a table: beyond it, likelihood ratios overflow.
const LARGEST: f64 = 600.0;

/// The privacy loss of a symmetric pair whose δ at every ε is at least what a list of bounds says.
///
/// As a function of `c = e^ε`, the hockey-stick divergence of a pair is convex, 1 at `c = 0`, and
/// in a symmetric pair `H(1/c) = 1 - (1 - H(c))/c`. The largest function with these properties
/// below the bounds is piecewise linear. Its kinks are the atoms of the pair: a change of slope by
/// `s` at `c` has mass `s` under `Q` and `cs` under `P`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LossTable {
    /// Losses, ascending, and their masses under `P`.
    atoms: Arc<[(f64, f64)]>,
    /// Mass under `P` of an infinite loss.
    infinite: f64,
}

impl LossTable {
    /// Creates the table of bounds `(ε, δ)` in both directions, for ascending ε from 0.
    ///
    /// `None` without any bound.
    pub(crate) fn of_profile(profile: &[(f64, f64)]) -> Option<Self> {
        let points = profile.iter().filter(|(epsilon, _)| (0.0..=LARGEST).contains(epsilon));
        let points: Vec<(f64, f64)> =
            points.map(|&(epsilon, delta)| (epsilon, delta.clamp(0.0, 1.0))).collect();
        // A point and its reflection are on the line `1 - t (1 + c)`. The line with the largest t
        // is below all the others, and crosses c = 1.
        let slope = |&(epsilon, delta): &(f64, f64)| (1.0 - delta) / (1.0 + epsilon.exp());
        let slopes: Vec<f64> = points.iter().map(slope).collect();
        let first = (0..points.len()).max_by(|&a, &b| slopes[a].total_cmp(&slopes[b]))?;
        let hull = lower_hull(&points[first..]);
        let infinite = hull.last()?.1;
        let ends = hull.windows(2).map(|pair| chord(pair[0], pair[1])).chain([0.0]);
        let mut left = -slopes[first];
        let mut atoms = Vec::with_capacity(2 * hull.len());
        for (&(epsilon, _), right) in hull.iter().zip(ends) {
            let mass = (right - left).max(0.0);
            atoms.push((-epsilon, mass));
            atoms.push((epsilon, mass * epsilon.exp()));
            left = right;
        }
        atoms.retain(|(_, mass)| *mass > 0.0);
        atoms.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(Self { atoms: atoms.into(), infinite })
    }

    /// Returns the losses, ascending, and their masses under `P`.
    pub(crate) fn atoms(&self) -> &[(f64, f64)] {
        &self.atoms
    }

    /// Returns the mass under `P` of an infinite loss.
    pub(crate) fn infinite(&self) -> f64 {
        self.infinite
    }
}

/// Returns the slope over `e^ε` between two points `(ε, δ)`.
fn chord(a: (f64, f64), b: (f64, f64)) -> f64 {
    (b.1 - a.1) * (-a.0).exp() / (b.0 - a.0).exp_m1()
}

/// Returns the points `(ε, δ)` of the lower convex hull over `e^ε`.
fn lower_hull(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for &point in points {
        // A bound that does not decrease says nothing new.
        if hull.last().is_some_and(|last| point.0 <= last.0 || point.1 >= last.1) {
            continue;
        }
        while let [.., a, b] = hull[..]
            && chord(a, b) >= chord(b, point)
        {
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::gdp::GaussianDp;

    fn delta(table: &LossTable, epsilon: f64) -> f64 {
        let above = table.atoms().iter().filter(|(loss, _)| *loss > epsilon);
        above.map(|(loss, mass)| mass * -(epsilon - loss).exp_m1()).sum::<f64>() + table.infinite()
    }

    #[test]
    fn a_table_has_the_bounds_that_it_was_made_of_in_both_directions() {
        let gdp = GaussianDp::new(0.8).unwrap();
        let profile: Vec<(f64, f64)> = (0..=600)
            .map(|k| f64::from(k) * 0.01)
            .map(|epsilon| (epsilon, gdp.delta(epsilon).unwrap()))
            .collect();
        let table = LossTable::of_profile(&profile).unwrap();
        let mass: f64 = table.atoms().iter().map(|(_, mass)| mass).sum();
        assert!((mass + table.infinite() - 1.0).abs() < 1e-12, "{mass}");
        let other: f64 = table.atoms().iter().map(|(loss, mass)| mass * (-loss).exp()).sum();
        assert!((other + table.infinite() - 1.0).abs() < 1e-12, "{other}");
        for &(epsilon, bound) in &profile {
            let found = delta(&table, epsilon);
            assert!((found / bound - 1.0).abs() < 1e-9, "{epsilon}: {found} {bound}");
            let reflected = 1.0 - (1.0 - bound) * (-epsilon).exp();
            assert!((delta(&table, -epsilon) - reflected).abs() < 1e-12, "{epsilon}");
        }
        // Between the bounds it is above the pair.
        for epsilon in [0.005, 1.234, 3.333] {
            assert!(delta(&table, epsilon) >= gdp.delta(epsilon).unwrap());
        }
    }

    #[test]
    fn useless_bounds_are_replaced_by_what_symmetry_and_the_others_imply() {
        // δ <= 1 says nothing; δ = 0 at ε = 2 is randomized response.
        let table = LossTable::of_profile(&[(0.0, 1.0), (1.0, 1.0), (2.0, 0.0)]).unwrap();
        let high = 1.0 / (1.0 + (-2f64).exp());
        assert_eq!(table.infinite(), 0.0);
        let [(low_loss, low), (high_loss, found)] = *table.atoms() else { unreachable!() };
        assert_eq!((low_loss, high_loss), (-2.0, 2.0));
        assert!((found - high).abs() < 1e-15 && (low - (1.0 - high)).abs() < 1e-15);
        assert!(LossTable::of_profile(&[]).is_none());
        let nothing = LossTable::of_profile(&[(0.0, 1.0)]).unwrap();
        assert_eq!((nothing.infinite(), nothing.atoms().len()), (1.0, 0));
    }
}
