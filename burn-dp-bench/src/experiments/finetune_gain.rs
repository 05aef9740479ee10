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
#[derive(Debug)]
struct Setting {
    pretrain_steps: &'static str,
    /// Options of the model.
    sizes: &'static [&'static str],
    positions: &'static str,
    rows: Length,
    users: Length,
    classes: Length,
}

/// Length of a private training.
#[derive(Clone, Copy, Debug)]
struct Length {
    epochs: usize,
    batch: usize,
}

const QUICK: Setting = Setting {
    pretrain_steps: "1000",
    sizes: &["--layers", "3", "--width", "96"],
    positions: "64",
    rows: Length { epochs: 2, batch: 256 },
    users: Length { epochs: 8, batch: 64 },
    classes: Length { epochs: 3, batch: 256 },
};

const PAPER: Setting = Setting {
    pretrain_steps: "6000",
    sizes: &["--layers", "6", "--width", "192"],
    positions: "128",
    rows: Length { epochs: 4, batch: 256 },
    users: Length { epochs: 20, batch: 64 },
    classes: Length { epochs: 6, batch: 256 },
};

/// What is trained and protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A language model, each row.
    Rows,
    /// A language model, all rows of a user together.
    Users,
    /// A classifier, each row.
    Classes,
}

impl Kind {
    fn of(options: &FinetuneGainOptions) -> Result<Self, TrainError> {
        match (&options.label, &options.user) {
            (Some(_), Some(_)) => {
                let reason = "must be left out with --label: the classes are of rows";
                Err(TrainError::option("--user", reason))
            }
            (None, None) => Ok(Self::Rows),
            (None, Some(_)) => Ok(Self::Users),
            (Some(_), None) => Ok(Self::Classes),
        }
    }

