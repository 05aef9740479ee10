//! The cells of a composition: wide far from 0 and from ε.

/// Largest ε: there `1 - f` still has nine digits.
const LARGEST_EPSILON: f64 = 12.0;

/// Step relative to the standard deviation of the frequent losses, or to the distance from 0.
const STEP: f64 = 3.5e-3;

/// Step relative to the distance from 0, far from it.
const TAIL_STEP: f64 = 0.022;

/// Step near ε, relative to `ε/(1 + 3ε/2)`.
const STEP_NEAR_EPSILON: f64 = 2e-3;

/// Steps of a grid of which only the magnitudes are known, relative to the others.
const ROUGH_STEPS: (f64, f64) = (3.6, 1.3);

/// Cells of the whole composition near ε, for each step there.
const LAST_CELLS: f64 = 8.0;

/// Logarithm of the smallest `(1 - f)/e^{-ε}` with a cell.
const DEPTH: f64 = 12.0;

/// The rule for the grids of one search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    scale: f64,
    bottom: f64,
    /// `f` of ε, the step there, and the distance from which the step grows.
    near: Option<(f64, f64, f64)>,
    /// `f` of the ends of the known bracket of ε.
    known: Option<(f64, f64)>,
    top: f64,
    step: f64,
    tail: f64,
}

impl Grid {
    /// Creates the rule for a bracket of ε, if one is known, and for the standard deviation of one
    /// release and of all without the rare losses.
    pub(super) fn new(
        scale: f64,
        spread: f64,
        bottom: f64,
        known: Option<(f64, f64)>,
        fineness: f64,
    ) -> Self {
        let Some((lower, upper)) = known else {
            // Nothing is known but the magnitudes.
            let top = 1.0 - (-LARGEST_EPSILON - DEPTH).exp();
            return Self {
                scale,
                bottom,
                near: None,
                known: None,
                top,
                step: ROUGH_STEPS.0 * STEP * fineness,
                tail: ROUGH_STEPS.1 * TAIL_STEP * fineness,
            };
        };
        // Splitting a mass moves δ by twice as much as merging it.
        let epsilon = lower + (upper - lower) / 3.0;
        let rest = (-epsilon).exp();
        // An ε far below the standard deviation is more sensitive to it.
        let sensitive = (epsilon / spread).clamp(1e-6, 1.0).sqrt();
        let step = fineness * STEP * sensitive;
        let tail = fineness * TAIL_STEP;
        let size = (epsilon * epsilon.max(spread)).sqrt();
        let near = fineness * STEP_NEAR_EPSILON * size / (1.0 + 1.5 * epsilon) * rest;
        let wide = if epsilon > spread { 3.0 * spread + 0.05 * epsilon } else { 0.3 * size };
        let reach = (wide + (upper - lower)) * rest;
        Self {
            scale,
            bottom,
            near: Some((1.0 - rest, near.max(1e-15), reach)),
            known: Some((-(-lower).exp_m1(), -(-upper).exp_m1())),
            top: 1.0 - (-upper - DEPTH).exp(),
            step,
            tail,
        }
    }

    /// Returns a grid for the few single releases among many.
    pub(super) fn coarser(&self) -> Self {
        Self { step: 4.0 * self.step, near: self.near.map(|(f, s, r)| (f, 4.0 * s, r)), ..*self }
    }

    /// Returns the largest ε that a bound may have: far beyond the known bracket, the masses that
    /// were raised to an infinite loss count more than the masses of the cells.
    pub(super) fn largest_bound(&self) -> f64 {
        let most = 4.0 * LARGEST_EPSILON;
        self.near.map_or(most, |_| most.min(-(1.0 - self.top).ln()))
    }

    /// Returns the lower ends of the cells of the whole composition; the last is 1.
    ///
    /// Only the cell of ε moves δ: within any other cell, the divergence is linear in `f`. The
    /// cells are narrow where ε is known to be, and wide elsewhere.
    pub(super) fn last_points(&self, releases: f64) -> Vec<f64> {
        let (Some((_, near, _)), Some((low, high))) = (self.near, self.known) else {
            return self.points(releases);
        };
        // The own bracket is measured also where it is a little outside of the known one.
        let margin = high - low + 2.0 * near;
        let (low, high) = ((low - margin).max(self.bottom), (high + margin).min(self.top));
        let cells = (LAST_CELLS * (high - low) / near).ceil().clamp(1.0, 1e3);
        let wide = Self { step: 8.0 * self.step, tail: 4.0 * self.tail, near: None, ..*self };
        let mut points = wide.points(releases);
        points.retain(|f| *f < low || *f > high);
        points.extend((0..=cells as usize).map(|i| low + (high - low) * (i as f64 / cells)));
        points.sort_by(f64::total_cmp);
        points.dedup();
        points
    }

    /// Returns the lower ends of the cells for this many releases; the last is 1.
    pub(super) fn points(&self, releases: f64) -> Vec<f64> {
        let scale = self.scale * releases.sqrt();
        let mut points = Vec::new();
        let mut f = self.bottom;
        while f < self.top && points.len() < 20_000 {
            points.push(f);
            let far = f / (2.5 * scale);
            let mut step = self.step * scale * (1.0 + far * far);
            step = step.min(self.tail * scale.hypot(f)).min(2.0 * self.tail * (1.0 - f));
            if let Some((center, near, reach)) = self.near {
                let distance = (f - center).abs() / reach;
                step = step.min(near * (1.0 + distance * distance * distance));
            }
            f += step;
        }
        points.push(1.0);
        points
    }
}
