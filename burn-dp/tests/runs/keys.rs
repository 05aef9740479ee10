//! The location of a run's key, and its erasure.

use std::fs;
use std::path::Path;

use burn::optim::SgdConfig;
use burn_dp::DpError;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::optim::DpOptimizer;

use crate::fixtures::{Net, batches, config, run_folder, train, train_on, values};

fn optimizer() -> DpOptimizer {
    config().init().unwrap().optimizer(SgdConfig::new().init())
}

/// A run of two steps with a checkpoint after each, and one before the first.
fn saved(checkpointer: &Checkpointer) -> (DpOptimizer, Net) {
    let (mut optim, mut model) = (optimizer(), Net::new());
    checkpointer.save(&model, &optim).unwrap();
    for _ in 0..2 {
        model = train_on(&mut optim, model, 1, 7);
        checkpointer.save(&model, &optim).unwrap();
    }
    (optim, model)
}

fn restore(checkpointer: &Checkpointer) -> Result<(DpOptimizer, Net), DpError> {
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    checkpoint.restore(config().init().unwrap(), SgdConfig::new().init(), Net::new())
}

/// The content of all files below a folder.
fn contents(folder: &Path) -> Vec<u8> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { contents(&path) } else { fs::read(path).unwrap() })
        .collect()
}

/// The digits of the key in a key file.
fn digits(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.split("\"key\":\"").nth(1).unwrap().split('"').next().unwrap().to_string()
}

// Sharp edge: the folder of the checkpoints can be published, so the key is not in it.
#[test]
fn no_file_among_the_checkpoints_has_the_key() {
    let folder = run_folder();
    for checkpointer in [
        Checkpointer::new(folder.path()),
        Checkpointer::new(folder.outside().join("b")).with_key_file(folder.outside().join("other")),
    ] {
        drop(saved(&checkpointer));
        let file = checkpointer.key_file().unwrap();
        assert!(!file.starts_with(checkpointer.folder()));
        let key = digits(&file);
        assert_eq!(key.len(), 68);
        let contents = contents(checkpointer.folder());
        for part in [&key[..], &key[4..36], &key[36..]] {
            assert!(!contents.windows(part.len()).any(|found| found == part.as_bytes()));
        }
        assert_eq!(restore(&checkpointer).unwrap().0.next_step(), 2);
    }
    assert!(folder.outside().join("run.key").exists());
}

#[test]
fn a_run_whose_key_was_erased_has_its_model_and_statement_and_no_steps() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let (mut optim, model) = saved(&checkpointer);
    let stored = optim.statement(&[1e-3]).unwrap();
    assert!(stored.facts["noise_key"].starts_with("in a file apart from the checkpoints"));
    assert!(stored.to_string().contains("A reader of the key of the run"));
    let batch = batches(optim.plan()).skip_to(2).unwrap().next().unwrap().unwrap();

    optim.forget_key().unwrap();
    assert!(!checkpointer.key_file().unwrap().exists());
    optim.forget_key().unwrap();
    let erased = optim.statement(&[1e-3]).unwrap();
    assert_eq!(erased.facts["noise_key"], "erased when the run ended");
    assert!(!erased.to_string().contains("A reader of the key"));
    let error = optim.step(0.1, model.clone(), batch).unwrap_err().error().to_string();
    assert!(error.contains("was erased after 2 steps, so the run is over"), "{error}");
    // The final model can still be saved.
    checkpointer.save(&model, &optim).unwrap();
    drop(optim);

    let (mut optim, found) = restore(&checkpointer).unwrap();
    assert_eq!(values(&found), values(&model));
    assert_eq!(optim.statement(&[1e-3]).unwrap().to_string(), erased.to_string());
    let draw = optim.plan().sampler().unwrap().draw(2).unwrap();
    let error = optim.step(0.1, found, draw).unwrap_err().error().to_string();
    assert!(error.contains("so the run is over"), "{error}");
    optim.forget_key().unwrap();
    drop(optim);

    checkpointer.remove_run().unwrap();
    assert_eq!(fs::read_dir(folder.outside()).unwrap().count(), 0);
}

