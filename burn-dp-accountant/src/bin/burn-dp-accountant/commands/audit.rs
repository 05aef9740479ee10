//! `audit`: lower bounds on ε from the scores of canaries.

use std::path::PathBuf;

use burn_dp_accountant::audit::{Audit, AuditScores, ThresholdRule};
use burn_dp_accountant::{AccountantError, Rounded};
use clap::{Args, ValueEnum};

use crate::output::{Output, check_distinct, invalid, json_text};
use crate::plot;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// Scores of a training in any framework: {"in": [..], "out": [..]}. A higher score says that
    /// the canary was part of the training.
    #[arg(long, value_name = "FILE.json")]
    scores: PathBuf,
    /// δ of the bounds; may be 0.
    #[arg(long)]
    delta: f64,
    /// Probability that a bound may be wrong.
    #[arg(long, default_value_t = 0.05)]
    significance: f64,
    /// How `clopper_pearson` chooses its threshold.
    #[arg(long, value_enum, default_value = "all")]
    rule: RuleName,
    /// The threshold of `--rule fixed`, chosen before the scores were known.
    #[arg(long, required_if_eq("rule", "fixed"))]
    threshold: Option<f64>,
    /// The seed of the halves of `--rule split`, chosen before the scores were known [default: 0].
    #[arg(long)]
    split_seed: Option<u64>,
    /// False positive rates of `tpr_at_fpr`.
    #[arg(long, value_delimiter = ',', default_value = "0.01")]
    fpr: Vec<f64>,
    /// Draw the ROC curve as an SVG.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The threshold rule, as an option.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum RuleName {
    /// The best of all thresholds, with limits that hold for every threshold at once.
    All,
    /// The best threshold of one half of the canaries, tested on the other half.
    Split,
    /// One threshold that was chosen in advance.
    Fixed,
}

impl Arguments {
    fn rule(&self) -> Result<ThresholdRule, AccountantError> {
        if let (RuleName::All | RuleName::Fixed, Some(seed)) = (self.rule, self.split_seed) {
            let reason = format!("has no effect without --rule split, got {seed}");
            return Err(invalid("--split-seed", reason));
        }
        match (self.rule, self.threshold) {
            (RuleName::Fixed, Some(threshold)) => Ok(ThresholdRule::Fixed { threshold }),
            (RuleName::Fixed, None) => {
                Err(invalid("--threshold", "must be given for --rule fixed"))
            }
            (_, Some(threshold)) => Err(invalid(
                "--threshold",
                format!("has no effect without --rule fixed, got {threshold}"),
            )),
            (RuleName::All, None) => Ok(ThresholdRule::All),
            (RuleName::Split, None) => {
                Ok(ThresholdRule::Split { seed: self.split_seed.unwrap_or(0) })
            }
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Output {
    let scores = AuditScores::load(&arguments.scores)?;
    check_distinct("--plot", arguments.plot.as_deref(), Some(&arguments.scores))?;
    let estimates = Audit::new(&scores, arguments.delta)?
        .with_significance(arguments.significance)?
        .with_threshold_rule(arguments.rule()?)?
        .with_false_positive_rates(arguments.fpr.clone())?
        .estimates();
    if let Some(path) = &arguments.plot {
        plot::roc(&scores, &estimates, path)?;
    }
    if arguments.json {
        let value = serde_json::to_value(&estimates).map_err(|source| AccountantError::Format {
            reason: "the estimates".into(),
            source: Some(source),
        })?;
        return Ok(json_text(&value));
    }
    let mut text = format!(
        "{} canaries in, {} out; each line holds with confidence {} % at delta = {:e}\n",
        scores.included().len(),
        scores.excluded().len(),
        Rounded::down(100.0 * (1.0 - arguments.significance)),
        arguments.delta
    );
    for estimate in estimates {
        let name = serde_json::to_value(estimate.estimator).unwrap_or_default();
        let measured: Vec<String> = (estimate.measured.iter())
            .map(|(name, value)| format!("{name} {}", Rounded::nearest(*value)))
            .collect();
        text += &format!(
            "{:<16} epsilon >= {:<9} if {}\n{:17}{}\n{:17}{}\n",
            name.as_str().unwrap_or_default(),
            Rounded::down(estimate.epsilon_lower).to_string(),
            estimate.assumes,
            "",
            estimate.threshold_rule,
            "",
            measured.join(", ")
        );
    }
    Ok(text)
}
