//! What a model that was trained on public texts gains over private training from scratch.
//!
//! Each run is a run of `cargo xtask finetune`.

use std::path::{Path, PathBuf};

use burn_dp_examples::training::{TrainError, checks, files, typed};
use burn_dp_models::finetune::{Finetune, HalvedColumns, Way, write_halves};
use clap::{Args, Parser};
use serde::{Deserialize, Serialize};

use super::figure::{Figure, FigurePoint, FigureSeries, Preset, Verdict};
use super::measured::{FigureOptions, Measured};

/// Options of the experiment.
#[derive(Args, Debug, Clone)]
pub struct FinetuneGainOptions {
    /// File of texts: .csv with a head line, or .jsonl, plain or gzip. One half is taken as public
    /// and pre-trains a small GPT-2; the other half is private.
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Column of the text.
    #[arg(long, value_name = "COLUMN")]
    pub text: String,
    /// Column of what belongs to one half as a whole: its value up to the first slash [default:
    /// each text by itself].
    #[arg(long, value_name = "COLUMN")]
    pub group: Option<String>,
    /// Column of the user: protects all rows of a user together.
    #[arg(long, value_name = "COLUMN")]
    pub user: Option<String>,
    /// Column of the class: trains a classifier in place of a language model.
    #[arg(long, value_name = "COLUMN", requires = "labels")]
    pub label: Option<String>,
    /// Names of the classes.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', requires = "label")]
    pub labels: Vec<String>,
    /// Privacy budgets.
    #[arg(long, value_name = "E,…", value_delimiter = ',', default_values = ["1", "3", "8"])]
    pub epsilons: Vec<f64>,
    /// Probability with which a budget may be exceeded.
    #[arg(long, value_name = "D", default_value_t = 1e-5)]
    pub delta: f64,
    /// Small models and short trainings: minutes for a run on two cores.
    #[arg(long)]
    pub quick: bool,
    /// Seeds of initial weights, one run each; noise and sampling never use them.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["0", "1", "2"])]
    pub seeds: Vec<u64>,
    /// Folder for the figure, the halves and the models [default: out/experiment-NAME]. A run that
    /// was interrupted continues.
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// File for the figures as JSON [default: NAME.json in the output folder].
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A way to train.
struct Contender {
    name: &'static str,
    /// Whether it begins with the pre-trained weights.
    is_pretrained: bool,
    way: Way,
    /// Other options of the command.
    options: &'static [&'static str],
}

/// The first one trains from scratch, and needs larger steps.
const CONTENDERS: [Contender; 5] = [
    Contender {
        name: "from scratch",
        is_pretrained: false,
        way: Way::Full,
        options: &["--lr", "0.002"],
    },
    Contender { name: "all parameters", is_pretrained: true, way: Way::Full, options: &[] },
    Contender { name: "LoRA", is_pretrained: true, way: Way::Lora, options: &["--lora", "8"] },
    Contender { name: "biases", is_pretrained: true, way: Way::Bias, options: &[] },
    Contender { name: "probe", is_pretrained: true, way: Way::Probe, options: &[] },
];

/// Sizes of the public and of the private training.
struct Setting {
    pretrain: &'static [&'static str],
    positions: &'static str,
    /// For rows of texts, users and classes.
    epochs: [usize; 3],
    batches: [usize; 3],
}

const QUICK: Setting = Setting {
    pretrain: &["--steps", "1000", "--layers", "3", "--width", "96"],
    positions: "64",
    epochs: [2, 8, 3],
    batches: [256, 64, 256],
};

const PAPER: Setting = Setting {
    pretrain: &["--steps", "6000", "--layers", "6", "--width", "192"],
    positions: "128",
    epochs: [4, 20, 6],
    batches: [256, 64, 256],
};

/// What a run reached, before and after the private training.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Reached {
    before: f64,
    after: f64,
}

pub(super) fn run(options: &FinetuneGainOptions) -> Result<Figure, TrainError> {
    run_with(options, if options.quick { QUICK } else { PAPER })
}

