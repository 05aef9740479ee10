//! Repeat-and-select (hyperparameter search) as a pair with bounds on its δ.
//!
//! One run has the distribution `Q` of results on a data set and `Q'` on a neighbor. The results
//! are ordered by their score, ties by an independent random number. Let `K` be the number of runs
//! and `φ(z) = E[z^K]`. The best result has the density `φ'(q) dQ`, where `q = Q(<= y)` is the
//! probability of a result that is not better, hence with `r = dQ/dQ'`, `q' = Q'(<= y)` and
//! `c = e^ε`
//!
//! ```text
//! H_c = E_Q'[(φ'(q) r - c φ'(q'))^+].
//! ```
//!
//! The results that are better than `y` are a test of the two data sets, so the privacy of one run
//! bounds its probability `1 - q'` under `Q'` by a function `g` of its probability `a = 1 - q`
//! under `Q`: `g(a) = min_i min(δ_i + e^{ε_i} a, 1 - e^{-ε_i} (1 - δ_i - a))` for all `(ε_i, δ_i)`
//! of the run. `φ'` increases, and where in the order a result stands may be chosen for each `r`:
//!
//! ```text
//! H_c <= E_Q'[max_a (φ'(1-a) r - c φ'(1-g(a)))^+].
//! ```
//!
//! That is the expectation of a convex function of `r`, which is largest for a pair that dominates
//! the run, and both directions have the same bound if the pair is symmetric. If no run takes
//! place, which both data sets have with one probability, the result is fixed.
//!
//! With `a = 0` in `φ'(1-a)` and one `(ε_1, δ_1)` in `g` it is the bound of Koskela, Redberg, Wang
//! 2024 ("Privacy Profiles for Private Selection"), which shifts ε of all results by the largest
//! `ln φ'(q)/φ'(q')`. Here results that are hardly ever the best have a small weight, and results
//! near the top, which have a large one, have `q` and `q'` near each other.

use super::grid_settings::GridSettings;
use super::profile::profile;
use crate::dominating_pairs::{
    DominatingPairs, LossTable, Pair, dominating_pairs_of, gaussian_shift,
};
use crate::error::AccountantError;
use crate::event::{DpEvent, RunCount};
use crate::gdp::GaussianDp;
use crate::math::envelope::UpperEnvelope;
use crate::math::selection::negative_binomial_gamma;
use crate::relation::NeighboringRelation;

/// Number of bounds on δ of one run and of the search.
const POINTS: usize = 600;

/// δ at which the bounds end.
const LEAST_DELTA: f64 = 1e-14;

/// Change of `ln φ'` within one cell of `a`, which moves ε by at most as much: absolute, or
/// relative to the difference between the data sets, which moves ε as well.
const STEP: f64 = 1e-3;

/// Decrease of `ln φ'` from which one cell holds all results: they are hardly ever the best.
const DEEPEST: f64 = 50.0;

/// Relative margin for rounding.
const ROUNDING: f64 = 1e-9;

/// Returns the dominating pairs of `events`, searches included.
///
/// # Errors
///
/// Returns the errors of [`dominating_pairs_of`], and [`AccountantError::Unsupported`] for a search
/// whose runs have too large privacy losses.
pub(crate) fn pairs_with_searches<'a>(
    events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
    relation: NeighboringRelation,
) -> Result<DominatingPairs, AccountantError> {
    let mut searches = Vec::new();
    let mut others = Vec::new();
    for (event, count) in events {
        event.validate()?;
        event.for_each_part(count, &mut |part, count| {
            match part {
                DpEvent::RepeatAndSelect { event, runs } => {
                    searches.push((event.clone(), *runs, count));
                }
                other => others.push((other.clone(), count)),
            }
            Ok(())
        })?;
    }
    let mut pairs = dominating_pairs_of(others.iter().map(|(e, n)| (e, *n)), relation)?;
    for (run, runs, count) in searches {
        let run = pairs_with_searches([(&*run, 1)], relation)?;
        if let Some(reason) = run.infinite {
            pairs.infinite = Some(reason);
            continue;
        }
        let search = profile_of(run).ok().and_then(|profile| Search::new(&profile, runs));
        let Some(table) = search.and_then(|search| LossTable::of_profile(&search.profile())) else {
            return Err(AccountantError::unsupported(
                "repeat-and-select",
                "the privacy losses of a run are too large for a grid; use RdpAccountant",
            ));
        };
        pairs.push(Pair::Bounded(table), count);
        pairs.loose = true;
        pairs.unattained = true;
    }
    Ok(pairs)
}

