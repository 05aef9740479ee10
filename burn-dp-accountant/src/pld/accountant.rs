//! The accountant that composes privacy loss distributions.

use super::{Bracket, Effort};
use crate::budget::{check_delta, check_epsilon};
use crate::mechanism::{Lowered, lower};
use crate::{
    AccountantError, DeltaBracket, DpEvent, Epsilon, Method, NeighboringRelation, TradeoffCurve,
};

/// Composes privacy loss distributions and returns a bracket that contains the true ε (or δ): the
/// errors of the grid, of the truncation, of wrap-around and of the rounding of the transform are
/// all inside of it. The grid is refined until the bracket is narrow enough, within bounds on
/// memory and time; if they do not suffice, a note says so.
///
/// # References
///
/// "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions", Doroshenko,
/// Ghazi, Kamath, Kumar, Manurangsi 2022; "Optimal Accounting of Differential Privacy via
/// Characteristic Function", Zhu, Dong, Wang 2022 (dominating pairs, both directions).
#[derive(Debug, Clone)]
pub struct PldAccountant {
    lowered: Lowered,
    effort: Effort,
}

impl PldAccountant {
    /// The accountant of these events, each released `count` times.
    ///
    /// # Errors
    ///
    /// [`AccountantError::Unsupported`] if one event has no dominating pair: nothing is skipped;
    /// [`AccountantError::InvalidArgument`] for a parameter outside of its domain.
    pub fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        Ok(Self::of(lower(events, relation)?))
    }

    pub(crate) fn of(lowered: Lowered) -> Self {
        Self { lowered, effort: Effort::default() }
    }

    /// Sets the relative width of the bracket to reach, at least 1e-9. By default 1e-4 is reached, and
    /// as much less as costs only milliseconds; a width that is set here ends the refinement.
    pub fn with_relative_width(mut self, relative_width: f64) -> Self {
        self.effort.relative_width = relative_width.clamp(1e-9, 1.0);
        self.effort.free_points = 0;
        self
    }

    /// Sets the largest number of grid points of one distribution (4 Mi by default), which bounds
    /// memory and time.
    pub fn with_max_points(mut self, max_points: usize) -> Self {
        self.effort.max_points = max_points.max(1 << 10);
        self
    }

    /// ε at `delta`, as a bracket. `upper` is rounded up, `lower` down; the estimate is the middle.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] for a δ outside of (0, 1).
    pub fn epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError> {
        check_delta(delta)?;
        if let Some(reason) = &self.lowered.infinite {
            return Ok(Epsilon::infinite(delta, Method::Pld, reason.clone()));
        }
        let mut answer = Epsilon::bound(delta, 0.0, Method::Pld);
        let bracket = if self.lowered.parts.is_empty() {
            self.without_parts(delta)
        } else {
            super::epsilon(&self.lowered, delta, &self.effort)
        };
        answer.upper = bracket.upper;
        answer.lower = bracket.lower;
        answer.grid = bracket.grid;
        answer.notes.extend(bracket.note);
        if self.lowered.loose {
            match self.lowered.attained() {
                Some(attained) if !attained.parts.is_empty() => {
                    let coarse = Effort { relative_width: 1e-3, free_points: 0, ..self.effort };
                    answer.lower = super::epsilon(&attained, delta, &coarse).lower;
                    answer.notes.push(
                        "the upper end is a bound that no data set is known to attain".to_string(),
                    );
                }
                _ => {
                    answer.lower = 0.0;
                    answer.notes.push("there is no lower bound for these events".to_string());
                }
            }
            answer.lower = answer.lower.min(answer.upper);
        }
        answer.estimate = if answer.upper.is_finite() && !self.lowered.loose {
            0.5 * (answer.lower + answer.upper)
        } else {
            answer.upper
        };
        Ok(answer)
    }

    /// Only extra δ: ε is where `δ >= mass + (1 + e^ε) η` begins to hold.
    fn without_parts(&self, delta: f64) -> Bracket {
        let left = delta - self.lowered.mass_at_infinity;
        let eta = self.lowered.total_variation;
        let upper = if left < 0.0 {
            f64::INFINITY
        } else if eta == 0.0 {
            0.0
        } else if left <= 2.0 * eta {
            f64::INFINITY
        } else {
            0.0
        };
        let note = upper
            .is_infinite()
            .then(|| "the events' own δ already exceeds the target δ".to_string());
        Bracket { upper, note, ..Bracket::default() }
    }

    /// δ at `epsilon`, as a bracket.
    ///
    /// # Errors
    ///
    /// [`AccountantError::InvalidArgument`] for an ε that is negative or not finite.
    pub fn delta(&self, epsilon: f64) -> Result<DeltaBracket, AccountantError> {
        check_epsilon(epsilon)?;
        if let Some(reason) = &self.lowered.infinite {
            return Ok(DeltaBracket {
                epsilon,
                lower: 0.0,
                upper: 1.0,
                estimate: 1.0,
                notes: vec![reason.clone()],
            });
        }
        let bracket = if self.lowered.parts.is_empty() {
            let extra = self.lowered.mass_at_infinity
                + (1.0 + epsilon.exp()) * self.lowered.total_variation;
            Bracket { upper: extra.min(1.0), ..Bracket::default() }
        } else {
            super::delta(&self.lowered, epsilon, &self.effort)
        };
        let lower = if self.lowered.loose { 0.0 } else { bracket.lower };
        Ok(DeltaBracket {
            epsilon,
            lower,
            upper: bracket.upper,
            estimate: if self.lowered.loose {
                bracket.upper
            } else {
                0.5 * (lower + bracket.upper)
            },
            notes: bracket.note.into_iter().collect(),
        })
    }
}

impl PldAccountant {
    /// The trade-off curve between type I and type II error, symmetrised over both directions, from
    /// `points` values of ε. A lower bound (no test does better), rounded down.
    ///
    /// # Errors
    ///
    /// [`AccountantError::Numerical`] if the distribution does not fit into the grid.
    pub fn tradeoff(&self, points: usize) -> Result<TradeoffCurve, AccountantError> {
        if self.lowered.infinite.is_some() {
            return Ok(TradeoffCurve::new(vec![(0.0, 1.0)]));
        }
        if self.lowered.parts.is_empty() {
            let extra = self.lowered.mass_at_infinity + 2.0 * self.lowered.total_variation;
            return Ok(TradeoffCurve::new(vec![(0.0, extra.min(1.0))]));
        }
        let curves = super::profile(&self.lowered, points.max(2), &self.effort)
            .ok_or_else(|| AccountantError::numerical("the grid of the trade-off is too large"))?;
        Ok(TradeoffCurve::new(curves))
    }
}
