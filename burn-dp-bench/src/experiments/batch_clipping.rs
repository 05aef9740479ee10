//! Batch clipping compared with individual clipping, and adaptive layerwise clipping compared with
//! full gradient clipping.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, sections 4.3, 4.4, A.2 and A.4.

use std::path::PathBuf;

use burn_dp_accountant::Rounded;
use clap::Args;
use serde::Serialize;

use burn_dp_examples::plot::{self, Series};
use burn_dp_examples::training::batch_clipping::{
    BatchFigures, BatchModelName, BatchPolicyName, BatchSettings, MiniSetOptions, figures, load,
};
use burn_dp_examples::training::{
    BackendName, DataOptions, PrivacySettings, TrainError, checks, device, files,
};

/// Options of the experiment.
#[derive(Args, Debug, Clone)]
pub struct BatchClippingOptions {
    /// Data set and its location.
    #[command(flatten)]
    pub data: DataOptions,
    /// Passes over the data in each run; the paper has 50.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub epochs: usize,
    /// Passes of the runs with individual clipping, which take one backward pass per image; 0 skips
    /// them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub individual_epochs: usize,
    /// Images in a step (m in the paper).
    #[arg(long, value_name = "M", default_value_t = 64)]
    pub batch_size: usize,
    /// The sigma of the paper: the noise is 2 C sigma.
    #[arg(long, default_value_t = 0.5)]
    pub sigma: f64,
    /// Master clipping threshold.
    #[arg(long, value_name = "C", default_value_t = 0.2)]
    pub max_grad_norm: f64,
    /// Learning rate of the first epoch.
    #[arg(long, default_value_t = 0.025)]
    pub lr: f64,
    /// Factor of the learning rate after each epoch.
    #[arg(long, default_value_t = 0.9)]
    pub lr_decay: f64,
    /// Backend to train on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Folder for the figures and the plot.
    #[arg(long, value_name = "DIR", default_value = "out/experiment-batch-clipping")]
    pub output: PathBuf,
}

/// The runs by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchClippingExperiment {
    /// The runs, in order.
    pub runs: Vec<(String, BatchFigures)>,
}

/// One of the compared training runs.
struct Contender {
    name: &'static str,
    individual: bool,
    policy: BatchPolicyName,
    /// Noise of the whole release divided by σ.
    noise: f64,
}

/// Trains the same network in each way, and compares.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, [`TrainError::Data`] if the data cannot
/// be read, and the error of a run that fails.
pub(super) fn run(options: BatchClippingOptions) -> Result<BatchClippingExperiment, TrainError> {
    checks::at_least_one([("--epochs", options.epochs), ("--batch-size", options.batch_size)])?;
    checks::countable(options.epochs)?;
    checks::positive([
        ("--sigma", options.sigma),
        ("--max-grad-norm", options.max_grad_norm),
        ("--lr", options.lr),
        ("--lr-decay", options.lr_decay),
    ])?;
    let device = device(options.backend)?;
    let network = BatchModelName::BnLenet5;
    let data = load(&options.data, network)?;
    files::make_folder(&options.output)?;
    let (layerwise, flat) = (BatchPolicyName::Layerwise, BatchPolicyName::Flat);
    let zhang = BatchPolicyName::Zhang;
    let layers = network.layers(data.encoder.shape.channels, data.classes)?;
    // Layerwise clipping with noise 2 C_h sigma in each layer has the privacy of noise sigma / √L.
    let split = 1.0 / (layers as f64).sqrt();
    let contenders = [
        Contender { name: "BC+ALC", individual: false, policy: layerwise, noise: split },
        Contender {
            name: "BC+ALC of Zhang et al.",
            individual: false,
            policy: zhang,
            noise: split,
        },
        Contender { name: "BC+FGC, same noise", individual: false, policy: flat, noise: 1.0 },
        Contender { name: "BC+FGC, same epsilon", individual: false, policy: flat, noise: split },
        Contender { name: "IC+ALC", individual: true, policy: layerwise, noise: split },
    ];
    println!("{:<24}{:>8}{:>12}{:>12}{:>14}", "run", "epochs", "accuracy", "epsilon", "seconds");
    let paper = BatchSettings::of_paper()?;
    let mut runs = Vec::new();
    for contender in contenders {
        let epochs = if contender.individual { options.individual_epochs } else { options.epochs };
        if epochs == 0 {
            continue;
        }
        let (mini_set_size, mini_sets) =
            if contender.individual { (1, options.batch_size) } else { (options.batch_size, 1) };
        let settings = BatchSettings {
            mini_sets: MiniSetOptions {
                policy: contender.policy,
                mini_set_size,
                mini_sets,
                lr_decay: options.lr_decay,
                ..paper.mini_sets.clone()
            },
            model: network,
            epochs,
            lr: options.lr,
            max_grad_norm: options.max_grad_norm,
            privacy: PrivacySettings {
                epsilon: None,
                delta: 1e-5,
                // The sensitivity is 2 C.
                noise_multiplier: Some(2.0 * options.sigma * contender.noise),
                ..paper.privacy
            },
            seed: options.data.seed,
            ..paper.clone()
        };
        let figures = figures(&settings, &data, &device)?;
        println!(
            "{:<24}{:>8}{:>12}{:>12}{:>14.0}",
            contender.name,
            epochs,
            format!("{:.2} %", 100.0 * figures.test_accuracy),
            figures.epsilon.map_or("none".into(), printed),
            figures.train_seconds
        );
        runs.push((contender.name.to_string(), figures));
    }
    let experiment = BatchClippingExperiment { runs };
    let series: Vec<Series> = experiment.runs.iter().map(series).collect();
    let at = |name: &str| options.output.join(name);
    let title = format!("BN-LeNet-5, {}, sigma {}", data.name, options.sigma);
    plot::lines(&at("accuracy.svg"), [&title, "epoch", "test accuracy"], &series)?;
    files::write_json(&at("batch-clipping.json"), &experiment)?;
    println!("files: {}", options.output.display());
    Ok(experiment)
}

/// Returns an upper bound with four significant digits, rounded up.
fn printed(epsilon: f64) -> String {
    Rounded::up(epsilon).with_digits(4).to_string()
}

fn series((name, figures): &(String, BatchFigures)) -> Series {
    let points = figures.epochs.iter().map(|epoch| (epoch.epoch as f64, epoch.test_accuracy));
    Series::new(name, points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_epsilon_is_not_below_the_bound() {
        assert_eq!(printed(26.341), "26.35");
        assert_eq!(printed(1234.2), "1235");
    }
}
