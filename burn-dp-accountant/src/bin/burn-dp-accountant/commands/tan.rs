//! `tan`: the total amount of noise of a run, and a small run that predicts it.

use burn_dp_accountant::{
    Accountant, AccountantError, Budget, DpEvent, NeighboringRelation, PldAccountant, Rounded,
    RunPlan, ScalingLaw, TAN_APPROXIMATION_LIMIT, TotalAmountOfNoise,
};
use clap::Args;
use serde_json::json;

use crate::output::{Output, invalid, json_text, number};

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// Number of units in the data set.
    #[arg(long)]
    dataset_size: u64,
    /// Expected batch size of the large run.
    #[arg(long, requires = "noise_multiplier", required_unless_present = "max_examples")]
    batch_size: Option<f64>,
    /// Noise multiplier of the large run.
    #[arg(long, visible_alias = "sigma", requires = "batch_size")]
    noise_multiplier: Option<f64>,
    /// In place of batch size and noise multiplier: a limit on the examples that the run processes.
    /// The run with the largest batch and the smallest noise for --epsilon is found.
    #[arg(long, value_name = "N", requires = "epsilon", conflicts_with = "batch_size")]
    max_examples: Option<u64>,
    /// Target ε of --max-examples.
    #[arg(long, requires = "max_examples")]
    epsilon: Option<f64>,
    /// Number of steps.
    #[arg(long)]
    steps: u64,
    /// Target δ.
    #[arg(long)]
    delta: f64,
    /// Factor by which batch and noise of the small run are smaller.
    #[arg(long, default_value_t = 32.0)]
    factor: f64,
    /// Number of small runs on the same private data, whose ε is added.
    #[arg(long, value_name = "N", default_value_t = 0)]
    simulations: u64,
    /// Results of small runs with equal steps and σ/B, as BATCH:ACCURACY, for a prediction.
    #[arg(long, value_name = "B:ACC", value_delimiter = ',')]
    run: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Output {
    let run = arguments.run_plan()?;
    let RunPlan { expected_batch_size, noise_multiplier, steps } = run;
    let q = expected_batch_size / arguments.dataset_size as f64;
    let noise = TotalAmountOfNoise::new(q, noise_multiplier, steps)?;
    let small = run.scaled_down(arguments.factor)?;
    let event = DpEvent::dp_sgd_step(q, noise_multiplier);
    let relation = NeighboringRelation::AddOrRemoveOne;
    let certified = PldAccountant::new([(&event, steps)], relation)?.epsilon(arguments.delta)?;
    let approximate = noise.approximate_epsilon(arguments.delta)?;
    let simulations = arguments.simulations;
    let all = run.events_with_simulations(arguments.dataset_size, arguments.factor, simulations)?;
    let all = all.iter().map(|(event, count)| (event, *count)).filter(|(_, count)| *count > 0);
    let with_search = PldAccountant::new(all, relation)?.epsilon(arguments.delta)?;
    let prediction = if arguments.run.is_empty() {
        None
    } else {
        let runs: Vec<(f64, f64)> =
            arguments.run.iter().map(|text| parse_run(text)).collect::<Result<_, _>>()?;
        Some(ScalingLaw::fit(&runs)?.predict(expected_batch_size))
    };
    if arguments.json {
        return Ok(json_text(&json!({
            "eta": noise.eta(), "sigma_total": noise.sigma(), "epsilon_tan": approximate,
            "epsilon_tan_may_be_too_low": noise_multiplier < TAN_APPROXIMATION_LIMIT,
            "epsilon": number(certified.upper), "delta": arguments.delta,
            "batch_size": expected_batch_size, "noise_multiplier": noise_multiplier,
            "simulations": simulations, "epsilon_with_simulations": number(with_search.upper),
            "small_batch_size": small.expected_batch_size,
            "small_noise_multiplier": small.noise_multiplier, "steps": small.steps,
            "predicted_accuracy": prediction.map(|(value, low, high)| json!([value, low, high])),
        })));
    }
    let mut text = format!(
        "large run: expected batch {}, noise multiplier {}, {steps} steps\n\
         eta = {}, total amount of noise = {}\n\
         epsilon = {} (guarantee), about {} by TAN, at delta = {:e}\n\
         small run: expected batch {}, noise multiplier {}, {} steps \
         (choose hyperparameters with it; never release it)\n\
         epsilon with {simulations} small runs on the same data: {}\n",
        Rounded::down(expected_batch_size).shortest(),
        // All digits: a rounded number might not meet the budget.
        noise_multiplier,
        Rounded::nearest(noise.eta()),
        Rounded::nearest(noise.sigma()),
        Rounded::up(certified.upper),
        Rounded::nearest(approximate).with_digits(4),
        arguments.delta,
        Rounded::nearest(small.expected_batch_size),
        Rounded::nearest(small.noise_multiplier),
        small.steps,
        Rounded::up(with_search.upper)
    );
    if noise_multiplier < TAN_APPROXIMATION_LIMIT {
        text += "the noise multiplier is below 2, where the epsilon by TAN may be too low\n";
    }
    if let Some((value, low, high)) = prediction {
        text += &format!("predicted accuracy: {value:.4} (95 % interval {low:.4} to {high:.4})\n");
    }
    Ok(text)
}

impl Arguments {
    /// Returns the large run: the given one, or the best one within the limit.
    fn run_plan(&self) -> Result<RunPlan, AccountantError> {
        match (self.batch_size, self.noise_multiplier, self.max_examples, self.epsilon) {
            (Some(expected_batch_size), Some(noise_multiplier), ..) => {
                Ok(RunPlan { expected_batch_size, noise_multiplier, steps: self.steps })
            }
            (_, _, Some(max_examples), Some(epsilon)) => {
                let budget = Budget::new(epsilon, self.delta)?;
                RunPlan::best_within(budget, self.dataset_size, self.steps, max_examples)
            }
            _ => Err(invalid(
                "--batch-size",
                "must be given with --noise-multiplier, or --max-examples with --epsilon",
            )),
        }
    }
}

fn parse_run(text: &str) -> Result<(f64, f64), AccountantError> {
    let parsed = text.split_once(':').and_then(|(batch, accuracy)| {
        Some((batch.trim().parse().ok()?, accuracy.trim().parse().ok()?))
    });
    parsed.ok_or_else(|| invalid("--run", format!("must be BATCH:ACCURACY, got {text:?}")))
}
