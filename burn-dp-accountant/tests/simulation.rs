//! The simulation of a ledger: against certified values, and its rules.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use burn_dp_accountant::correlated_noise::{Participation, Strategy};
use burn_dp_accountant::{
    Accountant, Budget, Calibration, DpEvent, LedgerHeader, Method, MonteCarloAccountant,
    NeighboringRelation, PatternedGaussian, PldAccountant, PrivacyLedger, RandomParticipation,
    Simulation, UnitOfPrivacy,
};

const ADD_REMOVE: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;
const REPLACE: NeighboringRelation = NeighboringRelation::ReplaceOne;

fn simulation(samples: u64) -> Simulation {
    Simulation::new(11).with_samples(samples).unwrap()
}

fn ledger(relation: NeighboringRelation, simulation: Option<Simulation>) -> PrivacyLedger {
    let mut header = LedgerHeader::new(UnitOfPrivacy::Example, relation);
    header.simulation = simulation;
    PrivacyLedger::new(header)
}

fn banded(steps: u64, coefficients: &[f64]) -> Strategy {
    Strategy::banded_toeplitz(steps, coefficients).unwrap()
}

/// A column whose second band is so small that a run is nearly one with one band.
fn nearly_one_band(steps: u64) -> Strategy {
    banded(steps, &[1.0, 1e-7])
}

#[test]
fn nearly_one_band_costs_what_is_certified_for_one() {
    let delta = 1e-3;
    for (participation, sigma) in [
        (Participation::BallsInBins { bins: 20 }, 1.5),
        (Participation::RandomAllocation { bins: 20 }, 1.0),
        (Participation::MinSeparation { separation: 1, sampling_probability: 0.05 }, 1.0),
    ] {
        let identity = Strategy::identity(60).unwrap();
        let certified = DpEvent::correlated_gaussian(sigma, &identity, participation);
        let certified = PldAccountant::new([(&certified, 60)], ADD_REMOVE).unwrap();
        let certified = certified.epsilon(delta).unwrap();
        assert!(certified.lower > 0.999 * certified.upper, "{participation}: {certified:?}");
        // A minimum separation needs as many steps as bands.
        let participation = match participation {
            Participation::MinSeparation { sampling_probability, .. } => {
                Participation::MinSeparation { separation: 2, sampling_probability }
            }
            other => other,
        };
        let event = DpEvent::correlated_gaussian(sigma, &nearly_one_band(60), participation);
        let mut ledger = ledger(ADD_REMOVE, Some(simulation(400_000)));
        ledger.record_many(&event, 60).unwrap();
        let found = ledger.epsilon(delta).unwrap();
        assert_eq!(found.method, Method::MonteCarlo, "{participation}: {found:?}");
        // The pause after a step costs less than none.
        let pause = matches!(participation, Participation::MinSeparation { .. });
        let low = if pause { 0.9 } else { 1.0 };
        assert!(found.upper >= low * certified.lower, "{participation}: {found:?} {certified:?}");
        assert!(found.upper < 1.12 * certified.upper, "{participation}: {found:?} {certified:?}");
        assert!((found.estimate / certified.upper - 1.0).abs() < if pause { 0.1 } else { 0.05 });
        let names = |note: &String| note.contains("seed 11:") && note.contains("1e-9");
        assert!(found.notes.iter().any(names), "{found:?}");
    }
}

