//! Rare losses that are far above ε, in closed form.
//!
//! With a small sampling probability the largest losses (of a unit that takes part and is not
//! hidden by the noise) dominate every moment although they hardly ever occur: on the contour
//! everything would cancel. Let `B` be the outcomes with at least one loss above a cut. Then
//!
//! `δ(ε) = E_P[(1 - e^{ε-Y})_+; not B] + P(B) - e^ε Q(B) + E_P[(e^{ε-Y} - 1)_+; B]`.
//!
//! The first term covers the losses up to the cut, whose moments are small. The last term is not
//! negative, and negligible if the other losses of `B` do not bring the sum back below ε.

use crate::dominating_pairs::{Direction, Pair, Tail};
use crate::saddle::Cumulants;

/// `P(B) - e^ε Q(B)` of a composition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RareLosses {
    /// `Q(B)`.
    mass: f64,
    /// `P(B) - Q(B)`.
    excess: f64,
    /// Sums over the releases: bounds of `Q(B)` and `P(B)`.
    sums: (f64, f64),
}

impl RareLosses {
    /// Returns the losses above `cut`; `None` if they have no closed form.
    pub(crate) fn above(parts: &[(Pair, u64)], direction: Direction, cut: f64) -> Option<Self> {
        let (mut ln_not, mut ln_ratio, mut sums) = (0.0, 0.0, (0.0, 0.0));
        for (pair, count) in parts {
            let (tail, count) = (Tail::above(pair, direction, cut)?, *count as f64);
            ln_not += count * (-tail.mass).ln_1p();
            ln_ratio += count * (-tail.excess / (1.0 - tail.mass)).ln_1p();
            sums.0 += count * tail.mass;
            sums.1 += count * (tail.mass + tail.excess);
        }
        // ∏(1 - Q_i) - ∏(1 - P_i), without cancellation.
        let excess = -f64::exp(ln_not) * f64::exp_m1(ln_ratio);
        Some(Self { mass: -f64::exp_m1(ln_not), excess, sums })
    }

    /// Returns `P(B) - e^ε Q(B)` and its negative derivative.
    pub(crate) fn delta(&self, epsilon: f64) -> (f64, f64) {
        (self.excess - epsilon.exp_m1() * self.mass, epsilon.exp() * self.mass)
    }
}

/// The cut of the losses for one ε.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// The largest loss on the contour.
    pub(super) loss: f64,
    /// Upper bound on `E_P[(e^{ε-Y} - 1)_+; B]`, which is omitted.
    pub(super) omitted: f64,
}

/// The share of δ that a cut may omit.
pub(super) const OMITTED_SHARE: f64 = 1e-12;

/// ε above which the search for it ends without an answer: each doubling costs up to sixty cuts.
const LARGEST_EPSILON: f64 = 1e3;

/// Factor between the distances of two candidates for a cut from ε.
const GROWTH: f64 = 1.2;

impl Cut {
    /// Finds the lowest cut for `epsilon` that omits at most `allowed`.
    pub(super) fn new(
        parts: &[(Pair, u64)],
        direction: Direction,
        epsilon: f64,
        allowed: f64,
    ) -> Option<Self> {
        let epsilon = epsilon.max(0.0);
        // Standard deviation of the bulk of the losses.
        let deviation = Cumulants::new(parts, reverse(direction), 1e-3).at(1.0).2.sqrt();
        if !deviation.is_finite() || deviation <= 0.0 {
            return None;
        }
        let mut distance = 3.0 * deviation;
        for _ in 0..60 {
            let loss = epsilon + distance;
            let omitted = omitted_delta(parts, direction, epsilon, loss);
            if let Some(omitted) = omitted.filter(|bound| *bound <= allowed) {
                return Some(Self { loss, omitted });
            }
            distance *= GROWTH;
        }
        None
    }
}