/// Returns upper bounds on δ of one run, for ascending ε from 0.
fn profile_of(run: DominatingPairs) -> Result<Vec<(f64, f64)>, AccountantError> {
    let is_gaussian = run.mass_at_infinity == 0.0 && run.total_variation == 0.0;
    let Some(shift) = gaussian_shift(&run.parts).filter(|mu| is_gaussian && *mu > 0.0) else {
        let settings = GridSettings { relative_width: 1e-3, ..GridSettings::default() };
        return profile(&run, POINTS, &settings)
            .ok_or_else(|| AccountantError::numerical("the grid of a run is too large"));
    };
    let run = GaussianDp::new(shift)?;
    let last = run.epsilon(LEAST_DELTA)?;
    let points = (0..POINTS).map(|k| last * k as f64 / (POINTS - 1) as f64);
    points.map(|epsilon| Ok((epsilon, run.delta(epsilon)? * (1.0 + ROUNDING)))).collect()
}

/// The bound on the hockey-stick divergence of one search.
struct Search {
    run: LossTable,
    mean: f64,
    /// `max_a (φ'(1-a) x - φ'(1-g(a)))` as a function of `x = r/c`.
    gain: UpperEnvelope,
    /// Where the bounds of a run end.
    last: f64,
}

impl Search {
    /// Creates the bound of a run with these bounds on δ; `None` if they are too large.
    fn new(profile: &[(f64, f64)], runs: RunCount) -> Option<Self> {
        let run = LossTable::of_profile(profile)?;
        let last = profile.iter().map(|(epsilon, _)| *epsilon).fold(0.0, f64::max);
        let runs = Runs::new(runs);
        let top = Top::new(profile);
        let mut lines = Vec::new();
        let mut cells = vec![(0.0, 1.0)];
        while let Some((low, high)) = cells.pop() {
            let (own, other) = (runs.fall(low), runs.fall(top.of_neighbor(high)));
            let step = STEP * (other - own).max(1.0);
            let is_fine =
                runs.fall(high) - own <= step && other - runs.fall(top.of_neighbor(low)) <= step;
            // Cells below the rounding of `a` cannot be divided.
            if own < DEEPEST && !is_fine && high - low > 1e-300 + 1e-12 * high {
                let middle = if low > 0.0 && high > 2.0 * low {
                    (low * high).sqrt()
                } else {
                    low + 0.5 * (high - low)
                };
                // Ascending slopes: larger `a` first.
                cells.extend([(low, middle), (middle, high)]);
                continue;
            }
            let slope = runs.mean * (-own).exp() * (1.0 + ROUNDING);
            lines.push((slope, -runs.mean * (-other).exp() * (1.0 - ROUNDING)));
        }
        Some(Self { run, mean: runs.mean, gain: UpperEnvelope::new(lines), last })
    }

    /// Returns the upper bound on δ at `epsilon`.
    fn delta(&self, epsilon: f64) -> f64 {
        // Masses under Q' times c, so that nothing overflows.
        let gains = self.run.atoms().iter().map(|(loss, mass)| {
            let ratio = (loss - epsilon).exp();
            if ratio > 0.0 { mass / ratio * self.gain.at(ratio).max(0.0) } else { 0.0 }
        });
        let rest = self.mean * (self.run.infinite() + 1e-15);
        (gains.sum::<f64>() * (1.0 + ROUNDING) + rest).min(1.0)
    }