#[test]
fn runs_agree_with_the_simulation_of_their_pattern() {
    let (sigma, column) = (1.4, vec![1.0, 0.5, 0.25]);
    let strategy = banded(24, &column);
    let simulated = |events: &[(&DpEvent, u64)]| {
        let accountant = MonteCarloAccountant::new(events.iter().copied(), ADD_REMOVE).unwrap();
        accountant.with_samples(200_000).with_seed(5)
    };
    for (participation, pattern) in [
        (Participation::BallsInBins { bins: 8 }, RandomParticipation::BallsInBins { cycle: 8 }),
        (Participation::BallsInBins { bins: 2 }, RandomParticipation::BallsInBins { cycle: 2 }),
        (
            Participation::MinSeparation { separation: 6, sampling_probability: 0.1 },
            RandomParticipation::MinimumSeparation {
                separation: 6,
                sampling_probability: 0.1,
                warm_start: false,
            },
        ),
    ] {
        let event = DpEvent::correlated_gaussian(sigma, &strategy, participation);
        let pattern = DpEvent::Patterned(PatternedGaussian {
            participation: pattern,
            steps: 24,
            column: column.clone(),
            noise_multiplier: sigma,
        });
        for epsilon in [0.5, 1.5] {
            let run = simulated(&[(&event, 24)]).delta(epsilon).unwrap();
            let truth = simulated(&[(&pattern, 1)]).delta(epsilon).unwrap();
            let spread = 6.0 * (truth.estimate / 2e5).sqrt() + 0.01 * truth.estimate;
            let gap = (run.estimate - truth.estimate).abs();
            assert!(gap < spread, "{participation} {epsilon}: {run:?} {truth:?}");
            assert!(run.upper >= truth.estimate, "{participation}: {run:?} {truth:?}");
        }
    }
}

#[test]
fn one_bracket_covers_runs_and_other_releases() {
    let strategy = banded(40, &[1.0, 0.6, 0.3]);
    let bins = Participation::BallsInBins { bins: 10 };
    let run = DpEvent::correlated_gaussian(2.0, &strategy, bins);
    let (poisson, gaussian) = (DpEvent::dp_sgd_step(0.1, 1.5), DpEvent::gaussian(6.0));
    let delta = 1e-5;
    let epsilon = |relation, simulation| {
        let mut ledger = ledger(relation, simulation);
        ledger.record_many(&run, 40).unwrap();
        ledger.record_many(&poisson, 5).unwrap();
        ledger.record_many(&gaussian, 2).unwrap();
        ledger.epsilon(delta).unwrap()
    };
    let certified = epsilon(ADD_REMOVE, None);
    assert!(certified.notes.iter().all(|note| !note.contains("Monte Carlo")), "{certified:?}");
    let simulated = epsilon(ADD_REMOVE, Some(simulation(400_000)));
    assert_eq!(simulated.method, Method::MonteCarlo);
    assert!(simulated.upper < 0.97 * certified.upper, "{simulated:?} {certified:?}");
    // The run with one band of the same norm in all bins costs less.
    let norm = (1.0f64 + 0.36 + 0.09).sqrt();
    let alone = DpEvent::RandomAllocation {
        steps: 10,
        participations: 1,
        epochs: 4,
        event: Box::new(DpEvent::gaussian(2.0 / norm)),
    };
    let alone = [(&alone, 1), (&poisson, 5), (&gaussian, 2)];
    let alone = PldAccountant::new(alone, ADD_REMOVE).unwrap().epsilon(delta).unwrap();
    assert!(simulated.upper > 0.97 * alone.lower, "{simulated:?} {alone:?}");
    // Equal questions have equal answers, other seeds others.
    assert_eq!(epsilon(ADD_REMOVE, Some(simulation(400_000))), simulated);
    let other = epsilon(ADD_REMOVE, Some(Simulation::new(12).with_samples(400_000).unwrap()));
    assert_ne!(other.upper, simulated.upper);
    assert!((other.upper / simulated.upper - 1.0).abs() < 0.05, "{other:?} {simulated:?}");
}

