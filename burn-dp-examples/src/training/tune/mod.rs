//! Private hyperparameter search: a random number of training runs, the best of which is released.
//!
//! # References
//!
//! N. Papernot, T. Steinke, "Hyperparameter Tuning with Rényi Differential Privacy", 2022.

mod options;
mod secret;

use std::path::Path;

use burn_dp::DpError;
use burn_dp::clipping::FlatClipping;
use burn_dp::optim::PrivacyPlan;
use burn_dp::random::InsecureSeed;
use burn_dp::tune::PrivateSearch;
use burn_dp_accountant::correlated_noise::Strategy;
use burn_dp_accountant::{Budget, DpEvent, LedgerHeader, PrivacyLedger, PrivacyStatement, Rounded};
use serde::Serialize;

use super::individual::{self, IndividualSettings};
use super::loading::{DataOptions, Loaded};
use super::options::{ClippingName, typed};
use super::output::{FIGURES_FILE, PLOTS, SEARCH_FILE, write_ledger};
use super::place::{self, Program};
use super::progress::STOP_AND_RESUME;
use super::statement::published_number;
use super::{
    AVERAGED_MODEL_FILE, Checkpoints, EarlierLedgers, LEDGER_FILE, MODEL_FILE, STATEMENT_JSON,
    STATEMENT_TEXT, TRAINING_PLOT, TrainError, files,
};
pub use options::{RunsName, TuneOptions};
use secret::Search;

/// The results that a search releases in addition to the model.
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
/// the search can then be resumed.
pub fn run(options: TuneOptions) -> Result<TuneFigures, TrainError> {
    let candidates = options.candidates()?;
    for candidate in &candidates {
        // Every combination is checked before the first run.
        IndividualSettings::new(options.training(candidate, None)?, DataOptions::environment())?;
    }
    Checkpoints::refuse_in(&options.output)?;
    place::check(Program::Tune, &options.output, [])?;
    // Most candidates share the data.
    let mut loaded = Loaded::kept();
    let plan = Plan::new(&options, &candidates[0], &mut loaded)?;
    files::make_folder(&options.output)?;
    let mut search = plan.open(&options, &candidates)?;
    print_line!("{STOP_AND_RESUME}");
    while let Some((index, candidate)) = search.next() {
        let folder = search.folder(index);
        let mut run = options.training(&candidate, Some(plan.noise_multiplier))?;
        run.run.resume = individual::is_interrupted(&folder)?;
        run.run.output = folder;
        run.run.is_of_search = true;
        print_line!("run {}: {}", index + 1, candidate.join(" "));
        let figures = individual::run_on(run, &mut loaded)?;
        search.finish(index, figures.test_accuracy)?;
    }
    let best = search.best();
    if let Some((index, _)) = best {
        search.check_models(index)?;
    }
    let released = best.map(|(index, _)| search.folder(index));
    let (ledger, statement, epsilon) = plan.released(&options, released.as_deref())?;
    let figures = TuneFigures {
        epsilon,
        delta: options.delta,
        mean_runs: options.mean_runs,
        noise_multiplier: plan.noise_multiplier,
        chosen: best.map(|(index, _)| search.candidate(index).to_vec()),
        test_accuracy: best.map(|(_, accuracy)| accuracy),
    };
    // First the record, then the model. A search that is interrupted here repeats all of it.
    write_ledger(&options.output, Some(&ledger), options.resume)?;
    for name in [STATEMENT_JSON, STATEMENT_TEXT] {
        files::remove(&options.output.join(name))?;
    }
    for name in [MODEL_FILE, AVERAGED_MODEL_FILE] {
        let from = released.as_ref().map(|folder| folder.join(name));
        publish(from.as_deref(), &options.output.join(name))?;
    }
    // The plot and the figures of a run show the ε of that run alone, which is smaller than the ε
    // of the search.
    for name in [TRAINING_PLOT, FIGURES_FILE].into_iter().chain(PLOTS) {
        files::remove(&options.output.join(name))?;
    }
    files::write_json(&options.output.join(STATEMENT_JSON), &statement)?;
    files::write_text(&options.output.join(STATEMENT_TEXT), &statement.to_string())?;
    files::write_json(&options.output.join(SEARCH_FILE), &figures)?;
    search.remove()?;
    print_line!("\n{statement}");
    match (&figures.chosen, figures.test_accuracy) {
        (Some(chosen), Some(accuracy)) => print_line!(
            "chosen: {}, test accuracy {:.2} %, epsilon <= {} at delta = {:e} for the whole search",
            chosen.join(" "),
            100.0 * accuracy,
            Rounded::up(figures.epsilon),
            figures.delta
        ),
        _ => print_line!(
            "the random number of runs was zero: nothing is released, and epsilon is spent; use \
             the default options, or --runs geometric, which always makes a run"
        ),
    }
    print_line!("files: {}", options.output.display());
    Ok(figures)
}

