//! Optimizers that are saved as a value and restored.

use std::fs;
use std::path::Path;

use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn_dp::DpError;
use burn_dp::checkpoint::DpOptimizerRecord;
use burn_dp::clipping::QuantileClipping;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig, Sparsifier, WeightAverage};
use burn_dp::random::InsecureSeed;
use burn_dp_accountant::Budget;

use crate::fixtures::{Net, batches, config, train_on, values};

fn optimizer() -> DpOptimizer {
    config().init().unwrap().optimizer(SgdConfig::new().init())
}

/// A run of `steps` steps with a log of releases in `folder`.
fn run(folder: &Path, steps: usize) -> (DpOptimizer, Net) {
    let mut optim = optimizer().with_release_log(folder.join("releases.log")).unwrap();
    let model = train_on(&mut optim, Net::new(), steps, 7);
    (optim, model)
}

/// Why the next step is refused.
fn refused(optim: &mut DpOptimizer, model: Net) -> DpError {
    let mut rest = batches(optim.plan()).skip_to(optim.next_step()).unwrap();
    let batch = rest.next().unwrap().unwrap();
    for physical_batch in batch.physical_batches(7).unwrap() {
        optim.backward(&model, physical_batch.unwrap(), Net::losses).unwrap();
    }
    DpError::from(optim.step(0.1, model, batch).unwrap_err())
}

fn goes_on(config: fn() -> PrivacyPlanConfig, inner: fn() -> ModuleOptimizer, extras: bool) {
    let begin = || {
        let optim = config().init().unwrap().optimizer(inner());
        match extras {
            true => optim
                .with_sparsifier(Sparsifier::new(3, 3.0).unwrap())
                .unwrap()
                .with_weight_average(WeightAverage::new(0.9).unwrap())
                .unwrap(),
            false => optim,
        }
    };
    let mut whole = begin();
    let expected = train_on(&mut whole, Net::new(), 8, 7);

    let folder = crate::fixtures::run_folder();
    let log = folder.path().join("log");
    let mut first = begin().with_release_log(&log).unwrap();
    let model = train_on(&mut first, Net::new(), 4, 7);
    let record = first.to_record().unwrap();
    assert_eq!(record.next_step(), 4);
    let bytes = record.to_bytes().unwrap();
    drop(first);

    // From a value and from bytes; the run continues with the key of the record.
    for record in [record, DpOptimizerRecord::from_bytes(&bytes, &log).unwrap()] {
        let plan = config().with_insecure_seed(InsecureSeed(6)).init().unwrap();
        let mut second = plan.optimizer(inner()).load_record(record).unwrap();
        let found = train_on(&mut second, model.clone(), 4, 7);
        assert_eq!(values(&found), values(&expected));
        assert_eq!(second.ledger().entries(), whole.ledger().entries());
        assert_eq!(second.sparsifier(), whole.sparsifier());
        let average =
            |optim: &DpOptimizer| optim.weight_average().map(|found| found.to_bytes().unwrap());
        assert_eq!(average(&second), average(&whole));
    }
}

#[test]
fn a_run_resumed_from_a_record_is_the_run_bit_for_bit() {
    goes_on(config, || SgdConfig::new().init(), false);
    goes_on(config, || AdamConfig::new().init(), true);
    let adapting = || config().with_clipping(QuantileClipping::new(0.5).unwrap());
    goes_on(adapting, || SgdConfig::new().init(), false);
}

#[test]
fn a_resumed_run_takes_the_sparsifier_and_the_average_that_it_did_not_have() {
    let folder = crate::fixtures::run_folder();
    let (first, _) = run(folder.path(), 2);
    let record = first.to_record().unwrap();
    drop(first);
    let sparsifier = Sparsifier::new(3, 3.0).unwrap();
    let second = optimizer().with_sparsifier(sparsifier.clone()).unwrap();
    let second = second.with_weight_average(WeightAverage::new(0.9).unwrap()).unwrap();
    let resumed = second.load_record(record).unwrap();
    assert_eq!(resumed.sparsifier(), Some(&sparsifier));
    assert_eq!(resumed.weight_average().map(WeightAverage::steps), Some(0));
}

