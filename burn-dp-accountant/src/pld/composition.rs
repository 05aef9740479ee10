//! The lattices of one direction at one width, and their compositions.

use super::compose::{Composed, Refusal};
use super::contour::Target;
use super::lattice::{Discretized, Lattice, discretize, span};
use super::spectrum::Spectrum;
use crate::mechanism::{Direction, Pair};

/// The lattices of one direction at one width.
pub(super) struct Lattices {
    parts: Vec<(Discretized, u64)>,
    width: f64,
}

type Bound = fn(&Discretized) -> &Lattice;

const PESSIMISTIC: Bound = |discretized| &discretized.pessimistic;
const OPTIMISTIC: Bound = |discretized| &discretized.optimistic;

impl Lattices {
    pub(super) fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        width: f64,
        tail: f64,
        max_points: usize,
    ) -> Result<Self, Refusal> {
        for (pair, _) in parts {
            let points = span(pair, direction, width, tail);
            if points > max_points as f64 {
                return Err(Refusal::TooLarge(points));
            }
        }
        let parts =
            parts.iter().map(|(pair, n)| (discretize(pair, direction, width, tail), *n)).collect();
        Ok(Self { parts, width })
    }

    fn chosen(&self, bound: Bound) -> Vec<(&Lattice, u64)> {
        self.parts.iter().map(|(d, n)| (bound(d), *n)).collect()
    }

    /// δ of losses that the pessimistic lattices put at infinity.
    fn infinite(&self) -> f64 {
        self.parts.iter().map(|(d, n)| d.infinite * *n as f64).sum()
    }

    fn spectrum(
        &self,
        bound: Bound,
        target: Target,
        max_points: usize,
    ) -> Result<Spectrum, Refusal> {
        Spectrum::new(&self.chosen(bound), self.width, target, max_points)
    }

    /// The pessimistic composition over the whole range of its losses, and the δ of the infinite ones.
    pub(super) fn window(&self, theta: f64, max_points: usize) -> Result<(Composed, f64), Refusal> {
        let parts = self.chosen(PESSIMISTIC);
        Ok((Composed::new(&parts, self.width, theta, max_points)?, self.infinite()))
    }

    /// Both spectra. The two are independent of each other.
    fn spectra(&self, target: Target, max_points: usize) -> Result<(Spectrum, Spectrum), Refusal> {
        let (pessimistic, optimistic) = std::thread::scope(|scope| {
            let optimistic = scope.spawn(|| self.spectrum(OPTIMISTIC, target, max_points));
            let pessimistic = self.spectrum(PESSIMISTIC, target, max_points);
            (pessimistic, optimistic.join().unwrap_or(Err(Refusal::Overflow)))
        });
        Ok((pessimistic?, optimistic?))
    }
}

/// A composition with the δ of its infinite losses.
pub(super) struct Composition {
    pessimistic: Spectrum,
    /// Absent where only an upper bound is of interest.
    optimistic: Option<Spectrum>,
    infinite: f64,
}

impl Composition {
    pub(super) fn new(
        lattices: &Lattices,
        target: Target,
        both: bool,
        max_points: usize,
    ) -> Result<Self, Refusal> {
        let infinite = lattices.infinite();
        if both {
            let (pessimistic, optimistic) = lattices.spectra(target, max_points)?;
            Ok(Self { pessimistic, optimistic: Some(optimistic), infinite })
        } else {
            let pessimistic = lattices.spectrum(PESSIMISTIC, target, max_points)?;
            Ok(Self { pessimistic, optimistic: None, infinite })
        }
    }

    /// Bounds of δ at `epsilon`, without the extra δ of the ledger.
    pub(super) fn delta(&self, epsilon: f64) -> (f64, f64) {
        let upper = (self.pessimistic.delta(epsilon, true) + self.infinite).min(1.0);
        let lower = self.optimistic.as_ref().map_or(0.0, |o| o.delta(epsilon, false));
        (lower.min(upper), upper)
    }

    /// Bounds of ε at `delta`, without the extra δ of the ledger, searched from `start`.
    pub(super) fn epsilon(&self, delta: f64, start: f64) -> (f64, Option<f64>) {
        let left = delta - self.infinite;
        let upper = (left > 0.0).then(|| self.pessimistic.epsilon(left, true, start)).flatten();
        let start = upper.unwrap_or(start);
        let lower = self.optimistic.as_ref().and_then(|o| o.epsilon(delta, false, start));
        (lower.unwrap_or(0.0).max(0.0), upper.map(|e| e.max(0.0)))
    }
}