    /// Returns the name of the experiment.
    fn name(self) -> &'static str {
        match self {
            Self::Rows => "finetune-gain",
            Self::Users => "finetune-gain-users",
            Self::Classes => "finetune-gain-classes",
        }
    }

    fn length(self, setting: &Setting) -> Length {
        match self {
            Self::Rows => setting.rows,
            Self::Users => setting.users,
            Self::Classes => setting.classes,
        }
    }

    /// Returns the better of two results: of accuracies or of perplexities.
    fn better(self, one: f64, other: f64) -> f64 {
        if self == Self::Classes { one.max(other) } else { one.min(other) }
    }
}

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
    let kind = Kind::of(options)?;
    let name = kind.name();
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
    let preset = if options.quick { "quick" } else { "paper" };
    let folder = output.join(format!("{name}.{preset}"));
    files::make_folder(&folder)?;
    let runs = Runs { options, setting, kind, folder };
    let seeds = measured.seeds.clone();
    let contenders =
        || CONTENDERS.iter().filter(|one| kind == Kind::Classes || one.way != Way::Probe);
    measured.expect(contenders().count() * options.epsilons.len() * seeds.len());
    let mut series: Vec<FigureSeries> = Vec::new();
    let mut before = Vec::new();
    for contender in contenders() {
        let mut points = Vec::new();
        for &epsilon in &options.epsilons {
            let mut found = Vec::new();
            for &seed in &seeds {
                let key = format!("{epsilon}, {seed}, {}, {}", contender.name, runs.described());
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
        let best = values[1..].iter().copied().reduce(|a, b| kind.better(a, b));
        let (scratch, best) = (values[0], best.unwrap_or(f64::NAN));
        Verdict::new(
            format!("At ε = {epsilon}, fine-tuning beats private training from scratch."),
            scratch != best && kind.better(scratch, best) == best,
            [("from scratch", scratch), ("best way to fine-tune", best)],
        )
    });
    let verdicts = verdicts.collect();
    if kind != Kind::Classes {
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
    kind: Kind,
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

    /// Describes everything that is the same in all runs.
    fn described(&self) -> String {
        let FinetuneGainOptions { data, text, group, user, label, labels, delta, .. } =
            self.options;
        let data = (data, text, group, user, label, labels);
        format!("{data:?}, delta {delta}, {:?}", self.setting)
    }

    /// Halves the data, and trains on the public half, unless it is the half of an earlier run.
    fn prepare(&self) -> Result<(), TrainError> {
        let [public, private] = ["public.jsonl", "private.jsonl"].map(|name| self.at(name));
        let models = ["pretrained", "scratch"].map(|name| self.at(name));
        let options = self.options;
        let columns = HalvedColumns {
            text: &options.text,
            label: options.label.as_deref(),
            user: options.user.as_deref(),
            group: options.group.as_deref(),
        };
        let before = std::fs::read(&public).ok();
        write_halves(&options.data, columns, [&public, &private])?;
        let is_same =
            before.is_some_and(|before| std::fs::read(&public).is_ok_and(|now| now == before));
        for (model, steps) in models.iter().zip([self.setting.pretrain_steps, "0"]) {
            // The last file that is written.
            let config = model.join("config.json");
            if is_same && config.is_file() {
                continue;
            }
            files::remove(&config)?;
            let (public, model) = (text(&public), text(model));
            let mut words = vec!["pretrain", "--data", &public, "--text", "text"];
            words.extend(["--positions", self.setting.positions, "--output", &model]);
            words.extend(["--steps", steps]);
            words.extend(self.setting.sizes);
            finetune(&words)?;
        }
        Ok(())
    }

    /// Makes a private run, after the public one if there was none yet.
    fn reach(&self, contender: &Contender, epsilon: f64, seed: u64) -> Result<Reached, TrainError> {
        self.prepare()?;
        let model = self.at(if contender.is_pretrained { "pretrained" } else { "scratch" });
        let output = self.at("run");
        // A run that was killed is not resumed: the measurement begins again.
        match std::fs::remove_dir_all(&output) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TrainError::Io { path: output, source: error });
            }
            _ => {}
        }
        let (model, data, output) = (text(&model), text(&self.at("private.jsonl")), text(&output));
        let (way, epsilon, seed) = (typed(contender.way), epsilon.to_string(), seed.to_string());
        let delta = self.options.delta.to_string();
        let Length { epochs, batch } = self.kind.length(&self.setting);
        let (batch, epochs) = (batch.to_string(), epochs.to_string());
        let labels = self.options.labels.join(",");
        let mut words = match self.kind {
            Kind::Rows => vec!["generate", "--samples", "0"],
            Kind::Users => vec!["generate", "--samples", "0", "--user", "user"],
            Kind::Classes => vec!["classify", "--label", "label", "--labels", &labels],
        };
        words.extend(["--model", &model, "--data", &data, "--text", "text", "--train", &way]);
        words.extend(["--max-length", self.setting.positions, "--output", &output]);
        words.extend(["--epsilon", &epsilon, "--delta", &delta, "--seed", &seed]);
        words.extend(["--batch-size", &batch, "--epochs", &epochs]);
        words.extend(contender.options);
        let reached = finetune(&words)?;
        reached.ok_or_else(|| TrainError::option("--data", "gave no training"))
    }

    /// Returns the label of the results.
    fn label(&self) -> &'static str {
        if self.kind == Kind::Classes { "test accuracy" } else { "perplexity of a token" }
    }

    fn sentence(&self, preset: Preset, seeds: usize) -> String {
        let protected = if self.kind == Kind::Users { "all rows of a user" } else { "a row" };
        let size = if preset == Preset::Quick { "small" } else { "larger" };
        let Length { epochs, batch } = self.kind.length(&self.setting);
        format!(
            "A {size} GPT-2, pre-trained on the public half of {} and fine-tuned on the other: \
             {epochs} passes in batches of {batch}, protecting {protected} at δ = {:e}, {seeds} \
             seeds.",
            self.options.data.file_name().unwrap_or_default().to_string_lossy(),
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
        pretrain_steps: "30",
        sizes: &["--layers", "1", "--width", "16", "--vocabulary-size", "300"],
        positions: "8",
        rows: Length { epochs: 1, batch: 16 },
        users: Length { epochs: 1, batch: 4 },
        classes: Length { epochs: 1, batch: 16 },
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