#[test]
fn a_record_without_a_log_of_releases_is_refused_with_the_way_out() {
    let mut optim = optimizer();
    train_on(&mut optim, Net::new(), 2, 7);
    let error = optim.to_record().unwrap_err();
    assert!(matches!(error, DpError::InvalidState { .. }));
    let error = error.to_string();
    assert!(error.contains("with_release_log") && error.contains("DpOptimizer::save"), "{error}");
    // The log includes earlier releases.
    let folder = crate::fixtures::run_folder();
    let optim = optim.with_release_log(folder.path().join("log")).unwrap();
    assert_eq!(optim.to_record().unwrap().next_step(), 2);
    // On Windows no other handle can read a locked log.
    drop(optim);
    assert_eq!(fs::read_to_string(folder.path().join("log")).unwrap().lines().count(), 3);
}

#[test]
fn an_older_record_gives_no_budget_back() {
    let folder = crate::fixtures::run_folder();
    let (mut optim, model) = run(folder.path(), 2);
    let record = optim.to_record().unwrap();
    let lost = train_on(&mut optim, model.clone(), 3, 7);
    drop(optim);

    // The releases are in the ledger; repeating the same steps costs nothing.
    let mut optim = optimizer().load_record(record.clone()).unwrap();
    assert_eq!((optim.next_step(), optim.ledger().releases()), (2, 5));
    let again = train_on(&mut optim, model, 3, 7);
    assert_eq!(values(&again), values(&lost));
    assert_eq!((optim.next_step(), optim.ledger().releases()), (5, 5));
    drop(optim);

    // Another model is another release from the same draw.
    let mut optim = optimizer().load_record(record.clone()).unwrap();
    let error = refused(&mut optim, Net::new()).to_string();
    assert!(error.contains("step 2 was released before") && error.contains("skip_lost"), "{error}");
    drop(optim);

    let optim = optimizer().load_record(record.skip_lost_steps()).unwrap();
    assert_eq!((optim.next_step(), optim.ledger().releases()), (5, 5));
}

#[test]
fn lost_steps_take_back_what_was_known_of_the_others() {
    /// Steps whose losses the library computes, and so compares by value.
    fn tested(optim: &mut DpOptimizer, mut model: Net, steps: usize) -> Net {
        let rest = batches(optim.plan()).skip_to(optim.next_step()).unwrap();
        for batch in rest.take(steps) {
            let batch = batch.unwrap();
            optim.backward_batch(&model, &batch, 7, Net::losses).unwrap();
            model = optim.step(0.1, model, batch).unwrap();
        }
        model
    }
    let folder = crate::fixtures::run_folder();
    let mut optim = optimizer().with_release_log(folder.path().join("releases.log")).unwrap();
    let model = tested(&mut optim, Net::new(), 2);
    let facts = |optim: &DpOptimizer| {
        let statement = optim.statement(&[1e-5]).unwrap();
        let facts = ["independence_of_examples", "identity_of_records", "lost_steps"];
        let facts = facts.map(|name| statement.facts.get(name).cloned().unwrap_or_default());
        let sentence = |line: &String| line.starts_with("How the lost steps were computed");
        assert_eq!(statement.not_covered.iter().any(sentence), !facts[2].is_empty());
        facts
    };
    let [found, identity, lost] = facts(&optim);
    assert_eq!(lost, "");
    let weaker = [
        "checked by gradient alone on some batches, not by value",
        "not checked",
        "2 released by a process that did not save them",
    ];
    assert_eq!(found, "checked by value on some batches");
    assert_ne!(identity, weaker[1]);
    let record = optim.to_record().unwrap();
    tested(&mut optim, model.clone(), 2);
    drop(optim);

    let mut optim = optimizer().load_record(record.clone()).unwrap();
    assert_eq!(facts(&optim), weaker);
    // Repeated, they are known again.
    tested(&mut optim, model.clone(), 2);
    assert_eq!(facts(&optim), [found, identity, lost]);
    drop(optim);

    let mut optim = optimizer().load_record(record.skip_lost_steps()).unwrap();
    assert_eq!(facts(&optim), weaker);
    tested(&mut optim, model, 1);
    let record = optim.to_record().unwrap();
    drop(optim);
    assert_eq!(facts(&optimizer().load_record(record).unwrap()), weaker);
}

