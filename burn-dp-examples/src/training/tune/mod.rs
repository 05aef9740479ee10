//! Private search of hyperparameters: a random number of trainings, of which the best is released.
//!
//! # References
//!
//! N. Papernot, T. Steinke, "Hyperparameter Tuning with Rényi Differential Privacy", 2022.

mod options;
mod secret;

use std::path::Path;

use burn_dp::DpError;
use burn_dp::clipping::FlatClipping;
use burn_dp::random::InsecureSeed;
use burn_dp::tune::PrivateSearch;
use burn_dp_accountant::{
    AccountantError, Budget, DpEvent, LedgerHeader, PrivacyLedger, PrivacyStatement, Rounded,
    UnitOfPrivacy,
};
use serde::Serialize;

use super::individual::{self, Settings};
use super::loading::Loaded;
use super::options::{DataOptions, typed};
use super::sampling::SamplingName;
use super::{
    AVERAGED_MODEL_FILE, LEDGER_FILE, MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT, TRAINING_PLOT,
    TrainError, files,
};
pub use options::{RunsName, TuneOptions};
use secret::Search;

/// The file of the result.
const RESULT: &str = "tune.json";

/// What a search releases, next to the model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TuneFigures {
    /// Upper bound of ε of the whole search.
    pub epsilon: f64,
    /// δ at which ε is stated.
    pub delta: f64,
    /// Expected number of runs. Their number is random and secret.
    pub mean_runs: f64,
    /// Noise multiplier of a run.
    pub noise_multiplier: f64,
    /// Options of the released run; absent if the random number of runs was zero.
    pub chosen: Option<Vec<String>>,
    /// Its accuracy on the test examples.
    pub test_accuracy: Option<f64>,
}

/// Searches, and writes model, privacy statement and chosen options.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if an option is impossible, and the error of a run that fails;
/// the search can be resumed then.
pub fn run(options: TuneOptions) -> Result<TuneFigures, TrainError> {
    let candidates = options.candidates()?;
    for candidate in &candidates {
        // Every combination is checked before the first run.
        Settings::new(options.training(candidate, None)?, DataOptions::environment())?;
    }
    // Candidates mostly share the data.
    let mut loaded = Loaded::kept();
    let plan = Plan::new(&options, &candidates[0], &mut loaded)?;
    files::make_folder(&options.output)?;
    let mut search = Search::open(&options, plan.noise_multiplier, &candidates)?;
    while let Some((index, candidate)) = search.next() {
        let folder = search.folder(index);
        let mut run = options.training(&candidate, Some(plan.noise_multiplier))?;
        run.run.resume = individual::is_interrupted(&folder)?;
        run.run.output = folder;
        println!("run {}: {}", index + 1, candidate.join(" "));
        let figures = individual::run_on(run, &mut loaded)?;
        search.finish(index, figures.test_accuracy)?;
    }
    let best = search.best();
    let figures = TuneFigures {
        epsilon: plan.epsilon,
        delta: options.delta,
        mean_runs: options.mean_runs,
        noise_multiplier: plan.noise_multiplier,
        chosen: best.map(|(index, _)| search.candidate(index).to_vec()),
        test_accuracy: best.map(|(_, accuracy)| accuracy),
    };
    // The statement of one run would hide the others.
    for name in [
        STATEMENT_JSON,
        STATEMENT_TEXT,
        LEDGER_FILE,
        MODEL_FILE,
        AVERAGED_MODEL_FILE,
        TRAINING_PLOT,
    ] {
        files::remove(&options.output.join(name))?;
    }
    if let Some((index, _)) = best {
        for name in [MODEL_FILE, AVERAGED_MODEL_FILE, TRAINING_PLOT] {
            publish(&search.folder(index).join(name), &options.output.join(name))?;
        }
    }
    files::write_json(&options.output.join(STATEMENT_JSON), &plan.statement)?;
    files::write_text(&options.output.join(STATEMENT_TEXT), &plan.statement.to_string())?;
    let ledger = plan.ledger.to_json().map_err(DpError::from)?;
    files::write_text(&options.output.join(LEDGER_FILE), &ledger)?;
    files::write_json(&options.output.join(RESULT), &figures)?;
    search.remove()?;
    println!("\n{}", plan.statement);
    match (&figures.chosen, figures.test_accuracy) {
        (Some(chosen), Some(accuracy)) => println!(
            "chosen: {}, test accuracy {:.2} %, epsilon <= {} at delta = {:e} for the whole search",
            chosen.join(" "),
            100.0 * accuracy,
            Rounded::up(figures.epsilon),
            figures.delta
        ),
        _ => println!(
            "the random number of runs was zero: nothing is released, and epsilon is spent; use \
             the default options, or --runs geometric, which always makes a run"
        ),
    }
    println!("files: {}", options.output.display());
    Ok(figures)
}

