//! Stopping and resuming.

use std::fs;
use std::path::Path;

use burn::train::checkpoint::KeepLastNCheckpoints;
use burn_dp::DpError;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::optim::{DpOptimizer, PrivacyPlan, PrivacyPlanConfig, Sparsifier};
use burn_dp::random::InsecureSeed;
use burn_dp::train::{PrivateTraining, PrivateTrainingConfig};

use crate::fixture::*;

pub(crate) fn config(folder: &Path) -> PrivateTrainingConfig {
    training_config().with_checkpoints(folder)
}

/// Trains `epochs` epochs and keeps the checkpoints of all of them.
pub(crate) fn train(private: &PrivateTraining, epochs: usize) {
    let result = launch(private, |training| {
        let strategy = private.checkpointing(KeepLastNCheckpoints::new(9));
        training.with_checkpointing_strategy(strategy).num_epochs(epochs)
    });
    assert!(result.error.is_none(), "{:?}", result.error);
}

fn checkpoints(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "releases.log")
        .collect();
    names.sort();
    names
}

#[test]
fn a_resumed_run_is_the_run_bit_for_bit() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 2);
    assert_eq!(private.next_step(), 8);
    drop(private);
    assert_eq!(
        checkpoints(folder.path()),
        ["checkpoint-00000000000000000004", "checkpoint-00000000000000000008"]
    );

    // Another seed: the key of the run is the saved one.
    let private = config(folder.path()).init_or_resume(plan()).unwrap();
    assert_eq!((private.next_step(), private.complete_epochs()), (8, 2));
    assert_eq!(private.ledger().releases(), 8);
    let result = launch(&private, |training| training);
    assert_same_run(&private, &result, &custom_loop(plan(), 4));
}

#[test]
fn a_finished_run_has_nothing_left_to_do() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 3);
    drop(private);
    let private = config(folder.path()).init_or_resume(plan()).unwrap();
    let result = launch(&private, |training| training);
    assert!(result.error.is_none());
    assert_eq!(private.ledger().releases(), STEPS);
    assert_eq!(values(result.model.inner()), values(&custom_loop(plan(), 4).0));
}

#[test]
fn the_default_strategy_keeps_the_last_two() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    let result = launch(&private, |training| training);
    assert!(result.error.is_none(), "{:?}", result.error);
    assert_eq!(
        checkpoints(folder.path()),
        ["checkpoint-00000000000000000008", "checkpoint-00000000000000000012"]
    );
}

#[test]
fn a_run_does_not_begin_in_the_folder_of_another() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 1);
    drop(private);
    let error = config(folder.path()).init(plan()).unwrap_err().to_string();
    assert!(error.contains("run that was begun; resume it"), "{error}");
}

#[test]
fn a_finished_run_restarts_with_the_same_statement() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 3);
    let statement = private.statement(&[1e-3]).unwrap();
    assert_eq!(statement.facts["independence_of_examples"], "checked by value on some batches");
    drop(private);
    // With and without the check in the resumed program.
    for check in [true, false] {
        let config = config(folder.path()).with_independence_check(check);
        let private = config.init_or_resume(plan()).unwrap();
        let again = private.statement(&[1e-3]).unwrap();
        assert_eq!(again.to_string(), statement.to_string());
    }
}

/// A folder with the log of another run after `steps` steps, and nothing else.
fn abandoned(steps: usize) -> RunFolder {
    let folder = run_folder();
    let other = plan_config().with_insecure_seed(InsecureSeed(99)).init().unwrap();
    let begun = run_folder();
    saved_by_a_loop(begun.path(), other, steps, |optim| optim);
    let log = folder.path().join("releases.log");
    fs::copy(begun.path().join("releases.log"), log).unwrap();
    folder
}

#[test]
fn a_folder_without_releases_and_checkpoints_is_used_again() {
    let folder = abandoned(0);
    let private = config(folder.path()).init_or_resume(plan()).unwrap();
    train(&private, 2);
    drop(private);
    let private = config(folder.path()).init_or_resume(plan()).unwrap();
    assert_eq!(private.next_step(), 2 * STEPS_PER_EPOCH);
    let result = launch(&private, |training| training);
    assert_same_run(&private, &result, &custom_loop(plan(), 4));
}

#[test]
fn a_folder_with_releases_and_no_checkpoint_is_refused() {
    let folder = abandoned(1);
    let log = fs::read(folder.path().join("releases.log")).unwrap();
    for begun in [
        config(folder.path()).init(plan()).err(),
        config(folder.path()).init_or_resume(plan()).err(),
    ] {
        let error = begun.unwrap().to_string();
        assert!(error.contains("releases.log has 1 releases"), "{error}");
        assert!(error.contains("backup") && error.contains("its own folder"), "{error}");
    }
    assert!(checkpoints(folder.path()).is_empty());
    assert_eq!(fs::read(folder.path().join("releases.log")).unwrap(), log);
}

