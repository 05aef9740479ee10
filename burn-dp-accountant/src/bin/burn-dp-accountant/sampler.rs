//! The options that describe a sampler.

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
    batch_size: Option<u64>,
    /// Cap of a batch (truncated-poisson).
    #[arg(long, value_name = "B")]
    max_batch_size: Option<u64>,
    /// Number of fixed parts of the data (cyclic-poisson). A step draws from one part;
    /// --sampling-probability is relative to the part.
    #[arg(long, visible_alias = "bands", value_name = "B")]
    parts: Option<u64>,
    /// Coefficients of the correlated noise, separated by commas, at most one for each part
    /// (cyclic-poisson). The noise multiplier is divided by their norm.
    #[arg(long, value_delimiter = ',', value_name = "C")]
    coefficients: Vec<f64>,
    /// Number of steps of an epoch (balls-in-bins).
    #[arg(long, value_name = "T")]
    bins: Option<u64>,
    /// Number of epochs (balls-in-bins); --steps is then --bins times --epochs.
    #[arg(long, value_name = "E")]
    epochs: Option<u64>,
    /// Number of steps of an epoch in which a unit takes part (balls-in-bins).
    #[arg(long, value_name = "K", default_value_t = 1)]
    participations: u64,
    /// Choose new bins in each epoch (balls-in-bins).
    #[arg(long)]
    fresh_bins: bool,
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
            Sampler::Poisson => counted(DpEvent::dp_sgd_step(
                self.probability(sampling_probability, 1)?,
                noise_multiplier,
            )),
            Sampler::TruncatedPoisson => counted(DpEvent::TruncatedPoissonSampled {
                sampling_probability: self.probability(sampling_probability, 1)?,
                dataset_size: needed("--dataset-size", self.dataset_size)?,
                max_batch_size: needed("--max-batch-size", self.max_batch_size)?,
                event: gaussian(),
            }),
            Sampler::CyclicPoisson => {
                let parts = needed("--parts", self.parts)?;
                let q = self.probability(sampling_probability, parts)?;
                let event = DpEvent::dp_sgd_step(q, noise_multiplier / self.norm(parts)?);
                let (event, steps) = counted(event)?;
                // A unit is in one part, hence in every `parts`-th step.
                Ok((event, steps.div_ceil(parts)))
            }
            Sampler::BallsInBins => self.balls_in_bins(gaussian(), steps),
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

    fn balls_in_bins(
        &self,
        event: Box<DpEvent>,
        steps: Option<u64>,
    ) -> Result<(DpEvent, u64), AccountantError> {
        let bins = needed("--bins", self.bins)?;
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
        let (same, fresh) = if self.fresh_bins { (1, epochs) } else { (epochs, 1) };
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
                // The smallest part decides.
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

    /// Returns the norm of the coefficients, which must not be more than the parts: otherwise the
    /// contributions of one unit would overlap.
    fn norm(&self, parts: u64) -> Result<f64, AccountantError> {
        if self.coefficients.is_empty() {
            return Ok(1.0);
        }
        let norm = self.coefficients.iter().map(|c| c * c).sum::<f64>().sqrt();
        if self.coefficients.len() as u64 > parts || !(norm > 0.0 && norm.is_finite()) {
            return Err(invalid(
                "--coefficients",
                format!(
                    "must be finite, not all 0, and at most --parts = {parts}, got {} of norm \
                     {norm}; use more parts or fewer bands",
                    self.coefficients.len()
                ),
            ));
        }
        Ok(norm)
    }

    /// Returns an error for options that the sampler would ignore.
    pub(crate) fn refuse_foreign_options(&self) -> Result<(), AccountantError> {
        use Sampler::{BallsInBins, CyclicPoisson, TruncatedPoisson};
        for (given, name, owner, option) in [
            (
                self.max_batch_size.is_some(),
                "--max-batch-size",
                TruncatedPoisson,
                "truncated-poisson",
            ),
            (self.parts.is_some(), "--parts", CyclicPoisson, "cyclic-poisson"),
            (!self.coefficients.is_empty(), "--coefficients", CyclicPoisson, "cyclic-poisson"),
            (self.bins.is_some(), "--bins", BallsInBins, "balls-in-bins"),
            (self.epochs.is_some(), "--epochs", BallsInBins, "balls-in-bins"),
            (self.fresh_bins, "--fresh-bins", BallsInBins, "balls-in-bins"),
            (self.participations != 1, "--participations", BallsInBins, "balls-in-bins"),
        ] {
            if given && self.sampler != owner {
                return Err(invalid(name, format!("belongs to --sampler {option}")));
            }
        }
        Ok(())
    }
}

fn needed(name: &'static str, value: Option<u64>) -> Result<u64, AccountantError> {
    value.ok_or_else(|| invalid(name, "is needed by this sampler"))
}
