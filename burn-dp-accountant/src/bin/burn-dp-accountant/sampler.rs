//! The options that describe a sampler.

use burn_dp_accountant::correlated_noise::Participation;
use burn_dp_accountant::{AccountantError, DpEvent};
use clap::Args;

use crate::correlated::CorrelationOptions;
use crate::output::{counted, invalid, needed};
use crate::samplers::Sampler;

/// The sampler. Every sampler but `poisson` describes one segment.
#[derive(Debug, Clone, Args)]
pub(crate) struct SamplerOptions {
    /// How the units of a step are drawn.
    #[arg(long, visible_alias = "sampling", value_enum, default_value = "poisson")]
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
    #[command(flatten)]
    pub(crate) noise: CorrelationOptions,
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
        if sampling_probability.is_some() {
            self.sampler.check_uses("--sampling-probability")?;
        }
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
                if self.noise.has_file() {
                    let cyclic = Participation::CyclicPoisson { parts, sampling_probability: q };
                    return self.noise.run(noise_multiplier, steps, cyclic);
                }
                let event = DpEvent::dp_sgd_step(q, noise_multiplier / self.noise.norm(parts)?);
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
                self.noise.run(noise_multiplier, steps, rule)
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

    /// Returns an error for options that the sampler would ignore.
    pub(crate) fn refuse_foreign_options(&self) -> Result<(), AccountantError> {
        let given = [
            (self.max_batch_size.is_some(), "--max-batch-size"),
            (self.parts.is_some(), "--parts"),
            (self.bins.is_some(), "--bins"),
            (self.epochs.is_some(), "--epochs"),
            (self.fresh_bins, "--fresh-bins"),
            (self.participations != 1, "--participations"),
            (self.separation.is_some(), "--separation"),
            (self.examples_per_unit != 1, "--examples-per-unit"),
            (self.batch_size.is_some(), "--batch-size"),
            (self.dataset_size.is_some(), "--dataset-size"),
        ];
        let given = given.into_iter().filter_map(|(given, option)| given.then_some(option));
        given.chain(self.noise.option()).try_for_each(|option| self.sampler.check_uses(option))
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
        let bins = counted("--bins", needed("--bins", self.bins)?)?;
        let steps = if self.epochs.is_none() { self.noise.steps_of_run(steps)? } else { steps };
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
        if self.noise.option().is_some() {
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
            return self.noise.run(noise_multiplier, Some(steps), participation);
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

    /// Returns a run of shuffled epochs.
    fn shuffled(
        &self,
        noise_multiplier: f64,
        steps: Option<u64>,
    ) -> Result<(DpEvent, u64), AccountantError> {
        let epochs = needed("--epochs", self.epochs)?;
        if self.noise.option().is_some() {
            let steps = needed("--steps", self.noise.steps_of_run(steps)?)?;
            let participation = match self.sampler {
                Sampler::ShuffledOnce => {
                    Participation::FixedOrder { period: steps.div_ceil(epochs.max(1)) }
                }
                _ => Participation::AtMost { times: epochs, separation: 1 },
            };
            if epochs == 0 || !steps.is_multiple_of(epochs) {
                return Err(invalid(
                    "--epochs",
                    format!("must divide the {steps} steps into equal epochs, got {epochs}"),
                ));
            }
            return self.noise.run(noise_multiplier, Some(steps), participation);
        }
        if steps.is_some() {
            return Err(invalid(
                "--steps",
                "is not needed by shuffled epochs with independent noise: a unit takes part once \
                 in each epoch; give --epochs",
            ));
        }
        // A unit has one release in each epoch; the others do not depend on it.
        let event = DpEvent::gaussian(noise_multiplier);
        event.validate()?;
        Ok((event, epochs))
    }

    /// Returns the sampling probability: as given, or the batch size over the size of a part.
    fn probability(&self, given: Option<f64>, parts: u64) -> Result<f64, AccountantError> {
        counted("--parts", parts)?;
        match (given, self.batch_size, self.dataset_size) {
            (Some(q), None, _) => Ok(q),
            (None, Some(batch), Some(size)) => {
                // The smallest part determines the probability.
                let part = size.checked_div(parts).filter(|part| *part >= batch && *part > 0);
                part.map(|part| batch as f64 / part as f64).ok_or_else(|| {
                    let of = if parts == 1 { String::new() } else { format!(" / {parts} parts") };
                    let most = format!("--dataset-size = {size}{of}");
                    invalid("--batch-size", format!("must be at most {most}, got {batch}"))
                })
            }
            (Some(q), Some(batch), _) => Err(invalid(
                "--sampling-probability",
                format!("{q} and --batch-size {batch} were both given; leave one of them out"),
            )),
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
