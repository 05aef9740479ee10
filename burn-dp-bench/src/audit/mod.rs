//! The audit of burn-dp itself: training runs without a mistake, whose measured ε must never exceed
//! their ε, and runs with a planted mistake, whose measured ε must.
//!
//! All randomness follows from seeds, so every run produces the same figures. The statements:
//!
//! - **Honest.** Each lower bound holds with probability `1 - 0.05 / n` for n seeds, so all of them
//!   hold with probability 0.95. Each is also at least a third of ε, because a bound of 0 would
//!   never exceed anything.
//! - **Planted.** The lower bound of a training with a mistake exceeds the ε that it claims at a
//!   confidence of 95 %. The same training run without the mistake (the control) stays below its ε.

mod planted;
mod probe;

use std::path::PathBuf;

use burn_dp::audit::{Audit, AuditEstimate};
use burn_dp_accountant::Rounded;
use clap::Parser;
use serde::Serialize;

use burn_dp_examples::training::{TrainError, checks, files};
pub use planted::Bug;
use planted::{Audited, DELTA, Size, audit, honest};

/// Audit burn-dp: honest training runs, and runs with planted mistakes.
///
/// `cargo xtask audit estimate --scores FILE.json --delta D` computes the lower bounds of the
/// scores of any other training.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask audit", bin_name = "cargo xtask audit", version)]
pub struct AuditOptions {
    /// Number of honest runs, each with its own seed.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub seeds: u64,
    /// Canaries per training run.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub canaries: usize,
    /// Training runs with one canary each, for the mistakes that a single canary reveals.
    #[arg(long, value_name = "N", default_value_t = 600)]
    pub trials: usize,
    /// A quarter of the seeds, and fewer canaries and training runs.
    #[arg(long, conflicts_with_all = ["seeds", "canaries", "trials"])]
    pub quick: bool,
    /// Write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The figures of an audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditFigures {
    /// δ of every ε.
    pub delta: f64,
    /// Training runs without a mistake.
    pub honest: Vec<HonestRun>,
    /// Training runs with a mistake, each with its control.
    pub planted: Vec<PlantedRun>,
}

/// One training run without a mistake.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HonestRun {
    /// Its seed.
    pub seed: u64,
    /// The accountant's ε.
    pub epsilon: f64,
    /// What was measured.
    pub epsilon_lower: f64,
    /// Probability that the measured bound is wrong.
    pub significance: f64,
    /// The estimator.
    pub estimator: burn_dp::audit::Estimator,
}

/// One training run with a mistake, and its control.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlantedRun {
    /// The mistake.
    pub bug: Bug,
    /// The ε that it claims.
    pub epsilon: f64,
    /// What was measured.
    pub epsilon_lower: f64,
    /// Whether the measured bound exceeds the claim.
    pub caught: bool,
    /// The ε of the training run without the mistake.
    pub control_epsilon: f64,
    /// What was measured of it.
    pub control_epsilon_lower: f64,
    /// Probability that a measured bound is wrong.
    pub significance: f64,
    /// The estimator.
    pub estimator: burn_dp::audit::Estimator,
}

/// The probability that any honest bound is wrong, and that one planted bound is.
const SIGNIFICANCE: f64 = 0.05;

/// Share of ε that the measured bound must reach.
const LEAST_SHARE: f64 = 1.0 / 3.0;

/// Runs the audit, prints a table, and writes the figures.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, or if the audit fails: an honest
/// training exceeds its ε or shows less than a third of it, or a mistake is not caught. Returns
/// [`TrainError::Privacy`] if a training fails.
pub fn run(options: AuditOptions) -> Result<AuditFigures, TrainError> {
    checks::at_least_one([("--seeds", options.seeds)])?;
    checks::at_least_one([("--canaries", options.canaries), ("--trials", options.trials)])?;
    if let Some(path) = &options.json {
        checks::file("--json", path, None)?;
    }
    let (seeds, size) = match options.quick {
        true => (5, Size { canaries: 600, trials: 300 }),
        false => {
            let size = Size { canaries: options.canaries, trials: options.trials };
            (options.seeds, size)
        }
    };
    println!("{:<32}{:>10}{:>12}", "honest training, seed", "epsilon", "measured");
    let mut figures = AuditFigures { delta: DELTA, honest: Vec::new(), planted: Vec::new() };
    for seed in 0..seeds {
        let run = honest_run(size, seed, SIGNIFICANCE / seeds as f64)?;
        println!("{seed:<32}{}", columns(run.epsilon, run.epsilon_lower));
        figures.honest.push(run);
    }
    println!("{:<32}{:>10}{:>12}  caught", "planted mistake", "epsilon", "measured");
    for bug in Bug::ALL {
        let run = planted_run(bug, size)?;
        let name = serde_json::to_value(bug).unwrap_or_default();
        let name = name.as_str().unwrap_or_default().to_string();
        let caught = if run.caught { "yes" } else { "NO" };
        println!("{name:<32}{}  {caught}", columns(run.epsilon, run.epsilon_lower));
        let control = columns(run.control_epsilon, run.control_epsilon_lower);
        println!("{:<32}{control}", "  without it");
        figures.planted.push(run);
    }
    if let Some(path) = &options.json {
        files::write_json(path, &figures)?;
    }
    let faults = figures.faults();
    if faults.is_empty() {
        return Ok(figures);
    }
    Err(TrainError::option("the audit", format!("failed: {}", faults.join("; "))))
}

