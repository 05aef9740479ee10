//! Runs that are interrupted and resumed.

use std::fs;
use std::path::Path;

use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn_dp::PublicSource;
use burn_dp::checkpoint::{Checkpoint, Checkpointer};
use burn_dp::clipping::{LayerwiseClipping, PublicNorms};
use burn_dp::optim::{DpOptimizer, Independence, PrivacyPlanConfig, SamplingScheme, WeightAverage};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;
use burn_dp_accountant::Budget;

use crate::fixtures::{
    Net, RunFolder, UNITS, batches, config, run, run_folder, train, train_on, train_with, values,
};
use crate::policies::{layers, public_norms};

fn resumed(inner: fn() -> ModuleOptimizer) {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path().join("run"));
    assert!(checkpointer.latest().unwrap().is_none());

    let (expected, whole) = run(config(), inner(), 7);

    let plan = config().init().unwrap();
    let half = batches(&plan).take(4);
    let mut optim = plan.optimizer(inner());
    let model = train(&mut optim, Net::new(), half, 7);
    checkpointer.save(&model, &optim).unwrap();
    drop((model, optim));

    // Another seed: the key of the run is the saved one.
    let plan = config().with_insecure_seed(InsecureSeed(6)).init().unwrap();
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let (mut optim, model) = checkpoint.restore(plan, inner(), Net::new()).unwrap();
    assert_eq!(optim.next_step(), 4);
    let rest = batches(optim.plan()).skip_to(optim.next_step()).unwrap();
    let found = train(&mut optim, model, rest, 7);

    assert_eq!(values(&found), values(&expected));
    assert_eq!(optim.ledger().entries(), whole.ledger().entries());
}

#[test]
fn a_resumed_run_is_the_run_bit_for_bit() {
    resumed(|| SgdConfig::new().init());
    resumed(|| AdamConfig::new().init());
}

#[test]
fn a_resumed_run_takes_the_key_of_the_run_and_not_a_new_one() {
    let config = || PrivacyPlanConfig::new(UNITS, 20.0).with_steps(4).with_noise_multiplier(1.0);
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let plan = config().init().unwrap();
    let draw = plan.sampler().unwrap().draw(2).unwrap();
    let optim = plan.optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(), &optim).unwrap();
    drop(optim);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let (restored, _) =
        checkpoint.restore(config().init().unwrap(), SgdConfig::new().init(), Net::new()).unwrap();
    assert!(restored.plan().sampler().unwrap().draw(2).unwrap() == draw);
}

#[test]
fn a_checkpoint_does_not_resume_with_other_numbers() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(), &optim).unwrap();
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    for (config, name) in [
        (config().with_noise_multiplier(0.1), "noise_multiplier was 1 and is now 0.1"),
        (config().with_max_grad_norm(2.0), "clipping"),
        (config().with_steps(9), "steps was 8 and is now 9"),
        (config().with_budget(Budget::new(1e9, 1e-4).unwrap()), "budget was none"),
        (config().with_sampling(SamplingScheme::FixedSize), "sampling"),
    ] {
        let plan = config.init().unwrap();
        let error =
            checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

/// Returns a run that ended after a checkpoint of its start.
fn saved() -> (RunFolder, Checkpointer) {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(), &optim).unwrap();
    (folder, checkpointer)
}

