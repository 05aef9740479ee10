//! The options that describe a sampler.

use std::cell::OnceCell;
use std::path::PathBuf;

use burn_dp_accountant::correlated_noise::{Participation, Strategy};
use burn_dp_accountant::{AccountantError, DpEvent};
use clap::{Args, ValueEnum};

use crate::output::invalid;

/// The sampler. Every sampler but `poisson` describes one segment.
#[derive(Debug, Clone, Args)]
pub(crate) struct SamplerOptions {
    /// How the units of a step are drawn.
    #[arg(long, value_enum, default_value = "poisson")]
    pub(crate) sampler: Sampler,
    /// Number of units in the data set.
    #[arg(long, value_name = "N")]
    pub(crate) dataset_size: Option<u64>,
    /// Number of units of a batch: exact for fixed-size and with-replacement, expected otherwise.
    #[arg(long, value_name = "B")]
    pub(crate) batch_size: Option<u64>,
    /// Cap of a batch (truncated-poisson).
    #[arg(long, value_name = "B")]
    pub(crate) max_batch_size: Option<u64>,
    /// Number of fixed parts of the data (cyclic-poisson). A step draws from one part;
    /// --sampling-probability is relative to the part.
    #[arg(long, visible_alias = "bands", value_name = "B")]
    pub(crate) parts: Option<u64>,
    /// Coefficients of banded correlated noise, separated by commas (every sampler that bounds how
    /// often a unit takes part: cyclic-poisson, balls-in-bins, random-allocation, min-separation,
    /// shuffled, shuffled-once). --accountant exact has the certified bound, --accountant
    /// monte-carlo the simulated one.
    #[arg(long, value_delimiter = ',', value_name = "C")]
    pub(crate) coefficients: Vec<f64>,
    /// Strategy of the correlated noise, in place of --coefficients: a file that `strategy
    /// --output` wrote, of any kind. --steps is by default the number of its steps.
    #[arg(long, value_name = "FILE", conflicts_with = "coefficients")]
    pub(crate) strategy: Option<PathBuf>,
    /// The strategy in the file, after it was read, because a calibration needs it at every noise
    /// multiplier.
    #[arg(skip)]
    pub(crate) read: OnceCell<Strategy>,
    /// Number of steps of an epoch (balls-in-bins, random-allocation).
    #[arg(long, value_name = "T")]
    pub(crate) bins: Option<u64>,
    /// Number of epochs (balls-in-bins, random-allocation: --steps is then --bins times --epochs;
    /// shuffled, shuffled-once).
    #[arg(long, value_name = "E")]
    pub(crate) epochs: Option<u64>,
    /// Number of steps of an epoch in which a unit takes part (balls-in-bins).
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub(crate) participations: u64,
    /// Choose new bins in each epoch (balls-in-bins); the same as --sampler random-allocation.
    #[arg(long)]
    pub(crate) fresh_bins: bool,
    /// Smallest number of steps between two steps of a unit (min-separation).
    #[arg(long, value_name = "B")]
    pub(crate) separation: Option<u64>,
    /// Largest number of examples of one unit (poisson, truncated-poisson): the sampler draws
    /// examples.
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub(crate) examples_per_unit: u64,
}

/// How the units of a step are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sampler {
    /// Each unit independently with the same probability.
    Poisson,
    /// Poisson, cut uniformly at random to a largest batch size.
    TruncatedPoisson,
    /// Poisson from one of several fixed parts of the data, in turn.
    CyclicPoisson,
    /// Each unit in exactly one step (or several) of an epoch, chosen uniformly.
    BallsInBins,
    /// Each unit in exactly one step of an epoch, chosen uniformly again in each epoch.
    RandomAllocation,
    /// Poisson, with a pause after each step of a unit.
    MinSeparation,
    /// Parts of a permutation: each unit once in each epoch, without amplification.
    Shuffled,
    /// As shuffled, with one permutation for all epochs: the steps of a unit are an epoch apart.
    ShuffledOnce,
    /// A uniformly random batch of a fixed size.
    FixedSize,
    /// A fixed number of independent uniform draws.
    WithReplacement,
}

impl SamplerOptions {
    /// Returns the event of a whole segment, from the values of the options that all samplers
    /// share.
    pub(crate) fn event(
        &self,
        sampling_probability: Option<f64>,
        noise_multiplier: f64,
        steps: Option<u64>,
    ) -> Result<(DpEvent, u64), AccountantError> {
        self.refuse_foreign_options()?;
        let gaussian = || Box::new(DpEvent::gaussian(noise_multiplier));
        let counted = |event: DpEvent| {
            event.validate()?;
            Ok((event, needed("--steps", steps)?))
        };
        match self.sampler {
            Sampler::Poisson => {
                let q = self.probability(sampling_probability, 1)?;
                counted(self.poisson_step(q, noise_multiplier)?)
            }
            Sampler::TruncatedPoisson => counted(DpEvent::truncated_poisson_sampled_examples(
                self.probability(sampling_probability, 1)?,
                needed("--dataset-size", self.dataset_size)?,
                needed("--max-batch-size", self.max_batch_size)?,
                noise_multiplier,
                self.examples_per_unit,
            )?),
            Sampler::CyclicPoisson => {
                let parts = needed("--parts", self.parts)?;
                let q = self.probability(sampling_probability, parts)?;
                if self.strategy.is_some() {
                    let cyclic = Participation::CyclicPoisson { parts, sampling_probability: q };
                    return self.correlated(noise_multiplier, steps, cyclic);
                }
                let event = DpEvent::dp_sgd_step(q, noise_multiplier / self.norm(parts)?);
                let (event, steps) = counted(event)?;
                // A unit is in one part, hence in every `parts`-th step.
                Ok((event, steps.div_ceil(parts)))
            }
            Sampler::BallsInBins | Sampler::RandomAllocation => {
                self.balls_in_bins(noise_multiplier, steps)
            }
            Sampler::MinSeparation => {
                let separation = needed("--separation", self.separation)?;
                let sampling_probability =
                    self.probability_after_pause(sampling_probability, separation)?;
                let rule = Participation::MinSeparation { separation, sampling_probability };
                self.correlated(noise_multiplier, steps, rule)
            }
            Sampler::Shuffled | Sampler::ShuffledOnce => self.shuffled(noise_multiplier, steps),
            Sampler::FixedSize => counted(DpEvent::SampledWithoutReplacement {
                dataset_size: needed("--dataset-size", self.dataset_size)?,
                sample_size: needed("--batch-size", self.batch_size)?,
                event: gaussian(),
            }),
            Sampler::WithReplacement => counted(DpEvent::SampledWithReplacement {
                dataset_size: needed("--dataset-size", self.dataset_size)?,
                sample_size: needed("--batch-size", self.batch_size)?,
                event: gaussian(),
            }),
        }
    }

