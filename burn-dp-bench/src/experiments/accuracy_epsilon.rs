//! Accuracy for several privacy budgets, compared with ordinary training.
//!
//! Each run is a run of `cargo xtask train` with its network, recipe and files.

use std::path::PathBuf;

use clap::Args;
use comfy_table::Table;
use serde::Serialize;

use burn_dp_examples::plot::{self, Interval, Spread};
use burn_dp_examples::training::individual::{self, IndividualSettings, RunFigures};
use burn_dp_examples::training::{
    BackendName, DataOptions, DatasetName, TrainError, TrainOptions, checks, files,
};

/// Options of the experiment.
#[derive(Args, Debug, Clone)]
pub struct AccuracyEpsilonOptions {
    /// Data set to train on.
    #[arg(value_enum, default_value_t = DatasetName::Digits)]
    pub dataset: DatasetName,
    /// Folder with the files of the data set, as in `cargo xtask train`; the synthetic digits need
    /// none [default: the variable BURN_DP_DATA].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Use only this many examples to train on.
    #[arg(long, value_name = "N")]
    pub train_size: Option<usize>,
    /// Use only this many examples to test on.
    #[arg(long, value_name = "N")]
    pub test_size: Option<usize>,
    /// Privacy budgets; each gets its own runs.
    #[arg(long, value_name = "E,…", value_delimiter = ',', allow_hyphen_values = true,
        default_values = ["1", "2", "3", "8"])]
    pub epsilons: Vec<f64>,
    /// Probability with which a budget may be exceeded; less than 1 / the number of examples.
    #[arg(long, value_name = "D", allow_hyphen_values = true, default_value_t = 1e-5)]
    pub delta: f64,
    /// Passes over the data in each run, including ordinary training [default: as in `train`].
    #[arg(long, value_name = "N")]
    pub epochs: Option<usize>,
    /// Expected size of a logical batch of the private runs [default: as in `train`].
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Seeds of the initial weights and of the synthetic digits, one run each. Noise and sampling
    /// never use them.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["0", "1"])]
    pub seeds: Vec<u64>,
    /// Backend to train on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Folder for the figures, the plot, and a folder for each run.
    #[arg(long, value_name = "DIR", default_value = "out/experiment-accuracy-epsilon")]
    pub output: PathBuf,
    /// File for the figures [default: accuracy-epsilon.json in the output folder].
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// File for the plot [default: accuracy-epsilon.svg in the output folder].
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Check that everything runs: 1024 images to train on, 200 to test on and one pass over the
    /// data, unless the options say otherwise. The accuracies are meaningless.
    #[arg(long)]
    pub quick: bool,
}

/// The figures of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccuracyEpsilon {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Name of the data set.
    pub dataset: String,
    /// Name of the network.
    pub model: String,
    /// Number of examples to train on.
    pub train_items: usize,
    /// Number of examples to test on.
    pub test_items: usize,
    /// Passes over the data of a private run.
    pub epochs: usize,
    /// Passes over the data of ordinary training.
    pub non_private_epochs: usize,
    /// Seeds, in the order of the accuracies.
    pub seeds: Vec<u64>,
    /// Private runs, by ε.
    pub series: Vec<AccuracyAtEpsilon>,
    /// Accuracy of ordinary training with each seed.
    pub non_private: Vec<f64>,
}

/// The runs with one budget.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccuracyAtEpsilon {
    /// Budget of each run.
    pub epsilon: f64,
    /// δ of the budget.
    pub delta: f64,
    /// Standard deviation of the noise over the clipping threshold.
    pub noise_multiplier: Option<f64>,
    /// Share of the test examples that are classified correctly, with each seed.
    pub accuracies: Vec<f64>,
}

/// Examples of a quick run.
const QUICK_TRAIN_SIZE: usize = 1024;
const QUICK_TEST_SIZE: usize = 200;

/// Trains with each budget and each seed, and without privacy.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option and [`TrainError::Data`] if the data
/// cannot be read, both before anything is written, and the error of a run that fails.
pub(super) fn run(options: AccuracyEpsilonOptions) -> Result<AccuracyEpsilon, TrainError> {
    let options = options.checked()?;
    let json = options.json.clone().unwrap_or_else(|| options.file("json"));
    let svg = options.svg.clone().unwrap_or_else(|| options.file("svg"));
    checks::file("--json", &json, Some(&options.output))?;
    checks::file("--svg", &svg, Some(&options.output))?;
    let mut runs = Vec::new();
    // The smallest budget first: a budget that no noise can meet is rejected before the other runs.
    for epsilon in options.epsilons.iter().copied().map(Some).chain([None]) {
        for &seed in &options.seeds {
            let run = options.training(epsilon, seed)?;
            IndividualSettings::new(run.clone(), DataOptions::environment())?;
            runs.push(run);
        }
    }
    let total = runs.len();
    let mut figures = Vec::new();
    for (index, run) in runs.into_iter().enumerate() {
        println!("\nrun {} of {total}: {}", index + 1, run.run.output.display());
        figures.push(individual::run(run)?);
    }
    let Some(experiment) = AccuracyEpsilon::new(&options, &figures) else {
        return Err(TrainError::option("--seeds", "must name a seed, got none; give --seeds 0"));
    };
    println!("\n{}", experiment.table());
    experiment.plot(&svg)?;
    files::write_json(&json, &experiment)?;
    println!("plot: {}\nfigures: {}", svg.display(), json.display());
    Ok(experiment)
}

