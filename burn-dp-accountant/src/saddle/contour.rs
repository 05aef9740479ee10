//! The contour on which the transform of a composition is inverted: tilt, period, alias bounds.

/// The wanted point: δ near `delta` at an ε near `epsilon`, with this tilt and aliases below
/// `e^ln_relative` of δ. Poor guesses reduce accuracy, never validity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) theta: f64,
    pub(crate) epsilon: f64,
    pub(crate) delta: f64,
    pub(crate) ln_relative: f64,
}

impl Target {
    /// Returns the logarithm of the scaled δ, given `ln E[e^{θY}]`.
    pub(crate) fn ln_scaled(&self, ln_moment: f64) -> f64 {
        self.delta.ln() + self.theta * self.epsilon - ln_moment
    }
}

/// The tilt, the period, and the further tilts that bound the aliases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contour {
    pub(crate) theta: f64,
    pub(crate) period: f64,
    /// Tilt toward lower losses for the aliases from below, in `(0, theta]`.
    pub(crate) fall: f64,
    /// Tilt toward higher losses for the aliases from above.
    pub(crate) rise: f64,
    /// Allowed size of the aliases, in the scaled δ.
    pub(crate) allowed: f64,
}

impl Contour {
    /// Finds the shortest period by Chernoff's bounds, from `ln E[e^{tY}]` and the standard
    /// deviation of the tilted composition. `None` if the moments overflow.
    pub(crate) fn new(
        target: Target,
        deviation: f64,
        mut ln_moment: impl FnMut(f64) -> f64,
    ) -> Option<Self> {
        let Target { theta, epsilon, ln_relative, .. } = target;
        let value = ln_moment(theta);
        let allowed = target.ln_scaled(value) + ln_relative;
        let (mut below, mut fall) = (f64::INFINITY, theta);
        for share in [1.0, 0.7, 0.45, 0.25] {
            let shift = share * theta;
            let ln_mass = if share == 1.0 { 0.0 } else { ln_moment(theta - shift) };
            let period = (ln_mass - value + shift * epsilon - allowed) / shift;
            if period < below {
                (below, fall) = (period, shift);
            }
        }
        let ln_largest = ln_largest_weight(theta);
        let (mut above, mut rise) = (f64::INFINITY, 1.0);
        for factor in [1.5, 5.0, 16.0] {
            for shift in [factor / deviation, factor * theta.max(1.0) / 16.0] {
                let further = ln_moment(theta + shift);
                let period = (further - value - shift * epsilon + ln_largest - allowed) / shift;
                if period < above {
                    (above, rise) = (period, shift);
                }
            }
        }
        // The geometric series over the periods.
        let period = below.max(above).max(0.7 / fall.min(rise));
        let allowed = allowed.exp();
        period.is_finite().then_some(Self { theta, period, fall, rise, allowed })
    }
}

/// Returns the logarithm of the largest weight `e^{-θu}(1 - e^{-u})`.
pub(crate) fn ln_largest_weight(theta: f64) -> f64 {
    theta * (theta / (theta + 1.0)).ln() - theta.ln_1p()
}
