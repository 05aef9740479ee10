//! Comparison of samplers with golden tables.
//!
//! A few rows are copied here. The whole table is checked if `BURN_DP_GOLDEN` names its folder or
//! the folder is next to the repository.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod golden_rows;

use burn_dp_accountant::{
    Accountant, DpEvent, GaussianMixture, Method, MonteCarloAccountant, NeighboringRelation,
    PatternedGaussian, PldAccountant, RandomParticipation, RdpAccountant, verified_delta,
};
use golden_rows::number;
use serde_json::{Value, json};

fn rows(copied: Value, kind: &str) -> Vec<Value> {
    golden_rows::rows(copied, "sampler_accounting.json", kind)
}

fn count(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"))
}

fn truncated(row: &Value) -> PldAccountant {
    let event = DpEvent::TruncatedPoissonSampled {
        sampling_probability: number(row, "sampling_prob"),
        dataset_size: count(row, "dataset_size"),
        max_batch_size: count(row, "truncated_batch_size"),
        event: Box::new(DpEvent::gaussian(number(row, "sigma"))),
    };
    let relation = NeighboringRelation::ReplaceSpecial;
    PldAccountant::new([(&event, count(row, "steps"))], relation).unwrap()
}

#[test]
fn truncated_sampling_has_its_golden_delta() {
    let copied = json!([{
        "dataset_size": 1000, "sampling_prob": 0.05, "truncated_batch_size": 50, "sigma": 1.0,
        "steps": 1, "eps": 0.5, "delta": 0.005503937958627578,
    }]);
    for row in rows(copied, "truncated_poisson_delta") {
        let truth = number(&row, "delta");
        let upper = truncated(&row).delta(number(&row, "eps")).unwrap().upper;
        let range = truth * (1.0 - 1e-7)..=truth * (1.0 + 1.01e-4);
        assert!(range.contains(&upper), "{row}: {upper}");
    }
}

#[test]
fn truncated_sampling_has_its_golden_epsilon() {
    let copied = json!([{
        "dataset_size": 1000, "sampling_prob": 0.05, "truncated_batch_size": 60, "sigma": 1.0,
        "steps": 1, "delta": 1e-5, "eps": 4.009156237119291,
    }]);
    for row in rows(copied, "truncated_poisson_eps") {
        let truth = number(&row, "eps");
        let bracket = truncated(&row).epsilon(number(&row, "delta")).unwrap();
        let range = truth * (1.0 - 1e-9)..=truth * (1.0 + 1e-4);
        assert!(range.contains(&bracket.upper), "{row}: {bracket:?}");
        assert!(0.0 < bracket.lower && bracket.lower <= bracket.upper, "{row}: {bracket:?}");
    }
}

const ADD_REMOVE: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

fn allocation(steps: u64, participations: u64, epochs: u64, sigma: f64) -> DpEvent {
    let event = Box::new(DpEvent::gaussian(sigma));
    DpEvent::RandomAllocation { steps, participations, epochs, event }
}

#[test]
fn balls_in_bins_have_their_golden_delta() {
    let copied = json!([{
        "bins": 100, "sigma": 1.0, "epochs": 1, "eps": 0.25, "delta": 0.002158929764223716,
        "abs_err": 4e-12,
    }]);
    for row in rows(copied, "balls_in_bins_exact") {
        let event =
            allocation(count(&row, "bins"), 1, count(&row, "epochs"), number(&row, "sigma"));
        let pld = PldAccountant::new([(&event, 1)], ADD_REMOVE).unwrap();
        let bracket = pld.delta(number(&row, "eps")).unwrap();
        let (truth, error) = (number(&row, "delta"), number(&row, "abs_err"));
        let error = error + 1e-12 * truth;
        let context = format!("{row}: {bracket:?}");
        assert!(bracket.lower <= truth + error && truth - error <= bracket.upper, "{context}");
        assert!(bracket.upper - bracket.lower <= 4e-3 * truth + 2.0 * error, "{context}");
    }
}

#[test]
fn random_allocation_under_replace_one_is_not_amplified() {
    let replace = NeighboringRelation::ReplaceOne;
    for (event, shift) in [
        (allocation(100, 1, 4, 4.0), 2.0 * 2.0 / 4.0),
        (allocation(100, 3, 1, 6.0), 2.0 * 3f64.sqrt() / 6.0),
        (allocation(5, 5, 1, 6.0), 2.0 * 5f64.sqrt() / 6.0),
    ] {
        let whole = DpEvent::gaussian(2.0 / shift);
        let found = PldAccountant::new([(&event, 1)], replace).unwrap().epsilon(1e-5).unwrap();
        let truth = PldAccountant::new([(&whole, 1)], replace).unwrap().epsilon(1e-5).unwrap();
        assert!(found.upper >= truth.lower && found.upper <= truth.upper * 1.001, "{found:?}");
        // Only full participation is attained by data sets.
        assert_eq!(found.lower > 0.0, event.to_string().contains("5 of 5"), "{found:?}");
    }
}

