//! Searches of jax_privacy for correlated-noise strategies, and the same searches here.

use burn_dp_accountant::AccountantError;
use burn_dp_accountant::correlated_noise::{Objective, StrategyFamily, StrategySearch};

/// The result of a search of jax_privacy, and the same search here.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerSearch {
    pub(super) family: StrategyFamily,
    pub(super) steps: u64,
    objective: Objective,
    /// Maximum number of participations of a unit, and their minimum separation.
    participation: (u64, u64),
    /// Squared error times squared sensitivity of the result of jax_privacy.
    pub(super) loss: f64,
}

impl PeerSearch {
    const fn once(family: StrategyFamily, steps: u64, loss: f64) -> Self {
        Self { family, steps, objective: Objective::Max, participation: (1, 1), loss }
    }

    /// The mean error of a strategy with a banded inverse.
    const fn inverse(bands: u64, steps: u64, participation: (u64, u64), loss: f64) -> Self {
        let family = StrategyFamily::BandedInverse { bands };
        Self { family, steps, objective: Objective::Mean, participation, loss }
    }

    /// Returns the kind of the strategy.
    pub(super) fn name(&self) -> &'static str {
        match self.family {
            StrategyFamily::BandedToeplitz { .. } => "banded",
            StrategyFamily::BandedInverse { .. } => "banded inverse",
            StrategyFamily::Buffered { .. } => "buffered",
            StrategyFamily::Dense => "dense",
        }
    }

    /// Returns the loss of the strategy found here.
    pub(super) fn loss_here(&self) -> Result<f64, AccountantError> {
        let (times, separation) = self.participation;
        let search = StrategySearch::new(self.steps)?
            .with_objective(self.objective)
            .with_participation(times, separation)?;
        search.loss_of(&search.run(self.family)?)
    }
}

/// Searches of jax_privacy 2.0.0 (banded inverse: 2.3.0.dev0 at 8967688), each at the steps and
/// sizes of the run, with numpy 2.4.6 as a second computation of every loss.
pub(super) const PEER_SEARCHES: [PeerSearch; 15] = [
    PeerSearch::once(StrategyFamily::BandedToeplitz { bands: 3 }, 12, 5.513275865296611),
    PeerSearch::once(StrategyFamily::BandedToeplitz { bands: 8 }, 64, 11.72575368897956),
    PeerSearch::once(StrategyFamily::BandedToeplitz { bands: 10 }, 1_000, 109.55052722591059),
    PeerSearch::once(StrategyFamily::Buffered { buffers: Some(1) }, 10, 3.2349736069604567),
    PeerSearch::once(StrategyFamily::Buffered { buffers: Some(2) }, 100, 6.433948383324815),
    PeerSearch::once(StrategyFamily::Buffered { buffers: Some(3) }, 1_000, 10.692362457615639),
    PeerSearch::once(StrategyFamily::Buffered { buffers: Some(4) }, 10_000, 16.02494465686975),
    PeerSearch::once(StrategyFamily::Dense, 2, 1.3333333366378892),
    PeerSearch::once(StrategyFamily::Dense, 4, 1.7621116935277743),
    PeerSearch::once(StrategyFamily::Dense, 8, 2.32925287714037),
    PeerSearch::once(StrategyFamily::Dense, 16, 2.997806993790682),
    PeerSearch::inverse(2, 12, (3, 4), 10.219304081570197),
    PeerSearch::inverse(4, 16, (4, 4), 16.119984389886575),
    PeerSearch::inverse(4, 64, (4, 16), 24.17691729657226),
    PeerSearch::inverse(8, 100, (10, 10), 95.6507997369017),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn short_searches_find_at_most_the_loss_of_jax_privacy() {
        for peer in PEER_SEARCHES.iter().filter(|peer| peer.steps <= 64) {
            let ratio = peer.loss_here().unwrap() / peer.loss;
            assert!(ratio <= 1.0 + 1e-6 && ratio > 0.9, "{peer:?}: {ratio}");
        }
    }
}
