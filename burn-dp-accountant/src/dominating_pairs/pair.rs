//! The dominating pairs, whose privacy loss the accountants analyze.

use std::sync::Arc;

use super::allocation::Allocation;
use super::loss_table::LossTable;

/// A pair of distributions `(P, Q)` that dominates a mechanism: at every ε its hockey-stick
/// divergence is not below the divergence of the mechanism between any two neighboring data sets.
/// Noise has standard deviation (Laplace: scale) 1, so that `mu` is the sensitivity over the noise.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Pair {
    /// `N(μ, 1)` against `N(0, 1)`.
    Gaussian { mu: f64 },
    /// `(1-q)N(0,1) + qN(μ,1)` against `N(0,1)`, and the reverse: Poisson sampling under
    /// add-or-remove-one (Zhu, Dong, Wang 2022, Theorem 11).
    Sampled { q: f64, mu: f64 },
    /// `(1-q)N(0,1) + qN(μ,1)` against `(1-q)N(0,1) + qN(-μ,1)`: Poisson sampling under
    /// replace-one.
    ///
    /// Why it dominates: by advanced joint convexity (Balle, Barthe, Gaboardi 2018, Theorem 2) the
    /// hockey-stick divergence of `(1-q)N(0) + qN(g)` and `(1-q)N(0) + qN(g')` is `q` times the
    /// divergence of `N(g)` and `(1-β)N(0) + βN(g')`. Shifted by `g`, the likelihood ratio is a sum
    /// of exponentials of jointly Gaussian variables with covariances `<c_i, c_j>`,
    /// `|c_1| = |g| <= μ` and `|c_2| = |g' - g| <= 2μ`; by Kahane's convexity inequality every
    /// convex functional of it is largest when all covariances are, which is `g' = -g`, `|g| = μ`.
    /// For `α < 1` exchange `P` and `Q`: the pair is symmetric.
    Substituted { q: f64, mu: f64 },
    /// The symmetrized divergence `max(H(P||Q), H(Q||P))` of mixtures of [`Sampled`](Self::Sampled)
    /// pairs with one `q`: fixed-size sampling under replace-one. `components` are `(weight, μ)`;
    /// the weights add up to 1.
    Symmetrized { q: f64, components: Vec<(f64, f64)> },
    /// Laplace noise of scale 1 shifted by `mu`.
    Laplace { mu: f64 },
    /// Laplace noise under Poisson sampling.
    SampledLaplace { q: f64, mu: f64 },
    /// Randomized response with parameter ε: dominates every ε-DP mechanism (Kairouz, Oh,
    /// Viswanath 2015, Theorem 3.1).
    RandomizedResponse { epsilon: f64 },
    /// Discrete Gaussian noise of parameter `sigma` on the integers, shifted by the whole number
    /// `shift`. The likelihood ratio is monotone, so that smaller shifts are dominated.
    DiscreteGaussian { sigma: f64, shift: f64 },
    /// One of several pairs, chosen at random with the given weights, which add up to 1. The choice
    /// is part of the outcome, so that the divergence is the weighted sum. `attained` is a pair of
    /// real data sets if no data sets attain the mixture itself.
    Mixture { components: Vec<(f64, Pair)>, attained: Option<Box<Pair>> },
    /// `Σ_j w_j N(μ_j, 1)` against `N(0, 1)`, for `(w_j, μ_j)` with `μ_j >= 0` and weights that add
    /// up to 1: a release in which a unit has a random number of contributions.
    ///
    /// Why it dominates means in any directions, of norms `μ_j`: the likelihood ratio is a sum of
    /// exponentials of jointly Gaussian variables with covariances `<c_i, c_j>`, and by Kahane's
    /// convexity inequality every convex functional of it is largest when all covariances are, that
    /// is, for means in one direction.
    Line { components: Arc<[(f64, f64)]> },
    /// Gaussian noise, where the unit takes part in one of several steps.
    Allocated(Allocation),
    /// A symmetric pair that is known by upper bounds on its δ.
    Bounded(LossTable),
}

impl Pair {
    /// Returns whether both directions have the same privacy loss.
    pub(crate) fn is_symmetric(&self) -> bool {
        match self {
            Self::Sampled { .. } | Self::SampledLaplace { .. } => false,
            Self::Line { .. } | Self::Allocated(_) => false,
            Self::Mixture { components, .. } => {
                components.iter().all(|(_, pair)| pair.is_symmetric())
            }
            _ => true,
        }
    }
}