#[test]
fn replaced_units_in_two_bins_have_the_integral_of_their_densities() {
    let sigma = 0.8;
    let event = DpEvent::RandomAllocation {
        steps: 2,
        participations: 1,
        epochs: 1,
        event: Box::new(DpEvent::gaussian(sigma)),
    };
    let simulated = MonteCarloAccountant::new([(&event, 1)], REPLACE).unwrap();
    let simulated = simulated.with_samples(400_000).with_seed(3);
    for epsilon in [0.5f64, 2.0] {
        // Of (P - e^ε P')^+ in the plane, in units of the noise.
        let (mut truth, step, mean) = (0.0, 0.02, 1.0 / sigma);
        let density = |x: f64, y: f64, mean: f64| {
            let one = |a: f64, b: f64| (-0.5 * (a * a + b * b)).exp() / std::f64::consts::TAU;
            0.5 * (one(x - mean, y) + one(x, y - mean))
        };
        for i in -400..400 {
            for j in -400..400 {
                let (x, y) = (step * f64::from(i), step * f64::from(j));
                let gap = density(x, y, mean) - epsilon.exp() * density(x, y, -mean);
                truth += gap.max(0.0) * step * step;
            }
        }
        let found = simulated.delta(epsilon).unwrap();
        let spread = 6.0 * (truth / 4e5).sqrt();
        assert!((found.estimate - truth).abs() < spread, "{epsilon}: {found:?} {truth}");
        assert!(found.upper > truth && found.upper < 1.1 * truth, "{epsilon}: {found:?} {truth}");
    }
}

#[test]
fn replaced_units_are_amplified_by_simulation_alone() {
    let (sigma, delta) = (3.0, 1e-3);
    for (strategy, participation) in [
        (banded(40, &[1.0, 0.6, 0.3]), Participation::BallsInBins { bins: 10 }),
        (Strategy::identity(40).unwrap(), Participation::BallsInBins { bins: 10 }),
        (banded(40, &[1.0, 0.6, 0.3]), Participation::RandomAllocation { bins: 10 }),
        (Strategy::identity(40).unwrap(), Participation::RandomAllocation { bins: 10 }),
        (
            banded(40, &[1.0, 0.6, 0.3]),
            Participation::MinSeparation { separation: 4, sampling_probability: 0.05 },
        ),
    ] {
        let run = DpEvent::correlated_gaussian(sigma, &strategy, participation);
        let epsilon = |relation, simulation| {
            let mut ledger = ledger(relation, simulation);
            ledger.record_many(&run, 40).unwrap();
            ledger.epsilon(delta).unwrap()
        };
        let certified = epsilon(REPLACE, None);
        let simulated = epsilon(REPLACE, Some(simulation(200_000)));
        assert_eq!(simulated.method, Method::MonteCarlo, "{participation}: {simulated:?}");
        let gain = simulated.upper / certified.upper;
        assert!(gain < 0.85, "{participation}: {simulated:?} {certified:?}");
        // To replace a unit is at least as much as to remove it.
        let removed = epsilon(ADD_REMOVE, Some(simulation(200_000)));
        assert!(simulated.upper > removed.estimate, "{participation}: {simulated:?} {removed:?}");
        // A removal and an addition together are a replacement.
        let group = removed.delta + removed.upper.exp() * removed.delta;
        let mut ledger = ledger(REPLACE, Some(simulation(200_000)));
        ledger.record_many(&run, 40).unwrap();
        let found = ledger.epsilon(group).unwrap();
        assert!(found.estimate <= 2.0 * removed.upper, "{participation}: {found:?} {removed:?}");
    }
}

#[test]
fn nothing_changes_where_the_certified_analysis_is_tight() {
    for event in [DpEvent::dp_sgd_step(0.01, 1.0), DpEvent::gaussian(3.0)] {
        let epsilon = |simulation| {
            let mut ledger = ledger(ADD_REMOVE, simulation);
            ledger.record_many(&event, 10).unwrap();
            ledger.epsilon(1e-6).unwrap()
        };
        assert_eq!(epsilon(Some(simulation(1_000))), epsilon(None));
    }
}

#[test]
fn a_note_says_if_a_run_is_too_large_to_be_simulated() {
    let strategy = banded(2_000, &[1.0, 0.5, 0.25]);
    for (bins, is_simulated) in [(1_500, false), (1_000, true)] {
        let bins = Participation::BallsInBins { bins };
        let event = DpEvent::correlated_gaussian(2.0, &strategy, bins);
        let mut ledger = ledger(ADD_REMOVE, Some(simulation(1_000)));
        ledger.record_many(&event, 2_000).unwrap();
        let notes = ledger.epsilon(1e-3).unwrap().notes.join("; ");
        assert_eq!(notes.contains("nothing was simulated: with"), !is_simulated, "{notes}");
    }
}

