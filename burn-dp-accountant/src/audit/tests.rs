//! All estimators: edge cases, and how often a bound is wrong.

#![allow(clippy::unwrap_used)]

use super::{Audit, AuditScores, Estimator, ThresholdRule};
use crate::math::normal;

/// Uniform numbers in (0, 1) by SplitMix64.
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) * 2f64.powi(-53)
    }

    fn normal(&mut self) -> f64 {
        normal::quantile(self.next())
    }
}

/// Scores of the Gaussian mechanism with `mu`, a fair coin for each canary.
fn gaussian(canaries: usize, mu: f64, seed: u64) -> AuditScores {
    let mut random = Uniform(seed);
    let (mut included, mut excluded) = (Vec::new(), Vec::new());
    for _ in 0..canaries {
        if random.next() < 0.5 {
            included.push(random.normal() + mu);
        } else {
            excluded.push(random.normal());
        }
    }
    AuditScores::new(included, excluded).unwrap()
}

/// Scores of randomized response: the coin, correct with probability `e^ε / (1 + e^ε)`. No
/// mechanism with this ε and δ = 0 is easier to attack.
fn randomized_response(canaries: usize, epsilon: f64, seed: u64) -> AuditScores {
    let mut random = Uniform(seed);
    let right = 1.0 / (1.0 + (-epsilon).exp());
    let (mut included, mut excluded) = (Vec::new(), Vec::new());
    for _ in 0..canaries {
        let is_in = random.next() < 0.5;
        let says_in = (random.next() < right) == is_in;
        // A meaningless confidence breaks the ties.
        let score = (if says_in { 1.0 } else { -1.0 }) * (1.0 + random.next());
        if is_in { included.push(score) } else { excluded.push(score) }
    }
    AuditScores::new(included, excluded).unwrap()
}

/// Returns how often a bound exceeds the truth: `wrong[i]` for estimate i.
fn wrong_bounds(
    trials: u64,
    delta: f64,
    truth: f64,
    scores: impl Fn(u64) -> AuditScores,
) -> Vec<(Estimator, u64)> {
    let mut wrong: Vec<(Estimator, u64)> = Vec::new();
    for seed in 0..trials {
        let scores = scores(seed);
        for (i, estimate) in Audit::new(&scores, delta).unwrap().estimates().iter().enumerate() {
            if wrong.len() == i {
                wrong.push((estimate.estimator, 0));
            }
            wrong[i].1 += u64::from(estimate.epsilon_lower > truth);
        }
    }
    wrong
}

#[test]
fn bounds_of_the_gaussian_mechanism_are_wrong_as_rarely_as_stated() {
    // With an error rate of 5 %, more than 23 of 200 have a probability of 1e-4.
    let truth = crate::GaussianDp::new(1.0).unwrap().epsilon(1e-5).unwrap();
    for (estimator, wrong) in wrong_bounds(200, 1e-5, truth, |seed| gaussian(100, 1.0, seed)) {
        assert!(wrong <= 23, "{estimator:?}: {wrong}");
    }
}

#[test]
fn bounds_of_randomized_response_are_wrong_as_rarely_as_stated() {
    let scores = |seed| randomized_response(60, 1.0, 1_000_000 + seed);
    for (estimator, wrong) in wrong_bounds(200, 0.0, 1.0, scores) {
        assert!(wrong <= 23, "{estimator:?}: {wrong}");
        if estimator == Estimator::OneRun {
            // The level is used.
            assert!(wrong >= 2, "{wrong}");
        }
    }
}

#[test]
fn a_split_is_as_rarely_wrong_as_stated_whatever_its_seed() {
    // With an error rate of 5 %, more than 31 of 300 have a probability of 1e-4. A split of the
    // sorted scores was wrong in 12 % and 16 % with these seeds.
    for (seed, epsilon) in [(19, 1.0), (63, 2.0)] {
        let wrong = (0..300).filter(|trial| {
            let scores = randomized_response(200, epsilon, 7_000_000 + trial);
            let audit = Audit::new(&scores, 0.0).unwrap();
            let split = ThresholdRule::Split { seed };
            audit.with_threshold_rule(split).unwrap().clopper_pearson().epsilon_lower > epsilon
        });
        let wrong = wrong.count();
        assert!(wrong <= 31, "{seed}: {wrong}");
    }
}