#[test]
fn a_record_of_an_exhausted_run_is_exhausted() {
    let folder = crate::fixtures::run_folder();
    let log = folder.path().join("log");
    let plan = || PrivacyPlanConfig::new(200, 20.0).with_steps(8).with_noise_multiplier(1.0);
    let after_three = {
        let ledger = plan().init().unwrap().optimizer(SgdConfig::new().init()).ledger().clone();
        let event = plan().init().unwrap().event();
        ledger.epsilon_after(&event, 3, 1e-5).unwrap().upper
    };
    let budget = Budget::new(after_three * 1.001, 1e-5).unwrap();
    let begin = || plan().with_budget(budget).init().unwrap().optimizer(SgdConfig::new().init());
    let mut optim = begin().with_release_log(&log).unwrap();
    let beginning = optim.to_record().unwrap();
    train_on(&mut optim, Net::new(), 3, 7);
    drop(optim);

    let mut optim = begin().load_record(beginning.clone().skip_lost_steps()).unwrap();
    assert_eq!(optim.ledger().releases(), 3);
    assert!(matches!(refused(&mut optim, Net::new()), DpError::BudgetExhausted { .. }));
    drop(optim);

    // Repeating them is free, and the fourth is not among them.
    let mut optim = begin().load_record(beginning).unwrap();
    let model = train_on(&mut optim, Net::new(), 3, 7);
    assert!(matches!(refused(&mut optim, model), DpError::BudgetExhausted { .. }));
    assert_eq!(optim.ledger().releases(), 3);
}

#[test]
fn a_record_is_not_loaded_while_its_log_is_in_use() {
    let folder = crate::fixtures::run_folder();
    let (optim, _) = run(folder.path(), 2);
    let record = optim.to_record().unwrap();
    let error = optimizer().load_record(record.clone()).unwrap_err().to_string();
    assert!(error.contains("is in use"), "{error}");
    drop(optim);
    let first = optimizer().load_record(record.clone()).unwrap();
    let error = optimizer().load_record(record.clone()).unwrap_err().to_string();
    assert!(error.contains("is in use"), "{error}");
    drop(first);
    assert!(optimizer().load_record(record).is_ok());
}

#[test]
fn a_record_is_not_loaded_into_a_run_that_has_begun() {
    let folder = crate::fixtures::run_folder();
    let (optim, _) = run(folder.path(), 2);
    let record = optim.to_record().unwrap();
    // The same run, ahead of its record.
    let error = optim.load_record(record.clone()).unwrap_err().to_string();
    assert!(error.contains("began a run with 2 releases"), "{error}");
    assert!(error.contains("load into a new optimizer"), "{error}");
    let mut other = optimizer();
    train_on(&mut other, Net::new(), 1, 7);
    assert!(other.load_record(record.clone()).is_err());
    let mut within = optimizer();
    let model = Net::new();
    let draw = within.plan().sampler().unwrap().draw(0).unwrap();
    within.backward(&model, &draw, |model, units| model.losses_of(&units)).unwrap();
    assert!(within.load_record(record.clone()).is_err());
    // Before its first step, with releases that were lost.
    let folder = crate::fixtures::run_folder();
    let (mut optim, model) = run(folder.path(), 0);
    let beginning = optim.to_record().unwrap();
    train_on(&mut optim, model, 1, 7);
    drop(optim);
    let resumed = optimizer().load_record(beginning).unwrap();
    assert_eq!((resumed.next_step(), resumed.releases()), (0, 1));
    let error = resumed.load_record(record).unwrap_err().to_string();
    assert!(error.contains("began a run with 1 releases"), "{error}");
}