#[test]
fn damaged_checkpoints_are_refused_with_the_file() {
    let restore = |damage: fn(&std::path::Path)| {
        let (_folder, checkpointer) = saved();
        let checkpoint = checkpointer.latest().unwrap().unwrap();
        damage(checkpoint.folder());
        let plan = config().init().unwrap();
        checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap_err().to_string()
    };
    let error = restore(|folder| {
        let path = folder.join("model.bpk");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    });
    assert!(error.contains("model.bpk is damaged"), "{error}");
    let error = restore(|folder| {
        let path = folder.join("optimizer.bpk");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 3]).unwrap();
    });
    assert!(error.contains("optimizer.bpk is damaged"), "{error}");
    let error = restore(|folder| fs::remove_file(folder.join("model.bpk")).unwrap());
    assert!(error.contains("model.bpk"), "{error}");
    let error = restore(|folder| fs::write(folder.join("privacy.json"), "{").unwrap());
    assert!(error.contains("privacy.json is damaged"), "{error}");
    let error = restore(|folder| {
        let path = folder.join("privacy.json");
        let text = fs::read_to_string(&path).unwrap().replace("\"format\": 6", "\"format\": 7");
        fs::write(path, text).unwrap();
    });
    assert!(error.contains("has format 7"), "{error}");
    let error = restore(|folder| {
        let path = folder.join("privacy.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace("\"next_step\": 0", "\"next_step\": 1")).unwrap();
    });
    assert!(error.contains("contradict"), "{error}");
    // The last one would be the one that counts.
    let error = restore(|folder| {
        let path = folder.join("privacy.json");
        let text = fs::read_to_string(&path).unwrap();
        let other = text.replace("\"next_step\": 0", "\"next_step\": 1, \"next_step\": 0");
        assert_ne!(other, text);
        fs::write(path, other).unwrap();
    });
    assert!(error.contains("privacy.json is damaged"), "{error}");
    assert!(error.contains("`next_step` is repeated"), "{error}");
    // A ledger whose header states something else than the plan.
    let error = restore(|folder| {
        let path = folder.join("privacy.json");
        let mut state: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let batch = &mut state["run"]["ledger"]["header"]["facts"]["expected_batch_size"];
        assert!(batch.is_string(), "{batch}");
        *batch = "1".into();
        fs::write(path, serde_json::to_vec(&state).unwrap()).unwrap();
    });
    assert!(error.contains("the ledger differs from the plan"), "{error}");
    let error = restore(|folder| {
        let path = folder.join("privacy.json");
        let text = fs::read_to_string(&path).unwrap();
        let other = text.replace("\"format_version\": 3", "\"format_version\": 99");
        assert_ne!(other, text);
        fs::write(path, other).unwrap();
    });
    assert!(error.contains("privacy.json is damaged"), "{error}");
}

#[test]
fn files_and_key_are_verified_without_a_resumption() {
    let (_folder, checkpointer) = saved();
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    checkpoint.verify().unwrap();
    for file in [checkpoint.folder().join("model.bpk"), checkpointer.key_file().unwrap()] {
        let good = fs::read(&file).unwrap();
        fs::write(&file, &good[..good.len() / 2]).unwrap();
        let error = checkpoint.verify().unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
        fs::write(&file, good).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn the_key_of_a_checkpoint_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(), &optim).unwrap();
    let state = checkpointer.latest().unwrap().unwrap().folder().join("privacy.json");
    for file in [state, checkpointer.key_file().unwrap(), folder.path().join("releases.log")] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_checkpoint_of_another_run_is_not_overwritten() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let save = |seed| {
        let plan = config().with_insecure_seed(InsecureSeed(seed)).init().unwrap();
        checkpointer.save(&Net::new(), &plan.optimizer(SgdConfig::new().init()))
    };
    save(1).unwrap();
    save(1).unwrap();
    let error = save(2).unwrap_err().to_string();
    assert!(error.contains("another run"), "{error}");
}

#[test]
fn a_new_checkpoint_replaces_the_old_one_and_partial_ones_are_ignored() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let plan = config().init().unwrap();
    let mut all = batches(&plan);
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    for _ in 0..2 {
        checkpointer.save(&model, &optim).unwrap();
        let one = all.by_ref().take(1);
        model = train(&mut optim, model, one, 7);
    }
    checkpointer.save(&model, &optim).unwrap();
    let partial = "partial-checkpoint-00000000000000000009-x";
    fs::create_dir(folder.path().join(partial)).unwrap();
    let latest = checkpointer.latest().unwrap().unwrap();
    assert!(latest.folder().ends_with("checkpoint-00000000000000000002"));
    let complete = fs::read_dir(folder.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("checkpoint"))
        .count();
    assert_eq!(complete, 1);
    checkpointer.save(&model, &optim).unwrap();
    assert!(!folder.path().join(partial).exists());
}

/// A run of two steps with a policy that follows public data.
fn learning() -> (PrivacyPlanConfig, DpOptimizer, Net) {
    let clipping = LayerwiseClipping::enhanced(0.3, &public_norms()).unwrap();
    let config = config().with_clipping(clipping);
    let mut optim = config.clone().init().unwrap().optimizer(SgdConfig::new().init());
    let model = train_on(&mut optim, Net::new(), 2, 7);
    (config, optim, model)
}

