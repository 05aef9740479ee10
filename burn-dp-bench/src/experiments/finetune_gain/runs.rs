//! The runs of the experiment: each is a command of `finetune`.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use burn_dp_examples::training::{TrainError, files, typed};
use burn_dp_models::finetune::{self, Finetune, HalvedColumns, write_halves};
use clap::Parser;
use serde::{Deserialize, Serialize};

use super::options::FinetuneGainOptions;
use super::settings::{Contender, Length, PublicTraining, Setting};
use crate::experiments::figure::Preset;

/// The folder of a run in the folder of the experiment.
pub(super) const RUN: &str = "burn-dp-run";

/// The file that marks the folder of a run.
pub(super) const MARKER: &str = ".burn-dp-experiment";

/// The results of a run in its folder. Its key is next to them.
pub(super) const RESULTS: &str = "results";

/// What is trained and protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A language model, each row.
    Rows,
    /// A language model, all rows of a user together.
    Users,
    /// A classifier, each row.
    Classes,
}

impl Kind {
    pub(super) fn of(options: &FinetuneGainOptions) -> Result<Self, TrainError> {
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
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rows => "finetune-gain",
            Self::Users => "finetune-gain-users",
            Self::Classes => "finetune-gain-classes",
        }
    }

    /// Returns the model that is trained on the public half.
    fn architecture(self) -> &'static str {
        if self == Self::Classes { "bert" } else { "gpt2" }
    }

    fn public_training(self, setting: &Setting) -> &PublicTraining {
        if self == Self::Classes { &setting.encoder } else { &setting.language }
    }

    fn length(self, setting: &Setting) -> Length {
        match self {
            Self::Rows => setting.rows,
            Self::Users => setting.users,
            Self::Classes => setting.classes,
        }
    }
}

/// The results of a run, before and after the private training.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Reached {
    pub(super) before: f64,
    pub(super) after: f64,
}

/// All runs of the experiment.
pub(super) struct Runs<'a> {
    pub(super) options: &'a FinetuneGainOptions,
    pub(super) setting: Setting,
    pub(super) kind: Kind,
    pub(super) folder: PathBuf,
    /// Whether the halves and the models exist.
    pub(super) is_prepared: Cell<bool>,
}

