//! `calibrate`: the parameter that meets a privacy budget.

use burn_dp_accountant::{AccountantError, Budget, Calibration, DpEvent, Rounded};
use clap::Args;
use serde_json::{Value, json};

use crate::output::{Output, invalid, json_text};
use crate::sampler::SamplerOptions;
use crate::samplers::{Relation, Sampler};

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// Target ε.
    #[arg(long)]
    epsilon: f64,
    /// Target δ.
    #[arg(long)]
    delta: f64,
    /// Probability that a unit takes part in a step. Give two of this, --steps and
    /// --noise-multiplier; the third is searched. With --dataset-size in place of this, the
    /// expected batch size is searched.
    #[arg(long, visible_alias = "q")]
    sampling_probability: Option<f64>,
    /// Number of steps.
    #[arg(long)]
    steps: Option<u64>,
    /// Noise multiplier.
    #[arg(long, visible_alias = "sigma")]
    noise_multiplier: Option<f64>,
    /// The sampler.
    #[command(flatten)]
    sampler: SamplerOptions,
    /// Neighboring relation. Default: replace-one for fixed-size, with-replacement, shuffled and
    /// shuffled-once, add-or-remove-one for the others.
    #[arg(long, value_enum)]
    relation: Option<Relation>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The result, on the safe side of the budget.
enum CalibrationResult {
    NoiseMultiplier(f64),
    Steps(u64),
    SamplingProbability(f64),
    ExpectedBatchSize(u64),
}

impl CalibrationResult {
    fn name(&self) -> &'static str {
        match self {
            Self::NoiseMultiplier(_) => "noise_multiplier",
            Self::Steps(_) => "steps",
            Self::SamplingProbability(_) => "sampling_probability",
            Self::ExpectedBatchSize(_) => "expected_batch_size",
        }
    }

    fn json(&self) -> Value {
        match *self {
            Self::NoiseMultiplier(value) | Self::SamplingProbability(value) => json!(value),
            Self::Steps(value) | Self::ExpectedBatchSize(value) => json!(value),
        }
    }

    /// Returns the value with few digits, rounded toward more privacy.
    fn text(&self) -> String {
        match *self {
            Self::NoiseMultiplier(value) => Rounded::up(value).to_string(),
            Self::SamplingProbability(value) => Rounded::down(value).to_string(),
            Self::Steps(value) | Self::ExpectedBatchSize(value) => value.to_string(),
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Output {
    let budget = Budget::new(arguments.epsilon, arguments.delta)?;
    let found = search(arguments, budget)?;
    if arguments.json {
        return Ok(json_text(&json!({
            found.name(): found.json(), "epsilon": budget.epsilon(), "delta": budget.delta()
        })));
    }
    Ok(format!("{} = {}\n", found.name(), found.text()))
}

fn search(arguments: &Arguments, budget: Budget) -> Result<CalibrationResult, AccountantError> {
    let sampler = &arguments.sampler;
    let relation = sampler.sampler.relation(arguments.relation)?;
    let calibration = Calibration::new(budget).with_relation(relation.into());
    if sampler.sampler != Sampler::Poisson || sampler.batch_size.is_some() {
        if arguments.noise_multiplier.is_some() {
            let reason = match sampler.sampler {
                Sampler::Poisson => "is searched for a given --batch-size; leave one of them out",
                _ => {
                    "is what this sampler searches; leave it out, or search other parameters with \
                     --sampler poisson"
                }
            };
            return Err(invalid("--noise-multiplier", reason));
        }
        let event = |sigma| sampler.event(arguments.sampling_probability, sigma, arguments.steps);
        let (_, count) = event(1.0)?;
        // The options were checked with the first event.
        let release = |sigma| event(sigma).map_or(DpEvent::NonPrivate, |(event, _)| event);
        return Ok(CalibrationResult::NoiseMultiplier(
            calibration.noise_multiplier(count, release)?,
        ));
    }
    sampler.refuse_foreign_options()?;
    if sampler.dataset_size.is_some() && arguments.sampling_probability.is_some() {
        return Err(invalid("--dataset-size", "cannot be used with --sampling-probability"));
    }
    // Checks the number of examples; values that a search cannot use count as not private.
    sampler.poisson_step(0.5, 1.0)?;
    let step = |q, sigma| sampler.poisson_step(q, sigma).unwrap_or(DpEvent::NonPrivate);
    let given = (arguments.sampling_probability, arguments.steps, arguments.noise_multiplier);
    match (given, sampler.dataset_size) {
        ((Some(q), None, Some(sigma)), None) => {
            Ok(CalibrationResult::Steps(calibration.steps(&sampler.poisson_step(q, sigma)?)?))
        }
        ((Some(q), Some(steps), None), None) => {
            sampler.poisson_step(q, 1.0)?;
            let sigma = calibration.noise_multiplier(steps, |s| step(q, s))?;
            Ok(CalibrationResult::NoiseMultiplier(sigma))
        }
        ((None, Some(steps), Some(sigma)), size) => {
            DpEvent::gaussian(sigma).validate()?;
            let event = |q| step(q, sigma);
            Ok(match size {
                Some(size) => CalibrationResult::ExpectedBatchSize(
                    calibration.expected_batch_size(size, steps, event)?,
                ),
                None => CalibrationResult::SamplingProbability(
                    calibration.sampling_probability(steps, event)?,
                ),
            })
        }
        _ => Err(invalid(
            "--sampling-probability, --steps, --noise-multiplier",
            "two of the three must be given, the third is searched (with --dataset-size as a \
             batch size)",
        )),
    }
}