#[test]
fn a_trial_pass_does_not_reach_the_loaded_run() {
    let config = || config().with_clipping(QuantileClipping::new(0.5).unwrap());
    let optimizer = || config().init().unwrap().optimizer(SgdConfig::new().init());
    let folder = crate::fixtures::run_folder();
    let mut optim = optimizer().with_release_log(folder.path().join("releases.log")).unwrap();
    let model = train_on(&mut optim, Net::new(), 2, 7);
    let record = optim.to_record().unwrap();
    // The step after the record, which the loaded run repeats: it must be the same.
    train_on(&mut optim, model.clone(), 1, 7);
    drop(optim);

    let mut tried = optimizer();
    tried.thresholds().unwrap();
    let draw = tried.plan().sampler().unwrap().draw(0).unwrap();
    for _ in 0..2 {
        tried.backward(&model, &draw, |model, units| model.losses_of(&units)).unwrap();
        tried.discard();
    }
    tried.thresholds().unwrap();
    let mut loaded = tried.load_record(record).unwrap();
    train_on(&mut loaded, model, 1, 7);
    assert_eq!(loaded.ledger().releases(), 3);
}

#[test]
fn a_record_within_a_logical_step_is_refused() {
    let folder = crate::fixtures::run_folder();
    let (mut optim, model) = run(folder.path(), 1);
    let draw = optim.plan().sampler().unwrap().draw(1).unwrap();
    optim.backward(&model, &draw, |model, units| model.losses_of(&units)).unwrap();
    let error = optim.to_record().unwrap_err().to_string();
    assert!(error.contains("make the step first"), "{error}");
    optim.discard();
    assert!(optim.to_record().is_ok());
}

#[test]
fn a_record_does_not_go_on_with_other_numbers() {
    let folder = crate::fixtures::run_folder();
    let (optim, _) = run(folder.path(), 2);
    let record = optim.to_record().unwrap();
    drop(optim);
    for (config, name) in [
        (config().with_noise_multiplier(0.1), "noise_multiplier was 1 and is now 0.1"),
        (config().with_max_grad_norm(2.0), "clipping"),
        (config().with_steps(9), "steps was 8 and is now 9"),
        (config().with_budget(Budget::new(1e9, 1e-4).unwrap()), "budget was none"),
    ] {
        let optim = config.init().unwrap().optimizer(SgdConfig::new().init());
        let error = optim.load_record(record.clone()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("with the settings of the run"), "{error}");
    }
}

#[test]
fn a_missing_older_or_foreign_log_is_refused_with_the_way_out() {
    let folder = crate::fixtures::run_folder();
    let (optim, _) = run(folder.path(), 4);
    let bytes = optim.to_record().unwrap().to_bytes().unwrap();
    drop(optim);
    let log = folder.path().join("releases.log");
    let text = fs::read_to_string(&log).unwrap();
    let load = |log: &Path| {
        let record = DpOptimizerRecord::from_bytes(&bytes, log).unwrap();
        optimizer().load_record(record).unwrap_err().to_string()
    };
    let error = load(&folder.path().join("nowhere"));
    assert!(error.contains("is missing") && error.contains("backup"), "{error}");
    let older: String = text.lines().take(3).map(|line| format!("{line}\n")).collect();
    fs::write(&log, older).unwrap();
    let error = load(&log);
    assert!(error.contains("has 2 releases and the checkpoint 4"), "{error}");
    fs::write(&log, text.replace("\"step\":1", "\"step\":2")).unwrap();
    assert!(load(&log).contains("is damaged"));

    let foreign = crate::fixtures::run_folder();
    let config = config().with_insecure_seed(InsecureSeed(77));
    let other = config.init().unwrap().optimizer(SgdConfig::new().init());
    let mut other = other.with_release_log(foreign.path().join("log")).unwrap();
    train_on(&mut other, Net::new(), 4, 7);
    drop(other);
    let error = load(&foreign.path().join("log"));
    assert!(error.contains("another run"), "{error}");
    // Nor does another run write to the log of this one.
    fs::write(&log, text).unwrap();
    let config = crate::fixtures::config().with_insecure_seed(InsecureSeed(77));
    let other = config.init().unwrap().optimizer(SgdConfig::new().init());
    let error = other.with_release_log(&log).unwrap_err().to_string();
    assert!(error.contains("another run"), "{error}");
}