/// Runs a command of `finetune`.
fn finetune(words: &[&str]) -> Result<Option<Reached>, TrainError> {
    let words = ["finetune"].iter().chain(words);
    let command = Finetune::try_parse_from(words).map_err(|error| TrainError::Io {
        path: "the options of a run".into(),
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(finetune::run(command)?.map(|figures| match figures.perplexity {
        Some(after) => Reached { before: figures.before.loss.exp(), after },
        None => Reached { before: figures.before.accuracy, after: figures.after.accuracy },
    }))
}

impl Runs<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Describes everything that all runs have in common.
    pub(super) fn described(&self) -> String {
        let FinetuneGainOptions { data, text, group, user, label, labels, delta, .. } =
            self.options;
        let data = (data, text, group, user, label, labels);
        format!("{data:?}, delta {delta}, {:?}", self.setting)
    }

    /// Splits the data in halves and trains on the public half, unless an earlier run did.
    fn prepare(&self) -> Result<(), TrainError> {
        if self.is_prepared.get() {
            return Ok(());
        }
        let [public, private] = ["public.jsonl", "private.jsonl"].map(|name| self.at(name));
        let models = ["pretrained", "scratch"].map(|name| self.at(name));
        let options = self.options;
        let columns = HalvedColumns {
            text: &options.text,
            label: options.label.as_deref(),
            user: options.user.as_deref(),
            group: options.group.as_deref(),
        };
        let found = self.at("found.jsonl");
        write_halves(&options.data, columns, [&found, &private])?;
        let io = |source| TrainError::Io { path: public.clone(), source };
        let is_same = std::fs::read(&public).ok() == Some(std::fs::read(&found).map_err(io)?);
        // The last file of a model to be written.
        let config = |model: &Path| model.join("config.json");
        if !is_same {
            models.iter().try_for_each(|model| files::remove(&config(model)))?;
        }
        std::fs::rename(&found, &public).map_err(io)?;
        let PublicTraining { steps, positions, options } = self.kind.public_training(&self.setting);
        for (model, steps) in models.iter().zip([steps, "0"]) {
            if config(model).is_file() {
                continue;
            }
            let (public, model) = (text(&public), text(model));
            let mut words = vec!["pretrain", "--data", &public, "--text", "text"];
            words.extend(["--architecture", self.kind.architecture()]);
            words.extend(["--positions", positions, "--output", &model, "--steps", steps]);
            words.extend(*options);
            finetune(&words)?;
        }
        self.is_prepared.set(true);
        Ok(())
    }

    /// Returns the folder of the results of a new run, without the results and the key of the last
    /// one. A killed run is not resumed: the measurement starts again.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if there is a folder that no experiment created.
    fn results(&self) -> Result<PathBuf, TrainError> {
        let folder = self.at(RUN);
        let (marker, results) = (folder.join(MARKER), folder.join(RESULTS));
        files::make_folder(&folder)?;
        files::remove_incomplete(&folder)?;
        if !marker.is_file() {
            let entries = std::fs::read_dir(&folder);
            let entries = entries.map_err(|source| TrainError::Io { path: folder.clone(), source });
            if entries?.next().is_some() {
                let reason = format!(
                    "{} has files of others; move them away, or give another folder",
                    folder.display()
                );
                return Err(TrainError::option("--output", reason));
            }
            files::write(&marker, b"")?;
        }
        files::remove(&results.with_extension("key"))?;
        match std::fs::remove_dir_all(&results) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(TrainError::Io { path: results, source })
            }
            _ => Ok(results),
        }
    }

    /// Runs private training, after public training if there was none yet.
    pub(super) fn reach(
        &self,
        contender: &Contender,
        epsilon: f64,
        seed: u64,
    ) -> Result<Reached, TrainError> {
        let output = self.results()?;
        self.prepare()?;
        let model = self.at(if contender.is_pretrained { "pretrained" } else { "scratch" });
        let (model, data, output) = (text(&model), text(&self.at("private.jsonl")), text(&output));
        let (way, epsilon, seed) = (typed(contender.way), epsilon.to_string(), seed.to_string());
        let (delta, backend) = (self.options.delta.to_string(), typed(self.options.backend));
        let Length { epochs, batch } = self.kind.length(&self.setting);
        let (batch, epochs) = (batch.to_string(), epochs.to_string());
        let labels = self.options.labels.join(",");
        let mut words = match self.kind {
            Kind::Rows => vec!["generate", "--samples", "0"],
            Kind::Users => vec!["generate", "--samples", "0", "--user", "user"],
            Kind::Classes => vec!["classify", "--label", "label", "--labels", &labels],
        };
        words.extend(["--model", &model, "--data", &data, "--text", "text", "--train", &way]);
        let positions = self.kind.public_training(&self.setting).positions;
        words.extend(["--max-length", positions, "--output", &output]);
        words.extend(["--epsilon", &epsilon, "--delta", &delta, "--seed", &seed]);
        words.extend(["--batch-size", &batch, "--epochs", &epochs, "--backend", &backend]);
        words.extend(match self.kind {
            Kind::Classes => contender.encoder,
            Kind::Rows | Kind::Users => contender.language,
        });
        let reached = finetune(&words)?;
        reached.ok_or_else(|| TrainError::option("--data", "gave no training"))
    }

    /// Returns the label of the results.
    pub(super) fn label(&self) -> &'static str {
        if self.kind == Kind::Classes { "test accuracy" } else { "perplexity of a token" }
    }

    pub(super) fn sentence(&self, preset: Preset, seeds: usize) -> String {
        let protected = if self.kind == Kind::Users { "all rows of a user" } else { "a row" };
        let size = if preset == Preset::Quick { "small" } else { "larger" };
        let Length { epochs, batch } = self.kind.length(&self.setting);
        let model = if self.kind == Kind::Classes { "BERT" } else { "GPT-2" };
        format!(
            "A {size} {model}, pre-trained on the public half of {} and fine-tuned on the other: \
             {epochs} passes in batches of {batch}, protecting {protected} at δ = {:e}, {seeds} \
             seeds. Learning rates and thresholds were chosen on such texts, and the choice is not \
             accounted for.",
            self.options.data.file_name().unwrap_or_default().to_string_lossy(),
            self.options.delta
        )
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
