//! Compositions of the lattices of one direction at one grid width.

use super::fourier::GridError;
use super::spectrum::Spectrum;
use super::window::Composed;
use crate::dominating_pairs::{Direction, Pair};
use crate::lattice::{Discretized, Lattice, discretize, largest_losses, span};
use crate::math::side::Side;
use crate::saddle::Target;
use crate::threads;

/// The lattices of one direction at one grid width.
pub(super) struct Lattices {
    parts: Vec<(Discretized, u64)>,
    width: f64,
    /// Whether all mass is in cells.
    is_smooth: bool,
}

/// Maximum tilt of all losses for which the errors of the masses are moved to the ends, where they
/// only count this much.
const SMALL_TILT: f64 = 0.5;

impl Lattices {
    /// Discretizes the pairs.
    pub(super) fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        width: f64,
        tail: f64,
        max_points: usize,
    ) -> Result<Self, GridError> {
        for (pair, _) in parts {
            let points = span(pair, direction, width, tail);
            if points > max_points as f64 {
                return Err(GridError::TooLarge(points));
            }
        }
        let is_smooth = parts.iter().all(|(pair, _)| matches!(pair, Pair::Sampled { .. }));
        let parts =
            parts.iter().map(|(pair, n)| (discretize(pair, direction, width, tail), *n)).collect();
        Ok(Self { parts, width, is_smooth })
    }

    fn of(&self, side: Side) -> Vec<(&Lattice, u64)> {
        let parts = self.parts.iter().map(|(one, n)| match side {
            Side::Upper => (&one.pessimistic, *n),
            Side::Lower => (&one.optimistic, *n),
        });
        parts.collect()
    }

    /// Returns the δ of the losses that the pessimistic lattices move to infinity.
    fn infinite(&self) -> f64 {
        self.parts.iter().map(|(d, n)| d.infinite * *n as f64).sum()
    }

    fn spectrum(
        &self,
        side: Side,
        target: Target,
        max_points: usize,
    ) -> Result<Spectrum, GridError> {
        let parts = self.of(side);
        if let [(one, n)] = &self.parts[..]
            && self.is_smooth
            && target.theta * largest_losses(&parts, self.width) < SMALL_TILT * *n as f64
        {
            let lattice = match side {
                Side::Upper => one.pessimistic_without_error(),
                Side::Lower => one.optimistic_without_error(),
            };
            return Spectrum::new(&[(&lattice, *n)], self.width, target, max_points);
        }
        Spectrum::new(&parts, self.width, target, max_points)
    }

    /// Returns the pessimistic composition over its whole range of losses, and the δ of the
    /// infinite losses.
    pub(super) fn window(
        &self,
        theta: f64,
        max_points: usize,
    ) -> Result<(Composed, f64), GridError> {
        let parts = self.of(Side::Upper);
        Ok((Composed::new(&parts, self.width, theta, max_points)?, self.infinite()))
    }

    /// Returns both spectra, computed in parallel.
    fn spectra(
        &self,
        target: Target,
        max_points: usize,
    ) -> Result<(Spectrum, Spectrum), GridError> {
        let (pessimistic, optimistic) = threads::both(
            || self.spectrum(Side::Upper, target, max_points),
            || self.spectrum(Side::Lower, target, max_points),
        );
        Ok((pessimistic?, optimistic.unwrap_or(Err(GridError::Overflow))?))
    }
}

/// A composition with the δ of its infinite losses.
pub(super) struct Composition {
    pessimistic: Spectrum,
    /// Absent if only an upper bound is needed.
    optimistic: Option<Spectrum>,
    infinite: f64,
}

impl Composition {
    pub(super) fn new(
        lattices: &Lattices,
        target: Target,
        both: bool,
        max_points: usize,
    ) -> Result<Self, GridError> {
        let infinite = lattices.infinite();
        if both {
            let (pessimistic, optimistic) = lattices.spectra(target, max_points)?;
            Ok(Self { pessimistic, optimistic: Some(optimistic), infinite })
        } else {
            let pessimistic = lattices.spectrum(Side::Upper, target, max_points)?;
            Ok(Self { pessimistic, optimistic: None, infinite })
        }
    }

    /// Returns bounds on δ at `epsilon`, without the additive δ of the events.
    pub(super) fn delta(&self, epsilon: f64) -> (f64, f64) {
        let upper = (self.pessimistic.delta(epsilon, Side::Upper) + self.infinite).min(1.0);
        let lower = self.optimistic.as_ref().map_or(0.0, |o| o.delta(epsilon, Side::Lower));
        (lower, upper)
    }

    /// Returns bounds on ε at `delta`, without the additive δ of the events; the search starts at
    /// `start`.
    pub(super) fn epsilon(&self, delta: f64, start: f64) -> (f64, Option<f64>) {
        let left = delta - self.infinite;
        let upper =
            (left > 0.0).then(|| self.pessimistic.epsilon(left, Side::Upper, start)).flatten();
        let start = upper.unwrap_or(start);
        let lower = self.optimistic.as_ref().and_then(|o| o.epsilon(delta, Side::Lower, start));
        (lower.unwrap_or(0.0).max(0.0), upper.map(|e| e.max(0.0)))
    }
}