    /// Returns whether a batch size was given.
    pub(crate) fn has_batch_size(&self) -> bool {
        self.batch_size.is_some()
    }

    /// Returns a step of Poisson sampling.
    pub(crate) fn poisson_step(&self, q: f64, sigma: f64) -> Result<DpEvent, AccountantError> {
        DpEvent::poisson_sampled_examples(q, sigma, self.examples_per_unit)
    }

    fn balls_in_bins(
        &self,
        noise_multiplier: f64,
        steps: Option<u64>,
    ) -> Result<(DpEvent, u64), AccountantError> {
        let fresh_bins = self.fresh_bins || self.sampler == Sampler::RandomAllocation;
        let bins = needed("--bins", self.bins)?;
        let steps = if self.epochs.is_none() { self.steps_of_run(steps)? } else { steps };
        let epochs = match (self.epochs, steps) {
            (Some(epochs), None) => epochs,
            (None, None) => 1,
            (epochs, Some(steps)) => {
                let whole = steps.checked_div(bins).filter(|e| e.checked_mul(bins) == Some(steps));
                match whole {
                    Some(whole) if epochs.is_none_or(|epochs| epochs == whole) => whole,
                    _ => {
                        return Err(invalid(
                            "--steps",
                            format!(
                                "must be --bins = {bins} times --epochs, got {steps}; leave it out \
                                 and give --epochs"
                            ),
                        ));
                    }
                }
            }
        };
        if self.is_correlated() {
            if self.participations != 1 {
                return Err(invalid(
                    "--participations",
                    format!(
                        "must be 1 with correlated noise, got {}; use --sampler min-separation, or \
                         independent noise",
                        self.participations
                    ),
                ));
            }
            let steps = bins.checked_mul(epochs).ok_or_else(|| {
                invalid("--epochs", format!("overflows the steps: {epochs} times {bins}"))
            })?;
            let participation = match fresh_bins {
                true => Participation::RandomAllocation { bins },
                false => Participation::BallsInBins { bins },
            };
            return self.correlated(noise_multiplier, Some(steps), participation);
        }
        let event = Box::new(DpEvent::gaussian(noise_multiplier));
        let (same, fresh) = if fresh_bins { (1, epochs) } else { (epochs, 1) };
        let event = DpEvent::RandomAllocation {
            steps: bins,
            participations: self.participations,
            epochs: same,
            event,
        };
        event.validate()?;
        Ok((event, fresh))
    }

    /// Returns the sampling probability: as given, or the batch size over the size of a part.
    fn probability(&self, given: Option<f64>, parts: u64) -> Result<f64, AccountantError> {
        match (given, self.batch_size, self.dataset_size) {
            (Some(q), None, _) => Ok(q),
            (None, Some(batch), Some(size)) => {
                // The smallest part determines the probability.
                let part = size.checked_div(parts).filter(|part| *part >= batch && *part > 0);
                part.map(|part| batch as f64 / part as f64).ok_or_else(|| {
                    invalid(
                        "--batch-size",
                        format!(
                            "must be at most the size of a part, {size} / {parts}, got {batch}; \
                             use fewer parts"
                        ),
                    )
                })
            }
            _ => Err(invalid(
                "--sampling-probability",
                "must be given, or both --batch-size and --dataset-size",
            )),
        }
    }

    /// Returns the probability that a unit takes part, given that it may take part: as given, or
    /// from the expected batch size E of N units, `E/(N - (separation - 1) E)`.
    fn probability_after_pause(
        &self,
        given: Option<f64>,
        separation: u64,
    ) -> Result<f64, AccountantError> {
        let share = self.probability(given, 1)?;
        if given.is_some() {
            return Ok(share);
        }
        let may_take_part = 1.0 - (separation.max(1) - 1) as f64 * share;
        if may_take_part < share {
            return Err(invalid(
                "--batch-size",
                format!(
                    "must be at most --dataset-size over --separation = {separation}, so that a \
                     unit can pause, got the share {share}; use a smaller batch or separation"
                ),
            ));
        }
        Ok((share / may_take_part).min(1.0))
    }
}

/// Returns the value of an option, or an error that names it.
pub(crate) fn needed(name: &'static str, value: Option<u64>) -> Result<u64, AccountantError> {
    value.ok_or_else(|| invalid(name, "is needed by this sampler"))
}
