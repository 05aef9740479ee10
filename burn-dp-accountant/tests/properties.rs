//! Properties that hold for every event.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use burn_dp_accountant::{
    Accountant, DpEvent, ExactAccountant, GaussianDp, LedgerHeader, Method, NeighboringRelation,
    PldAccountant, PrivacyLedger, RdpAccountant, UnitOfPrivacy,
};
use proptest::prelude::*;

const RELATION: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

fn bracket(events: &[(&DpEvent, u64)], relation: NeighboringRelation, delta: f64) -> (f64, f64) {
    let pld = PldAccountant::new(events.iter().copied(), relation).unwrap();
    let epsilon = pld.with_relative_width(1e-3).epsilon(delta).unwrap();
    (epsilon.lower, epsilon.upper)
}

fn mechanism() -> impl Strategy<Value = DpEvent> {
    prop_oneof![
        (0.001f64..0.5, 0.5f64..5.0).prop_map(|(q, s)| DpEvent::dp_sgd_step(q, s)),
        (0.5f64..20.0).prop_map(DpEvent::gaussian),
        (1.0f64..20.0).prop_map(|noise_multiplier| DpEvent::Laplace { noise_multiplier }),
        (0.01f64..0.5, 1.0f64..5.0).prop_map(|(q, b)| DpEvent::poisson_sampled(
            q,
            DpEvent::Laplace { noise_multiplier: b }
        )),
        (0.01f64..0.5).prop_map(|epsilon| DpEvent::EpsilonDelta { epsilon, delta: 1e-9 }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bracket_is_ordered_and_below_the_renyi_bound(
        event in mechanism(), steps in 1u64..200, ln_delta in -30.0f64..-5.0,
    ) {
        let delta = ln_delta.exp().max(1e-6);
        let (lower, upper) = bracket(&[(&event, steps)], RELATION, delta);
        prop_assert!(0.0 <= lower && lower <= upper, "{lower} {upper}");
        let rdp = RdpAccountant::new([(&event, steps)], RELATION).unwrap().epsilon(delta).unwrap();
        prop_assert!(lower <= rdp.upper * (1.0 + 1e-9), "{event} x {steps}: {lower} {rdp:?}");
    }

    #[test]
    fn epsilon_is_monotone_in_every_parameter(
        q in 0.001f64..0.3, sigma in 0.5f64..4.0, steps in 1u64..3_000, more in 1.05f64..2.0,
    ) {
        let at = |q: f64, sigma: f64, steps: u64, delta: f64| {
            let event = DpEvent::dp_sgd_step(q, sigma);
            bracket(&[(&event, steps)], RELATION, delta)
        };
        let (_, upper) = at(q, sigma, steps, 1e-6);
        prop_assert!(at(q, sigma * more, steps, 1e-6).0 <= upper);
        prop_assert!(at(q / more, sigma, steps, 1e-6).0 <= upper);
        prop_assert!(at(q, sigma, steps, 1e-6 * more).0 <= upper);
        prop_assert!(at(q, sigma, steps + steps / 2 + 1, 1e-6).1 >= at(q, sigma, steps, 1e-6).0);
    }

    #[test]
    fn composition_counts_repetitions_in_any_order(
        a in mechanism(), b in mechanism(), n in 1u64..20, m in 1u64..20,
    ) {
        let nested = DpEvent::Composed {
            events: vec![
                DpEvent::self_composed(b.clone(), m),
                DpEvent::self_composed(a.clone(), n),
            ],
        };
        let flat = bracket(&[(&a, n), (&b, m)], RELATION, 1e-6);
        let other = bracket(&[(&nested, 1)], RELATION, 1e-6);
        prop_assert!(flat.0 <= other.1 && other.0 <= flat.1, "{flat:?} {other:?}");
        let rdp = |events: Vec<(&DpEvent, u64)>| {
            RdpAccountant::new(events, RELATION).unwrap().rdp(3.5)
        };
        let (flat, other) = (rdp(vec![(&a, n), (&b, m)]), rdp(vec![(&nested, 1)]));
        prop_assert!((flat - other).abs() <= 1e-12 * flat);
    }

    #[test]
    fn ledger_survives_json(events in prop::collection::vec((mechanism(), 1u64..1_000), 0..6)) {
        let header = LedgerHeader::new(UnitOfPrivacy::Example, RELATION);
        let mut ledger = PrivacyLedger::new(header);
        for (event, count) in &events {
            ledger.record_many(event, *count).unwrap();
        }
        let read = PrivacyLedger::from_json(&ledger.to_json().unwrap()).unwrap();
        prop_assert_eq!(read, ledger);
    }

    #[test]
    fn sampling_with_probability_one_is_no_sampling(sigma in 0.8f64..10.0, steps in 1u64..50) {
        let gdp = GaussianDp::new((steps as f64).sqrt() / sigma).unwrap();
        let closed = gdp.epsilon(1e-7).unwrap();
        let event = DpEvent::dp_sgd_step(1.0, sigma);
        let (lower, upper) = bracket(&[(&event, steps)], RELATION, 1e-7);
        prop_assert!(lower <= closed * (1.0 + 1e-9) && closed <= upper * (1.0 + 1e-9));
        let exact = ExactAccountant::new([(&event, steps)], RELATION).unwrap();
        prop_assert!((exact.epsilon(1e-7).unwrap().estimate / closed - 1.0).abs() < 1e-9);
    }
}

#[test]
fn composed_pure_mechanisms_cost_their_sum() {
    // dp_accounting reports 1.0987 for ten randomized responses of 1.0987 each.
    let event = DpEvent::EpsilonDelta { epsilon: 3f64.ln(), delta: 0.0 };
    let (_, upper) = bracket(&[(&event, 10)], RELATION, 1e-12);
    let all = 10.0 * 3f64.ln();
    assert!(upper <= all * (1.0 + 1e-6) && upper > 0.9 * all, "{upper} of {all}");
}

#[test]
fn replace_one_costs_between_one_and_two_shifts() {
    let step = DpEvent::dp_sgd_step(0.02, 2.0);
    let remove = bracket(&[(&step, 500)], RELATION, 1e-6);
    let replace = bracket(&[(&step, 500)], NeighboringRelation::ReplaceOne, 1e-6);
    let doubled = DpEvent::dp_sgd_step(0.02, 1.0);
    let bound = bracket(&[(&doubled, 500)], RELATION, 1e-6);
    assert!(remove.1 < replace.0 && replace.0 <= bound.1, "{remove:?} {replace:?} {bound:?}");
    let special = bracket(&[(&step, 500)], NeighboringRelation::ReplaceSpecial, 1e-6);
    assert!((special.1 / remove.1 - 1.0).abs() < 1e-12);
}

#[test]
fn fixed_size_and_truncated_sampling_are_bounded() {
    let gaussian = || Box::new(DpEvent::gaussian(4.0));
    let replace = NeighboringRelation::ReplaceOne;
    let without = DpEvent::SampledWithoutReplacement {
        dataset_size: 10_000,
        sample_size: 100,
        event: gaussian(),
    };
    let with = DpEvent::SampledWithReplacement {
        dataset_size: 10_000,
        sample_size: 100,
        event: gaussian(),
    };
    let whole = DpEvent::gaussian(4.0);
    let without_bracket = bracket(&[(&without, 100)], replace, 1e-6);
    let with_bracket = bracket(&[(&with, 100)], replace, 1e-6);
    let plain = bracket(&[(&whole, 100)], replace, 1e-6);
    assert!(without_bracket.0 > 0.0 && without_bracket.1 < 0.2 * plain.1, "{without_bracket:?}");
    assert!(with_bracket.1 < 0.3 * plain.1 && with_bracket.1 > without_bracket.0);
    let refused = PldAccountant::new([(&without, 1)], RELATION).unwrap_err();
    assert!(refused.to_string().contains("replace-one"), "{refused}");

    let truncated = |max_batch_size| DpEvent::TruncatedPoissonSampled {
        sampling_probability: 0.01,
        dataset_size: 10_000,
        max_batch_size,
        event: Box::new(DpEvent::gaussian(1.0)),
    };
    let poisson = DpEvent::dp_sgd_step(0.01, 1.0);
    let full = bracket(&[(&poisson, 100)], RELATION, 1e-6);
    let loose = bracket(&[(&truncated(200), 100)], RELATION, 1e-6);
    let tight = bracket(&[(&truncated(100), 100)], RELATION, 1e-6);
    assert!(loose.1 >= full.0 && loose.0 <= full.1 * 1.01, "{loose:?} {full:?}");
    // Half of the batches are cut: between inclusion alone and a difference of two thresholds.
    let doubled = DpEvent::dp_sgd_step(0.01, 0.5);
    let most = bracket(&[(&doubled, 100)], RELATION, 1e-6);
    assert!(0.0 < tight.0 && tight.1 > full.1 && tight.1 < most.1, "{tight:?} {most:?}");
}

#[test]
fn hyperparameter_search_costs_between_one_and_all_runs() {
    use burn_dp_accountant::RunCount;
    let run = || Box::new(DpEvent::gaussian(4.0));
    let epsilon = |event: &DpEvent| {
        RdpAccountant::new([(event, 1)], RELATION).unwrap().epsilon(1e-6).unwrap().upper
    };
    let one = epsilon(&run());
    let all = epsilon(&DpEvent::self_composed(*run(), 50));
    for runs in [
        RunCount::Poisson { mean: 50.0 },
        RunCount::TruncatedNegativeBinomial { mean: 50.0, shape: 0.0 },
        RunCount::TruncatedNegativeBinomial { mean: 50.0, shape: 1.0 },
    ] {
        let search = epsilon(&DpEvent::RepeatAndSelect { event: run(), runs });
        assert!(one < search && search < all, "{runs:?}: {one} {search} {all}");
    }
}

#[test]
fn extreme_parameters_cost_at_most_the_renyi_bound() {
    for (q, sigma, steps, delta) in [
        (1e-7, 1000.0, 1, 1e-2),
        (1e-7, 0.1, 10_000_000, 1e-15),
        (1.0, 0.1, 10_000_000, 1e-15),
        (0.999, 0.1, 1_000, 1e-15),
        (0.5, 1000.0, 10_000_000, 1e-10),
        (1e-3, 100.0, 10_000_000, 1e-12),
    ] {
        let event = DpEvent::dp_sgd_step(q, sigma);
        let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, RELATION));
        ledger.record_many(&event, steps).unwrap();
        let epsilon = ledger.epsilon(delta).unwrap();
        let rdp = RdpAccountant::new([(&event, steps)], RELATION).unwrap().epsilon(delta).unwrap();
        assert!(epsilon.lower >= 0.0 && epsilon.lower <= epsilon.upper, "{epsilon:?}");
        assert!(epsilon.upper <= rdp.upper * (1.0 + 1e-3), "{epsilon:?} {rdp:?}");
    }
}

