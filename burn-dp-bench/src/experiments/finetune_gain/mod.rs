//! The gain of a model that was pre-trained on public texts over private training from scratch.
//!
//! Each run is a run of `cargo xtask finetune`.

mod options;
mod runs;
mod settings;

use std::cell::Cell;
use std::path::PathBuf;

use burn_dp_examples::training::{TrainError, checks, files};
use burn_dp_models::finetune::Way;

use super::figure::{Figure, FigurePoint, FigureSeries, Findings};
use super::measured::{FigureOptions, Measured};
use super::verdict::{Above, Verdict};
pub use options::FinetuneGainOptions;
use runs::{Kind, Reached, Runs};
use settings::{CONTENDERS, PAPER, QUICK, Setting};

/// Name of the line of the pre-trained model before private training.
const BEFORE: &str = "before";

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
        backend: options.backend,
        output: Some(output.clone()),
        json: options.json.clone(),
    };
    let mut measured = Measured::open(name, &figure_options)?;
    let preset = if options.quick { "quick" } else { "paper" };
    let folder = output.join(format!("{name}.{preset}"));
    files::make_folder(&folder)?;
    let runs = Runs { options, setting, kind, folder, is_prepared: Cell::new(false) };
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
                    measured.measure(&key, |_| runs.reach(contender, epsilon, seed))?;
                found.push(reached.after);
                if contender.is_pretrained {
                    before.push(reached.before);
                }
            }
            points.extend(FigurePoint::of(epsilon, &found));
        }
        series.push(FigureSeries { name: contender.name.into(), points });
    }
    if kind != Kind::Classes {
        let ends = [options.epsilons.first(), options.epsilons.last()].into_iter().flatten();
        let points = ends.filter_map(|&x| Some(FigurePoint { x, ..FigurePoint::of(x, &before)? }));
        series.push(FigureSeries { name: BEFORE.into(), points: points.collect() });
    }
    let setting = runs.sentence(measured.preset, seeds.len());
    let findings = Findings {
        figure: "Private fine-tuning of a model that was trained on public texts".into(),
        setting,
        labels: ["Private training with and without public texts", "ε", runs.label()]
            .map(String::from),
        series,
        facts: Vec::new(),
    };
    measured.finish(findings, |figure| judge(figure, kind))
}

/// Compares private training from scratch, the first line, with the best of the others.
fn judge(figure: &Figure, kind: Kind) -> Vec<Verdict> {
    let [scratch, others @ ..] = &figure.series[..] else { return Vec::new() };
    let others = || others.iter().filter(|line| line.name != BEFORE);
    let verdict = |&scratch: &FigurePoint| {
        let epsilon = scratch.x;
        let found = others().flat_map(|line| &line.points).filter(|point| point.x == epsilon);
        let (scratch, name) = (("from scratch", scratch), "best way to fine-tune");
        let comparison = if kind == Kind::Classes {
            Above::new((name, FigurePoint::largest(found)), scratch)
        } else {
            // Of perplexities the smallest is the best.
            Above::new(scratch, (name, FigurePoint::smallest(found)))
        };
        let claim = format!("At ε = {epsilon}, fine-tuning beats private training from scratch.");
        Verdict::comparing(claim, &[comparison])
    };
    scratch.points.iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use clap::Parser;

    use super::runs::{MARKER, RESULTS, RUN};
    use super::settings::{Length, PublicTraining};
    use super::*;
    use crate::experiments::{Experiment, ExperimentOptions};

    const MODEL: PublicTraining = PublicTraining {
        steps: "30",
        positions: "8",
        options: &["--layers", "1", "--width", "16", "--vocabulary-size", "300"],
    };

    const TINY: Setting = Setting {
        language: MODEL,
        encoder: MODEL,
        rows: Length { epochs: 1, batch: 16 },
        users: Length { epochs: 1, batch: 4 },
        classes: Length { epochs: 1, batch: 16 },
    };

    /// The key of another run.
    const KEY: &str = concat!(
        r#"9ca5bdcd {"format":1,"run":6628848725595592305,"#,
        r#""key":"0101978dcb172398218f974b86ae2c8f006813a2b429157641cc88ae1a85c27bdc27"}"#,
        "\n"
    );

    fn options(folder: &Path, more: &str) -> FinetuneGainOptions {
        let row = |index: usize| {
            let word = ["good", "bad"][index / 8 % 2];
            let who = format!("play {}/role {}", index / 20, index % 20);
            format!("the film is {word},{word},{who},author {index}\n")
        };
        let rows: String = (0..160).map(row).collect();
        let data = folder.join("data.csv");
        std::fs::write(&data, format!("body,class,who,author\n{rows}")).unwrap();
        let words = format!(
            "experiment finetune-gain --data {} --text body --epsilons 2 --delta 1e-3 --seeds 0 \
             --quick --output {} {more}",
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
            ("--group who", "finetune-gain", 5),
            ("--group who --user who", "finetune-gain-users", 5),
            ("--user author", "finetune-gain-users", 5),
            ("--group who --label class --labels good,bad", "finetune-gain-classes", 5),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let options = options(folder.path(), more);
            // What a killed run leaves.
            let experiment = folder.path().join(format!("out/{name}.quick"));
            let killed = experiment.join(RUN);
            std::fs::create_dir_all(killed.join("results/checkpoints")).unwrap();
            std::fs::write(killed.join(MARKER), "").unwrap();
            std::fs::write(killed.join("results.key"), KEY).unwrap();
            // What others have there.
            let others = ["run/model.bpk", "run.key"].map(|name| experiment.join(name));
            std::fs::create_dir(experiment.join("run")).unwrap();
            others.iter().for_each(|path| std::fs::write(path, "of others").unwrap());
            let figure = run_with(&options, TINY).unwrap();
            assert_eq!((figure.experiment.as_str(), figure.series.len()), (name, lines));
            assert_eq!(figure.verdicts.len(), 1);
            let values = figure.series.iter().map(|line| line.points[0].y);
            assert!(values.clone().all(|value| value > 0.0), "{:?}", values.collect::<Vec<_>>());
            let output = folder.path().join("out");
            assert!(output.join(format!("{name}.json")).is_file());
            assert!(killed.join(RESULTS).is_dir() && !killed.join("results.key").exists());
            for path in others {
                assert_eq!(std::fs::read_to_string(path).unwrap(), "of others");
            }
        }
    }

    #[test]
    fn a_folder_that_no_experiment_created_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let foreign = folder.path().join("out/finetune-gain.quick").join(RUN).join("results/a");
        std::fs::create_dir_all(foreign.parent().unwrap()).unwrap();
        std::fs::write(&foreign, "of others").unwrap();
        let error = run_with(&options(folder.path(), ""), TINY).unwrap_err().to_string();
        assert!(error.contains("has files of others; move them away"), "{error}");
        assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "of others");
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
