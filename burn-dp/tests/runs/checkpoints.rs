//! Runs that are interrupted and resumed.

use std::fs;
use std::path::Path;

use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn_dp::noise::InsecureSeed;
use burn_dp::optim::{Checkpoint, Checkpointer, DpOptimizer, PrivacyPlanConfig, SamplingScheme};
use burn_dp::sampling::Sampler;
use burn_dp_accountant::Budget;

use crate::fixtures::{Net, UNITS, batches, config, run, train, train_with, values};

fn resumed(inner: fn() -> ModuleOptimizer) {
    let folder = tempfile::tempdir().unwrap();
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
    assert_eq!(optim.ledger().to_json().unwrap(), whole.ledger().to_json().unwrap());
}

#[test]
fn a_resumed_run_is_the_run_bit_for_bit() {
    resumed(|| SgdConfig::new().init());
    resumed(|| AdamConfig::new().init());
}

#[test]
fn a_resumed_run_takes_the_key_of_the_run_and_not_a_new_one() {
    let config = || PrivacyPlanConfig::new(UNITS, 20.0).with_steps(4).with_noise_multiplier(1.0);
    let folder = tempfile::tempdir().unwrap();
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
    let folder = tempfile::tempdir().unwrap();
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

#[test]
fn damaged_checkpoints_are_refused_with_the_file() {
    let restore = |damage: fn(&std::path::Path)| {
        let folder = tempfile::tempdir().unwrap();
        let checkpointer = Checkpointer::new(folder.path());
        let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
        checkpointer.save(&Net::new(), &optim).unwrap();
        drop(optim);
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
        let text = fs::read_to_string(&path).unwrap().replace("\"format\": 3", "\"format\": 7");
        fs::write(path, text).unwrap();
    });
    assert!(error.contains("format Some(7)"), "{error}");
    let error = restore(|folder| {
        let path = folder.join("privacy.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace("\"next_step\": 0", "\"next_step\": 1")).unwrap();
    });
    assert!(error.contains("contradict"), "{error}");
}

#[cfg(unix)]
#[test]
fn the_key_of_a_checkpoint_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(), &optim).unwrap();
    let file = checkpointer.latest().unwrap().unwrap().folder().join("privacy.json");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_checkpoint_of_another_run_is_not_overwritten_and_not_kept_in_silence() {
    let folder = tempfile::tempdir().unwrap();
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
fn a_new_checkpoint_replaces_the_old_one_and_a_partial_one_is_not_seen() {
    let folder = tempfile::tempdir().unwrap();
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
    fs::create_dir(folder.path().join("partial-x")).unwrap();
    let latest = checkpointer.latest().unwrap().unwrap();
    assert!(latest.folder().ends_with("checkpoint-00000000000000000002"));
    let complete = fs::read_dir(folder.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("checkpoint"))
        .count();
    assert_eq!(complete, 1);
}

#[test]
fn releases_after_a_checkpoint_stay_in_the_ledger_and_are_made_again_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
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
    for chunk in batch.chunks(7).unwrap() {
        optim.backward(model.losses(chunk.unwrap().into_parts().0), &model).unwrap();
    }
    let error = optim.step(0.1, model, batch).unwrap_err().error().to_string();
    assert!(error.contains("step 2 was released before"), "{error}");
    drop(optim);

    let (optim, _) = resume(checkpoint.skip_lost_steps());
    assert_eq!((optim.next_step(), optim.ledger().releases()), (5, 5));
}

/// A run with a key of the operating system: two steps, a checkpoint, and a copy of its folder.
fn forked() -> (tempfile::TempDir, DpOptimizer, Net) {
    let folder = tempfile::tempdir().unwrap();
    let plan = secret().init().unwrap();
    let first = batches(&plan).take(2);
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = train(&mut optim, Net::new(), first, 7);
    let run = folder.path().join("run");
    Checkpointer::new(&run).save(&model, &optim).unwrap();
    copy_folder(&run, &folder.path().join("copy"));
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

/// One step on losses that are as good as zero.
fn tiny_step(optim: &mut DpOptimizer, model: Net, scale: f32) -> Net {
    let rest = batches(optim.plan()).skip_to(optim.next_step()).unwrap();
    train_with(optim, model, rest.take(1), 7, |model, x| Net::losses(model, x) * scale)
}

#[test]
fn copies_of_a_secret_run_have_the_same_noise_for_the_same_sums_only() {
    for (scale, same) in [(1e-10, true), (2e-10, false)] {
        let (folder, mut optim, model) = forked();
        let released = tiny_step(&mut optim, model, 1e-10);
        let copy = Checkpointer::new(folder.path().join("copy")).latest().unwrap().unwrap();
        let plan = secret().init().unwrap();
        let (mut optim, model) = copy.restore(plan, SgdConfig::new().init(), Net::new()).unwrap();
        let again = tiny_step(&mut optim, model, scale);
        // The sums are nothing against the noise: only other noise makes another model.
        assert_eq!(values(&again) == values(&released), same);
    }
}
