//! A composition of dominating pairs, and its contribution to δ.

use super::direction::Direction;
use super::pair::Pair;

/// The dominating pairs of a composition of events.
#[derive(Debug, Clone, Default)]
pub(crate) struct DominatingPairs {
    /// Each pair with its number of repetitions; equal pairs are merged.
    pub(crate) parts: Vec<(Pair, u64)>,
    /// Probability of an outcome that reveals everything, added to δ (union bound).
    pub(crate) mass_at_infinity: f64,
    /// Total variation `η` between the mechanism and the pairs, on either side:
    /// `δ(ε) <= δ_pairs(ε) + (1 + e^ε) η`, and likewise from below.
    pub(crate) total_variation: f64,
    /// The reason why ε is infinite, if it is.
    pub(crate) infinite: Option<String>,
    /// Whether the pairs are an upper bound that no data sets attain. They then provide no lower
    /// bound.
    pub(crate) loose: bool,
    /// Whether no attained pairs are known at all, so that [`attained`](Self::attained) is `None`.
    pub(crate) unattained: bool,
}

impl DominatingPairs {
    /// Returns the contribution of the total variation to δ at `epsilon`.
    pub(crate) fn variation_at(&self, epsilon: f64) -> f64 {
        // Without one, `e^ε` may overflow.
        if self.total_variation > 0.0 { (1.0 + epsilon.exp()) * self.total_variation } else { 0.0 }
    }

    /// Returns pairs that real data sets attain, for a lower bound on ε.
    ///
    /// These are the same pairs. For a loose bound of fixed-size sampling they are the pairs of a
    /// data set whose other units all contribute the opposite (the unit is then drawn or not, as
    /// under Poisson sampling). `None` if none are known.
    pub(crate) fn attained(&self) -> Option<Self> {
        if self.unattained {
            return None;
        }
        let mut attained =
            Self { parts: Vec::new(), mass_at_infinity: 0.0, loose: false, ..self.clone() };
        for (pair, count) in &self.parts {
            let pair = match pair {
                Pair::Symmetrized { q, components } if components.len() == 1 => {
                    Pair::Sampled { q: *q, mu: components[0].1 }
                }
                Pair::Symmetrized { .. } | Pair::RandomizedResponse { .. } => return None,
                Pair::Mixture { attained: Some(attained), .. } => (**attained).clone(),
                other => other.clone(),
            };
            attained.push(pair, *count);
        }
        Some(attained)
    }

    /// Returns whether the attained pairs may be close to the pairs, so that computing a lower
    /// bound is worthwhile.
    pub(crate) fn is_nearly_attained(&self) -> bool {
        !self.parts.iter().any(|(pair, _)| matches!(pair, Pair::Symmetrized { .. }))
    }

    /// Adds `count` repetitions of a pair.
    pub(crate) fn push(&mut self, pair: Pair, count: u64) {
        if count == 0 {
            return;
        }
        match self.parts.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, n)) => *n = n.saturating_add(count),
            None => self.parts.push((pair, count)),
        }
    }
}

/// Returns the directions whose privacy losses differ: one if all pairs are symmetric.
pub(crate) fn directions(parts: &[(Pair, u64)]) -> Vec<Direction> {
    if parts.iter().all(|(pair, _)| pair.is_symmetric()) {
        vec![Direction::Remove]
    } else {
        vec![Direction::Remove, Direction::Add]
    }
}

/// Returns the largest privacy loss of the composition: an upper bound on ε for every δ. Infinite
/// if the loss is not bounded.
pub(crate) fn largest_loss(parts: &[(Pair, u64)], direction: Direction) -> f64 {
    let losses = parts.iter().map(|(pair, n)| *n as f64 * largest_loss_of(pair, direction));
    losses.sum::<f64>() * (1.0 + 1e-12)
}

fn largest_loss_of(pair: &Pair, direction: Direction) -> f64 {
    match *pair {
        Pair::Sampled { q, .. } if direction == Direction::Add => -(-q).ln_1p(),
        // The share of the means that are 0.
        Pair::Line { ref components } if direction == Direction::Add => {
            -components.iter().filter(|c| c.1 == 0.0).map(|c| c.0).sum::<f64>().ln()
        }
        Pair::Laplace { mu } => mu,
        Pair::SampledLaplace { q, mu } => match direction {
            Direction::Remove => (q * mu.exp_m1()).ln_1p(),
            Direction::Add => -(q * (-mu).exp_m1()).ln_1p(),
        },
        Pair::RandomizedResponse { epsilon } => epsilon,
        Pair::Mixture { ref components, .. } => {
            components.iter().map(|(_, p)| largest_loss_of(p, direction)).fold(0.0, f64::max)
        }
        _ => f64::INFINITY,
    }
}

/// Returns the shift `μ` of the one Gaussian pair to which the pairs compose; `None` if a pair is
/// not Gaussian (Dong, Roth, Su 2022, Corollary 2).
pub(crate) fn gaussian_shift(parts: &[(Pair, u64)]) -> Option<f64> {
    let mut square = 0.0;
    for (pair, count) in parts {
        match pair {
            Pair::Gaussian { mu } => square += mu * mu * *count as f64,
            _ => return None,
        }
    }
    Some(f64::sqrt(square))
}