#[test]
fn lost_steps_are_repeated_for_free_and_give_no_budget_back() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 3);
    drop(private);
    // Back to the first epoch, with the releases of three.
    let checkpoint = Checkpointer::new(folder.path()).after(4).unwrap();
    let private = config(folder.path()).resume(plan(), &checkpoint).unwrap();
    assert_eq!((private.next_step(), private.ledger().releases()), (4, STEPS));
    let result = launch(&private, |training| training);
    assert!(private.error().is_none() && result.error.is_none());
    assert_eq!(values(result.model.inner()), values(&custom_loop(plan(), 4).0));
    assert_eq!(private.ledger().releases(), STEPS);
}

#[test]
fn a_repeated_step_that_differs_is_refused_and_can_be_skipped() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 2);
    drop(private);
    let checkpoint = Checkpointer::new(folder.path()).after(4).unwrap();

    // Another physical batch size adds up in another order, so the release differs.
    let other = || {
        let config = PrivateTrainingConfig::new(7).with_steps_per_epoch(STEPS_PER_EPOCH);
        config.with_checkpoints(folder.path())
    };
    let private = other().resume(plan(), &checkpoint).unwrap();
    let result = launch(&private, |training| training);
    assert!(result.error.is_some());
    let error = private.error().unwrap().to_string();
    assert!(error.contains("was released before") && error.contains("skip_lost_steps"), "{error}");
    assert_eq!(private.ledger().releases(), 8);
    // The model in the result also belongs to the run.
    drop((private, result));

    let checkpoint = checkpoint.skip_lost_steps();
    let private = other().resume(plan(), &checkpoint).unwrap();
    assert_eq!((private.next_step(), private.ledger().releases()), (8, 8));
    let result = launch(&private, |training| training);
    assert!(private.error().is_none() && result.error.is_none());
    assert_eq!(private.ledger().releases(), STEPS);
}

#[test]
fn a_checkpoint_without_its_ledger_is_refused_by_the_model() {
    // Burn's own checkpoints: parameters without the privacy of the run.
    let folder = run_folder();
    let private = training_config().init(plan()).unwrap();
    let result = supervised(&private, folder.path())
        .with_default_checkpointers()
        .num_epochs(1)
        .launch(learner(&private));
    assert!(result.error.is_none(), "{:?}", result.error);

    let private = training_config().init(plan()).unwrap();
    let result = supervised(&private, folder.path())
        .with_default_checkpointers()
        .checkpoint(1)
        .launch(learner(&private));
    assert!(result.error.is_some());
    let error = private.error().unwrap().to_string();
    assert!(error.contains("without the ledger") && error.contains("resume"), "{error}");
    assert_eq!(private.ledger().releases(), 0);
}

#[test]
fn a_strategy_that_does_not_save_the_privacy_is_refused() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    let result = launch(&private, |training| {
        training.with_checkpointing_strategy(KeepLastNCheckpoints::new(2))
    });
    let error = result.error.unwrap().to_string();
    assert!(error.contains("PrivateTraining::checkpointing"), "{error}");
    assert_eq!(checkpoints(folder.path()), ["checkpoint-00000000000000000000"]);
}

/// Two epochs, then damage, then the message of the refusal.
fn refused(damage: impl FnOnce(&Path, &Path)) -> String {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 2);
    drop(private);
    let newest = folder.path().join("checkpoint-00000000000000000008");
    damage(&newest, &folder.path().join("releases.log"));
    config(folder.path()).init_or_resume(plan()).unwrap_err().to_string()
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn damaged_checkpoints_are_refused_with_the_file_and_the_way_out() {
    for name in ["model.bpk", "optimizer.bpk", "scheduler.bpk"] {
        for damage in [flip, cut] {
            let error = refused(|folder, _| damage(&folder.join(name)));
            assert!(error.contains(&format!("{name} is damaged")), "{error}");
            assert!(error.contains("restore the file from a backup"), "{error}");
        }
    }
    let error = refused(|folder, _| cut(&folder.join("privacy.json")));
    assert!(error.contains("privacy.json is damaged"), "{error}");
    let error = refused(|folder, _| {
        let path = folder.join("privacy.json");
        let text = fs::read_to_string(&path).unwrap().replace("\"format\": 6", "\"format\": 9");
        fs::write(path, text).unwrap();
    });
    assert!(error.contains("has format 9") && error.contains("resume with the version"), "{error}");
    let error = refused(|folder, _| fs::remove_file(folder.join("privacy.json")).unwrap());
    assert!(error.contains("privacy.json"), "{error}");
}

