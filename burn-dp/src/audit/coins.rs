//! The random choice of the included canaries.

use burn_dp_accountant::audit::AuditScores;

use crate::DpError;
use crate::random::{Domain, InsecureSeed, Key, Stream};

/// One fair coin for each canary: whether it is included in the training.
///
/// The attacker must not use them. `Debug` does not print them.
#[derive(Clone, PartialEq, Eq)]
pub struct CanaryCoins {
    included: Vec<bool>,
}

impl CanaryCoins {
    /// Tosses a coin for each canary, with randomness of the operating system.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Entropy`] if the operating system provides no entropy.
    pub fn toss(canaries: usize) -> Result<Self, DpError> {
        Ok(Self::from_key(canaries, &Key::from_os()?))
    }

    /// Tosses coins that follow from a number, for tests and for audits that can be repeated.
    pub fn from_seed(canaries: usize, seed: InsecureSeed) -> Self {
        Self::from_key(canaries, &seed.into())
    }

    fn from_key(canaries: usize, key: &Key) -> Self {
        let words = Stream::new(key, Domain::Canaries, 0, 0).into_words();
        Self { included: words.take(canaries).map(|word| word >> 63 == 1).collect() }
    }

    /// Returns the number of canaries.
    pub fn len(&self) -> usize {
        self.included.len()
    }

    /// Returns whether there are no canaries.
    pub fn is_empty(&self) -> bool {
        self.included.is_empty()
    }

    /// Returns whether a canary is included; `false` if there is no canary with this number.
    pub fn is_included(&self, canary: usize) -> bool {
        self.included.get(canary).copied().unwrap_or(false)
    }

    /// Returns the scores of the included and of the excluded canaries; `scores[i]` belongs to
    /// canary i, and a higher score indicates that it was included.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless there is one score for each canary, and the
    /// errors of [`AuditScores::new`].
    pub fn scores(&self, scores: &[f64]) -> Result<AuditScores, DpError> {
        if scores.len() != self.len() {
            return Err(DpError::invalid(
                "scores",
                format!("must be {}, one for each canary, got {}", self.len(), scores.len()),
            ));
        }
        let (mut included, mut excluded) = (Vec::new(), Vec::new());
        for (score, &is_in) in scores.iter().zip(&self.included) {
            if is_in { included.push(*score) } else { excluded.push(*score) }
        }
        Ok(AuditScores::new(included, excluded)?)
    }
}

opaque_debug!(CanaryCoins, |this| canaries: this.len());

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn coins_are_fair_and_follow_from_their_seed() {
        let coins = CanaryCoins::from_seed(10_000, InsecureSeed(3));
        let heads = (0..10_000).filter(|&canary| coins.is_included(canary)).count();
        // Five standard deviations.
        assert!((4750..5250).contains(&heads), "{heads}");
        assert_eq!(coins, CanaryCoins::from_seed(10_000, InsecureSeed(3)));
        assert_ne!(coins, CanaryCoins::from_seed(10_000, InsecureSeed(4)));
        assert_ne!(CanaryCoins::toss(200).unwrap(), CanaryCoins::toss(200).unwrap());
    }

    #[test]
    fn scores_are_divided_by_the_coins() {
        let coins = CanaryCoins::from_seed(50, InsecureSeed(1));
        let by_coin: Vec<f64> = (0..50).map(|i| f64::from(coins.is_included(i))).collect();
        let scores = coins.scores(&by_coin).unwrap();
        assert!(scores.included().iter().all(|&score| score == 1.0));
        assert!(scores.excluded().iter().all(|&score| score == 0.0));
        assert_eq!(scores.canaries(), 50);
        assert!(coins.scores(&by_coin[1..]).is_err());
    }

    #[test]
    fn debug_output_does_not_show_the_coins() {
        let [a, b] = [1, 2].map(|seed| CanaryCoins::from_seed(99, InsecureSeed(seed)));
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
}
