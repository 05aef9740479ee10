//! Comparison with references in 30 digits: sampling with replacement, truncated sampling,
//! repeat-and-select, and releases where a few rare losses decide.
//!
//! `scripts/reference_events.py` (mpmath 1.4.1) computed the numbers, without any discretization.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::excessive_precision)] // References as their script printed them.

use burn_dp_accountant::{
    Accountant, DpEvent, NeighboringRelation, PldAccountant, RdpAccountant, RunCount,
};

/// Sampling probability, noise multiplier, δ, and ε of two releases.
const REFERENCES: [(f64, f64, f64, f64); 2] =
    [(1.2e-7, 0.45, 3e-14, 0.0773704309358), (1.8e-5, 0.8, 4e-10, 0.00508172762078)];

fn with_replacement(dataset_size: u64, sample_size: u64, sigma: f64) -> DpEvent {
    let event = Box::new(DpEvent::gaussian(sigma));
    DpEvent::SampledWithReplacement { dataset_size, sample_size, event }
}

#[test]
fn sampling_with_replacement_has_its_reference_epsilon() {
    for (size, draws, sigma, delta, truth) in
        [(100, 5, 2.0, 1e-5, 3.1717422328323032), (1000, 30, 4.0, 1e-6, 0.42229178990241932)]
    {
        let event = with_replacement(size, draws, sigma);
        let pld = PldAccountant::new([(&event, 1)], NeighboringRelation::ReplaceOne).unwrap();
        let upper = pld.epsilon(delta).unwrap().upper;
        assert!(upper >= truth && upper <= truth * (1.0 + 1e-4), "{event}: {upper} {truth}");
    }
}

#[test]
fn two_releases_with_replacement_have_their_reference_delta() {
    let event = with_replacement(100, 5, 2.0);
    let pld = PldAccountant::new([(&event, 2)], NeighboringRelation::ReplaceOne).unwrap();
    for (epsilon, truth) in
        [(0.5, 0.000918559791066), (1.0, 0.000268642717942), (2.0, 7.86087045555e-5)]
    {
        let upper = pld.delta(epsilon).unwrap().upper;
        let range = truth * (1.0 - 1e-9)..=truth * (1.0 + 2e-4);
        assert!(range.contains(&upper), "{epsilon}: {upper} {truth}");
    }
}

#[test]
fn truncated_sampling_has_its_reference_bracket() {
    for (dataset_size, q, max_batch_size, sigma, delta, lower, upper) in [
        (1000, 0.01, 40, 1.0, 1e-5, 0.19945044633466692, 0.19945044925716257),
        (500, 0.02, 40, 2.0, 1e-6, 0.095254147430118838, 0.095254151451404375),
    ] {
        let event = DpEvent::TruncatedPoissonSampled {
            sampling_probability: q,
            dataset_size,
            max_batch_size,
            event: Box::new(DpEvent::gaussian(sigma)),
        };
        let pld = PldAccountant::new([(&event, 1)], NeighboringRelation::AddOrRemoveOne).unwrap();
        let got = pld.epsilon(delta).unwrap();
        assert!(got.upper >= upper && got.upper <= upper * (1.0 + 1e-4), "{event}: {got:?}");
        assert!(got.lower <= lower && got.lower >= lower * (1.0 - 1e-4), "{event}: {got:?}");
    }
}

#[test]
fn repeat_and_select_has_its_reference_epsilon() {
    let geometric = RunCount::TruncatedNegativeBinomial { mean: 10.0, shape: 1.0 };
    let logarithmic = RunCount::TruncatedNegativeBinomial { mean: 10.0, shape: 0.0 };
    // The truth optimizes the orders continuously and uses the exact δ of one run; the limit is the
    // number of dp_accounting 0.6.0, which uses the Rényi bound of δ for Poisson, as the accountant
    // does.
    for (runs, sigma, truth, limit) in [
        (geometric, 1.0, 8.962790888047464, 8.963971978051392),
        (logarithmic, 5.0, 1.5128502397621864, 1.5132523611735296),
        (RunCount::Poisson { mean: 10.0 }, 5.0, 1.6128163542878494, 1.9804037817028843),
    ] {
        let event = DpEvent::RepeatAndSelect { event: Box::new(DpEvent::gaussian(sigma)), runs };
        let rdp = RdpAccountant::new([(&event, 1)], NeighboringRelation::AddOrRemoveOne).unwrap();
        let upper = rdp.epsilon(1e-6).unwrap().upper;
        let range = truth * (1.0 - 1e-9)..=limit * (1.0 + 1e-4);
        assert!(range.contains(&upper), "{event}: {upper} {truth}");
    }
}

#[test]
fn two_rarely_sampled_releases_have_their_reference_epsilon() {
    for (q, sigma, delta, truth) in REFERENCES {
        let event = DpEvent::dp_sgd_step(q, sigma);
        let pld = PldAccountant::new([(&event, 2)], NeighboringRelation::AddOrRemoveOne).unwrap();
        let got = pld.epsilon(delta).unwrap();
        let slack = 1e-11 * truth;
        assert!(got.lower <= truth + slack && truth - slack <= got.upper, "{event}: {got:?}");
    }
}