#[test]
fn compositions_of_many_bins_are_narrow_and_cost_more_than_one() {
    let event = allocation(1000, 1, 1, 0.8);
    let bracket = |count| {
        let pld = PldAccountant::new([(&event, count)], ADD_REMOVE).unwrap();
        pld.epsilon(1e-6).unwrap()
    };
    let (one, five) = (bracket(1), bracket(5));
    for found in [&one, &five] {
        assert!(found.upper - found.lower < 1e-3 * found.upper, "{found:?}");
    }
    assert!(one.upper < five.lower && five.upper < 5.0 * one.lower, "{one:?} {five:?}");
}

#[test]
fn fresh_bins_in_each_epoch_have_their_golden_delta() {
    for row in rows(json!([]), "mixture_delta_monte_carlo") {
        if row["scheme"] != "fresh_bins_per_epoch" {
            continue;
        }
        let (steps, cycle) = (count(&row, "n"), count(&row, "cycle"));
        let event = allocation(cycle, 1, 1, number(&row, "sigma"));
        let pld = PldAccountant::new([(&event, steps / cycle)], ADD_REMOVE).unwrap();
        let bracket = pld.delta(number(&row, "eps")).unwrap();
        let (estimate, deviation) = (number(&row, "delta_remove"), number(&row, "se_remove"));
        let slack = 4.5 * deviation;
        let context = format!("{row}: {bracket:?}");
        assert!(
            bracket.lower <= estimate + slack && estimate - slack <= bracket.upper,
            "{context}"
        );
        assert!(bracket.upper - bracket.lower <= 2e-3 * bracket.upper, "{context}");
    }
}