#[test]
fn bounds_of_many_canaries_are_close_to_the_truth() {
    let scores = gaussian(2000, 1.0, 5);
    let audit = Audit::new(&scores, 1e-5).unwrap();
    let truth = crate::GaussianDp::new(1.0).unwrap().epsilon(1e-5).unwrap();
    for (estimate, least) in [
        (audit.gdp(), 0.65),
        (audit.one_run_fdp(), 0.5),
        (audit.clopper_pearson(), 0.2),
        (audit.one_run(), 0.15),
        (audit.auc(), 0.15),
    ] {
        let share = estimate.epsilon_lower / truth;
        assert!(share >= least && share <= 1.0, "{estimate:?}: {share}");
    }
}

#[test]
fn separated_scores_reach_the_closed_form_of_one_run() {
    // EQUATIONS: 100 of 100 right at δ = 0 and 95 % give 3.492965.
    let scores = AuditScores::new(vec![1.0; 50], vec![0.0; 50]).unwrap();
    let found = Audit::new(&scores, 0.0).unwrap().one_run().epsilon_lower;
    assert!((found - 3.492_965_431).abs() < 1e-4 && found <= 3.492_965_432, "{found}");
}

#[test]
fn equal_scores_show_nothing() {
    for (included, excluded) in [(1, 1), (50, 50), (500, 3)] {
        let scores = AuditScores::new(vec![2.0; included], vec![2.0; excluded]).unwrap();
        for estimate in Audit::new(&scores, 1e-5).unwrap().estimates() {
            assert_eq!(estimate.epsilon_lower, 0.0, "{estimate:?}");
        }
    }
}

#[test]
fn scores_of_the_wrong_sign_show_nothing() {
    let scores = AuditScores::new(vec![0.0; 200], vec![1.0; 200]).unwrap();
    for estimate in Audit::new(&scores, 1e-5).unwrap().estimates() {
        assert_eq!(estimate.epsilon_lower, 0.0, "{estimate:?}");
    }
}

#[test]
fn each_bound_is_finite_and_serializable_at_delta_zero() {
    let scores =
        AuditScores::new(vec![f64::INFINITY, 3.0, 2.0], vec![f64::NEG_INFINITY, 0.0]).unwrap();
    for estimate in Audit::new(&scores, 0.0).unwrap().estimates() {
        assert!(estimate.epsilon_lower.is_finite(), "{estimate:?}");
        let json = serde_json::to_value(&estimate).unwrap();
        for name in ["estimator", "epsilon_lower", "significance", "threshold_rule"] {
            assert!(!json[name].is_null(), "{name} in {json}");
        }
    }
}

#[test]
fn a_smaller_significance_never_raises_a_bound() {
    let scores = gaussian(400, 2.0, 3);
    let bounds = |significance| {
        let audit = Audit::new(&scores, 1e-5).unwrap().with_significance(significance).unwrap();
        audit.estimates().into_iter().map(|estimate| estimate.epsilon_lower).collect::<Vec<_>>()
    };
    let (strict, usual) = (bounds(1e-4), bounds(0.05));
    assert!(strict.iter().zip(&usual).all(|(strict, usual)| strict <= usual));
    assert!(usual.iter().all(|&bound| bound > 0.0), "{usual:?}");
}

#[test]
fn a_large_delta_leaves_less_to_show_and_all_canaries_are_guessed() {
    let scores = gaussian(400, 3.0, 3);
    let at = |delta| Audit::new(&scores, delta).unwrap().one_run();
    let (small, large) = (at(1e-6), at(1e-4));
    assert!(small.threshold_rule.contains("all numbers of guesses"), "{small:?}");
    assert!(large.threshold_rule.contains("all canaries"), "{large:?}");
    assert!(small.epsilon_lower > large.epsilon_lower && large.epsilon_lower > 0.5);
}

#[test]
fn each_threshold_rule_is_declared() {
    let scores = gaussian(400, 3.0, 3);
    for (rule, word) in [
        (ThresholdRule::All, "order statistic"),
        (ThresholdRule::Split { seed: 3 }, "seed 3"),
        (ThresholdRule::Fixed { threshold: 1.5 }, "1.5"),
    ] {
        let audit = Audit::new(&scores, 1e-5).unwrap().with_threshold_rule(rule).unwrap();
        let estimate = audit.clopper_pearson();
        assert!(estimate.threshold_rule.contains(word), "{estimate:?}");
        assert!(estimate.epsilon_lower > 1.0, "{estimate:?}");
    }
    let nan = ThresholdRule::Fixed { threshold: f64::NAN };
    assert!(Audit::new(&scores, 1e-5).unwrap().with_threshold_rule(nan).is_err());
}