// The second file would survive `forget_key`, although the statement says that the key is erased.
#[test]
fn a_second_file_for_the_key_of_a_run_is_refused() {
    for (first, second) in [(Some("secure/key"), None), (None, Some("secure/key"))] {
        let folder = run_folder();
        let with = |file: Option<&str>| match file {
            Some(file) => {
                Checkpointer::new(folder.path()).with_key_file(folder.outside().join(file))
            }
            None => Checkpointer::new(folder.path()),
        };
        let (first, second) = (with(first), with(second));
        let (mut optim, model) = saved(&first);
        let refuses = |optim: &DpOptimizer| {
            let error = second.save(&model, optim).unwrap_err().to_string();
            assert!(error.contains("a second copy in"), "{error}");
            assert!(!second.key_file().unwrap().exists());
        };
        refuses(&optim);
        first.save(&model, &optim).unwrap();
        drop(optim);
        optim = restore(&first).unwrap().0;
        refuses(&optim);
        // The same file by another path.
        let name = first.key_file().unwrap();
        let other = name.parent().unwrap().join(".").join(name.file_name().unwrap());
        first.clone().with_key_file(other).save(&model, &optim).unwrap();

        optim.forget_key().unwrap();
        assert!(!first.key_file().unwrap().exists());
        assert_eq!(
            optim.statement(&[1e-3]).unwrap().facts["noise_key"],
            "erased when the run ended"
        );
        // Without a key, none is written anywhere.
        second.save(&model, &optim).unwrap();
        assert!(!second.key_file().unwrap().exists());
    }
}

#[test]
fn a_key_is_not_erased_within_a_logical_step() {
    let mut optim = optimizer();
    let model = Net::new();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let losses = |model: &Net, units: Vec<usize>| model.losses_of(&units);
    optim.backward(&model, &draw, losses).unwrap();
    let error = optim.forget_key().unwrap_err().to_string();
    assert!(error.contains("within a logical step"), "{error}");
    optim.discard();
    optim.forget_key().unwrap();
    assert_eq!(optim.statement(&[1e-3]).unwrap().facts["noise_key"], "erased when the run ended");
}

#[test]
fn a_key_in_memory_or_in_records_is_stated() {
    let optim = optimizer();
    let said = |optim: &DpOptimizer| optim.statement(&[1e-3]).unwrap().facts["noise_key"].clone();
    assert_eq!(said(&optim), "in the memory of the program only");
    let folder = run_folder();
    let log = folder.path().join("log");
    let optim = optim.with_release_log(&log).unwrap();
    let record = optim.to_record().unwrap();
    assert_eq!(said(&optim), "in records that the program stores");
    drop(optim);
    let mut optim = optimizer().load_record(record).unwrap();
    // Only the program can delete its records.
    optim.forget_key().unwrap();
    assert_eq!(said(&optim), "in records that the program stores");
}

// The second process would otherwise erase the key, and then find the log locked.
#[test]
fn a_run_that_writes_its_first_checkpoint_keeps_its_key() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let (first, model) = (optimizer(), Net::new());
    checkpointer.save(&model, &first).unwrap();
    // As before the first checkpoint is complete.
    let entries = fs::read_dir(checkpointer.folder()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).for_each(|path| fs::remove_dir_all(path).unwrap());
    let file = checkpointer.key_file().unwrap();
    let key = fs::read(&file).unwrap();
    let save = || {
        let plan = config().with_insecure_seed(burn_dp::random::InsecureSeed(9)).init().unwrap();
        checkpointer.save(&model, &plan.optimizer(SgdConfig::new().init())).map(|_| ())
    };
    let error = save().unwrap_err().to_string();
    assert!(error.contains("has the key of another run"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), key);
    // It has ended, and released nothing.
    drop(first);
    save().unwrap();
    assert_ne!(fs::read(&file).unwrap(), key);
}

#[test]
fn a_record_with_the_key_is_stated_after_later_checkpoints_too() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let (mut optim, model) = saved(&checkpointer);
    let _record = optim.to_record().unwrap();
    let said = |optim: &DpOptimizer| {
        let statement = optim.statement(&[1e-3]).unwrap();
        let is_open = statement.not_covered.iter().any(|text| text.contains("reader of the key"));
        (statement.facts["noise_key"].clone(), is_open)
    };
    let in_records = ("in records that the program stores".to_string(), true);
    assert_eq!(said(&optim), in_records);
    let model = train_on(&mut optim, model, 1, 7);
    checkpointer.save(&model, &optim).unwrap();
    assert_eq!(said(&optim), in_records);
    drop(optim);
    let (mut optim, _) = restore(&checkpointer).unwrap();
    assert_eq!(said(&optim), in_records);
    optim.forget_key().unwrap();
    assert_eq!(said(&optim), in_records);
}