impl AccuracyEpsilonOptions {
    /// Checks what training does not check, sorts the lists, and fills in the numbers of a quick
    /// run.
    fn checked(mut self) -> Result<Self, TrainError> {
        checks::positive(self.epsilons.iter().map(|&epsilon| ("--epsilons", epsilon)))?;
        checks::folder("--output", &self.output)?;
        self.epsilons.sort_by(f64::total_cmp);
        self.epsilons.dedup();
        self.seeds.sort_unstable();
        self.seeds.dedup();
        if self.quick {
            self.train_size = self.train_size.or(Some(QUICK_TRAIN_SIZE));
            self.test_size = self.test_size.or(Some(QUICK_TEST_SIZE));
            self.epochs = self.epochs.or(Some(1));
        }
        Ok(self)
    }

    /// Returns the path of a file in the output folder.
    fn file(&self, ending: &str) -> PathBuf {
        self.output.join(format!("accuracy-epsilon.{ending}"))
    }

    /// Returns the options of one run of `cargo xtask train`; ordinary training has no budget.
    fn training(&self, epsilon: Option<f64>, seed: u64) -> Result<TrainOptions, TrainError> {
        let mut run = TrainOptions::read(["train"])
            .map_err(|error| TrainError::option("train", error.to_string()))?;
        run.data.dataset = self.dataset;
        run.data.data_dir = self.data_dir.clone();
        run.data.train_size = self.train_size;
        run.data.test_size = self.test_size;
        run.data.seed = seed;
        run.examples.epochs = self.epochs;
        run.run.backend = self.backend;
        let name = match epsilon {
            Some(epsilon) => {
                run.privacy.epsilon = Some(epsilon);
                run.privacy.delta = Some(self.delta);
                run.individual.batch_size = self.batch_size;
                format!("epsilon-{epsilon}-seed-{seed}")
            }
            None => {
                run.individual.non_private = true;
                format!("ordinary-seed-{seed}")
            }
        };
        run.run.output = self.output.join(name);
        run.run.resume = individual::is_interrupted(&run.run.output)?;
        Ok(run)
    }
}

impl AccuracyEpsilon {
    /// Collects the figures of the runs, which are sorted by budget; `None` without runs.
    fn new(options: &AccuracyEpsilonOptions, runs: &[RunFigures]) -> Option<Self> {
        let (first, last) = (runs.first()?, runs.last()?);
        let mut groups = runs.chunks(options.seeds.len());
        let accuracies =
            |runs: &[RunFigures]| runs.iter().map(|run| run.test_accuracy).collect::<Vec<_>>();
        let series =
            options.epsilons.iter().zip(&mut groups).map(|(&epsilon, runs)| AccuracyAtEpsilon {
                epsilon,
                delta: options.delta,
                noise_multiplier: runs.first().and_then(|run| run.noise_multiplier),
                accuracies: accuracies(runs),
            });
        let series = series.collect();
        let epochs =
            |run: &RunFigures| run.steps / run.train_items.div_ceil(run.expected_batch_size);
        Some(Self {
            experiment: "accuracy-epsilon",
            dataset: first.dataset.clone(),
            model: first.model.clone(),
            train_items: first.train_items,
            test_items: first.test_items,
            epochs: epochs(first),
            non_private_epochs: epochs(last),
            seeds: options.seeds.clone(),
            series,
            non_private: groups.next().map(accuracies)?,
        })
    }

    /// Returns mean and range of the accuracy for each budget as a table.
    fn table(&self) -> String {
        let mut table = Table::new();
        table.set_header(["epsilon", "noise multiplier", "test accuracy", "range", "runs"]);
        let mut row = |epsilon: String, noise: String, accuracies: &[f64]| {
            let spread = Spread::of(accuracies);
            let mean = spread.map(|spread| format!("{:.2} %", 100.0 * spread.mean));
            let range = spread.map(|spread| {
                format!("{:.2} % to {:.2} %", 100.0 * spread.low, 100.0 * spread.high)
            });
            let runs = accuracies.len().to_string();
            table.add_row([
                epsilon,
                noise,
                mean.unwrap_or_default(),
                range.unwrap_or_default(),
                runs,
            ]);
        };
        for runs in &self.series {
            let noise = runs.noise_multiplier.map(|noise| format!("{noise:.4}"));
            row(runs.epsilon.to_string(), noise.unwrap_or_default(), &runs.accuracies);
        }
        row("not private".into(), String::new(), &self.non_private);
        table.to_string()
    }

    /// Draws the accuracy over ε.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if the file cannot be written.
    fn plot(&self, path: &std::path::Path) -> Result<(), TrainError> {
        let percent = |accuracies: &[f64]| {
            Spread::of(&accuracies.iter().map(|accuracy| 100.0 * accuracy).collect::<Vec<_>>())
        };
        let interval = |runs: &AccuracyAtEpsilon| {
            Some(Interval { x: runs.epsilon, spread: percent(&runs.accuracies)? })
        };
        let measured: Vec<_> = self.series.iter().filter_map(interval).collect();
        let (Some(runs), Some(reference)) = (self.series.first(), percent(&self.non_private))
        else {
            return Ok(());
        };
        let title = format!("{} on {}, {} examples", self.model, self.dataset, self.train_items);
        let x = format!("epsilon at delta = {:e}", runs.delta);
        let name = format!("differentially private, epochs: {}", self.epochs);
        let ordinary = format!("not private, epochs: {}", self.non_private_epochs);
        let titles = [&title, &x, "test accuracy, %"];
        plot::intervals(path, titles, &name, &measured, (&ordinary, reference))?;
        Ok(())
    }
}
