//! The accountant that composes privacy loss distributions.

use super::bounds::Bracket;
use super::bracket;
use super::delta;
use super::grid_settings::GridSettings;
use super::profile::profile;
use super::selection::pairs_with_searches;
use crate::accountant::Accountant;
use crate::domain::{check_delta, check_epsilon};
use crate::dominating_pairs::DominatingPairs;
use crate::epsilon::{DeltaBracket, Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::gdp::TradeoffCurve;
use crate::relation::NeighboringRelation;

/// Composes privacy loss distributions and returns a certified bracket of the true ε (or δ).
///
/// The bracket encloses the errors of the grid, of the truncation, of wrap-around, and of the
/// rounding of the transform. The grid is refined until the bracket is narrow enough, within limits
/// on memory and time. If these are not sufficient, a note says so and the bracket stays valid.
///
/// A search over runs ([`DpEvent::RepeatAndSelect`]) has an upper bound from the δ of one run, and
/// no lower bound.
///
/// # References
///
/// "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions", Doroshenko,
/// Ghazi, Kamath, Kumar, Manurangsi 2022; "Optimal Accounting of Differential Privacy via
/// Characteristic Function", Zhu, Dong, Wang 2022 (dominating pairs, both directions).
#[derive(Debug, Clone)]
pub struct PldAccountant {
    pairs: DominatingPairs,
    settings: GridSettings,
}

impl PldAccountant {
    /// Creates the accountant of these dominating pairs.
    pub(crate) fn of(pairs: DominatingPairs) -> Self {
        Self { pairs, settings: GridSettings::default() }
    }

    /// Sets the relative width of the bracket to reach, at least 1e-9.
    ///
    /// The default is 1e-4, and narrower as long as this takes only milliseconds. A width that is
    /// set here ends the refinement of grids; where moments are inverted, a bracket can be
    /// narrower.
    pub fn with_relative_width(mut self, relative_width: f64) -> Self {
        self.settings.relative_width = relative_width.clamp(1e-9, 1.0);
        self.settings.free_points = 0;
        self
    }

    /// Sets the maximum number of grid points of one distribution, which limits memory and time.
    ///
    /// The default is 4,194,304, the minimum is 1,024.
    pub fn with_max_points(mut self, max_points: usize) -> Self {
        self.settings.max_points = max_points.max(1 << 10);
        self
    }

    /// Returns the bracket if the events only add to δ: ε is 0 or infinite.
    fn without_parts(&self, delta: f64) -> Bracket {
        let left = delta - self.pairs.mass_at_infinity;
        let eta = self.pairs.total_variation;
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

    /// Returns a lower bound on the trade-off curve between type I and type II error, symmetrized
    /// over both directions, from `points` values of ε. No test has smaller errors.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Numerical`] if the distribution does not fit into the grid.
    ///
    /// # References
    ///
    /// "Gaussian Differential Privacy", Dong, Roth, Su 2022, Proposition 6.
    pub fn tradeoff(&self, points: usize) -> Result<TradeoffCurve, AccountantError> {
        if self.pairs.infinite.is_some() {
            return Ok(TradeoffCurve::new(vec![(0.0, 1.0)]));
        }
        let curves = profile(&self.pairs, points.max(2), &self.settings).ok_or_else(|| {
            AccountantError::numerical(
                "the grid of the trade-off curve is too large; raise it by with_max_points",
            )
        })?;
        Ok(TradeoffCurve::new(curves))
    }
}

impl Accountant for PldAccountant {
    fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        Ok(Self::of(pairs_with_searches(events, relation)?))
    }

    /// Returns ε at `delta`: `upper` is rounded up, `lower` is rounded down, and the estimate is
    /// the middle of the bracket.
    fn epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError> {
        check_delta(delta)?;
        if let Some(reason) = &self.pairs.infinite {
            return Ok(Epsilon::infinite(delta, Method::Pld, reason.clone()));
        }
        let mut answer = Epsilon::bound(delta, 0.0, Method::Pld);
        let bracket = if self.pairs.parts.is_empty() {
            self.without_parts(delta)
        } else {
            bracket::epsilon(&self.pairs, delta, &self.settings)
        };
        answer.upper = bracket.upper;
        answer.lower = bracket.lower;
        answer.grid = bracket.grid;
        answer.notes.extend(bracket.note);
        if self.pairs.loose {
            match self.pairs.attained() {
                Some(attained) if !attained.parts.is_empty() => {
                    let settings = if self.pairs.is_nearly_attained() {
                        self.settings
                    } else {
                        GridSettings { relative_width: 1e-3, free_points: 0, ..self.settings }
                    };
                    let mut both = bracket::epsilon(&attained, delta, &settings);
                    if !both.contradicts {
                        let lower = both.lower;
                        both = Bracket { upper: answer.upper, ..Bracket::default() };
                        both.narrow(lower, answer.upper);
                    }
                    (answer.lower, answer.upper) = (both.lower, both.upper);
                    answer.notes.extend(both.note);
                    answer.notes.push(
                        "the upper end is a bound that no data set is known to attain".to_string(),
                    );
                }
                _ => {
                    answer.lower = 0.0;
                    answer.notes.push("there is no lower bound for these events".to_string());
                }
            }
        }
        let says_something = answer.lower > 0.0 || answer.notes.is_empty();
        answer.estimate = if answer.upper.is_finite() && !self.pairs.loose && says_something {
            0.5 * (answer.lower + answer.upper)
        } else {
            answer.upper
        };
        Ok(answer)
    }

    /// Returns δ at `epsilon`: `upper` is rounded up, `lower` is rounded down, and the estimate is
    /// the middle of the bracket.
    fn delta(&self, epsilon: f64) -> Result<DeltaBracket, AccountantError> {
        check_epsilon(epsilon)?;
        if let Some(reason) = &self.pairs.infinite {
            return Ok(DeltaBracket::unknown(epsilon, reason.clone()));
        }
        let bracket = if self.pairs.parts.is_empty() {
            let extra = self.pairs.mass_at_infinity + self.pairs.variation_at(epsilon);
            Bracket { upper: extra.min(1.0), ..Bracket::default() }
        } else {
            delta::delta(&self.pairs, epsilon, &self.settings)
        };
        let lower = if self.pairs.loose { 0.0 } else { bracket.lower };
        Ok(DeltaBracket {
            epsilon,
            lower,
            upper: bracket.upper,
            estimate: if self.pairs.loose { bracket.upper } else { 0.5 * (lower + bracket.upper) },
            notes: bracket.note.into_iter().collect(),
        })
    }
}