fn publish(from: &Path, to: &Path) -> Result<(), TrainError> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(TrainError::Io { path: to.into(), source }),
        Ok(()) => Ok(()),
    }
}

/// The noise of a run with which the whole search meets the budget.
struct Plan {
    noise_multiplier: f64,
    epsilon: f64,
    ledger: PrivacyLedger,
    statement: PrivacyStatement,
}

impl Plan {
    fn new(
        options: &TuneOptions,
        candidate: &[String],
        loaded: &mut Loaded,
    ) -> Result<Self, TrainError> {
        let training = options.training(candidate, None)?;
        let settings = Settings::new(training, DataOptions::environment())?;
        let items = individual::train_items(&settings, loaded)?;
        let run = |noise_multiplier: f64| run_of(&settings, items, noise_multiplier);
        let (_, relation, sampling) = run(1.0)?;
        let budget = Budget::new(options.epsilon, options.delta).map_err(DpError::from)?;
        let runs = options.run_count();
        let event = |noise_multiplier| {
            run(noise_multiplier).map_or(DpEvent::NonPrivate, |(event, ..)| event)
        };
        let noise_multiplier = PrivateSearch::calibrate(budget, relation, runs, event)
            .map_err(|error| refused(&settings, error))?;
        let search = PrivateSearch::new(event(noise_multiplier), runs).map_err(DpError::from)?;
        let header = LedgerHeader::new(UnitOfPrivacy::Example, relation)
            .with_sampler(sampling)
            .with_fact(
                "search",
                format!(
                    "the best of a random, secret number of runs: {}{}, mean {}",
                    typed(options.runs),
                    options.shape.map_or(String::new(), |shape| format!(" of shape {shape}")),
                    options.mean_runs
                ),
            )
            .with_fact("score", "accuracy on the test set, which is taken as public")
            .with_fact("choices", options.choose.join("; "))
            .with_fact("examples", items)
            .with_not_covered(
                "Anything of the search but the released model, its options and its test accuracy: \
                 the number of runs, their times, and the results of the other runs must not be \
                 published.",
            );
        let ledger = search.ledger(header).map_err(DpError::from)?;
        let statement =
            PrivacyStatement::from_ledger(&ledger, &[options.delta]).map_err(DpError::from)?;
        let epsilon = ledger.epsilon(options.delta).map_err(DpError::from)?.upper;
        Ok(Self { noise_multiplier, epsilon, ledger, statement })
    }
}

/// Returns the error of a calibration, with a way out where a cap is the reason.
fn refused(settings: &Settings, error: AccountantError) -> TrainError {
    let sampling = settings.private.map(|private| private.sampling);
    match (sampling.map(|sampling| (sampling.sampling, sampling.max_batch_size)), &error) {
        (
            Some((SamplingName::TruncatedPoisson, Some(max_batch_size))),
            AccountantError::Unsupported { .. },
        ) => {
            let reason = format!(
                "{max_batch_size} is too far above the batch size of {} for a search: it is \
                 reached with a probability below 1e-60, which counts as an additive δ, and the \
                 bounds of a search have none; leave it out, or give a smaller one or --sampling \
                 poisson",
                settings.batch_size
            );
            TrainError::option("--max-batch-size", reason)
        }
        _ => DpError::from(error).into(),
    }
}