#[test]
fn a_missing_foreign_or_damaged_key_is_refused_with_the_way_out() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    drop(saved(&checkpointer));
    let file = checkpointer.key_file().unwrap();
    let good = fs::read_to_string(&file).unwrap();
    let refused = || restore(&checkpointer).unwrap_err().to_string();

    let other = Checkpointer::new(folder.outside().join("other"));
    let plan = config().with_insecure_seed(burn_dp::random::InsecureSeed(9)).init().unwrap();
    let optim = plan.optimizer(SgdConfig::new().init());
    let error = other.clone().with_key_file(&file).save(&Net::new(), &optim).unwrap_err();
    assert!(error.to_string().contains("has the key of another run"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), good);
    other.save(&Net::new(), &optim).unwrap();

    fs::copy(other.key_file().unwrap(), &file).unwrap();
    let error = refused();
    assert!(error.contains("key of another run") && error.contains("with_key_file"), "{error}");
    for damaged in [&good[..good.len() / 2], &good.replace("key", "kay"), ""] {
        fs::write(&file, damaged).unwrap();
        let error = refused();
        assert!(error.contains("run.key is damaged"), "{error}");
    }
    fs::remove_file(&file).unwrap();
    let error = refused();
    assert!(error.contains("run.key is missing") && error.contains("with_key_file"), "{error}");
    fs::write(&file, good).unwrap();
    assert!(restore(&checkpointer).is_ok());
}

#[test]
fn a_run_does_not_begin_in_place_of_a_file_of_others() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let (optim, model) = (optimizer(), Net::new());
    let file = checkpointer.key_file().unwrap();
    for foreign in ["secret", "secret\n", "\0\0\0secret"] {
        fs::write(&file, foreign).unwrap();
        let error = checkpointer.save(&model, &optim).unwrap_err().to_string();
        assert!(error.contains("run.key") && error.contains("move it away"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), foreign);
    }
    fs::remove_file(&file).unwrap();
    let log = folder.path().join("releases.log");
    fs::write(&log, "v1").unwrap();
    let error = checkpointer.save(&model, &optim).unwrap_err().to_string();
    assert!(error.contains("releases.log") && error.contains("move it away"), "{error}");
    assert_eq!(fs::read_to_string(&log).unwrap(), "v1");
    assert!(!file.exists());
    fs::remove_file(&log).unwrap();
    checkpointer.save(&model, &optim).unwrap();
}

#[cfg(unix)]
#[test]
fn a_key_that_others_can_read_is_stated_also_when_it_is_erased() {
    use std::os::unix::fs::PermissionsExt;
    let said = |optim: &DpOptimizer| {
        let statement = optim.statement(&[1e-3]).unwrap();
        let sentence = |text: &String| text.starts_with("Other users of the machine");
        let is_stated = statement.not_covered.iter().any(sentence);
        assert_eq!(statement.facts.contains_key("key_file"), is_stated);
        (statement.facts["noise_key"].clone(), is_stated)
    };
    for closed_and_resumed in [false, true] {
        let folder = run_folder();
        let checkpointer = Checkpointer::new(folder.path());
        let (mut optim, model) = saved(&checkpointer);
        assert!(!said(&optim).1);
        drop(optim);
        let mode = |mode| {
            let file = checkpointer.key_file().unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o644);
        optim = restore(&checkpointer).unwrap().0;
        assert_eq!(said(&optim), ("in a file that other users can read".into(), true));
        if closed_and_resumed {
            checkpointer.save(&model, &optim).unwrap();
            assert!(said(&optim).1);
            drop(optim);
            mode(0o600);
            optim = restore(&checkpointer).unwrap().0;
            let (storage, is_stated) = said(&optim);
            assert!(storage.starts_with("in a file apart") && is_stated, "{storage}");
        }
        optim.forget_key().unwrap();
        checkpointer.save(&model, &optim).unwrap();
        assert_eq!(said(&optim), ("erased when the run ended".into(), true));
    }
}

#[test]
fn a_folder_without_a_name_needs_a_key_file() {
    let error = Checkpointer::new("/").key_file().unwrap_err().to_string();
    assert!(error.contains("with_key_file"), "{error}");
    let file = Checkpointer::new("runs/a").key_file().unwrap();
    assert!(file.is_absolute() && file.ends_with("runs/a.key"));
    // A relative path would lead elsewhere if the program changes its working directory.
    let file = Checkpointer::new("runs/a").with_key_file("keys/b").key_file().unwrap();
    assert!(file.is_absolute() && file.ends_with("keys/b"));
}

#[test]
fn a_run_is_resumed_with_the_key_in_its_file() {
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let (mut optim, model) = saved(&checkpointer);
    let expected = train_on(&mut optim, model, 3, 7);
    drop(optim);
    let (mut optim, model) = restore(&checkpointer).unwrap();
    let rest = batches(optim.plan()).skip_to(2).unwrap().take(3);
    assert_eq!(values(&train(&mut optim, model, rest, 7)), values(&expected));
}
