//! A lower and an upper bound of one number.

use crate::math::side::Side;

/// Absolute width below which a bracket is not refined.
pub(super) const ABSOLUTE_WIDTH: f64 = 1e-16;

/// A bracket of ε or δ, and the width of its grid.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bracket {
    pub(crate) lower: f64,
    pub(crate) upper: f64,
    pub(crate) grid: Option<f64>,
    /// The reason why it is wider than requested, if it is.
    pub(crate) note: Option<String>,
    /// Whether two of its bounds contradicted each other. In that case it bounds nothing.
    pub(crate) contradicts: bool,
}

impl Bracket {
    /// Returns the bracket of an ε that nothing is known about.
    pub(super) fn unknown() -> Self {
        Self { upper: f64::INFINITY, ..Self::default() }
    }

    /// Returns whether the bracket of an ε that is at least `known_lower` has at most this relative
    /// width.
    pub(super) fn is_within(&self, width: f64, known_lower: f64) -> bool {
        let gap = self.upper - self.lower.max(known_lower);
        self.upper.is_finite() && gap <= (width * self.upper).max(ABSOLUTE_WIDTH)
    }

    /// Narrows the bracket to the values that are also in another bracket. If there are none, a
    /// bound is wrong, and the bracket becomes unbounded with a note: no wrong bound is hidden.
    pub(crate) fn narrow(&mut self, lower: f64, upper: f64) {
        if self.contradicts {
            return;
        }
        let (low, high) = (self.lower.max(lower), self.upper.min(upper));
        if low <= high {
            (self.lower, self.upper) = (low, high);
        } else {
            *self = Self { contradicts: true, ..Self::unknown() };
            self.note = Some(format!(
                "the bounds contradict each other: {low:e} from below, {high:e} from above; this \
                 is a fault of the accountant, and neither is used"
            ));
        }
    }
}

/// Returns a value that cannot be negative, moved to a side by its errors. `relative` is the sum of
/// the relative errors of all factors, which compound.
pub(super) fn with_errors(value: f64, relative: f64, absolute: f64, side: Side) -> f64 {
    let value = value.max(0.0);
    match side {
        Side::Upper => value * relative.exp() + absolute,
        Side::Lower => value * (1.0 - relative).max(0.0) - absolute,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn contradicting_bounds_surface_as_no_bound() {
        let mut bracket = Bracket { upper: 2.0, ..Bracket::default() };
        bracket.narrow(1.0, 3.0);
        assert_eq!((bracket.lower, bracket.upper, bracket.contradicts), (1.0, 2.0, false));
        bracket.narrow(2.5, 3.0);
        assert_eq!((bracket.lower, bracket.upper, bracket.contradicts), (0.0, f64::INFINITY, true));
        assert!(bracket.note.as_ref().unwrap().contains("contradict"), "{bracket:?}");
        // Later bounds do not hide it.
        bracket.narrow(1.0, 3.0);
        assert!(bracket.upper.is_infinite());
    }
}