#[test]
fn a_missing_older_or_foreign_log_of_releases_is_refused_with_the_way_out() {
    let error = refused(|_, log| fs::remove_file(log).unwrap());
    assert!(error.contains("releases.log is missing") && error.contains("backup"), "{error}");
    let error = refused(|_, log| {
        let text = fs::read_to_string(log).unwrap();
        let older: String = text.lines().take(6).map(|line| format!("{line}\n")).collect();
        fs::write(log, older).unwrap();
    });
    assert!(error.contains("has 5 releases and the checkpoint 8"), "{error}");
    let error = refused(|_, log| {
        let folder = run_folder();
        let foreign = PrivacyPlanConfig::new(UNITS, 15.0)
            .with_steps(STEPS)
            .with_noise_multiplier(1.0)
            .init()
            .unwrap();
        let private = config(folder.path()).init(foreign).unwrap();
        train(&private, 2);
        drop(private);
        fs::copy(folder.path().join("releases.log"), log).unwrap();
    });
    assert!(error.contains("another run"), "{error}");
    let error = refused(|_, log| flip(log));
    assert!(error.contains("releases.log is damaged"), "{error}");
}

#[test]
fn a_run_does_not_resume_with_other_numbers() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 1);
    drop(private);
    let other = plan_config().with_noise_multiplier(0.5).init().unwrap();
    let error = config(folder.path()).init_or_resume(other).unwrap_err();
    assert!(matches!(error, DpError::SavedState { .. }));
    assert!(error.to_string().contains("noise_multiplier was 1 and is now 0.5"), "{error}");
}

/// Some steps of a custom loop, and its checkpoint.
fn saved_by_a_loop(
    folder: &Path,
    plan: PrivacyPlan,
    steps: usize,
    configure: impl FnOnce(DpOptimizer) -> DpOptimizer,
) {
    let mut optim = configure(plan.optimizer(optimizer()));
    let mut model = Net::new();
    for batch in optim.plan().batches(dataset(), Rows, &device()).unwrap().take(steps) {
        let batch = batch.unwrap();
        for physical_batch in batch.physical_batches(4).unwrap() {
            let losses = |model: &Net, rows| model.output(rows).0;
            optim.backward(&model, physical_batch.unwrap(), losses).unwrap();
        }
        model = optim.step(0.1, model, batch).unwrap();
    }
    Checkpointer::new(folder).save(&model, &optim).unwrap();
}

#[test]
fn a_checkpoint_of_a_loop_without_a_scheduler_is_refused_with_the_way_out() {
    let folder = run_folder();
    saved_by_a_loop(folder.path(), plan(), 3, |optim| optim);
    let error = config(folder.path()).init_or_resume(plan()).unwrap_err().to_string();
    assert!(error.contains("no learning rate scheduler"), "{error}");
    assert!(error.contains("Checkpoint::restore"), "{error}");
}

#[test]
fn a_run_with_a_sparsifier_does_not_resume_without_it() {
    let folder = run_folder();
    let sparsifier = || Sparsifier::new(2, 3.0).unwrap();
    let sparse = |optim: DpOptimizer| optim.with_sparsifier(sparsifier()).unwrap();
    saved_by_a_loop(folder.path(), plan(), 0, sparse);
    let error = config(folder.path()).init_or_resume(plan()).unwrap_err().to_string();
    assert!(error.contains("is now \"none\"") && error.contains("with_sparsifier"), "{error}");
    let private = config(folder.path()).with_sparsifier(sparsifier()).init_or_resume(plan());
    assert_eq!(private.unwrap().next_step(), 0);
}

#[test]
fn the_beginning_of_a_loop_is_that_of_the_learner() {
    let folder = run_folder();
    saved_by_a_loop(folder.path(), plan(), 0, |optim| optim);
    let private = config(folder.path()).init_or_resume(plan()).unwrap();
    let result = launch(&private, |training| training);
    assert_same_run(&private, &result, &custom_loop(plan(), 4));
}

#[test]
fn a_run_whose_log_is_in_use_is_not_resumed() {
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 1);
    let error = config(folder.path()).init_or_resume(plan()).unwrap_err().to_string();
    assert!(error.contains("is in use"), "{error}");
    drop(private);
    assert!(config(folder.path()).init_or_resume(plan()).is_ok());
}

// Sharp edge: the key of the noise in the folder that is published.
#[test]
fn a_key_in_the_folder_of_the_results_is_refused_before_the_first_step() {
    let results = tempfile::tempdir().unwrap();
    let launched = |private: &PrivateTraining| {
        let result = supervised(private, results.path()).launch(learner(private));
        (private.finish(&result), private.ledger().releases())
    };
    let private = config(&results.path().join("private")).init(plan()).unwrap();
    let (ended, releases) = launched(&private);
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("folder of the results") && error.contains("with_key_file"), "{error}");
    assert_eq!(releases, 0);

    let apart = tempfile::tempdir().unwrap();
    let key = apart.path().join("run.key");
    let config = config(&results.path().join("private")).with_key_file(&key);
    let private = config.init(plan()).unwrap();
    let (ended, releases) = launched(&private);
    assert!(ended.is_ok() && releases == STEPS && key.exists());
    private.forget_key().unwrap();
    assert!(!key.exists());
    assert_eq!(private.statement(&[1e-3]).unwrap().facts["noise_key"], "erased when the run ended");
}