fn columns(epsilon: f64, lower: f64) -> String {
    let digits = |number: Rounded| number.with_digits(4).to_string();
    format!("{:>10}{:>12}", digits(Rounded::up(epsilon)), digits(Rounded::down(lower)))
}

impl AuditFigures {
    /// Returns the results that contradict the statements of the audit.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for run in &self.honest {
            let (seed, epsilon, lower) = (run.seed, run.epsilon, run.epsilon_lower);
            if lower > epsilon {
                faults.push(format!("seed {seed} shows {lower}, more than its epsilon {epsilon}"));
            }
            if lower < LEAST_SHARE * epsilon {
                faults.push(format!("seed {seed} shows {lower}, less than a third of {epsilon}"));
            }
        }
        for run in &self.planted {
            if !run.caught {
                let (epsilon, lower) = (run.epsilon, run.epsilon_lower);
                faults.push(format!(
                    "{:?} shows {lower}, not more than its claim of {epsilon}: with few --canaries \
                     and --trials a mistake can stay hidden",
                    run.bug
                ));
            }
            if run.control_epsilon_lower > run.control_epsilon {
                let (epsilon, lower) = (run.control_epsilon, run.control_epsilon_lower);
                faults.push(format!(
                    "the control of {:?} shows {lower}, more than its epsilon {epsilon}",
                    run.bug
                ));
            }
        }
        faults
    }
}

fn honest_run(size: Size, seed: u64, significance: f64) -> Result<HonestRun, TrainError> {
    let Audited { epsilon, scores } = honest(size, seed)?;
    let audit = Audit::new(&scores, DELTA).and_then(|audit| audit.with_significance(significance));
    let AuditEstimate { epsilon_lower, estimator, .. } =
        audit.map_err(burn_dp::DpError::from)?.gdp();
    Ok(HonestRun { seed, epsilon, epsilon_lower, significance, estimator })
}

/// Audits a mistake and its control, with the estimator of the mistake: with the full batch the
/// trade-off function of an honest training is Gaussian; with sampling it is not.
fn planted_run(bug: Bug, size: Size) -> Result<PlantedRun, TrainError> {
    let measured = |planted| -> Result<(f64, AuditEstimate), TrainError> {
        let Audited { epsilon, scores } = audit(bug, planted, size, 1)?;
        let audit = Audit::new(&scores, DELTA)
            .and_then(|audit| audit.with_significance(SIGNIFICANCE))
            .map_err(burn_dp::DpError::from)?;
        let estimate = if bug == Bug::NoSampling { audit.one_run() } else { audit.gdp() };
        Ok((epsilon, estimate))
    };
    let (epsilon, estimate) = measured(true)?;
    let (control_epsilon, control) = measured(false)?;
    Ok(PlantedRun {
        bug,
        epsilon,
        epsilon_lower: estimate.epsilon_lower,
        caught: estimate.epsilon_lower > epsilon,
        control_epsilon,
        control_epsilon_lower: control.epsilon_lower,
        significance: SIGNIFICANCE,
        estimator: estimate.estimator,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_well_formed() {
        AuditOptions::command().debug_assert();
        let none = AuditOptions::try_parse_from(["audit", "--seeds", "0"]).unwrap();
        assert!(run(none).unwrap_err().to_string().contains("--seeds"));
    }

    // It fails if an honest run or a control exceeds its ε, or if a mistake is not caught.
    #[test]
    fn an_audit_passes_and_writes_its_figures() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.json");
        let sizes = ["--seeds", "3", "--canaries", "600", "--trials", "300"];
        let words = ["audit", "--json", path.to_str().unwrap()].into_iter().chain(sizes);
        run(AuditOptions::try_parse_from(words).unwrap()).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        let [honest, planted] =
            ["honest", "planted"].map(|field| written[field].as_array().unwrap().clone());
        assert_eq!((honest.len(), planted.len()), (3, Bug::ALL.len()));
        for (seed, run) in honest.iter().enumerate() {
            assert_eq!(run["seed"], seed);
            assert!(run["epsilon_lower"].as_f64().unwrap() <= run["epsilon"].as_f64().unwrap());
        }
        for run in &planted {
            assert!(run["bug"].is_string() && run["caught"] == true, "{run}");
            assert!(run["epsilon_lower"].as_f64().unwrap() > run["epsilon"].as_f64().unwrap());
        }
    }

    #[test]
    fn a_failed_audit_is_reported() {
        let run = |epsilon, epsilon_lower| HonestRun {
            seed: 0,
            epsilon,
            epsilon_lower,
            significance: 0.05,
            estimator: burn_dp::audit::Estimator::Gdp,
        };
        let faults = |honest| {
            AuditFigures { delta: DELTA, honest: vec![honest], planted: Vec::new() }.faults().len()
        };
        assert_eq!(faults(run(3.0, 2.0)), 0);
        assert_eq!(faults(run(3.0, 3.1)), 1);
        assert_eq!(faults(run(3.0, 0.9)), 1);
    }
}