#[test]
fn sweep_of_extreme_parameters_is_ordered() {
    for sigma in [0.1, 1.0, 1000.0] {
        for q in [1e-7, 1e-3, 1.0] {
            for delta in [1e-2, 1e-15] {
                let mut before = 0.0f64;
                for steps in [1, 1_000, 10_000_000] {
                    let event = DpEvent::dp_sgd_step(q, sigma);
                    let header = LedgerHeader::new(UnitOfPrivacy::Example, RELATION);
                    let mut ledger = PrivacyLedger::new(header);
                    ledger.record_many(&event, steps).unwrap();
                    let epsilon = ledger.epsilon(delta).unwrap();
                    let context = format!("{sigma} {q} {steps} {delta:e}: {epsilon:?}");
                    assert!(epsilon.lower >= 0.0 && epsilon.lower <= epsilon.upper, "{context}");
                    assert!(epsilon.upper >= before * (1.0 - 1e-3), "{context} after {before}");
                    let rdp = RdpAccountant::new([(&event, steps)], RELATION).unwrap();
                    let rdp = rdp.epsilon(delta).unwrap().upper;
                    assert!(epsilon.lower <= rdp * (1.0 + 1e-9), "{context} {rdp}");
                    assert!(epsilon.upper <= rdp * (1.0 + 1e-3) + 1e-12, "{context} {rdp}");
                    before = epsilon.lower;
                }
            }
        }
    }
}