    /// Returns upper bounds on δ, for ascending ε from 0.
    fn profile(&self) -> Vec<(f64, f64)> {
        // Beyond the losses of a run and the largest change of φ' there are no finite losses.
        let floor = self.delta(f64::MAX.ln()).max(LEAST_DELTA);
        let mut last = self.last.max(1e-3);
        while self.delta(last) > 2.0 * floor && last < 600.0 {
            last *= 1.2;
        }
        let points = (0..POINTS).map(|k| last * k as f64 / (POINTS - 1) as f64);
        points.map(|epsilon| (epsilon, self.delta(epsilon))).collect()
    }
}

/// The largest probability of a set under one data set, from its probability under the other.
struct Top {
    /// Of the negative probability.
    bounds: UpperEnvelope,
}

impl Top {
    fn new(profile: &[(f64, f64)]) -> Self {
        let down = profile.iter().map(|&(epsilon, delta)| (-epsilon.exp(), -delta));
        let up = profile.iter().map(|&(epsilon, delta)| {
            let shrink = (-epsilon).exp();
            (-shrink, (-epsilon).exp_m1() - shrink * delta)
        });
        Self { bounds: UpperEnvelope::new(down.chain(up).collect()) }
    }

    /// Returns an upper bound, at most 1.
    fn of_neighbor(&self, probability: f64) -> f64 {
        (-self.bounds.at(probability) * (1.0 + ROUNDING)).clamp(0.0, 1.0)
    }
}

/// The derivative `φ'` of the generating function of the number of runs.
struct Runs {
    mean: f64,
    kind: Kind,
}

enum Kind {
    One,
    Poisson,
    NegativeBinomial { gamma: f64, shape: f64 },
}

impl Runs {
    fn new(runs: RunCount) -> Self {
        let mean = runs.mean();
        match runs {
            RunCount::Poisson { .. } => Self { mean, kind: Kind::Poisson },
            RunCount::TruncatedNegativeBinomial { mean, shape } => {
                match negative_binomial_gamma(mean, shape) {
                    Some(gamma) => Self { mean, kind: Kind::NegativeBinomial { gamma, shape } },
                    None => Self { mean: 1.0, kind: Kind::One },
                }
            }
        }
    }