/// Returns the releases of one run, the neighboring relation, and the sampling in words.
fn run_of(
    settings: &Settings,
    items: usize,
    noise_multiplier: f64,
) -> Result<(DpEvent, burn_dp_accountant::NeighboringRelation, String), TrainError> {
    let Some(private) = settings.private else {
        return Err(TrainError::option("--non-private", "is not possible in a private search"));
    };
    settings.fit(items)?;
    // A description of the run: no noise is drawn from the seed.
    let plan = private
        .sampling
        .plan(items, settings.batch_size, settings.correlated_noise.as_ref())?
        .with_clipping(FlatClipping::new(1.0)?)
        .with_steps(settings.steps(items) as u64)
        .with_noise_multiplier(noise_multiplier)
        .with_insecure_seed(InsecureSeed(0))
        .init()?;
    let sampling = plan.sampler()?.mechanism().to_string();
    Ok((plan.event_of_run()?, plan.relation(), sampling))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp_accountant::correlated_noise::Strategy;
    use clap::Parser;

    use super::*;

    fn options(output: &Path, line: &str) -> TuneOptions {
        let words = ["tune", "--output", output.to_str().unwrap()];
        TuneOptions::try_parse_from(words.into_iter().chain(line.split_whitespace())).unwrap()
    }

    const SMALL: &str = "--choose lr=0.1,0.5 --choose max-grad-norm=0.5,1 --mean-runs 2 \
                         --delta 1e-4 -- digits --model mlp --train-size 300 \
                         --test-size 40 --batch-size 50 --steps 2";

    #[test]
    fn a_search_releases_one_model_with_the_statement_of_all_runs() {
        let folder = tempfile::tempdir().unwrap();
        let figures = run(options(folder.path(), SMALL)).unwrap();
        assert!(figures.epsilon <= 3.0 && figures.epsilon > 2.9, "{figures:?}");
        assert_eq!(figures.chosen.unwrap().len(), 2);
        let text = std::fs::read_to_string(folder.path().join(STATEMENT_TEXT)).unwrap();
        assert!(text.contains("RepeatAndSelect") && text.contains("secret number"), "{text}");
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        // Nothing of the other runs stays.
        let expected =
            [LEDGER_FILE, MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT, TRAINING_PLOT, RESULT];
        assert_eq!(names, expected);
        let ledger = PrivacyLedger::load(folder.path().join(LEDGER_FILE)).unwrap();
        assert_eq!(ledger.epsilon(1e-4).unwrap().upper, figures.epsilon);
    }

    #[test]
    fn a_run_of_a_search_has_more_noise_than_a_single_run() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path(), SMALL);
        let candidates = options.candidates().unwrap();
        let search = Plan::new(&options, &candidates[0], &mut Loaded::default()).unwrap();
        let settings = options.training(&candidates[0], None).unwrap();
        let settings = Settings::new(settings, None).unwrap();
        let (event, relation, _) = run_of(&settings, 300, search.noise_multiplier).unwrap();
        let header = LedgerHeader::new(UnitOfPrivacy::Example, relation);
        let mut one = PrivacyLedger::new(header);
        one.record(&event).unwrap();
        assert!(one.epsilon(1e-4).unwrap().upper < 0.8 * search.epsilon);
    }

    #[test]
    fn a_search_repeats_runs_with_every_sampler_and_correlated_noise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("strategy.json");
        Strategy::banded_toeplitz(24, &[1.0, 0.5]).unwrap().save(&path).unwrap();
        let correlated = format!("--correlated-noise {}", path.display());
        let correlated = correlated.as_str();
        for (sampling, correlated) in [
            ("truncated-poisson", ""),
            ("shuffled", ""),
            ("cyclic-poisson --parts 4", ""),
            ("cyclic-poisson --parts 4", correlated),
            ("shuffled-once", correlated),
            ("balls-in-bins", ""),
            ("balls-in-bins", correlated),
            ("random-allocation", ""),
            ("min-separation --separation 4", correlated),
        ] {
            let line = format!(
                "--choose lr=0.1,0.5 --delta 1e-4 --runs negative-binomial --shape 0.5 -- digits \
                 --train-size 300 --batch-size 50 --steps 24 --sampling {sampling} {correlated}"
            );
            let options = options(folder.path(), &line);
            let candidate = &options.candidates().unwrap()[0];
            let search = Plan::new(&options, candidate, &mut Loaded::default()).unwrap();
            assert!(search.epsilon <= 3.0 && search.epsilon > 2.99, "{line}: {}", search.epsilon);
            // What the search releases costs more than one of its runs.
            let settings = options.training(candidate, Some(search.noise_multiplier)).unwrap();
            let settings = Settings::new(settings, None).unwrap();
            let private = settings.private.unwrap();
            let strategy = settings.correlated_noise.as_ref();
            let one = private.sampling.plan(300, 50, strategy).unwrap().with_steps(24);
            let one = one.with_noise_multiplier(search.noise_multiplier).init().unwrap();
            let one = one.epsilon_at_end(1e-4).unwrap();
            assert!(one < 0.9 * search.epsilon, "{line}: {one}");
        }
    }

    #[test]
    fn a_cap_that_is_hardly_ever_reached_is_refused_with_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let line = "--choose lr=0.1,0.5 --delta 1e-4 -- digits --train-size 600 --batch-size 50 \
                    --steps 24 --sampling truncated-poisson --max-batch-size 400";
        let options = options(folder.path(), line);
        let candidate = &options.candidates().unwrap()[0];
        let plan = Plan::new(&options, candidate, &mut Loaded::default());
        let error = plan.map(|plan| plan.epsilon).unwrap_err().to_string();
        assert!(error.starts_with("--max-batch-size 400 is too far above"), "{error}");
        assert!(error.contains("below 1e-60") && error.contains("--sampling poisson"), "{error}");
    }
}