/// Returns an upper bound of `E_P[(e^{ε-Y} - 1)_+; B]` for one cut.
///
/// It is at most `e^ε Q(B)`. A better bound: let `C` be the outcomes with a loss below `-cut`. On
/// `B ∩ C` the bound is `e^ε` times a product of rare probabilities. Without `C`,
/// `(e^u - 1)_+ <= e^{tu}` for `t >= 1`, and given which loss is above the cut the others are
/// independent: `Σ P(B_i) E_P[e^{t(ε - cut - Y')}]`, where `E_P[e^{-tY}]` is the moment of order
/// `t - 1` in the other direction. One fewer loss in `Y'` only lowers it (except for the mass of
/// `C`).
pub(crate) fn omitted_delta(
    parts: &[(Pair, u64)],
    direction: Direction,
    epsilon: f64,
    cut: f64,
) -> Option<f64> {
    let rare = RareLosses::above(parts, direction, cut)?;
    let all = epsilon.exp() * rare.sums.0;
    if rare.sums.1 == 0.0 {
        // Below the smallest positive number, in each release.
        let releases: f64 = parts.iter().map(|(_, count)| *count as f64).sum();
        return Some(releases * f64::MIN_POSITIVE * epsilon.exp());
    }
    let back = reverse(direction);
    let Some(low) = RareLosses::above(parts, back, cut) else { return Some(all) };
    let mut cumulants = Cumulants::below(parts, back, cut);
    if !cumulants.are_exact() {
        return Some(all);
    }
    let variance = cumulants.at(1.0).2;
    let distance = cut - epsilon;
    let mut chernoff = |t: f64| {
        let ln_moment = cumulants.at(t.max(1.5) - 1.0).0;
        rare.sums.1 * (ln_moment - t.max(1.5) * distance).exp()
    };
    // The optimum for a Gaussian bulk, and a smaller order that is sufficient far from the bulk,
    // where a rule for the optimum would be too long.
    let optimum = distance / variance + 0.5;
    let chernoff = chernoff(optimum).min(chernoff(optimum.min(100.0 / distance)));
    // P and Q are swapped under `back`: Q(C) there is P'(C).
    let bound = chernoff + epsilon.exp() * rare.sums.0 * low.sums.1;
    Some(if bound.is_nan() { all } else { bound.min(all) })
}

/// Returns the saddle-point approximation of `ln δ(ε)`, for a first guess of δ.
pub(super) fn approximate_ln_delta(
    parts: &[(Pair, u64)],
    direction: Direction,
    epsilon: f64,
    guess: f64,
) -> Option<f64> {
    let cut = Cut::new(parts, direction, epsilon, OMITTED_SHARE * guess)?;
    let (_, ln_bulk) = Cumulants::below(parts, direction, cut.loss).saddle_at(epsilon)?;
    let (rare, _) = RareLosses::above(parts, direction, cut.loss)?.delta(epsilon);
    Some((ln_bulk.exp() + rare).ln())
}

/// Returns the ε at `delta` by [`approximate_ln_delta`], to a few percent.
pub(super) fn approximate_epsilon(
    parts: &[(Pair, u64)],
    direction: Direction,
    delta: f64,
    start: f64,
) -> Option<f64> {
    let too_small =
        |epsilon: f64| Some(approximate_ln_delta(parts, direction, epsilon, delta)? > delta.ln());
    let mut high = start.max(1e-12);
    let mut low = high;
    if too_small(high)? {
        while too_small(high)? {
            // Beyond this every loss of double precision is infinite.
            if high > LARGEST_EPSILON {
                return None;
            }
            (low, high) = (high, 2.0 * high);
        }
    } else {
        while !too_small(low)? {
            (high, low) = (low, 0.5 * low);
            if low < 1e-12 {
                return Some(0.0);
            }
        }
    }
    for _ in 0..5 {
        let middle = (low * high).sqrt();
        if too_small(middle)? { low = middle } else { high = middle }
    }
    Some(high)
}

fn reverse(direction: Direction) -> Direction {
    match direction {
        Direction::Remove => Direction::Add,
        Direction::Add => Direction::Remove,
    }
}