/// Copies a file of the released run, and removes the file of an earlier search if the run has
/// none. The run keeps its own until the search is removed.
fn publish(from: Option<&Path>, to: &Path) -> Result<(), TrainError> {
    match from.map(std::fs::read) {
        Some(Ok(content)) => files::write(to, &content),
        Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TrainError::Io { path: to.into(), source: error })
        }
        _ => files::remove(to),
    }
}

/// The noise of a run with which the whole search meets the budget.
struct Plan {
    noise_multiplier: f64,
    earlier: EarlierLedgers,
    /// The checksum of the examples.
    data: String,
    search: PrivateSearch,
    of_run: PrivacyPlan,
}

impl Plan {
    fn new(
        options: &TuneOptions,
        candidate: &[String],
        loaded: &mut Loaded,
    ) -> Result<Self, TrainError> {
        let training = options.training(candidate, None)?;
        let settings = IndividualSettings::new(training, DataOptions::environment())?;
        let (items, data) = individual::examples(&settings, loaded)?;
        let earlier = EarlierLedgers::read(&options.earlier_ledger, &options.output)?;
        let run = |noise_multiplier: f64| plan_of_run(&settings, &earlier, items, noise_multiplier);
        let relation = run(1.0)?.relation();
        let budget = Budget::new(options.epsilon, options.delta).map_err(DpError::from)?;
        let runs = options.run_count();
        let event = |noise_multiplier| {
            let event = run(noise_multiplier).and_then(|plan| Ok(plan.event_of_run()?));
            event.unwrap_or(DpEvent::NonPrivate)
        };
        print_line!("computing the noise of the runs for the whole search");
        let before = earlier.releases();
        let noise_multiplier =
            PrivateSearch::calibrate_after(before, budget, relation, runs, event)
                .map_err(DpError::from)?;
        let search = PrivateSearch::new(event(noise_multiplier), runs).map_err(DpError::from)?;
        let of_run = run(noise_multiplier)?;
        Ok(Self { noise_multiplier, earlier, data, search, of_run })
    }

    /// Begins the search, or continues it.
    fn open(
        &self,
        options: &TuneOptions,
        candidates: &[Vec<String>],
    ) -> Result<Search, TrainError> {
        Search::open(options, self.noise_multiplier, &self.earlier, &self.data, candidates)
    }

    /// Returns the ledger of the search, its statement, and ε.
    ///
    /// # Arguments
    ///
    /// - `released`: the folder of the released run, whose files describe its clipping, its public
    ///   data, and the limits of its guarantee; `None` if there was no run
    fn released(
        &self,
        options: &TuneOptions,
        released: Option<&Path>,
    ) -> Result<(PrivacyLedger, PrivacyStatement, f64), TrainError> {
        let header = match released {
            None => LedgerHeader::new(self.of_run.unit().clone(), self.of_run.relation())
                .with_sampler(self.of_run.sampler()?.mechanism().to_string())
                .with_fact("dataset_size", self.of_run.dataset_size())
                .with_not_covered(published_number("examples")),
            Some(folder) => {
                let path = folder.join(LEDGER_FILE);
                let ledger = PrivacyLedger::load(&path).map_err(DpError::from)?;
                ledger.header().clone()
            }
        };
        let header = header
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
            .with_not_covered(
                "Anything of the search but the released model, its options and its test accuracy: \
                 the number of runs, their times, and the results of the other runs must not be \
                 published.",
            )
            .with_not_covered(format!(
                "The draw of the number of runs in finite precision, which adds up to {} to delta \
                 at epsilon = {}.",
                Rounded::up(PrivateSearch::delta_of_draw(options.epsilon)).with_digits(2),
                options.epsilon
            ));
        let ledger = self.of_run.ledger_of_search(&self.search, header)?;
        let statement =
            PrivacyStatement::from_ledger(&ledger, &[options.delta]).map_err(DpError::from)?;
        let epsilon = ledger.epsilon(options.delta).map_err(DpError::from)?.upper;
        Ok((ledger, statement, epsilon))
    }
}