fn numbers(row: &Value, key: &str) -> Vec<f64> {
    row[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn patterned(row: &Value) -> PatternedGaussian {
    let scheme = row["scheme"].as_str().unwrap();
    let participation = match scheme {
        "balls_in_bins" => RandomParticipation::BallsInBins { cycle: count(row, "cycle") },
        "cyclic_poisson" => RandomParticipation::CyclicPoisson {
            cycle: count(row, "cycle"),
            sampling_probability: number(row, "p"),
        },
        "b_min_sep" | "b_min_sep_truncated" => RandomParticipation::MinimumSeparation {
            separation: count(row, "min_sep"),
            sampling_probability: number(row, "p"),
            warm_start: row["warm_start"].as_bool().unwrap(),
        },
        "k_out_of_t" => RandomParticipation::Subset { participations: count(row, "k") },
        _ => panic!("{row}"),
    };
    let mut column = numbers(row, "c_col");
    while column.last() == Some(&0.0) {
        column.pop();
    }
    let (steps, noise_multiplier) = (count(row, "n"), number(row, "sigma"));
    PatternedGaussian { participation, steps, column, noise_multiplier }
}

#[test]
fn privacy_losses_of_patterns_have_their_golden_values() {
    let copied = json!([{
        "scheme": "b_min_sep", "n": 3, "sample": [1.0, 1.0, 1.0], "c_col": [1.0, 0.5],
        "sigma": 1.0, "p": 0.5, "min_sep": 2, "warm_start": true,
        "privacy_loss": 0.8329398380809252,
    }, {
        "scheme": "b_min_sep_truncated", "n": 3, "sample": [1.0, 1.0, 1.0], "c_col": [1.0, 0.5],
        "sigma": 1.0, "p": 0.5, "min_sep": 2, "warm_start": false, "truncated_batch_size": 1,
        "rest_batch_sizes": [2, 0, 1], "privacy_loss": 0.6833726274094436,
    }]);
    for row in rows(copied, "privacy_loss_sample") {
        let (pattern, output) = (patterned(&row), numbers(&row, "sample"));
        let found = if row["scheme"] == "b_min_sep_truncated" {
            let others = row["rest_batch_sizes"].as_array().unwrap();
            let others: Vec<u64> = others.iter().map(|n| n.as_u64().unwrap()).collect();
            pattern.truncated_privacy_loss(&output, &others, count(&row, "truncated_batch_size"))
        } else {
            pattern.privacy_loss(&output)
        };
        let (found, truth) = (found.unwrap(), number(&row, "privacy_loss"));
        assert!((found - truth).abs() < 1e-12 * (1.0 + truth.abs()), "{row}: {found}");
    }
}

#[test]
fn outputs_of_another_number_of_steps_have_no_privacy_loss() {
    let pattern = PatternedGaussian {
        participation: RandomParticipation::MinimumSeparation {
            separation: 2,
            sampling_probability: 0.5,
            warm_start: false,
        },
        steps: 3,
        column: vec![1.0, 0.5],
        noise_multiplier: 1.0,
    };
    for length in [2, 4] {
        let output = vec![1.0; length];
        assert!(pattern.privacy_loss(&output).is_err());
        assert!(pattern.truncated_privacy_loss(&output, &[0; 3], 1).is_err());
        assert!(pattern.truncated_privacy_loss(&[1.0; 3], &vec![0; length], 1).is_err());
    }
}

/// Checks an estimate of 50,000 losses against an estimate of the table.
#[test]
fn simulated_delta_agrees_with_the_golden_simulation() {
    let copied = json!([{
        "scheme": "k_out_of_t", "n": 6, "c_col": [1.0], "sigma": 1.5, "k": 2, "eps": 0.5,
        "delta_remove": 0.07657989345494559, "se_remove": 9.065782248036777e-05,
    }]);
    for row in rows(copied, "mixture_delta_monte_carlo") {
        let (event, repetitions) = if row["scheme"] == "fresh_bins_per_epoch" {
            let cycle = count(&row, "cycle");
            (allocation(cycle, 1, 1, number(&row, "sigma")), count(&row, "n") / cycle)
        } else {
            (DpEvent::Patterned(patterned(&row)), 1)
        };
        let accountant = MonteCarloAccountant::new([(&event, repetitions)], ADD_REMOVE).unwrap();
        let samples = 50_000;
        let found = accountant.with_samples(samples).delta(number(&row, "eps")).unwrap();
        let (golden, error) = (number(&row, "delta_remove"), number(&row, "se_remove"));
        let own = (golden / samples as f64).sqrt();
        let context = format!("{row}: {found:?}");
        assert!((found.estimate - golden).abs() <= 4.5 * error.hypot(own) + 1e-5, "{context}");
        assert!(found.upper > golden - 4.5 * error && found.lower == 0.0, "{context}");
        let exact = row["exact_remove"].as_f64().unwrap_or(0.0);
        assert!(found.upper >= exact && found.upper <= golden + 13.0 * own + 1.3e-3, "{context}");
        // What is certified without a simulation is above the truth.
        let certified = PldAccountant::new([(&event, repetitions)], ADD_REMOVE).unwrap();
        let certified = certified.delta(number(&row, "eps")).unwrap();
        assert!(certified.upper >= golden - 4.5 * error, "{context}: {certified:?}");
    }
}

#[test]
fn verified_delta_equals_the_golden_table() {
    let copied = json!([
        {"num_samples": 10_000, "base_delta": 1e-3, "overall_delta": 0.003115198767277914},
    ]);
    for row in rows(copied, "mc_overall_delta") {
        let found = verified_delta(number(&row, "base_delta"), count(&row, "num_samples")).unwrap();
        let truth = number(&row, "overall_delta");
        assert!((found / truth - 1.0).abs() < 1e-10, "{row}: {found}");
    }
}

#[test]
fn several_examples_of_a_unit_cost_what_dp_accounting_says() {
    // dp_accounting 0.6.0, from_mixture_gaussian_mechanism, grid of 1e-4: optimistic (privacy
    // buckets) and pessimistic (connect the dots).
    for (sigma, examples, q, steps, delta, lower, upper) in [
        (2.0, 3, 0.1, 50, 1e-5, 5.7862832140578675, 5.797900334704769),
        (1.0, 2, 0.01, 200, 1e-6, 2.380734764306488, 2.3907362151686824),
        (4.0, 8, 0.05, 100, 1e-5, 4.517880891778183, 4.69992952634561),
    ] {
        let event = DpEvent::poisson_sampled_examples(q, sigma, examples).unwrap();
        let pld = PldAccountant::new([(&event, steps)], ADD_REMOVE).unwrap();
        let found = pld.epsilon(delta).unwrap();
        assert!(found.lower >= lower && found.upper <= upper * (1.0 + 1e-4), "{event}: {found:?}");
        assert!(found.upper / found.lower < 1.0 + 1e-4, "{event}: {found:?}");
        // Known draws cost more.
        let group = DpEvent::gaussian(sigma / examples as f64);
        let group = PldAccountant::new([(&group, steps)], ADD_REMOVE).unwrap();
        assert!(found.upper < group.epsilon(delta).unwrap().lower);
        let rdp = RdpAccountant::new([(&event, steps)], ADD_REMOVE).unwrap();
        assert!(rdp.epsilon(delta).unwrap().upper >= found.lower);
    }
    let event = DpEvent::poisson_sampled_examples(0.1, 2.0, 3).unwrap();
    let simulated = MonteCarloAccountant::new([(&event, 20)], ADD_REMOVE).unwrap();
    let simulated = simulated.with_samples(50_000).epsilon(1e-2).unwrap().estimate;
    let pld = PldAccountant::new([(&event, 20)], ADD_REMOVE).unwrap().epsilon(1e-2).unwrap();
    assert!((simulated / pld.upper - 1.0).abs() < 0.05, "{simulated} {pld:?}");
    let one = DpEvent::poisson_sampled_examples(0.1, 2.0, 1).unwrap();
    assert_eq!(one, DpEvent::dp_sgd_step(0.1, 2.0));
    let always = DpEvent::poisson_sampled_examples(1.0, 2.0, 4).unwrap();
    assert_eq!(always, DpEvent::gaussian(0.5));
    assert!(DpEvent::poisson_sampled_examples(0.1, 2.0, 0).is_err());
    assert!(DpEvent::poisson_sampled_examples(1.5, 2.0, 3).is_err());
    // Replacing the examples has no proof of an amplification.
    assert!(PldAccountant::new([(&event, 5)], NeighboringRelation::ReplaceOne).is_err());
}

// Rounding and underflow can only move mass to more examples.
#[test]
fn weights_of_drawn_examples_are_rounded_up() {
    for q in [0.5f64, 0.75, 1e-200] {
        let event = DpEvent::poisson_sampled_examples(q, 2.0, 2).unwrap();
        event.validate().unwrap();
        let DpEvent::GaussianMixture(mixture) = event else { panic!("{event}") };
        let weights = mixture.weights;
        assert!(weights[0] < (1.0 - q).powi(2), "{weights:?}");
        assert!(weights[1] > 2.0 * q * (1.0 - q) && weights[2] > q * q, "{weights:?}");
        let sum: f64 = weights.iter().sum();
        assert!((sum - 1.0).abs() < if q < 0.1 { 2e-11 } else { 1e-13 }, "{weights:?}");
    }
}

#[test]
fn simulation_of_a_composition_is_above_its_certified_bracket() {
    let mixture = DpEvent::GaussianMixture(GaussianMixture {
        noise_multiplier: 1.0,
        weights: vec![0.9, 0.1],
        means: vec![vec![0.0], vec![1.0]],
    });
    // One mean of 0 and one of 1 is Poisson sampling.
    let (poisson, gaussian) = (DpEvent::dp_sgd_step(0.1, 1.0), DpEvent::gaussian(4.0));
    let truth = PldAccountant::new([(&poisson, 7), (&gaussian, 2)], ADD_REMOVE).unwrap();
    let truth = truth.epsilon(1e-3).unwrap();
    for events in [[(&mixture, 7), (&gaussian, 2)], [(&poisson, 7), (&gaussian, 2)]] {
        let accountant = MonteCarloAccountant::new(events, ADD_REMOVE).unwrap().with_seed(3);
        let accountant = accountant.with_samples(300_000);
        let found = accountant.epsilon(1e-3).unwrap();
        assert_eq!(found.method, Method::MonteCarlo);
        assert!(found.notes[0].contains("seed 3"), "{found:?}");
        assert!(found.upper >= truth.lower && found.upper < 1.25 * truth.upper, "{found:?}");
        assert!((found.estimate / truth.estimate - 1.0).abs() < 0.05, "{found:?} {truth:?}");
        assert_eq!(accountant.epsilon(1e-3).unwrap(), found);
        // Poisson-sampled releases are drawn from powers of the likelihood ratio.
        let rare = accountant.epsilon(1e-7).unwrap();
        if events[0].0 == &poisson {
            let truth = PldAccountant::new(events, ADD_REMOVE).unwrap().epsilon(1e-7).unwrap();
            assert!(rare.upper >= truth.lower && rare.upper < 1.1 * truth.upper, "{rare:?}");
        } else {
            assert!(rare.upper.is_infinite() && rare.notes.len() == 2, "{rare:?}");
        }
        let impossible = accountant.with_failure_probability(1e-3).unwrap();
        assert!(impossible.epsilon(1e-4).unwrap().upper.is_infinite());
    }
    let ledger = PldAccountant::new([(&mixture, 7), (&gaussian, 2)], ADD_REMOVE).unwrap();
    let ledger = ledger.epsilon(1e-3).unwrap();
    assert!((ledger.upper / truth.upper - 1.0).abs() < 1e-4, "{ledger:?} {truth:?}");
    assert!((ledger.lower / truth.lower - 1.0).abs() < 1e-4, "{ledger:?} {truth:?}");
    // Means in several directions: the component is counted as known.
    let mixture = DpEvent::GaussianMixture(GaussianMixture {
        noise_multiplier: 1.0,
        weights: vec![0.9, 0.1],
        means: vec![vec![0.0, 0.0], vec![0.6, 0.8]],
    });
    let ledger = PldAccountant::new([(&mixture, 7), (&gaussian, 2)], ADD_REMOVE).unwrap();
    let ledger = ledger.epsilon(1e-3).unwrap();
    assert!(ledger.upper > truth.upper && ledger.lower == 0.0, "{ledger:?}");
}