fn folders(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_second_checkpoint_of_a_step_replaces_the_first() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let (config, mut optim, model) = learning();
    checkpointer.save(&model, &optim).unwrap();
    // Another model, other thresholds, and an average that starts.
    let other = PublicSource::generated("waves");
    let other = PublicNorms::from_means(other, 7, layers(), vec![1.0, 5.0]).unwrap();
    optim.learn_from_public(&other).unwrap();
    let adapted = optim.plan().clipping().adapted();
    let optim = optim.with_weight_average(WeightAverage::new(0.5).unwrap()).unwrap();
    checkpointer.save(&Net::new(), &optim).unwrap();
    drop(optim);
    assert_eq!(folders(folder.path()), ["checkpoint-00000000000000000002", "releases.log"]);

    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let plan = config.init().unwrap();
    let (optim, found) = checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap();
    assert_ne!(values(&model), values(&Net::new()));
    assert_eq!(values(&found), values(&Net::new()));
    assert_eq!(optim.plan().clipping().adapted(), adapted);
    let named = "letters (published, 500 items); waves (generated, 7 items)";
    assert_eq!(optim.statement(&[1e-5]).unwrap().facts["public_data"], named);
    assert!(optim.weight_average().is_some());
}

#[test]
fn public_data_stays_named_after_a_resumption() {
    let folder = tempfile::tempdir().unwrap();
    let (config, mut optim, model) = learning();
    let waves = PublicSource::generated("waves");
    let waves = PublicNorms::from_means(waves, 7, layers(), vec![1.0, 5.0]).unwrap();
    optim.learn_from_public(&waves).unwrap();
    optim.save(folder.path(), &model).unwrap();
    drop(optim);
    // Named before and after the state is loaded.
    let mut optim = config.init().unwrap().optimizer(SgdConfig::new().init());
    let named = |name| PublicSource::consented(name).data(vec![1]).unwrap();
    optim.name_public_data(&named("before"));
    let (mut optim, _) = optim.load(folder.path(), model).unwrap();
    optim.name_public_data(&named("after"));
    optim.name_public_data(&named("before"));
    let expected = "letters (published, 500 items); waves (generated, 7 items); before (consented, \
                    1 item); after (consented, 1 item)";
    assert_eq!(optim.statement(&[1e-5]).unwrap().facts["public_data"], expected);
}

#[test]
fn a_run_does_not_resume_with_other_public_data() {
    let folder = tempfile::tempdir().unwrap();
    let (_, optim, model) = learning();
    optim.save(folder.path(), &model).unwrap();
    drop(optim);
    let other = PublicSource::published("letters");
    let other = PublicNorms::from_means(other, 499, layers(), vec![3.0, 1.0]).unwrap();
    let clipping = LayerwiseClipping::enhanced(0.3, &other).unwrap();
    let plan = config().with_clipping(clipping).init().unwrap();
    let optim = plan.optimizer(SgdConfig::new().init());
    let error = optim.load(folder.path(), model).err().unwrap().to_string();
    assert!(error.contains("500 items") && error.contains("499 items"), "{error}");
}

#[test]
fn a_kill_while_a_checkpoint_is_replaced_leaves_a_complete_one() {
    let complete = run_folder();
    let (config, optim, model) = learning();
    let (old, new) = (complete.path().join("old"), complete.path().join("new"));
    Checkpointer::new(complete.path()).save(&model, &optim).unwrap();
    copy_folder(&complete.path().join("checkpoint-00000000000000000002"), &old);
    Checkpointer::new(complete.path()).save(&Net::new(), &optim).unwrap();
    copy_folder(&complete.path().join("checkpoint-00000000000000000002"), &new);
    drop(optim);

    // Before the first one is removed, and after.
    for both in [true, false] {
        let folder = run_folder();
        fs::copy(complete.path().join("releases.log"), folder.path().join("releases.log")).unwrap();
        let key = |folder: &RunFolder| folder.outside().join("run.key");
        fs::copy(key(&complete), key(&folder)).unwrap();
        copy_folder(&new, &folder.path().join("checkpoint-00000000000000000002-new"));
        if both {
            copy_folder(&old, &folder.path().join("checkpoint-00000000000000000002"));
        }
        let checkpointer = Checkpointer::new(folder.path());
        let restore = || {
            let latest = checkpointer.latest().unwrap().unwrap();
            assert_eq!(checkpointer.after(2).unwrap().folder(), latest.folder());
            let plan = config.clone().init().unwrap();
            latest.restore(plan, SgdConfig::new().init(), Net::new()).unwrap()
        };
        let (optim, found) = restore();
        assert_eq!(values(&found), values(&Net::new()));
        // The next checkpoint succeeds, even at the same step.
        checkpointer.save(&model, &optim).unwrap();
        drop(optim);
        assert_eq!(folders(folder.path()), ["checkpoint-00000000000000000002", "releases.log"]);
        assert_eq!(values(&restore().1), values(&model));
    }
}