/// Returns the plan of one run, with the releases before the search.
fn plan_of_run(
    settings: &IndividualSettings,
    earlier: &EarlierLedgers,
    items: usize,
    noise_multiplier: f64,
) -> Result<PrivacyPlan, TrainError> {
    let Some(private) = settings.private else {
        return Err(TrainError::option("--non-private", "is not possible in a private search"));
    };
    settings.fit(items)?;
    refuse_costly_counts(private.clipping.name, settings.correlated_noise.as_ref())?;
    // Only a description of the run; no noise is drawn from the seed. Without correlation, a sum
    // and its counts cost what the sum alone costs with this noise multiplier.
    let config =
        private.sampling.plan(items, settings.batch_size, settings.correlated_noise.as_ref())?;
    let plan = earlier
        .before(config)
        .with_clipping(FlatClipping::new(1.0)?)
        .with_steps(settings.steps(items) as u64)
        .with_noise_multiplier(noise_multiplier)
        .with_insecure_seed(InsecureSeed(0))
        .init()?;
    Ok(plan)
}

/// Checks that the counts of adaptive thresholds do not cost more than the plan of a run says.
///
/// # Privacy
///
/// Their cost is divided by the square of the smallest number on the diagonal of the strategy. From
/// 1 on, sum and counts cost at most what the sum alone costs with the noise of the plan.
fn refuse_costly_counts(
    clipping: ClippingName,
    strategy: Option<&Strategy>,
) -> Result<(), TrainError> {
    let diagonal = strategy.map_or(1.0, Strategy::smallest_diagonal);
    if !clipping.is_adaptive() || diagonal >= 1.0 {
        return Ok(());
    }
    let reason = format!(
        "has {diagonal} on its diagonal, and a search does not account for what the counts of \
         adaptive clipping cost below 1; divide all numbers of the matrix by the smallest one of \
         its diagonal, without normalized columns, or give another --clipping"
    );
    Err(TrainError::option("--correlated-noise", reason))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp_accountant::{NeighboringRelation, UnitOfPrivacy};
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
        // Of an earlier search.
        std::fs::write(folder.path().join(SEARCH_FILE), r#"{"mean_runs": 8.0}"#).unwrap();
        std::fs::write(folder.path().join(TRAINING_PLOT), "").unwrap();
        let figures = run(options(folder.path(), SMALL)).unwrap();
        assert!(figures.epsilon <= 3.0 && figures.epsilon > 2.9, "{figures:?}");
        assert_eq!(figures.chosen.unwrap().len(), 2);
        let text = std::fs::read_to_string(folder.path().join(STATEMENT_TEXT)).unwrap();
        assert!(text.contains("RepeatAndSelect") && text.contains("secret number"), "{text}");
        // What the statement of the released run says about clipping, data, and limits.
        for said in [
            "clipping:                 flat, L2",
            "dataset:",
            "single precision",
            "where the data decide it",
            "in finite precision, which adds up to 2.2e-11 to delta at epsilon = 3.",
            "The number of examples that are trained on",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        // Nothing of the other runs remains, and no ε of the released run alone.
        let expected = [LEDGER_FILE, MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT, SEARCH_FILE];
        assert_eq!(names, expected);
        let ledger = PrivacyLedger::load(folder.path().join(LEDGER_FILE)).unwrap();
        assert_eq!(ledger.epsilon(1e-4).unwrap().upper, figures.epsilon);
    }

    #[test]
    fn the_folder_of_an_interrupted_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        // A run that cannot write its model can be resumed.
        std::fs::create_dir(folder.path().join(MODEL_FILE)).unwrap();
        let search = options(folder.path(), SMALL);
        let candidate = search.candidates().unwrap().remove(0);
        let mut interrupted = search.training(&candidate, Some(1.0)).unwrap();
        interrupted.run.output = folder.path().into();
        let error = individual::run(interrupted).unwrap_err().to_string();
        assert!(error.contains(MODEL_FILE), "{error}");
        std::fs::remove_dir(folder.path().join(MODEL_FILE)).unwrap();
        let error = run(search).unwrap_err().to_string();
        assert!(error.contains("holds a private run that has not ended"), "{error}");
        assert!(!folder.path().with_extension("search").exists());
    }

    #[test]
    fn a_search_that_is_interrupted_at_its_end_releases_its_model_when_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let output = |name: &str| path.join(name);
        std::fs::create_dir(&path).unwrap();
        // Of an earlier search, with a folder in place of a file that is removed after the models.
        std::fs::write(output(SEARCH_FILE), r#"{"mean_runs": 8.0}"#).unwrap();
        std::fs::create_dir(output(TRAINING_PLOT)).unwrap();
        let error = run(options(&path, SMALL)).unwrap_err().to_string();
        assert!(error.contains(TRAINING_PLOT), "{error}");
        // The secrets are next to the output folder.
        assert!(!output(".search").exists());
        assert!(folder.path().join("out.search").exists());
        let model = std::fs::read(output(MODEL_FILE)).unwrap();
        std::fs::remove_dir(output(TRAINING_PLOT)).unwrap();
        // Any of the models may be the one to release.
        let models: Vec<_> = (0..)
            .map(|run| folder.path().join(format!("out.search/run-{run}/{MODEL_FILE}")))
            .take_while(|path| path.exists())
            .collect();
        let contents: Vec<_> = models.iter().map(|path| std::fs::read(path).unwrap()).collect();
        for (path, content) in models.iter().zip(&contents) {
            std::fs::write(path, &content[..content.len() / 2]).unwrap();
        }
        let error = run(options(&path, &format!("--resume {SMALL}"))).unwrap_err().to_string();
        assert!(error.contains("missing or damaged"), "{error}");
        for (path, content) in models.iter().zip(&contents) {
            std::fs::write(path, content).unwrap();
        }
        run(options(&path, &format!("--resume {SMALL}"))).unwrap();
        assert!(!folder.path().join("out.search").exists());
        assert_eq!(std::fs::read(output(MODEL_FILE)).unwrap(), model);
        assert!(output(STATEMENT_TEXT).exists() && !output("ledger-1.json").exists());
    }

    // Both searches have the same options, so their ledgers have the same releases.
    #[test]
    fn the_ledger_of_an_earlier_search_is_kept_also_by_a_resumed_search() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let new = options(&path, SMALL);
        run(new.clone()).unwrap();
        let first = std::fs::read(path.join(LEDGER_FILE)).unwrap();
        let candidates = new.candidates().unwrap();
        let plan = Plan::new(&new, &candidates[0], &mut Loaded::default()).unwrap();
        // From a process that was killed before its first run.
        plan.open(&new, &candidates).unwrap();
        run(options(&path, &format!("--resume {SMALL}"))).unwrap();
        assert_eq!(std::fs::read(path.join("ledger-1.json")).unwrap(), first);
        assert!(path.join(LEDGER_FILE).exists() && !path.join("ledger-2.json").exists());
    }

    // The bound of the best of several runs needs runs of one distribution.
    #[test]
    fn a_search_is_resumed_on_the_data_that_it_began_with_alone() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            files::make_folder(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let names =
            ["train/pos/0_5.txt", "train/neg/0_5.txt", "test/pos/0_5.txt", "test/neg/0_5.txt"];
        names.iter().for_each(|name| write(name, "good"));
        let line = format!(
            "--choose lr=0.1,0.5 -- imdb --data-dir {} --model lstm --sequence-length 8 \
             --vocabulary-size 20 --batch-size 1 --steps 2",
            folder.path().display()
        );
        let open = |resume: &str| {
            let options = options(&folder.path().join("out"), &format!("{resume} {line}"));
            let candidates = options.candidates()?;
            Plan::new(&options, &candidates[0], &mut Loaded::default())?.open(&options, &candidates)
        };
        open("").unwrap();
        for name in names {
            open("--resume").unwrap();
            write(name, "not so good");
            let error = open("--resume").err().unwrap().to_string();
            assert!(error.contains("the same records in the same order"), "{name}: {error}");
            write(name, "good");
        }
    }

    #[test]
    fn a_run_of_a_search_has_more_noise_than_a_single_run() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path(), SMALL);
        let candidates = options.candidates().unwrap();
        let search = Plan::new(&options, &candidates[0], &mut Loaded::default()).unwrap();
        let settings = options.training(&candidates[0], None).unwrap();
        let settings = IndividualSettings::new(settings, None).unwrap();
        let none = EarlierLedgers::default();
        let plan = plan_of_run(&settings, &none, 300, search.noise_multiplier).unwrap();
        let header = LedgerHeader::new(UnitOfPrivacy::Example, plan.relation());
        let mut one = PrivacyLedger::new(header);
        one.record(&plan.event_of_run().unwrap()).unwrap();
        let (.., whole) = search.released(&options, None).unwrap();
        let one = one.epsilon(1e-4).unwrap().upper;
        assert!(one < 0.9 * whole, "{one} {whole}");
    }

    #[test]
    fn a_search_after_earlier_releases_has_one_budget_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let (first, out) = (folder.path().join("first.json"), folder.path().join("out"));
        let relation = NeighboringRelation::AddOrRemoveOne;
        let ledger = |relation| {
            let mut ledger =
                PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
            ledger.record_many(&DpEvent::gaussian(10.0), 4).unwrap();
            ledger
        };
        let before = ledger(relation);
        before.save(&first).unwrap();
        let plan = |output: &Path, line: &str| {
            let options = options(output, line);
            let candidate = &options.candidates().unwrap()[0];
            let plan = Plan::new(&options, candidate, &mut Loaded::default())?;
            let (ledger, _, epsilon) = plan.released(&options, None)?;
            Ok::<_, TrainError>((plan.noise_multiplier, ledger, epsilon))
        };
        let after = format!("--earlier-ledger {} {SMALL}", first.display());
        let (sigma, both, epsilon) = plan(&out, &after).unwrap();
        assert!(sigma > plan(&out, SMALL).unwrap().0);
        assert!((2.99..=3.0).contains(&epsilon), "{epsilon}");
        assert_eq!((&both.entries()[0], both.releases()), (&before.entries()[0], 5));
        // It is written, so that a third run or search can count both.
        run(options(&out, &after)).unwrap();
        let written = PrivacyLedger::load(out.join(LEDGER_FILE)).unwrap();
        assert_eq!(written.entries(), both.entries());

        let refused = |output: &Path, line: &str| plan(output, line).err().unwrap().to_string();
        let error =
            refused(&out, &format!("--earlier-ledger {}/ledger.json {SMALL}", out.display()));
        assert!(error.contains("is in the output folder"), "{error}");
        let error = refused(&out, &format!("--epsilon 0.05 {after}"));
        assert!(error.contains("the earlier releases alone cost epsilon = "), "{error}");
        ledger(NeighboringRelation::ReplaceOne).save(&first).unwrap();
        let error = refused(&out, &after);
        assert!(error.contains("earlier_releases must be for one example"), "{error}");
    }

    // One run would cost more than the search says.
    #[test]
    fn counts_that_cost_more_than_a_search_plans_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("strategy.json");
        let search = |coefficients: &[f64], clipping: &str| {
            Strategy::banded_toeplitz(24, coefficients).unwrap().save(&path).unwrap();
            let line = format!(
                "--choose lr=0.1 --delta 1e-4 -- digits --train-size 300 --batch-size 50 \
                 --steps 24 --sampling shuffled-once --correlated-noise {} --clipping {clipping}",
                path.display()
            );
            let options = options(folder.path(), &line);
            let candidate = &options.candidates().unwrap()[0];
            Plan::new(&options, candidate, &mut Loaded::default()).map(drop)
        };
        for clipping in ["quantile", "quantile --quantile-per-layer"] {
            let error = search(&[0.9, 0.4], clipping).unwrap_err().to_string();
            assert!(error.contains("has 0.9 on its diagonal"), "{error}");
            search(&[1.0, 0.4], clipping).unwrap();
        }
        search(&[0.9, 0.4], "flat").unwrap();
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
            // A cap that is hardly ever reached adds to δ, which a Rényi bound has no place for.
            ("truncated-poisson --max-batch-size 299", ""),
            ("with-replacement", ""),
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
            let (.., whole) = search.released(&options, None).unwrap();
            assert!(whole <= 3.0 && whole > 2.99, "{line}: {whole}");
            // The release of the search costs more than one of its runs.
            let settings = options.training(candidate, Some(search.noise_multiplier)).unwrap();
            let settings = IndividualSettings::new(settings, None).unwrap();
            let private = settings.private.unwrap();
            let strategy = settings.correlated_noise.as_ref();
            let one = private.sampling.plan(300, 50, strategy).unwrap().with_steps(24);
            let one = one.with_noise_multiplier(search.noise_multiplier).init().unwrap();
            let one = one.epsilon_at_end(1e-4).unwrap();
            assert!(one < 0.9 * whole, "{line}: {one}");
        }
    }
}