#[test]
fn hardly_any_noise_is_answered_by_the_renyi_bound() {
    for (sigma, steps) in [(0.04, 5), (0.001, 50)] {
        let event = DpEvent::dp_sgd_step(0.05, sigma);
        let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, RELATION));
        ledger.record(&event).unwrap();
        // One release has a closed form.
        let one = ledger.epsilon(1e-5).unwrap();
        ledger.record_many(&event, steps - 1).unwrap();
        let all = ledger.epsilon(1e-5).unwrap();
        // No transform takes part: privacy loss distributions take 20 s for the second.
        assert_eq!((all.method, all.grid), (Method::Rdp, None));
        assert!(all.upper.is_finite() && all.upper > one.upper, "{all:?} {one:?}");
        assert!(all.upper < steps as f64 * one.upper && !all.notes.is_empty(), "{all:?} {one:?}");
    }
}

#[test]
fn sampled_laplace_under_replace_one_is_bounded() {
    let laplace = || DpEvent::Laplace { noise_multiplier: 4.0 };
    let sampled = DpEvent::poisson_sampled(0.1, laplace());
    let replace = NeighboringRelation::ReplaceOne;
    let whole = laplace();
    let plain = bracket(&[(&whole, 20)], replace, 1e-6);
    let got = bracket(&[(&sampled, 20)], replace, 1e-6);
    assert!((got.1 / plain.1 - 1.0).abs() < 1e-12 && got.0 == 0.0, "{got:?} {plain:?}");
    let special = bracket(&[(&sampled, 20)], NeighboringRelation::ReplaceSpecial, 1e-6);
    assert!(special.1 < got.1, "{special:?} {got:?}");
}