/// A folder with the log of another run after `steps` steps, and nothing else.
fn abandoned(steps: usize) -> RunFolder {
    let folder = run_folder();
    let other = config().with_insecure_seed(InsecureSeed(77)).init().unwrap();
    let other = other.optimizer(SgdConfig::new().init());
    let mut other = other.with_release_log(folder.path().join("releases.log")).unwrap();
    train_on(&mut other, Net::new(), steps, 7);
    folder
}

#[test]
fn a_folder_without_releases_and_checkpoints_is_used_again() {
    let folder = abandoned(0);
    let checkpointer = Checkpointer::new(folder.path());
    assert!(checkpointer.latest().unwrap().is_none());
    let mut optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let model = train_on(&mut optim, Net::new(), 2, 7);
    checkpointer.save(&model, &optim).unwrap();
    let expected = train_on(&mut optim, model, 2, 7);
    drop(optim);
    let plan = config().init().unwrap();
    let optim = plan.optimizer(SgdConfig::new().init());
    let (mut optim, model) = optim.load(folder.path(), Net::new()).unwrap();
    assert_eq!((optim.next_step(), optim.ledger().releases()), (2, 4));
    assert_eq!(values(&train_on(&mut optim, model, 2, 7)), values(&expected));
}

#[test]
fn a_folder_with_releases_and_no_checkpoint_is_refused() {
    let folder = abandoned(3);
    let checkpointer = Checkpointer::new(folder.path());
    let log = fs::read(folder.path().join("releases.log")).unwrap();
    let optim = || config().init().unwrap().optimizer(SgdConfig::new().init());
    for error in [
        checkpointer.latest().unwrap_err().to_string(),
        optim().load(folder.path(), Net::new()).unwrap_err().to_string(),
    ] {
        assert!(error.contains("releases.log has 3 releases"), "{error}");
        assert!(error.contains("backup") && error.contains("its own folder"), "{error}");
    }
    // Saving without this check is also rejected.
    let error = checkpointer.save(&Net::new(), &optim()).unwrap_err().to_string();
    assert!(error.contains("another run"), "{error}");
    assert_eq!(folders(folder.path()), ["releases.log"]);
    assert_eq!(fs::read(folder.path().join("releases.log")).unwrap(), log);
}

#[test]
fn a_finished_run_restarts_with_the_same_statement() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let (model, optim) = run(config(), SgdConfig::new().init(), UNITS);
    checkpointer.save(&model, &optim).unwrap();
    let said = optim.statement(&[1e-3]).unwrap();
    let independence = "checked by gradient alone on some batches, not by value";
    assert_eq!(said.facts["independence_of_examples"], independence);
    drop(optim);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let restore = || {
        let plan = config().init().unwrap();
        checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap().0
    };
    assert_eq!(restore().statement(&[1e-3]).unwrap().to_string(), said.to_string());

    // A checkpoint without the result resumes as not checked.
    let path = checkpoint.folder().join("privacy.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let fields = state["run"].as_object_mut().unwrap();
    assert!(fields.remove("independence").is_some() && fields.remove("facts").is_some());
    fs::write(&path, state.to_string()).unwrap();
    let restored = restore();
    assert_eq!(restored.independence(), Independence::NotChecked);
    assert_eq!(restored.next_step(), 8);
}

