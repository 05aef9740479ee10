//! The accountant that draws privacy losses.

use super::confidence::check_failure_probability;
use super::losses::{SampledLosses, ln_largest, plain_epsilon, tilt};
use super::pairs::LARGEST_POWER;
use super::sources::{Scratch, Sources};
use crate::accountant::Accountant;
use crate::domain::{check_delta, check_epsilon};
use crate::dominating_pairs::{Direction, DominatingPairs};
use crate::epsilon::{DeltaBracket, Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::math::random::Generator;
use crate::pld;
use crate::relation::NeighboringRelation;
use crate::threads;

/// Maximum number of random numbers in one estimate.
const MOST_WORK: f64 = 2e10;

/// Number of losses from one stream of random numbers, so that the result does not depend on the
/// number of threads.
const BLOCK: usize = 4096;

/// Number of values of ε that are verified on fresh losses.
const CANDIDATES: usize = 128;

/// Ratio of two consecutive values.
const GROWTH: f64 = 1.01;

/// Number of random streams of a block.
const STREAMS: u64 = 8;

/// Estimates δ from random privacy losses of the whole composition, for participations and
/// correlated noise without a tight certified bound ([`DpEvent::Patterned`],
/// [`DpEvent::GaussianMixture`], several random steps of [`DpEvent::RandomAllocation`]).
///
/// `upper` holds except with the failure probability over the random losses, by a one-sided
/// Chernoff bound with the relative entropy. The failure probability is part of δ: at an ε, `upper`
/// is the bound on δ plus the failure probability. `lower` is 0 and `estimate` is the plain mean. A
/// note states the number of losses, the seed and the failure probability. Equal seeds lead to
/// equal answers on every machine with the same floating-point functions.
///
/// A δ far below `20 / samples` needs more samples: `upper` is then infinite. Balls in bins, even
/// with Gaussian and Poisson-sampled releases, are drawn from a power of the likelihood ratio,
/// whose weights are bounded: they need far fewer samples for the same δ (the proof is in the
/// source, next to the losses).
///
/// # References
///
/// "A Randomized Approach for Tight Privacy Accounting", Wang et al. 2023.
#[derive(Debug, Clone)]
pub struct MonteCarloAccountant {
    sources: Sources,
    samples: usize,
    seed: u64,
    failure_probability: f64,
    one_of: Option<OneOfMany>,
}

/// Answers that hold together except with the failure probability.
#[derive(Debug, Clone)]
pub(super) struct OneOfMany {
    pub(super) answers: u64,
    /// The public seed, which the seed of each answer is derived from.
    pub(super) seed: u64,
    /// Certified pairs of the same events. Their direction "add" may make its losses unnecessary.
    pub(super) pairs: Option<DominatingPairs>,
}

impl MonteCarloAccountant {
    /// Sets the number of random losses of each direction, at least 1,000. The default is a
    /// million.
    pub fn with_samples(mut self, samples: usize) -> Self {
        self.samples = samples.max(1_000);
        self
    }

    /// Sets the seed; the default is 0. Choose it before the first answer is seen: the best of
    /// several seeds is not a bound.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the probability that the bound fails, which is added to δ; the default is 1e-9.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if it is not between 0 and 1.
    pub fn with_failure_probability(mut self, probability: f64) -> Result<Self, AccountantError> {
        check_failure_probability(probability)?;
        self.failure_probability = probability;
        Ok(self)
    }

    /// Creates the accountant of sources with the default numbers.
    pub(super) fn of(sources: Sources, one_of: Option<OneOfMany>) -> Self {
        Self { sources, samples: 1_000_000, seed: 0, failure_probability: 1e-9, one_of }
    }

    /// Returns an error if the losses take too many random numbers.
    fn check_work(&self) -> Result<(), AccountantError> {
        let work = self.sources.work() * 2.0 * self.samples as f64;
        if work <= MOST_WORK {
            return Ok(());
        }
        Err(AccountantError::unsupported(
            format!("{} samples of the privacy loss", self.samples),
            format!(
                "they need about {work:.1e} random numbers, more than {MOST_WORK:.0e}; use fewer \
                 samples, or PldAccountant"
            ),
        ))
    }

    /// Draws `count` losses from separate random streams for each `purpose`.
    fn draw(&self, direction: Direction, power: u32, purpose: u64, count: usize) -> SampledLosses {
        let blocks = count.div_ceil(BLOCK);
        let kind = 2 * purpose + u64::from(direction == Direction::Add);
        let mut values = vec![0.0; count];
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let share = blocks.div_ceil(4 * threads).max(1) * BLOCK;
        let parts = values.chunks_mut(share).enumerate().collect();
        threads::share(parts, threads, |(part, chunk): (usize, &mut [f64])| {
            let mut scratch = Scratch::default();
            for (i, block) in chunk.chunks_mut(BLOCK).enumerate() {
                let stream = (part * share / BLOCK + i) as u64;
                let mut generator = Generator::new(self.seed, STREAMS * stream + kind);
                block.fill_with(|| {
                    self.sources.loss(direction, power, &mut generator, &mut scratch)
                });
            }
        });
        // No losses are drawn from a power without a moment.
        let ln_moment = self.sources.ln_moment(power).unwrap_or(f64::INFINITY);
        SampledLosses::new(values, power, ln_moment)
    }

    /// Returns the power of the likelihood ratio whose terms have the smallest bound at `epsilon`.
    fn best_power(&self, epsilon: f64) -> u32 {
        let ln_bound = |power: u32| {
            self.sources.ln_moment(power).map(|ln| ln_largest(power) + ln - tilt(power) * epsilon)
        };
        let powers = (1..=LARGEST_POWER).filter_map(|power| Some((ln_bound(power)?, power)));
        powers.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(1, |(_, power)| power)
    }

    /// Returns whether the certified δ at `epsilon` in the direction "add" is at most `delta`.
    fn is_certified(&self, epsilon: f64, delta: f64) -> bool {
        let pairs = || self.one_of.as_ref()?.pairs.as_ref().filter(|pairs| !pairs.parts.is_empty());
        self.sources.added_delta(epsilon) <= delta
            || pairs().is_some_and(|pairs| pld::delta_when_added(pairs, epsilon) <= delta)
    }

    /// Returns the bound on δ from the losses, without the failure probability.
    fn upper(&self, losses: &SampledLosses, epsilon: f64, comparisons: f64) -> f64 {
        // The losses of "remove" are compared alone, and again together with the losses of "add".
        let answers = self.one_of.as_ref().map_or(1.0, |one_of| one_of.answers as f64);
        let bounds = 3.0 * comparisons * answers;
        let ln_confidence = (bounds / self.failure_probability).ln();
        losses.upper(epsilon, ln_confidence) + self.sources.mass_at_infinity
    }

    /// Returns the first candidate from `proposed` on whose δ is verified, by bisection.
    fn verify(&self, losses: &[&SampledLosses], proposed: f64, delta: f64) -> Option<f64> {
        let left = delta - self.failure_probability;
        let candidate = |k: usize| (proposed + 1e-3) * GROWTH.powi(k as i32) - 1e-3;
        let fits = |one: &&SampledLosses, at: f64| self.upper(one, at, CANDIDATES as f64) <= left;
        let all_fit = |k: usize| losses.iter().all(|one| fits(one, candidate(k)));
        let (mut low, mut high) = (0, CANDIDATES);
        while low < high {
            let middle = low + (high - low) / 2;
            if all_fit(middle) { high = middle } else { low = middle + 1 }
        }
        (high < CANDIDATES).then(|| candidate(high))
    }

    fn note(&self) -> String {
        let (seed, together) = match &self.one_of {
            Some(one_of) => {
                (one_of.seed, format!(" for {} different answers together", one_of.answers))
            }
            None => (self.seed, String::new()),
        };
        format!(
            "Monte Carlo with {} samples in each direction and seed {seed}: the bound fails with \
             probability at most {:e}{together}, which is part of δ",
            self.samples, self.failure_probability
        )
    }
}

impl Accountant for MonteCarloAccountant {
    fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let sources = Sources::of(events, relation)?;
        Ok(Self::of(sources, None))
    }

    /// Returns ε at `delta`. The first quarter of the losses proposes values of ε; the rest, which
    /// is independent of them, verifies all of them at once.
    fn epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError> {
        check_delta(delta)?;
        if let Some(reason) = &self.sources.infinite {
            return Ok(Epsilon::infinite(delta, Method::MonteCarlo, reason.clone()));
        }
        let left = delta - self.failure_probability - self.sources.mass_at_infinity;
        if left <= 0.0 {
            return Ok(Epsilon::infinite(
                delta,
                Method::MonteCarlo,
                format!(
                    "the failure probability {:e} and the events' own δ exceed δ; use a smaller \
                     failure probability",
                    self.failure_probability
                ),
            ));
        }
        self.check_work()?;
        let pilot = self.samples / 8;
        let first = self.draw(Direction::Remove, self.best_power(1.0), 0, pilot);
        let power = self.best_power(plain_epsilon(&[&first], left));
        let second = self.draw(Direction::Remove, power, 1, pilot);
        let fresh = self.samples - 2 * pilot;
        let remove = self.draw(Direction::Remove, power, 2, fresh);
        let mut proposed = plain_epsilon(&[&second], left);
        let mut estimate = plain_epsilon(&[&remove], left);
        let mut found = self.verify(&[&remove], proposed, delta);
        let left = delta - self.failure_probability;
        if !found.is_some_and(|at| self.is_certified(at, left)) {
            let left = left - self.sources.mass_at_infinity;
            let (pilot, add) = (2 * pilot, fresh);
            let pilot = self.draw(Direction::Add, 1, 0, pilot);
            let add = self.draw(Direction::Add, 1, 2, add);
            proposed = proposed.max(plain_epsilon(&[&pilot], left));
            estimate = estimate.max(plain_epsilon(&[&add], left));
            found = self.verify(&[&remove, &add], proposed, delta);
        }
        let mut epsilon = match found {
            Some(upper) => Epsilon::bound(delta, upper, Method::MonteCarlo),
            None => Epsilon::infinite(
                delta,
                Method::MonteCarlo,
                "too few samples for this δ: about 60 / δ are needed",
            ),
        };
        epsilon.estimate = estimate.min(epsilon.upper);
        epsilon.notes.push(self.note());
        Ok(epsilon)
    }

    /// Returns δ at `epsilon`; `upper` contains the failure probability.
    fn delta(&self, epsilon: f64) -> Result<DeltaBracket, AccountantError> {
        check_epsilon(epsilon)?;
        if let Some(reason) = &self.sources.infinite {
            return Ok(DeltaBracket::unknown(epsilon, reason.clone()));
        }
        self.check_work()?;
        let power = self.best_power(epsilon);
        let remove = self.draw(Direction::Remove, power, 2, self.samples);
        let mut upper = self.upper(&remove, epsilon, 1.0);
        let mut plain = remove.delta(epsilon);
        if !self.is_certified(epsilon, upper) {
            let add = self.draw(Direction::Add, 1, 2, self.samples);
            upper = upper.max(self.upper(&add, epsilon, 1.0));
            plain = plain.max(add.delta(epsilon));
        }
        let mut bracket = DeltaBracket::bound(epsilon, upper + self.failure_probability);
        bracket.estimate = (plain + self.sources.mass_at_infinity).min(bracket.upper);
        bracket.notes.push(self.note());
        Ok(bracket)
    }
}
