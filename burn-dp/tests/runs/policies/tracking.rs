//! Estimates find the quantiles and means of a known distribution.

use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Tensor, TensorData};
use burn_dp::clipping::{
    Clipping, CountNoise, FlatClipping, QuantileClipping, QuantileRule, QuantileTracker,
};
use burn_dp::model::ParameterGroups;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;

use super::layers;
use crate::fixtures::{Net, device, train_on, values};

/// A model whose gradient on `x` is `x`.
fn identity() -> Private<Linear> {
    let device = device();
    let mut layer = LinearConfig::new(1, 1).with_bias(false).init(&device);
    layer.weight = layer.weight.map(|w| w.zeros_like().require_grad());
    layer.private()
}

/// Quantile `p` of an exponential distribution with mean 1.
fn exponential(p: f64) -> f64 {
    -(1.0 - p).ln()
}

/// Follows the norms of exponentially distributed gradients; the estimates after each round.
fn follow(clipping: impl Clipping + 'static, rounds: u64, sigma: f64, lr: f64) -> Vec<Vec<f64>> {
    const UNITS: usize = 2000;
    let plan = PrivacyPlanConfig::new(UNITS, 200.0)
        .with_steps(rounds)
        .with_noise_multiplier(sigma)
        .with_clipping(clipping)
        .with_insecure_seed(InsecureSeed(11))
        .init()
        .unwrap();
    let sampler = plan.sampler().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = identity();
    let norms: Vec<f32> =
        (0..UNITS).map(|i| exponential((i as f64 + 0.5) / UNITS as f64) as f32).collect();
    let mut path = Vec::new();
    for step in 0..rounds {
        let draw = sampler.draw(step).unwrap();
        optim
            .backward(&model, &draw, |model, units| {
                let rows: Vec<f32> = units.iter().map(|&unit| norms[unit]).collect();
                let x = TensorData::new(rows, [units.len(), 1]);
                model.forward(Tensor::<2>::from_data(x, &device())).reshape([-1])
            })
            .unwrap();
        model = optim.step(lr, model, draw).unwrap();
        path.push(optim.plan().clipping().adapted().into_iter().map(|(_, value)| value).collect());
    }
    assert_eq!(optim.ledger().releases(), rounds);
    path
}

/// Fraction of the distribution below the estimate.
fn fraction(value: f64) -> f64 {
    1.0 - (-value).exp()
}

#[test]
fn the_geometric_rule_finds_a_distant_median_in_100_rounds() {
    for start in [1e-3, 1e3] {
        let truth = exponential(0.5);
        let clipping = QuantileClipping::new(0.5).unwrap().with_initial(start * truth).unwrap();
        let path = follow(clipping, 200, 1.0, 0.0);
        let found = path[99][0];
        assert!((fraction(found) - 0.5).abs() < 0.1, "from {start}: {found} after 100 rounds");
        // Afterwards it does not move: the mean over 100 rounds is within three percent of the
        // units.
        let mean = path[100..].iter().map(|at| fraction(at[0])).sum::<f64>() / 100.0;
        assert!((mean - 0.5).abs() < 0.03, "from {start}: {mean}");
    }
}

#[test]
fn both_rules_follow_any_quantile_with_noisy_counts() {
    for rule in [QuantileRule::Geometric, QuantileRule::Linear] {
        for target in [0.1, 0.5, 0.9] {
            let clipping = QuantileClipping::new(target).unwrap().with_initial(1.0).unwrap();
            let path = follow(clipping.with_rule(rule), 400, 1.0, 0.0);
            let mean = path[200..].iter().map(|at| fraction(at[0])).sum::<f64>() / 200.0;
            assert!((mean - target).abs() < 0.03, "{rule:?} {target}: {mean}");
        }
    }
}

#[test]
fn a_threshold_follows_the_slack_that_costs_nothing() {
    // The mean slack of an exponential distribution.
    let slack = |c: f64| {
        let at = |k: u32| (f64::from(k) + 0.5) / 1_000.0;
        let terms = (0..1_000).map(|k| (-c * at(k)).exp() * (1.0 - at(k) * at(k)).sqrt());
        terms.sum::<f64>() * c / 1_000.0
    };
    for target in [0.2, 0.6] {
        let clipping = QuantileClipping::by_slack(target).unwrap().with_initial(30.0).unwrap();
        let path = follow(clipping, 300, 1.0, 0.0);
        let mean = path[150..].iter().map(|at| slack(at[0])).sum::<f64>() / 150.0;
        assert!((mean - target).abs() < 0.03, "{target}: {mean}");
    }
}

#[test]
fn a_tracker_alone_estimates_quantiles_and_keeps_the_model() {
    let quantiles = [0.1, 0.5, 0.9];
    let tracker = QuantileTracker::new(ParameterGroups::whole(), quantiles).unwrap();
    let path = follow(tracker, 300, 5.0, 1.0);
    for (index, target) in quantiles.into_iter().enumerate() {
        let mean = path[150..].iter().map(|at| fraction(at[index])).sum::<f64>() / 150.0;
        assert!((mean - target).abs() < 0.03, "{target}: {mean}");
    }
    let mut optim = PrivacyPlanConfig::new(200, 20.0)
        .with_steps(3)
        .with_noise_multiplier(1.0)
        .with_clipping(QuantileTracker::new(layers(), [0.5]).unwrap())
        .with_insecure_seed(InsecureSeed(5))
        .init()
        .unwrap()
        .optimizer(SgdConfig::new().init());
    let before = values(&Net::new());
    let model = train_on(&mut optim, Net::new(), 3, 7);
    assert_eq!(values(&model), before);
    assert_eq!(optim.ledger().releases(), 3);
    assert!(optim.gradient_noise_std("first.bias").is_err());
}

#[test]
fn a_tracker_with_a_policy_finds_the_mean_norm() {
    let tracker = QuantileTracker::new(ParameterGroups::whole(), [0.95]).unwrap().with_means();
    let tracker = tracker.with_clipping(FlatClipping::new(1.0).unwrap(), CountNoise::Share(0.5));
    let path = follow(tracker, 300, 1.0, 0.0);
    assert!(path.iter().all(|estimates| estimates.len() == 2));
    let mean = path[150..].iter().map(|at| at[1]).sum::<f64>() / 150.0;
    // Norms with mean 1, cut at twice their 0.95 quantile: 1 - exp(-6).
    assert!((mean - 1.0).abs() < 0.05, "{mean}");
}