#[test]
fn lost_steps_stay_in_the_ledger_and_are_repeated_for_free() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let begin = || {
        let plan = config().init().unwrap();
        let all = batches(&plan);
        (plan.optimizer(SgdConfig::new().init()), all)
    };
    let (mut optim, mut all) = begin();
    let model = train(&mut optim, Net::new(), all.by_ref().take(2), 7);
    checkpointer.save(&model, &optim).unwrap();
    let lost = train(&mut optim, model, all.take(3), 7);
    drop(optim);

    let resume = |checkpoint: Checkpoint| {
        let plan = config().init().unwrap();
        checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap()
    };
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let (mut optim, model) = resume(checkpoint.clone());
    assert_eq!((optim.next_step(), optim.ledger().releases()), (2, 5));
    let rest = batches(optim.plan()).skip_to(2).unwrap();
    let again = train(&mut optim, model, rest.take(3), 7);
    assert_eq!(values(&again), values(&lost));
    assert_eq!((optim.next_step(), optim.ledger().releases()), (5, 5));
    drop(optim);

    // Another model is another release from the same draw.
    let (mut optim, _) = resume(checkpoint.clone());
    let mut rest = batches(optim.plan()).skip_to(2).unwrap();
    let batch = rest.next().unwrap().unwrap();
    let model = Net::new();
    for physical_batch in batch.physical_batches(7).unwrap() {
        optim.backward(&model, physical_batch.unwrap(), Net::losses).unwrap();
    }
    let error = optim.step(0.1, model, batch).unwrap_err().error().to_string();
    assert!(error.contains("step 2 was released before"), "{error}");
    drop(optim);

    let (optim, _) = resume(checkpoint.skip_lost_steps());
    assert_eq!((optim.next_step(), optim.ledger().releases()), (5, 5));
}

// Sharp edge: the test of independence removes bits from tiny gradients, so a repeated step has to
// be tested in the same way as the first time.
#[test]
fn steps_with_tiny_gradients_are_repeated_for_free() {
    let nearly_nothing = |model: &Net, x| Net::losses(model, x) * 1e-31;
    for saved in [0, 2] {
        let folder = run_folder();
        let checkpointer = Checkpointer::new(folder.path());
        let plan = config().init().unwrap();
        let mut all = batches(&plan);
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let before = all.by_ref().take(saved);
        let model = train_with(&mut optim, Net::new(), before, 7, nearly_nothing);
        checkpointer.save(&model, &optim).unwrap();
        let lost = train_with(&mut optim, model, all.take(3), 7, nearly_nothing);
        drop(optim);

        let checkpoint = checkpointer.latest().unwrap().unwrap();
        let plan = config().init().unwrap();
        let (mut optim, model) =
            checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap();
        let rest = batches(optim.plan()).skip_to(saved as u64).unwrap();
        let again = train_with(&mut optim, model, rest.take(3), 7, nearly_nothing);
        assert_eq!(values(&again), values(&lost));
        assert_eq!(optim.ledger().releases(), saved as u64 + 3);
    }
}

/// A run with a key of the operating system: two steps, a checkpoint, and a copy of its folder.
fn forked() -> (RunFolder, DpOptimizer, Net) {
    let folder = run_folder();
    let plan = secret().init().unwrap();
    let first = batches(&plan).take(2);
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = train(&mut optim, Net::new(), first, 7);
    let run = folder.path().join("run");
    Checkpointer::new(&run).save(&model, &optim).unwrap();
    copy_folder(&run, &folder.path().join("copy"));
    fs::copy(folder.path().join("run.key"), folder.path().join("copy.key")).unwrap();
    (folder, optim, model)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).unwrap();
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

fn secret() -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(UNITS, 20.0).with_steps(8).with_noise_multiplier(1.0)
}

/// One step on losses that are nearly zero.
fn tiny_step(optim: &mut DpOptimizer, model: Net, scale: f32) -> Net {
    let rest = batches(optim.plan()).skip_to(optim.next_step()).unwrap();
    train_with(optim, model, rest.take(1), 7, |model, x| Net::losses(model, x) * scale)
}

#[test]
fn copies_of_a_secret_run_have_the_same_noise_for_the_same_sums_only() {
    // The test of independence, which a copy makes again, removes no bits from these gradients.
    for (scale, same) in [(1e-17, true), (2e-17, false)] {
        let (folder, mut optim, model) = forked();
        let released = tiny_step(&mut optim, model, 1e-17);
        let copy = Checkpointer::new(folder.path().join("copy")).latest().unwrap().unwrap();
        let plan = secret().init().unwrap();
        let (mut optim, model) = copy.restore(plan, SgdConfig::new().init(), Net::new()).unwrap();
        let again = tiny_step(&mut optim, model, scale);
        // On the grid of the noise the sums are zero, so only different noise leads to a different
        // model.
        assert_eq!(values(&again) == values(&released), same);
    }
}
