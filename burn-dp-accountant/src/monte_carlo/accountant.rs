//! The accountant that draws privacy losses.

use super::confidence::upper_mean;
use super::sources::Sources;
use crate::accountant::Accountant;
use crate::domain::{check_delta, check_epsilon};
use crate::dominating_pairs::Direction;
use crate::epsilon::{DeltaBracket, Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::math::random::Generator;
use crate::relation::NeighboringRelation;
use crate::threads;

/// Largest number of random numbers of one estimate.
const MOST_WORK: f64 = 2e10;

/// Losses of one stream of random numbers: the result does not depend on the number of threads.
const BLOCK: usize = 4096;

/// Values of ε that are verified on fresh losses.
const CANDIDATES: usize = 64;

/// Estimates δ from random privacy losses of the whole composition, for participations and
/// correlated noise without a tight certified bound ([`DpEvent::Patterned`],
/// [`DpEvent::GaussianMixture`], several random steps of [`DpEvent::RandomAllocation`]).
///
/// `upper` holds except with the failure probability over the random losses, by a one-sided
/// Chernoff bound with the relative entropy. The failure probability is part of δ: at an ε, `upper`
/// is the bound of δ plus the failure probability. `lower` is 0 and `estimate` is the plain mean. A
/// note states the number of losses, the seed and the failure probability. Equal seeds give equal
/// answers on every machine with the same floating-point functions.
///
/// A δ far below `20 / samples` needs more samples: `upper` is then infinite.
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
        if !(probability > 0.0 && probability < 1.0) {
            return Err(AccountantError::invalid(
                "failure_probability",
                format!("must be between 0 and 1 (exclusive), far below δ, got {probability}"),
            ));
        }
        self.failure_probability = probability;
        Ok(self)
    }

    /// Draws the losses of both directions.
    fn losses(&self) -> Result<[Vec<f64>; 2], AccountantError> {
        let work = self.sources.work() * 2.0 * self.samples as f64;
        if work > MOST_WORK {
            return Err(AccountantError::numerical(format!(
                "{} samples need about {work:.1e} random numbers, more than {MOST_WORK:.0e}; use \
                 fewer samples, or PldAccountant",
                self.samples
            )));
        }
        let blocks = self.samples.div_ceil(BLOCK);
        let draw = |direction: Direction| {
            let stream = |block: usize| 2 * block as u64 + u64::from(direction == Direction::Add);
            let mut losses = vec![0.0; self.samples];
            let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
            let share = blocks.div_ceil(threads).max(1) * BLOCK;
            let parts = losses.chunks_mut(share).enumerate().collect();
            threads::share(parts, threads, |(part, chunk): (usize, &mut [f64])| {
                for (i, block) in chunk.chunks_mut(BLOCK).enumerate() {
                    let stream = stream(part * share / BLOCK + i);
                    let mut generator = Generator::new(self.seed, stream);
                    block.fill_with(|| self.sources.loss(direction, &mut generator));
                }
            });
            losses
        };
        Ok([draw(Direction::Remove), draw(Direction::Add)])
    }

    /// Returns the bound of δ in the worse direction, without the failure probability.
    fn upper(&self, losses: [&[f64]; 2], epsilon: f64, comparisons: f64) -> f64 {
        let ln_confidence = (2.0 * comparisons / self.failure_probability).ln();
        let one = |losses: &[f64]| upper_mean(mean(losses, epsilon), losses.len(), ln_confidence);
        losses.map(one).into_iter().fold(0.0, f64::max) + self.sources.mass_at_infinity
    }

    fn note(&self) -> String {
        format!(
            "Monte Carlo with {} samples in each direction and seed {}: the bound fails with \
             probability at most {:e}, which is part of δ",
            self.samples, self.seed, self.failure_probability
        )
    }
}

/// Returns the mean of `(1 - e^{ε - Y})^+`.
fn mean(losses: &[f64], epsilon: f64) -> f64 {
    // A loss that is not a number counts as infinite.
    let terms = losses.iter().map(|loss| match epsilon - loss {
        below if below >= 0.0 => 0.0,
        above if above < 0.0 => -above.exp_m1(),
        _ => 1.0,
    });
    terms.sum::<f64>() / losses.len() as f64
}

/// Returns the ε at which the mean is `delta`, in the worse direction.
fn plain_epsilon(losses: [&[f64]; 2], delta: f64) -> f64 {
    let delta_at = |e: f64| losses.map(|l| mean(l, e)).into_iter().fold(0.0, f64::max);
    let all = losses[0].iter().chain(losses[1]);
    let (mut low, mut high) = (0.0, all.fold(0.0f64, |m, loss| m.max(*loss)));
    if delta_at(0.0) <= delta {
        return 0.0;
    }
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if delta_at(middle) <= delta { high = middle } else { low = middle }
    }
    high
}

impl Accountant for MonteCarloAccountant {
    fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let sources = Sources::of(events, relation)?;
        Ok(Self { sources, samples: 1_000_000, seed: 0, failure_probability: 1e-9 })
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
        let [remove, add] = self.losses()?;
        let pilot = self.samples / 4;
        let proposed = plain_epsilon([&remove[..pilot], &add[..pilot]], left);
        let fresh = [&remove[pilot..], &add[pilot..]];
        let fits = |epsilon: f64| {
            let bound = self.upper(fresh, epsilon, CANDIDATES as f64);
            bound + self.failure_probability <= delta
        };
        let candidate = |k: usize| (proposed + 1e-3) * 1.02f64.powi(k as i32) - 1e-3;
        let found = (0..CANDIDATES).map(candidate).find(|epsilon| fits(*epsilon));
        let estimate = plain_epsilon([&remove, &add], left);
        let mut epsilon = match found {
            Some(upper) => Epsilon::bound(delta, upper, Method::MonteCarlo),
            None => Epsilon::infinite(
                delta,
                Method::MonteCarlo,
                "too few samples for this δ: about 30 / δ are needed",
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
        let [remove, add] = self.losses()?;
        let upper = self.upper([&remove, &add], epsilon, 1.0) + self.failure_probability;
        let mut bracket = DeltaBracket::bound(epsilon, upper);
        let plain = mean(&remove, epsilon).max(mean(&add, epsilon));
        bracket.estimate = (plain + self.sources.mass_at_infinity).min(bracket.upper);
        bracket.notes.push(self.note());
        Ok(bracket)
    }
}