#[test]
fn certified_bands_across_bins_are_an_allocation_to_fewer_bins() {
    let strategy = banded(60, &[1.0, 0.5, 0.25]);
    let run = |bins| {
        let event =
            DpEvent::correlated_gaussian(2.0, &strategy, Participation::BallsInBins { bins });
        PldAccountant::new([(&event, 60)], ADD_REMOVE).unwrap().epsilon(1e-5).unwrap()
    };
    let norm = (1.0f64 + 0.25 + 0.0625).sqrt();
    let allocated = |steps, epochs| {
        let event = Box::new(DpEvent::gaussian(2.0 / norm));
        let event = DpEvent::RandomAllocation { steps, participations: 1, epochs, event };
        PldAccountant::new([(&event, 1)], ADD_REMOVE).unwrap().epsilon(1e-5).unwrap()
    };
    // 20 bins of three bands: six that do not share noise.
    let (found, fewer) = (run(20), allocated(6, 3));
    assert!((found.upper / fewer.upper - 1.0).abs() < 1e-6, "{found:?} {fewer:?}");
    assert_eq!(found.lower, 0.0);
    // Five bins do not have two of them.
    let sensitivity = strategy.sensitivity_in_fixed_order(5).unwrap();
    let known = DpEvent::gaussian(2.0 / sensitivity);
    let known = PldAccountant::new([(&known, 1)], ADD_REMOVE).unwrap().epsilon(1e-5).unwrap();
    assert!((run(5).upper / known.upper - 1.0).abs() < 1e-6);
    // The simulation of all bins is between the two.
    let mut simulated = ledger(ADD_REMOVE, Some(simulation(400_000)));
    let event =
        DpEvent::correlated_gaussian(2.0, &strategy, Participation::BallsInBins { bins: 20 });
    simulated.record_many(&event, 60).unwrap();
    let simulated = simulated.epsilon(1e-5).unwrap();
    assert!(simulated.upper < found.upper, "{simulated:?} {found:?}");
    assert!(simulated.upper > allocated(20, 3).lower, "{simulated:?}");
}

#[test]
fn buffers_and_normalized_columns_are_simulated_in_bins() {
    for strategy in [
        Strategy::buffered(40, &[0.9, 0.3], &[0.2, 0.3]).unwrap(),
        Strategy::banded_inverse(40, &[1.0, 0.4]).unwrap(),
        Strategy::optimal_toeplitz(40).unwrap().with_normalized_columns(),
        Strategy::tree(40).unwrap(),
    ] {
        let event =
            DpEvent::correlated_gaussian(4.0, &strategy, Participation::BallsInBins { bins: 10 });
        let epsilon = |simulation| {
            let mut ledger = ledger(ADD_REMOVE, simulation);
            ledger.record_many(&event, 40).unwrap();
            ledger.epsilon(1e-3).unwrap()
        };
        let (found, known) = (epsilon(Some(simulation(200_000))), epsilon(None));
        assert!(found.upper < known.upper && found.upper > 0.0, "{strategy}: {found:?} {known:?}");
    }
}

#[test]
fn part_of_an_epoch_costs_the_epoch_and_budgets_stop_there() {
    let strategy = banded(40, &[1.0, 0.5]);
    let bins = Participation::BallsInBins { bins: 10 };
    let event = DpEvent::correlated_gaussian(2.5, &strategy, bins);
    let delta = 1e-4;
    let after = |steps| {
        let ledger = ledger(ADD_REMOVE, Some(simulation(100_000)));
        ledger.epsilon_after(&event, steps, delta).unwrap()
    };
    assert_eq!(after(11), after(20));
    assert!(after(20).upper < after(21).upper);
    let budget = Budget::new(after(20).upper * 1.0001, delta).unwrap();
    let mut ledger = ledger(ADD_REMOVE, Some(simulation(100_000)));
    assert_eq!(ledger.max_steps_within(&event, budget).unwrap(), 20);
    for step in 0..20 {
        assert!(ledger.within_budget(&event.advanced(step), 1, budget).unwrap());
        ledger.record(&event.advanced(step)).unwrap();
    }
    assert!(!ledger.within_budget(&event.advanced(20), 1, budget).unwrap());
    let whole = Budget::new(after(40).upper * 1.0001, delta).unwrap();
    assert_eq!(ledger.max_steps_within(&event.advanced(20), whole).unwrap(), 20);
}

