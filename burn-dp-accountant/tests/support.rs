//! The table "which accountant takes which event" of the page `accounting`, cell by cell.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use burn_dp_accountant::correlated_noise::{Participation, Strategy};
use burn_dp_accountant::{
    Accountant, AccountantError, DpEvent, ExactAccountant, GaussianMixture, GdpAccountant,
    MonteCarloAccountant, NeighboringRelation, PatternedGaussian, PldAccountant,
    RandomParticipation, RdpAccountant, RunCount,
};

const PAGE: &str = include_str!("../src/accounting.rs");

fn event(name: &str) -> DpEvent {
    let gaussian = || Box::new(DpEvent::gaussian(4.0));
    match name {
        "gaussian" => *gaussian(),
        "joint_gaussian" => DpEvent::JointGaussian { noise_multipliers: vec![6.0, 8.0] },
        "poisson_gaussian" => DpEvent::dp_sgd_step(0.1, 4.0),
        "laplace" => DpEvent::Laplace { noise_multiplier: 4.0 },
        "poisson_laplace" => {
            DpEvent::poisson_sampled(0.1, DpEvent::Laplace { noise_multiplier: 4.0 })
        }
        "truncated_poisson" => DpEvent::TruncatedPoissonSampled {
            sampling_probability: 0.1,
            dataset_size: 100,
            max_batch_size: 10,
            event: gaussian(),
        },
        "truncated_poisson_examples" => {
            DpEvent::truncated_poisson_sampled_examples(0.1, 100, 20, 4.0, 3).unwrap()
        }
        "correlated_bins" => correlated(Participation::BallsInBins { bins: 4 }),
        "correlated_separation" => {
            correlated(Participation::MinSeparation { separation: 2, sampling_probability: 0.2 })
        }
        "without_replacement" => DpEvent::SampledWithoutReplacement {
            dataset_size: 100,
            sample_size: 10,
            event: gaussian(),
        },
        "with_replacement" => DpEvent::SampledWithReplacement {
            dataset_size: 100,
            sample_size: 10,
            event: gaussian(),
        },
        "random_allocation" => {
            DpEvent::RandomAllocation { steps: 10, participations: 1, epochs: 1, event: gaussian() }
        }
        "patterned" => DpEvent::Patterned(PatternedGaussian {
            participation: RandomParticipation::MinimumSeparation {
                separation: 4,
                sampling_probability: 0.2,
                warm_start: true,
            },
            steps: 12,
            column: vec![1.0, 0.5],
            noise_multiplier: 4.0,
        }),
        "gaussian_mixture" => DpEvent::GaussianMixture(GaussianMixture {
            noise_multiplier: 4.0,
            weights: vec![0.5, 0.5],
            means: vec![vec![1.0, 0.0], vec![0.0, 1.0]],
        }),
        "discrete_gaussian" => DpEvent::DiscreteGaussian { sigma: 4.0, sensitivity: 1 },
        "exponential" => DpEvent::Exponential { epsilon: 0.5 },
        "zero_concentrated" => DpEvent::ZeroConcentrated { rho: 0.1 },
        "epsilon_delta" => DpEvent::EpsilonDelta { epsilon: 0.5, delta: 1e-9 },
        "repeat_and_select" => {
            DpEvent::RepeatAndSelect { event: gaussian(), runs: RunCount::geometric(5.0) }
        }
        _ => panic!("the page names an unknown event: {name}"),
    }
}

/// A step of a run with two bands.
fn correlated(participation: Participation) -> DpEvent {
    let strategy = Strategy::banded_toeplitz(8, &[1.0, 0.5]).unwrap();
    DpEvent::correlated_gaussian(4.0, &strategy, participation)
}

/// Returns whether an accountant takes an event and has an answer that bounds something.
fn takes<A: Accountant>(
    event: &DpEvent,
    relation: NeighboringRelation,
    prepare: impl Fn(A) -> A,
) -> bool {
    match A::new([(event, 2)], relation).and_then(|a| prepare(a).epsilon(1e-3)) {
        Ok(epsilon) => epsilon.estimate.is_finite(),
        Err(AccountantError::Unsupported { event: named, .. }) => {
            assert!(!named.is_empty());
            false
        }
        Err(AccountantError::Numerical { .. }) => false,
        Err(error) => panic!("{event}: {error}"),
    }
}

#[test]
fn every_cell_of_the_page_is_what_the_accountant_does() {
    let heading = "//! | event | pld | rdp | exact | gdp | monte carlo |";
    let table = PAGE.lines().skip_while(|line| *line != heading).skip(2);
    let mut rows = 0;
    for line in table.take_while(|line| line.starts_with("//! |")) {
        let cells: Vec<&str> = line.trim_start_matches("//! ").split('|').map(str::trim).collect();
        let event = event(cells[1]);
        let relation = match cells[1] {
            "without_replacement" | "with_replacement" => NeighboringRelation::ReplaceOne,
            _ => NeighboringRelation::AddOrRemoveOne,
        };
        let found = [
            takes::<PldAccountant>(&event, relation, |a| a.with_relative_width(1e-2)),
            takes::<RdpAccountant>(&event, relation, |a| a),
            takes::<ExactAccountant>(&event, relation, |a| a),
            takes::<GdpAccountant>(&event, relation, |a| a),
            takes::<MonteCarloAccountant>(&event, relation, |a| a.with_samples(20_000)),
        ];
        let found = found.map(|takes| if takes { "yes" } else { "no" });
        assert_eq!(found, cells[2..7], "{}", cells[1]);
        rows += 1;
    }
    assert_eq!(rows, 19);
}