fn run_with(options: &FinetuneGainOptions, setting: Setting) -> Result<Figure, TrainError> {
    let kind = match (&options.label, &options.user) {
        (Some(_), Some(_)) => {
            let reason = "must be left out with --label: the classes are of rows";
            return Err(TrainError::option("--user", reason));
        }
        (None, None) => 0,
        (None, Some(_)) => 1,
        (Some(_), None) => 2,
    };
    let name = ["finetune-gain", "finetune-gain-users", "finetune-gain-classes"][kind];
    checks::positive(options.epsilons.iter().map(|&epsilon| ("--epsilons", epsilon)))?;
    let output =
        options.output.clone().unwrap_or_else(|| PathBuf::from(format!("out/experiment-{name}")));
    let figure_options = FigureOptions {
        quick: options.quick,
        data_dir: None,
        seeds: options.seeds.clone(),
        output: Some(output.clone()),
        json: options.json.clone(),
    };
    let mut measured = Measured::open(name, &figure_options)?;
    let folder = output.join(format!("{name}.runs"));
    files::make_folder(&folder)?;
    let runs = Runs { options, setting, kind, folder };
    let seeds = measured.seeds.clone();
    let contenders = || CONTENDERS.iter().filter(|one| kind == 2 || one.way != Way::Probe);
    measured.expect(contenders().count() * options.epsilons.len() * seeds.len());
    let mut series: Vec<FigureSeries> = Vec::new();
    let mut before = Vec::new();
    for contender in contenders() {
        let mut points = Vec::new();
        for &epsilon in &options.epsilons {
            let mut found = Vec::new();
            for &seed in &seeds {
                let key = format!("{}, epsilon {epsilon}, seed {seed}", contender.name);
                let reached: Reached =
                    measured.measure(&key, || runs.reach(contender, epsilon, seed))?;
                found.push(reached.after);
                if contender.is_pretrained {
                    before.push(reached.before);
                }
            }
            points.extend(FigurePoint::of(epsilon, &found));
        }
        series.push(FigureSeries { name: contender.name.into(), points });
    }
    let verdicts = options.epsilons.iter().enumerate().map(|(index, epsilon)| {
        let values = series.iter().filter_map(|line| Some(line.points.get(index)?.y));
        let values: Vec<f64> = values.collect();
        let best = values[1..].iter().copied().reduce(|a, b| runs.better(a, b));
        let (scratch, best) = (values[0], best.unwrap_or(f64::NAN));
        Verdict::new(
            format!("At ε = {epsilon}, fine-tuning beats private training from scratch."),
            scratch != best && runs.better(scratch, best) == best,
            [("from scratch", scratch), ("best way to fine-tune", best)],
        )
    });
    let verdicts = verdicts.collect();
    if kind != 2 {
        let ends = [options.epsilons.first(), options.epsilons.last()].into_iter().flatten();
        let points = ends.filter_map(|&x| Some(FigurePoint { x, ..FigurePoint::of(x, &before)? }));
        series.push(FigureSeries { name: "before".into(), points: points.collect() });
    }
    measured.finish(Figure {
        experiment: name.into(),
        figure: "Private fine-tuning of a model that was trained on public texts".into(),
        preset: measured.preset,
        setting: runs.sentence(measured.preset, seeds.len()),
        labels: ["Private training with and without public texts", "ε", runs.label()]
            .map(String::from),
        series,
        verdicts,
    })
}

/// All runs of the experiment.
struct Runs<'a> {
    options: &'a FinetuneGainOptions,
    setting: Setting,
    /// Rows of texts, users, or classes.
    kind: usize,
    folder: PathBuf,
}