#[test]
fn calibrated_noise_is_smaller_with_a_simulation_and_meets_the_budget() {
    let strategy = banded(40, &[1.0, 0.6, 0.3]);
    let bins = Participation::BallsInBins { bins: 10 };
    let event = |sigma| DpEvent::correlated_gaussian(sigma, &strategy, bins);
    let budget = Budget::new(2.0, 1e-4).unwrap();
    let certified = Calibration::new(budget).noise_multiplier(40, event).unwrap();
    let simulation = simulation(100_000);
    let calibration = Calibration::new(budget).with_simulation(simulation);
    let sigma = calibration.noise_multiplier(40, event).unwrap();
    assert!(sigma < 0.97 * certified, "{sigma} {certified}");
    let mut ledger = ledger(ADD_REMOVE, Some(simulation));
    ledger.record_many(&event(sigma), 40).unwrap();
    let found = ledger.epsilon(1e-4).unwrap();
    assert!(found.upper <= 2.0 && found.upper > 1.9, "{found:?}");
    assert_eq!(calibration.steps(&event(sigma)).unwrap(), 40);
    // A group is bounded with the same simulation.
    let group = ledger.group_epsilon(2, 1e-2).unwrap();
    assert!(group.upper.is_finite() && group.upper > ledger.epsilon(1e-2).unwrap().upper);
}

#[test]
fn simulation_is_part_of_the_ledger_file_and_of_its_continuation() {
    let mut written = ledger(ADD_REMOVE, Some(simulation(5_000)));
    written.record(&DpEvent::gaussian(2.0)).unwrap();
    let text = written.to_json().unwrap();
    let read = PrivacyLedger::from_json(&text).unwrap();
    assert_eq!(read, written);
    assert_eq!(read.header().simulation, Some(simulation(5_000)));
    for (from, to) in [("\"seed\": 11", "\"seed\": -1"), ("\"samples\": 5000", "\"samples\": 5")] {
        assert!(text.contains(from), "{text}");
        assert!(PrivacyLedger::from_json(&text.replace(from, to)).is_err());
    }
    let mut other = ledger(ADD_REMOVE, None);
    other.record(&DpEvent::gaussian(2.0)).unwrap();
    assert!(read.continues(&written) && !other.continues(&written));
    assert!(Simulation::new(0).with_samples(10).is_err());
    assert!(Simulation::new(0).with_failure_probability(1.0).is_err());
}

#[test]
fn what_cannot_be_simulated_keeps_its_certified_bound_and_says_why() {
    let strategy = banded(20, &[1.0, 0.5]);
    let event =
        DpEvent::correlated_gaussian(4.0, &strategy, Participation::BallsInBins { bins: 5 });
    let epsilon = |simulation: Option<Simulation>, delta| {
        let mut ledger = ledger(ADD_REMOVE, simulation);
        ledger.record_many(&event, 20).unwrap();
        ledger.record(&DpEvent::Laplace { noise_multiplier: 10.0 }).unwrap();
        ledger.epsilon(delta).unwrap()
    };
    let (found, certified) = (epsilon(Some(simulation(1_000)), 1e-5), epsilon(None, 1e-5));
    assert_eq!(found.upper, certified.upper);
    assert!(found.notes.iter().any(|note| note.contains("Laplace")), "{found:?}");
    // A δ below the failure probability.
    let mut tiny = ledger(ADD_REMOVE, Some(simulation(1_000)));
    tiny.record_many(&event, 20).unwrap();
    let found = tiny.epsilon(1e-10).unwrap();
    assert!(found.upper.is_finite() && found.method != Method::MonteCarlo, "{found:?}");
    assert!(found.notes.iter().any(|note| note.contains("failure probability")), "{found:?}");
}
