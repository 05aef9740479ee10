//! The kinds of runs that are killed.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::AdamConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::optim::{DpOptimizer, PrivacyPlan, WeightAverage};
use burn_dp_accountant::PrivacyLedger;
use burn_dp_examples::models::MlpConfig;
use burn_dp_examples::training::{
    LEDGER_FILE, MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT, TrainOptions, individual, run,
};
use clap::ValueEnum;

#[cfg(feature = "train")]
use super::learner;
use super::releases::Log;
use super::tiny::{
    DELTA, MODEL, Net, RELEASED, RESULTS, Rows, STEPS, correlated_plan, dataset, device, phase,
    plan, publish, values,
};

/// The log of the releases, in the folder of the checkpoints.
const LOG: &str = "releases.log";

/// A kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Subject {
    /// A custom loop that saves every two steps.
    Loop,
    /// The custom loop with correlated noise, over shuffled epochs.
    Correlated,
    /// Burn's learner.
    #[cfg(feature = "train")]
    Learner,
    /// The training program, `cargo xtask train`.
    Program,
}

impl Subject {
    /// Returns every kind.
    pub(super) fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }

    /// Returns the name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Correlated => "correlated",
            #[cfg(feature = "train")]
            Self::Learner => "learner",
            Self::Program => "program",
        }
    }

    /// Returns the log of the releases of the run in this folder, and its published model.
    pub(super) fn files_in(self, folder: &Path) -> (PathBuf, PathBuf) {
        let results = folder.join(RESULTS);
        match self {
            Self::Program => (results.join("checkpoints").join(LOG), results.join(MODEL_FILE)),
            _ => (folder.join("run").join(LOG), results.join(MODEL)),
        }
    }

    /// Reads the log of the releases of the run in this folder.
    pub(super) fn log_in(self, folder: &Path) -> Log {
        let (log, model) = self.files_in(folder);
        Log::read(&log, &model)
    }

    /// Returns what a file of the results must have in common with that of an undisturbed run.
    /// `None` if it may differ.
    ///
    /// # Errors
    ///
    /// Returns a message if the file cannot be read, or is not complete.
    pub(super) fn content(self, path: &Path) -> Result<Option<Vec<u8>>, String> {
        match (self, path.file_name().and_then(|name| name.to_str())) {
            (Self::Program, Some(MODEL_FILE)) => {
                let model = MlpConfig::new().init(&Device::flex()).try_load_file(path);
                model.map(|model| Some(values(&model))).map_err(|error| error.to_string())
            }
            (_, Some(MODEL | STATEMENT_TEXT | STATEMENT_JSON)) => {
                std::fs::read(path).map(Some).map_err(|error| error.to_string())
            }
            (_, Some(LEDGER_FILE)) => {
                let ledger = PrivacyLedger::load(path).map_err(|error| error.to_string())?;
                let bytes = serde_json::to_vec(ledger.entries());
                bytes.map(Some).map_err(|error| error.to_string())
            }
            _ => complete(path).map(|()| None),
        }
        .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Starts or continues the run in this folder, and runs it to the end.
    pub(super) fn run(self, folder: &Path) -> Result<(), String> {
        match self {
            Self::Loop => run_loop(folder, plan).map_err(|error| error.to_string()),
            Self::Correlated => {
                run_loop(folder, correlated_plan).map_err(|error| error.to_string())
            }
            #[cfg(feature = "train")]
            Self::Learner => learner::run(folder).map_err(|error| error.to_string()),
            Self::Program => run_program(&folder.join(RESULTS)),
        }
    }
}

/// Checks that a file whose content may differ from run to run is not cut off.
fn complete(path: &Path) -> Result<(), String> {
    let text = || std::fs::read_to_string(path).map_err(|error| error.to_string());
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => match serde_json::from_str::<serde_json::Value>(&text()?) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        Some("svg") if !text()?.trim_end().ends_with("</svg>") => Err("is cut off".into()),
        _ => Ok(()),
    }
}