#[test]
fn a_damaged_record_is_refused_with_the_way_out() {
    let folder = crate::fixtures::run_folder();
    let (optim, _) = run(folder.path(), 1);
    let bytes = optim.to_record().unwrap().to_bytes().unwrap().to_vec();
    let log = folder.path().join("releases.log");
    let read = |bytes: &[u8]| DpOptimizerRecord::from_bytes(bytes, &log);
    assert!(read(&bytes).is_ok());
    let mut damaged: Vec<Vec<u8>> = (0..bytes.len())
        .step_by(97)
        .map(|at| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 4;
            bytes
        })
        .collect();
    damaged.extend((0..bytes.len()).step_by(97).map(|cut| bytes[..cut].to_vec()));
    damaged.push([bytes.as_slice(), &[0]].concat());
    for bytes in damaged {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains("record of the optimizer is damaged"), "{error}");
        assert!(error.contains("backup"), "{error}");
    }
    let shown = format!("{:?}", read(&bytes).unwrap());
    assert!(shown.starts_with("DpOptimizerRecord { next_step: 1, log: "), "{shown}");

    // Complete, but with an unknown version.
    let at = bytes.windows(10).position(|part| part == b"\"format\":6").unwrap() + 9;
    let mut other = bytes.clone();
    other[at] = b'9';
    let end = other.iter().position(|&byte| byte == b'\n').unwrap();
    let sum = format!("{:08x}", crc32fast::hash(&other[9..end]));
    other[..8].copy_from_slice(sum.as_bytes());
    let error = read(&other).unwrap_err().to_string();
    assert!(error.contains("has format 9") && error.contains("with the version"), "{error}");
}

#[test]
fn save_and_load_are_the_checkpoints_of_the_run() {
    let mut whole = optimizer();
    let expected = train_on(&mut whole, Net::new(), 8, 7);
    let folder = crate::fixtures::run_folder();
    let nothing = optimizer().load(folder.path(), Net::new()).unwrap_err().to_string();
    assert!(nothing.contains("has no checkpoint") && nothing.contains("DpOptimizer::save"));

    let mut optim = optimizer();
    let model = train_on(&mut optim, Net::new(), 3, 7);
    optim.save(folder.path(), &model).unwrap();
    let model = train_on(&mut optim, model, 1, 7);
    optim.save(folder.path(), &model).unwrap();
    // A log that the checkpoints share with records.
    assert_eq!(optim.to_record().unwrap().next_step(), 4);
    drop((optim, model));
    let (mut optim, model) = optimizer().load(folder.path(), Net::new()).unwrap();
    assert_eq!(optim.next_step(), 4);
    let found = train_on(&mut optim, model, 4, 7);
    assert_eq!(values(&found), values(&expected));
    assert_eq!(optim.ledger().entries(), whole.ledger().entries());
    let error = optim.load(folder.path(), Net::new()).unwrap_err().to_string();
    assert!(error.contains("began a run with 8 releases"), "{error}");
}

#[test]
fn a_run_does_not_save_where_its_log_is_not() {
    let (first, second) = (crate::fixtures::run_folder(), crate::fixtures::run_folder());
    let mut optim = optimizer();
    let model = train_on(&mut optim, Net::new(), 1, 7);
    optim.save(first.path(), &model).unwrap();
    let error = optim.save(second.path(), &model).unwrap_err().to_string();
    assert!(error.contains("fall behind") && error.contains("save where the log is"), "{error}");
}

#[test]
fn a_run_resumes_with_its_own_average_only() {
    let folder = crate::fixtures::run_folder();
    let with = |decay| optimizer().with_weight_average(WeightAverage::new(decay).unwrap()).unwrap();
    let mut optim = with(0.9).with_release_log(folder.path().join("log")).unwrap();
    train_on(&mut optim, Net::new(), 2, 7);
    let record = optim.to_record().unwrap();
    drop(optim);
    let error = with(0.5).load_record(record.clone()).unwrap_err().to_string();
    assert!(error.contains("decay 0.9") && error.contains("decay 0.5"), "{error}");
    let optim = with(0.9).load_record(record.clone()).unwrap();
    assert_eq!(optim.weight_average().unwrap().steps(), 2);
    drop(optim);
    let optim = optimizer().load_record(record).unwrap();
    assert_eq!(optim.weight_average().unwrap().steps(), 2);
    assert!(optim.with_weight_average(WeightAverage::new(0.9).unwrap()).is_err());
}
