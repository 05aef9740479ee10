//! Truncated Poisson sampling: the probability of a cut, and the pairs with and without it.
//!
//! Let `R` be the number of other units that were drawn and `B` the cap. Given `R < B` nothing is
//! cut: the pair is the pair of Poisson sampling with probability `q`. Given `R >= B` the kept
//! other units `O` are a uniformly random set of size `B`, independent of `R`. The unit is in the
//! batch with probability `q B/(R+1)` and takes the place of one unit `y` of `O`, so that the sums
//! differ by `x - y` of norm at most `2C`. Because `O` is independent of `R`, the probability may
//! be averaged over `R`: `q_cut = E[q B/(R+1) | R >= B]`. The hockey-stick divergence is jointly
//! convex in `y`, `O` and the event of a cut, hence the mixture of both pairs dominates. It
//! corresponds to the truncated subsampled Gaussian of Chua et al. 2024 ("Scalable DP-SGD:
//! Shuffling vs. Poisson Subsampling").
//!
//! - Add or remove one: without the unit nothing is displaced, hence `Q` is `N(0)`. The larger data
//!   set has `n` or `n+1` units. Both mixtures are dominated if the cuts that only the larger one
//!   has are counted with probability `q` and a difference of `2C`.
//! - Replace one, replace special: the replacement may displace `y` too, so that `P` has a shift
//!   `x - y` and `Q` a shift `x' - y`, both of norm at most `2C`. That is Poisson sampling under
//!   replace-one with twice the threshold. The size `n` is public.

use super::binomial::{ProbabilityBounds, binomial_tail};
use super::composition::DominatingPairs;
use super::pair::Pair;
use crate::relation::NeighboringRelation;

/// Probability of a cut below which it is counted as an outcome that reveals everything.
const NEGLIGIBLE: f64 = 1e-60;

/// A truncated Poisson sampler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Truncation {
    pub(super) sampling_probability: f64,
    pub(super) dataset_size: u64,
    pub(super) max_batch_size: u64,
}

/// The effect of a cut.
pub(super) enum Cuts {
    /// The cap is never reached.
    Never,
    /// Cuts are so rare that their probability is added to δ.
    Rare(f64),
    /// Weights and sampling probabilities of the outcomes.
    Frequent(CutMixture),
}

/// The three outcomes of [`Cuts::Frequent`]; the weights add up to 1.
pub(super) struct CutMixture {
    /// Weight of batches that are not cut.
    whole: f64,
    /// Weight of cut batches, and the probability that the unit is in one.
    cut: (f64, f64),
    /// Weight of batches that are cut in only one of the two data sets, or that the rounding of the
    /// binomial distribution may have misplaced.
    either: f64,
    /// Probability, rounded down, that the unit is in a batch.
    included: f64,
}

impl Truncation {
    /// Returns the effect of the cap under `relation`.
    pub(super) fn cuts(self, relation: NeighboringRelation) -> Cuts {
        let (n, limit, q) = (self.dataset_size, self.max_batch_size, self.sampling_probability);
        let larger = match relation {
            NeighboringRelation::AddOrRemoveOne => n.saturating_add(1),
            NeighboringRelation::ReplaceOne | NeighboringRelation::ReplaceSpecial => n,
        };
        if limit >= larger {
            return Cuts::Never;
        }
        let most = cut_probability(larger, q, limit);
        if most.upper < NEGLIGIBLE {
            return Cuts::Rare(most.upper.max(f64::MIN_POSITIVE));
        }
        let least = cut_probability(n, q, limit);
        let (small, large) = (inclusion(n, q, limit), inclusion(larger, q, limit));
        let kept = small.1.max(large.1);
        let included = (least.lower * small.0 + (1.0 - least.upper).max(0.0) * q)
            .min(most.lower * large.0 + (1.0 - most.upper).max(0.0) * q);
        Cuts::Frequent(CutMixture {
            whole: (1.0 - most.upper).max(0.0),
            cut: (least.lower, kept),
            either: (most.upper - least.lower).max(0.0),
            included,
        })
    }
}

impl CutMixture {
    /// Returns the dominating mixture from the pairs `whole(probability)` and `cut(probability)` of
    /// a batch that is not cut and of a cut one.
    pub(super) fn pair(
        &self,
        q: f64,
        whole: impl Fn(f64) -> Pair,
        cut: impl Fn(f64) -> Pair,
    ) -> Pair {
        let components =
            [(self.whole, whole(q)), (self.cut.0, cut(self.cut.1)), (self.either, cut(q))];
        let components = components.into_iter().filter(|(weight, _)| *weight > 0.0).collect();
        // Data sets whose other units contribute nothing: only the inclusion matters.
        Pair::Mixture { components, attained: Some(Box::new(whole(self.included))) }
    }
}