fn run_loop(folder: &Path, plan: impl Fn() -> Result<PrivacyPlan, DpError>) -> Result<(), DpError> {
    phase("load");
    let checkpointer = Checkpointer::new(folder.join("run"));
    let (device, inner) = (device(), AdamConfig::new().init());
    let mut model = Net::new(&device);
    let mut optim: DpOptimizer = match checkpointer.latest()? {
        Some(checkpoint) => {
            let (optim, restored) = checkpoint.restore(plan()?, inner, model)?;
            model = restored;
            optim
        }
        None => {
            let average = WeightAverage::new(0.9)?;
            let optim = plan()?.optimizer(inner).with_weight_average(average)?;
            phase("first checkpoint");
            checkpointer.save(&model, &optim)?;
            optim
        }
    };
    let batches = optim.plan().batches(dataset(0), Rows, &device)?;
    for batch in batches.skip_to(optim.next_step())? {
        phase("step");
        let batch = batch?;
        optim.backward_batch(&model, &batch, 5, |model, rows| model.predict(rows).0)?;
        phase("log and release");
        model = optim.step(0.1, model, batch)?;
        println!("{RELEASED}{}", optim.next_step());
        if optim.next_step().is_multiple_of(2) {
            phase("checkpoint");
            checkpointer.save(&model, &optim)?;
        }
    }
    if optim.ledger().releases() != STEPS {
        let releases = optim.ledger().releases();
        return Err(DpError::InvalidState { reason: format!("{releases} releases, not {STEPS}") });
    }
    phase("last checkpoint");
    checkpointer.save(&model, &optim)?;
    publish(folder, model, || {
        optim.forget_key()?;
        optim.statement(&[DELTA])
    })
}

fn run_program(output: &Path) -> Result<(), String> {
    phase("program");
    let resume = individual::is_interrupted(output).map_err(|error| error.to_string())?;
    // Killed while it removed its checkpoints, its last act. To train would be another run, which
    // keeps the ledger of this one.
    if !resume && output.join(STATEMENT_TEXT).exists() {
        let left = output.join("checkpoints");
        let removed = if left.exists() { std::fs::remove_dir_all(left) } else { Ok(()) };
        return removed.map_err(|error| error.to_string());
    }
    let line = "train digits --model mlp --train-size 40 --test-size 10 --batch-size 10 --epochs 2 \
                --noise-multiplier 1 --insecure-seed 5 --output";
    let mut words: Vec<_> = line.split_whitespace().map(std::ffi::OsString::from).collect();
    words.push(output.into());
    if resume {
        words.push("--resume".into());
    }
    let options = TrainOptions::read(words).map_err(|error| error.to_string())?;
    run(options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp_accountant::{DpEvent, LedgerHeader, NeighboringRelation, UnitOfPrivacy};

    use super::*;

    #[test]
    fn a_result_that_is_cut_off_is_found_and_the_releases_are_compared() {
        let folder = tempfile::tempdir().unwrap();
        let content = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Subject::Program.content(&path)
        };
        let ledger = |releases| {
            let (unit, relation) = (UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
            let mut ledger = PrivacyLedger::new(LedgerHeader::new(unit, relation));
            ledger.record_many(&DpEvent::dp_sgd_step(0.1, 1.0), releases).unwrap();
            ledger.to_json().unwrap()
        };
        let releases = |text: &str| content(LEDGER_FILE, text.as_bytes()).unwrap().unwrap();
        assert_eq!(releases(&ledger(7)), releases(&ledger(7)));
        assert_ne!(releases(&ledger(7)), releases(&ledger(8)));
        for (name, text, compared) in [
            (LEDGER_FILE, ledger(7).as_str(), true),
            (STATEMENT_JSON, "{}", true),
            (STATEMENT_TEXT, "text", true),
            ("run.json", "{\"seconds\": 1}", false),
            ("training.svg", "<svg>\n</svg>\n", false),
            (".burn-dp-incomplete-x", "{", false),
        ] {
            assert_eq!(content(name, text.as_bytes()).unwrap().is_some(), compared, "{name}");
            let cut = &text.as_bytes()[..text.len() / 2];
            if name.ends_with(".svg") || [LEDGER_FILE, "run.json"].contains(&name) {
                assert!(content(name, cut).is_err(), "{name}");
                assert!(content(name, &[]).is_err(), "{name}");
            }
        }
    }

    #[test]
    fn every_kind_of_run_has_its_name_on_the_command_line() {
        for subject in Subject::all() {
            assert_eq!(Subject::from_str(subject.name(), false), Ok(subject));
        }
    }
}
