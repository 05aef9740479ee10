//! The area under the ROC curve, and the true positive rate at a small false positive rate.

use super::band::Band;
use super::binomial::upper_limit;
use super::scores::{AuditScores, Errors};

/// Returns the area under the empirical ROC curve: the probability that an included canary has a
/// higher score than an excluded one, ties counting one half (Mann and Whitney).
pub(super) fn area(scores: &AuditScores) -> f64 {
    let excluded = scores.excluded();
    let wins = scores.included().iter().map(|&score| {
        let below = excluded.partition_point(|&other| other < score);
        let not_above = excluded.partition_point(|&other| other <= score);
        (below + not_above) as f64
    });
    let pairs = scores.included().len() as f64 * excluded.len() as f64;
    wins.sum::<f64>() / (2.0 * pairs)
}

/// Returns a lower limit of the area under the true ROC curve: the area under the steps that the
/// limits of both error rates allow.
pub(super) fn area_lower(thresholds: &[Errors], misses: &Band, false_alarms: &Band) -> f64 {
    // From the highest threshold to the lowest, both limits move one way.
    let mut area = 0.0;
    let mut hit_rate = 0.0f64;
    let mut last = 0.0;
    for errors in thresholds.iter().rev() {
        let rate = false_alarms.limit(errors.false_alarms);
        area += hit_rate * (rate - last);
        last = rate;
        hit_rate = hit_rate.max(1.0 - misses.limit(errors.misses));
    }
    area + hit_rate * (1.0 - last)
}

/// Returns the ε at which the largest area is `area`: by (ε, δ) no ROC curve has an area above
/// `1 - (1 - δ)² / (1 + e^ε)`, the area above the trade-off function of (ε, δ).
pub(super) fn epsilon_of_area(area: f64, delta: f64) -> f64 {
    let odds = (1.0 - delta).powi(2) / (1.0 - area) - 1.0;
    if odds > 1.0 { odds.ln() * (1.0 - 1e-12) } else { 0.0 }
}

/// The true positive rate at a threshold with at most a given share of false positives.
pub(super) struct RateAt {
    /// Empirical true positive rate.
    pub(super) rate: f64,
    /// Lower limit of the true positive rate.
    pub(super) rate_lower: f64,
    pub(super) epsilon_lower: f64,
}

/// Returns the rate of the included canaries above the excluded canary of rank `⌊fpr n⌋ + 1`. That
/// rank is fixed, and the threshold depends only on the excluded canaries, so one limit for each of
/// the two rates is enough.
pub(super) fn rate_at(
    scores: &AuditScores,
    false_positive_rate: f64,
    delta: f64,
    significance: f64,
) -> RateAt {
    let (included, excluded) = (scores.included(), scores.excluded());
    let allowed = (false_positive_rate * excluded.len() as f64) as usize;
    let misses = match excluded.len().checked_sub(allowed + 1) {
        Some(rank) => included.partition_point(|&score| score <= excluded[rank]),
        None => 0,
    };
    let limit = |count: usize, of: usize| upper_limit(count as u64, of as u64, 0.5 * significance);
    let rate_lower = 1.0 - limit(misses, included.len());
    let false_rate = limit(allowed.min(excluded.len()), excluded.len());
    let hits = rate_lower - delta;
    let epsilon_lower =
        if hits > 0.0 { ((hits / false_rate).ln() * (1.0 - 1e-12)).max(0.0) } else { 0.0 };
    let rate = 1.0 - misses as f64 / included.len() as f64;
    RateAt { rate, rate_lower, epsilon_lower }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn scores(included: &[f64], excluded: &[f64]) -> AuditScores {
        AuditScores::new(included.to_vec(), excluded.to_vec()).unwrap()
    }

    #[test]
    fn the_area_counts_pairs_and_half_of_the_ties() {
        assert_eq!(area(&scores(&[1.0, 2.0], &[0.0])), 1.0);
        assert_eq!(area(&scores(&[0.0; 3], &[0.0; 2])), 0.5);
        assert_eq!(area(&scores(&[0.0, 1.0], &[0.0, 2.0])), 0.375);
        // Row p046 (jax_doc) of golden/auditing.json, `auroc_mann_whitney`.
        let out: Vec<f64> = (0..100).map(f64::from).collect();
        let shifted: Vec<f64> = out.iter().map(|score| score + 9.5).collect();
        assert!((area(&scores(&shifted, &out)) - 0.5905).abs() < 1e-12);
    }

    #[test]
    fn the_lower_area_is_below_the_area_and_close_for_many_scores() {
        let list = |from: usize| (0..2000).map(|i| (i + from) as f64).collect::<Vec<_>>();
        let scores = scores(&list(800), &list(0));
        let band = Band::new(2000, 0.025);
        let lower = area_lower(&scores.thresholds(), &band, &band);
        let area = area(&scores);
        assert!(lower < area && lower > area - 0.06, "{lower} {area}");
    }

    #[test]
    fn the_largest_area_is_that_of_the_trade_off_function() {
        // Riemann sum of max(1 - δ - e^ε α, e^-ε (1 - δ - α), 0).
        let (epsilon, delta) = (1.3f64, 0.02);
        let steps = 200_000;
        let below: f64 = (0..steps)
            .map(|i| {
                let alpha = (f64::from(i) + 0.5) / f64::from(steps);
                let left = 1.0 - delta - epsilon.exp() * alpha;
                left.max((-epsilon).exp() * (1.0 - delta - alpha)).max(0.0)
            })
            .sum();
        let area = 1.0 - below / f64::from(steps);
        assert!((epsilon_of_area(area, delta) - epsilon).abs() < 1e-4);
        assert_eq!(epsilon_of_area(0.5, 0.0), 0.0);
        assert_eq!(epsilon_of_area(0.3, 0.1), 0.0);
    }

    #[test]
    fn the_rate_is_taken_above_a_fixed_rank() {
        // 100 excluded scores; one may be above the threshold.
        let out: Vec<f64> = (0..100).map(f64::from).collect();
        let found = rate_at(&scores(&[97.5, 98.0, 98.5, 200.0], &out), 0.01, 0.0, 0.05);
        assert_eq!(found.rate, 0.5);
        assert!(found.rate_lower < 0.5);
        // Equal scores are never above each other.
        assert_eq!(rate_at(&scores(&[0.0; 9], &[0.0; 9]), 0.01, 0.0, 0.05).rate, 0.0);
        // All may be above.
        assert_eq!(rate_at(&scores(&[0.0; 9], &[0.0; 9]), 1.0, 0.0, 0.05).rate, 1.0);
        assert_eq!(rate_at(&scores(&[0.0; 9], &[0.0; 9]), 1.0, 0.0, 0.05).epsilon_lower, 0.0);
    }
}