/// Returns an upper bound on the probability that a cut may change the examples of a unit that has
/// this many of them: `P[Binomial(size, q) > limit - examples]`.
pub(super) fn examples_are_cut(size: u64, q: f64, limit: u64, examples: u64) -> f64 {
    match limit.checked_sub(examples) {
        Some(left) if left >= size => 0.0,
        Some(left) => binomial_tail(size, q, left).upper.clamp(f64::MIN_POSITIVE, 1.0),
        None => 1.0,
    }
}

/// Adds one pair of the first composition, and with probability `cut` of the second one, where the
/// cut is part of the outcome.
pub(super) fn add_cut(
    out: &mut DominatingPairs,
    (whole, cut_release): (DominatingPairs, DominatingPairs),
    cut: f64,
    count: u64,
) {
    let (mut whole, mut other) = (whole.parts, cut_release.parts);
    let (Some((whole, _)), Some((other, _))) = (whole.pop(), other.pop()) else {
        // Nothing is ever drawn.
        return;
    };
    if cut < NEGLIGIBLE {
        out.mass_at_infinity += cut * count as f64;
        return out.push(whole, count);
    }
    out.loose = true;
    out.unattained = true;
    if cut >= 1.0 {
        return out.push(other, count);
    }
    let components = vec![(1.0 - cut, whole), (cut, other)];
    out.push(Pair::Mixture { components, attained: None }, count);
}

/// Returns `P[Binomial(size-1, q) >= limit]`: the probability that a cut changes something.
fn cut_probability(size: u64, q: f64, limit: u64) -> ProbabilityBounds {
    if limit >= size {
        return ProbabilityBounds::ZERO;
    }
    binomial_tail(size - 1, q, limit - 1)
}

/// Returns a lower and an upper bound of the probability that the unit is in a cut batch of a data
/// set of `size` units: `E[q B/(R+1) | R >= B] = (B/n) P[Bin(n, q) > B] / P[Bin(n-1, q) >= B]`.
fn inclusion(size: u64, q: f64, limit: u64) -> (f64, f64) {
    if limit >= size {
        return (0.0, 0.0);
    }
    let (all, others) = (binomial_tail(size, q, limit), cut_probability(size, q, limit));
    let share = limit as f64 / size as f64;
    // The unit is one of at least B + 1.
    let most = q * limit as f64 / (limit as f64 + 1.0);
    let upper = if others.lower > 0.0 { share * all.upper / others.lower } else { most };
    let lower = if others.upper > 0.0 { share * all.lower / others.upper } else { 0.0 };
    (lower.min(most), upper.min(most * (1.0 + 1e-15)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    fn mixture(n: u64, q: f64, limit: u64) -> CutMixture {
        let truncation =
            Truncation { sampling_probability: q, dataset_size: n, max_batch_size: limit };
        match truncation.cuts(NeighboringRelation::ReplaceSpecial) {
            Cuts::Frequent(mixture) => mixture,
            _ => panic!("cuts are frequent"),
        }
    }

    #[test]
    fn cuts_have_the_golden_probabilities() {
        // `truncation_prob` and `conditional_sampling_prob` of golden/sampler_accounting.json.
        for (n, q, limit, cut, kept) in [
            (1_000, 0.05, 60, 0.08555199879976823, 0.04703281249355669),
            (1_000, 0.05, 50, 0.5173695437269733, 0.04469445146181896),
            (50_000, 0.01, 600, 6.997251168885399e-06, 0.009909697068057518),
            (100, 0.2, 30, 0.009692085749007043, 0.1875551549365038),
        ] {
            let found = mixture(n, q, limit);
            assert!((found.cut.0 / cut - 1.0).abs() < 1e-8, "{n} {limit}: {}", found.cut.0);
            assert!((found.cut.1 / kept - 1.0).abs() < 1e-8, "{n} {limit}: {}", found.cut.1);
            assert!((found.whole + found.cut.0 + found.either - 1.0).abs() < 1e-15);
        }
    }

    #[test]
    fn whole_data_set_cut_to_a_batch_is_fixed_size_sampling() {
        let found = mixture(10, 1.0, 4);
        assert!((found.cut.0 - 1.0).abs() < 1e-12 && (found.cut.1 - 0.4).abs() < 1e-12);
        assert!((found.included - 0.4).abs() < 1e-12);
    }
}