    /// Returns `ln φ'(1) - ln φ'(1-a)`; `φ'(1)` is the mean.
    fn fall(&self, a: f64) -> f64 {
        match self.kind {
            Kind::One => 0.0,
            Kind::Poisson => self.mean * a,
            Kind::NegativeBinomial { gamma, shape } => {
                (shape + 1.0) * ((1.0 - gamma) * a / gamma).ln_1p()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::accountant::Accountant;
    use crate::math::random::Generator;
    use crate::pld::PldAccountant;
    use crate::rdp::RdpAccountant;

    const RELATION: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

    const COUNTS: [RunCount; 6] = [
        RunCount::Poisson { mean: 0.5 },
        RunCount::Poisson { mean: 8.0 },
        RunCount::TruncatedNegativeBinomial { mean: 10.0, shape: 1.0 },
        RunCount::TruncatedNegativeBinomial { mean: 4.0, shape: 0.0 },
        RunCount::TruncatedNegativeBinomial { mean: 2.0, shape: -0.5 },
        RunCount::TruncatedNegativeBinomial { mean: 5.0, shape: 3.0 },
    ];

    /// Returns `Σ (p_i - c q_i)^+`.
    fn divergence(p: &[f64], q: &[f64], c: f64) -> f64 {
        p.iter().zip(q).map(|(p, q)| (p - c * q).max(0.0)).sum()
    }

    /// Returns the distribution of the largest of a random number of values, from the probabilities
    /// of a run's values in ascending order: the definition, without generating functions.
    fn of_the_best(values: &[f64], probabilities: &[f64]) -> Vec<f64> {
        let at_most = |end: usize| {
            let each: f64 = values[..end].iter().sum();
            let powers = (0..).map(|k| each.powi(k));
            probabilities.iter().zip(powers).map(|(p, power)| p * power).sum::<f64>()
        };
        (0..values.len()).map(|i| at_most(i + 1) - at_most(i)).collect()
    }

    #[test]
    fn the_bound_is_above_every_order_of_the_results_of_random_mechanisms() {
        let mut generator = Generator::new(5, 0);
        let mut nearest = f64::INFINITY;
        for round in 0..45 {
            let size = 2 + round % 3;
            let mut distribution = || {
                let raw: Vec<f64> = (0..size).map(|_| generator.normal().exp()).collect();
                let sum: f64 = raw.iter().sum();
                raw.iter().map(|x| x / sum).collect::<Vec<f64>>()
            };
            let (p, q) = (distribution(), distribution());
            let mut losses: Vec<f64> = p.iter().zip(&q).map(|(p, q)| (p / q).ln().abs()).collect();
            losses.push(0.0);
            losses.sort_by(f64::total_cmp);
            let delta = |c: f64| divergence(&p, &q, c).max(divergence(&q, &p, c));
            let profile: Vec<(f64, f64)> = losses.iter().map(|&l| (l, delta(l.exp()))).collect();
            for runs in COUNTS {
                let search = Search::new(&profile, runs).unwrap();
                let probabilities: Vec<f64> = (0..150).map(|k| runs.probability(k)).collect();
                for order in 0..(1..=size).product() {
                    let (mut left, mut code) = ((0..size).collect::<Vec<_>>(), order);
                    let order: Vec<usize> = (1..=size)
                        .rev()
                        .map(|n| {
                            let next = left.remove(code % n);
                            code /= n;
                            next
                        })
                        .collect();
                    let ordered = |x: &[f64]| order.iter().map(|&i| x[i]).collect::<Vec<_>>();
                    let best = |x: &[f64]| of_the_best(&ordered(x), &probabilities);
                    let (p, q) = (best(&p), best(&q));
                    for epsilon in [0.0, 0.2, 0.7, 1.5, 3.0] {
                        let c = f64::exp(epsilon);
                        let truth = divergence(&p, &q, c).max(divergence(&q, &p, c));
                        let bound = search.delta(epsilon);
                        assert!(bound >= truth - 1e-9, "{runs:?} {epsilon}: {bound} {truth}");
                        if bound < 1.0 && truth > 1e-3 {
                            nearest = nearest.min(bound / truth);
                        }
                    }
                }
            }
        }
        // Some order of some mechanism is nearly as bad as the bound.
        assert!(nearest < 1.1, "{nearest}");
    }

    #[test]
    fn one_run_costs_what_it_costs_and_more_runs_cost_more() {
        let upper = |mean: f64| {
            let event = Box::new(DpEvent::gaussian(1.5));
            let search = DpEvent::RepeatAndSelect { event, runs: RunCount::geometric(mean) };
            PldAccountant::new([(&search, 1)], RELATION).unwrap().epsilon(1e-6).unwrap().upper
        };
        let alone = GaussianDp::new(1.0 / 1.5).unwrap().epsilon(1e-6).unwrap();
        assert!(upper(1.0) >= alone && upper(1.0) < 1.002 * alone, "{} {alone}", upper(1.0));
        let costs = [1.0, 1.5, 4.0, 20.0, 300.0].map(upper);
        assert!(costs.is_sorted(), "{costs:?}");
    }

    /// Returns the largest δ of a search whose score is the released Gaussian value itself, by
    /// quadrature.
    fn attained(shift: f64, runs: RunCount, epsilon: f64) -> f64 {
        let runs = Runs::new(runs);
        let (width, c) = (1e-3, epsilon.exp());
        let mut sums = [0.0; 4];
        for k in -9_000..(9_000 + (shift / width) as i64) {
            let x = k as f64 * width;
            let density = |mean: f64| (-0.5 * (x - mean).powi(2)).exp() * 0.398_942_280_401_432_7;
            let best = |mean: f64, sign: f64| {
                let better = crate::math::normal::cdf(sign * (mean - x));
                runs.mean * (-runs.fall(better)).exp() * density(mean)
            };
            for (sign, index) in [(1.0, 0), (-1.0, 2)] {
                let (with, without) = (best(shift, sign), best(0.0, sign));
                sums[index] += (with - c * without).max(0.0) * width;
                sums[index + 1] += (without - c * with).max(0.0) * width;
            }
        }
        sums.into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn the_bound_is_between_an_attained_value_and_the_renyi_bound() {
        let mut gains = Vec::new();
        for (sigma, runs) in [
            (1.0, RunCount::geometric(10.0)),
            (5.0, RunCount::logarithmic(100.0)),
            (3.0, RunCount::TruncatedNegativeBinomial { mean: 20.0, shape: 2.0 }),
            (2.0, RunCount::Poisson { mean: 10.0 }),
        ] {
            let event = Box::new(DpEvent::gaussian(sigma));
            let search = DpEvent::RepeatAndSelect { event, runs };
            let pld = PldAccountant::new([(&search, 1)], RELATION).unwrap();
            let (found, delta) = (pld.epsilon(1e-5).unwrap(), 1e-5);
            assert_eq!((found.lower, found.estimate), (0.0, found.upper));
            assert!(attained(1.0 / sigma, runs, 0.5 * found.upper) > delta);
            assert!(attained(1.0 / sigma, runs, found.upper) <= delta, "{runs:?}");
            let renyi = RdpAccountant::new([(&search, 1)], RELATION).unwrap();
            gains.push(found.upper / renyi.epsilon(delta).unwrap().upper);
        }
        assert!(gains.iter().all(|gain| *gain < 1.0) && gains[0] < 0.8, "{gains:?}");
    }

    #[test]
    fn searches_compose_with_each_other_and_with_other_releases() {
        let runs = RunCount::geometric(3.0);
        let run = DpEvent::self_composed(DpEvent::dp_sgd_step(0.02, 1.5), 100);
        let search = DpEvent::RepeatAndSelect { event: Box::new(run), runs };
        let other = DpEvent::gaussian(4.0);
        let upper = |events: &[(&DpEvent, u64)]| {
            let pld = PldAccountant::new(events.iter().copied(), RELATION).unwrap();
            pld.epsilon(1e-5).unwrap().upper
        };
        let (one, alone) = (upper(&[(&search, 1)]), upper(&[(&other, 1)]));
        let both = upper(&[(&search, 1), (&other, 1)]);
        assert!(both > one && both < one + alone, "{both} {one} {alone}");
        let twice = upper(&[(&search, 2)]);
        assert!(twice > one && twice < 2.0 * one, "{twice} {one}");
        // Sampling with replacement has no Rényi bound, but a search of it has this one.
        let drawn = DpEvent::SampledWithReplacement {
            dataset_size: 1_000,
            sample_size: 20,
            event: Box::new(DpEvent::gaussian(2.0)),
        };
        let run = Box::new(DpEvent::self_composed(drawn, 50));
        let search = DpEvent::RepeatAndSelect { event: run, runs };
        let relation = NeighboringRelation::ReplaceOne;
        assert!(RdpAccountant::new([(&search, 1)], relation).is_err());
        let pld = PldAccountant::new([(&search, 1)], relation).unwrap();
        assert!(pld.epsilon(1e-5).unwrap().upper < 10.0);
        let leak = DpEvent::RepeatAndSelect { event: Box::new(DpEvent::NonPrivate), runs };
        let pld = PldAccountant::new([(&leak, 1)], relation).unwrap();
        assert!(pld.epsilon(1e-5).unwrap().upper.is_infinite());
    }
}