/// Runs a command of `finetune`.
fn finetune(words: &[&str]) -> Result<Option<Reached>, TrainError> {
    let words = ["finetune"].iter().chain(words);
    let command = Finetune::try_parse_from(words).map_err(|error| TrainError::Io {
        path: "the options of a run".into(),
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(command.run()?.map(|figures| match figures.perplexity {
        Some(after) => Reached { before: figures.before.loss.exp(), after },
        None => Reached { before: figures.before.accuracy, after: figures.after.accuracy },
    }))
}

impl Runs<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Halves the data, and trains on the public half.
    fn prepare(&self) -> Result<(), TrainError> {
        let [public, private] = ["public.jsonl", "private.jsonl"].map(|name| self.at(name));
        if !private.is_file() {
            let options = self.options;
            let columns = HalvedColumns {
                text: &options.text,
                label: options.label.as_deref(),
                user: options.user.as_deref(),
                group: options.group.as_deref(),
            };
            write_halves(&options.data, columns, [&public, &private])?;
        }
        for (name, more) in [("pretrained", &[][..]), ("scratch", &["--steps", "0"][..])] {
            let model = self.at(name);
            // The last file that is written.
            if model.join("config.json").is_file() {
                continue;
            }
            let (public, model) = (text(&public), text(&model));
            let mut words = vec!["pretrain", "--data", &public, "--text", "text"];
            words.extend(["--positions", self.setting.positions, "--output", &model]);
            let given =
                if more.is_empty() { self.setting.pretrain } else { &self.setting.pretrain[2..] };
            words.extend(given.iter().chain(more));
            finetune(&words)?;
        }
        Ok(())
    }

    /// Makes a private run, after the public one if there was none yet.
    fn reach(&self, contender: &Contender, epsilon: f64, seed: u64) -> Result<Reached, TrainError> {
        self.prepare()?;
        let model = self.at(if contender.is_pretrained { "pretrained" } else { "scratch" });
        let (model, data, output) =
            (text(&model), text(&self.at("private.jsonl")), text(&self.at("run")));
        let (way, epsilon, seed) = (typed(contender.way), epsilon.to_string(), seed.to_string());
        let delta = self.options.delta.to_string();
        let [batch, epochs] =
            [self.setting.batches, self.setting.epochs].map(|of| of[self.kind].to_string());
        let labels = self.options.labels.join(",");
        let mut words = match self.kind {
            2 => vec!["classify", "--label", "label", "--labels", &labels],
            1 => vec!["generate", "--samples", "0", "--user", "user"],
            _ => vec!["generate", "--samples", "0"],
        };
        words.extend(["--model", &model, "--data", &data, "--text", "text", "--train", &way]);
        words.extend(["--max-length", self.setting.positions, "--output", &output]);
        words.extend(["--epsilon", &epsilon, "--delta", &delta, "--seed", &seed]);
        words.extend(["--batch-size", &batch, "--epochs", &epochs]);
        words.extend(contender.options);
        let reached = finetune(&words)?;
        reached.ok_or_else(|| TrainError::option("--data", "gave no training"))
    }

    /// Returns the better of two results.
    fn better(&self, one: f64, other: f64) -> f64 {
        if self.kind == 2 { one.max(other) } else { one.min(other) }
    }

    fn label(&self) -> &'static str {
        if self.kind == 2 { "test accuracy" } else { "perplexity of a token" }
    }

    fn sentence(&self, preset: Preset, seeds: usize) -> String {
        let protected = ["a row", "all rows of a user", "a row"][self.kind];
        let size = if preset == Preset::Quick { "small" } else { "larger" };
        format!(
            "A {size} GPT-2, pre-trained on the public half of {} and fine-tuned on the other: {} \
             passes in batches of {}, protecting {protected} at δ = {:e}, {seeds} seeds.",
            self.options.data.file_name().unwrap_or_default().to_string_lossy(),
            self.setting.epochs[self.kind],
            self.setting.batches[self.kind],
            self.options.delta
        )
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::experiments::{Experiment, ExperimentOptions};

    const TINY: Setting = Setting {
        pretrain: &["--steps", "30", "--layers", "1", "--width", "16", "--vocabulary-size", "300"],
        positions: "8",
        epochs: [1, 1, 1],
        batches: [16, 4, 16],
    };

    fn options(folder: &Path, more: &str) -> FinetuneGainOptions {
        let row = |index: usize| {
            let word = ["good", "bad"][index / 8 % 2];
            format!("the film is {word},{word},play {}/role {}\n", index / 20, index % 20)
        };
        let rows: String = (0..160).map(row).collect();
        let data = folder.join("data.csv");
        std::fs::write(&data, format!("body,class,who\n{rows}")).unwrap();
        let words = format!(
            "experiment finetune-gain --data {} --text body --group who --epsilons 2 --delta 1e-3 \
             --seeds 0 --quick --output {} {more}",
            data.display(),
            folder.join("out").display()
        );
        let parsed = ExperimentOptions::try_parse_from(words.split_whitespace()).unwrap();
        let Experiment::FinetuneGain(options) = parsed.experiment else { panic!("{words}") };
        options
    }

    #[test]
    fn rows_users_and_classes_are_measured_against_training_from_scratch() {
        for (more, name, lines) in [
            ("", "finetune-gain", 5),
            ("--user who", "finetune-gain-users", 5),
            ("--label class --labels good,bad", "finetune-gain-classes", 5),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let options = options(folder.path(), more);
            let figure = run_with(&options, TINY).unwrap();
            assert_eq!((figure.experiment.as_str(), figure.series.len()), (name, lines));
            assert_eq!(figure.verdicts.len(), 1);
            let values = figure.series.iter().map(|line| line.points[0].y);
            assert!(values.clone().all(|value| value > 0.0), "{:?}", values.collect::<Vec<_>>());
            let output = folder.path().join("out");
            assert!(output.join(format!("{name}.json")).is_file());
        }
    }

    #[test]
    fn impossible_options_are_refused_before_anything_is_written() {
        for (more, expected) in [
            ("--user who --label class --labels good,bad", "--user must be left out"),
            ("--epsilons 0", "--epsilons must be"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let error = run(&options(folder.path(), more)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!folder.path().join("out").exists());
        }
    }
}
