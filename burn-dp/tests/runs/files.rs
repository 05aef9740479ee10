//! Full disks, foreign folders, and processes that end at any operation on a file.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use burn::optim::SgdConfig;
use burn_dp::DpError;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp_accountant::correlated_noise::Strategy;

use crate::fixtures::{Net, batches, config, flat, run_folder};

/// The variable with the folder and the task of the child process. Without it, the child's test
/// does nothing.
const TASK: &str = "BURN_DP_FILES_CHILD";
const AT_OPERATION: &str = "BURN_DP_TEST_FAIL_AT_OPERATION";
const STEPS: u64 = 4;

/// When a run saves, and how it samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saves {
    /// Before the first step, after the second one, and after the last one.
    FromTheBeginning,
    /// After the second step and after the last one.
    AfterTwoSteps,
    /// Like `FromTheBeginning`, for a run with bands and cyclic Poisson sampling. Its checkpoints
    /// contain the memory of the noise.
    WithBands,
}

impl Saves {
    fn config(self) -> PrivacyPlanConfig {
        let config = config().with_steps(STEPS);
        if self != Self::WithBands {
            return config;
        }
        let strategy = Strategy::banded_toeplitz(STEPS, &[1.0, 0.5, 0.2]).unwrap();
        let cyclic = SamplingScheme::CyclicPoisson { parts: 3 };
        config.with_sampling(cyclic).with_correlated_noise(strategy)
    }
}

/// Starts or resumes a run, and completes it. Returns the parameters.
fn run(folder: &Path, saves: Saves) -> Result<Vec<f32>, DpError> {
    let checkpointer = Checkpointer::new(folder);
    let plan = saves.config().init()?;
    let (inner, mut model) = (SgdConfig::new().init(), Net::new());
    let mut optim = match checkpointer.latest()? {
        Some(checkpoint) => {
            let (optim, restored) = checkpoint.restore(plan, inner, model)?;
            model = restored;
            optim
        }
        None => plan.optimizer(inner),
    };
    if saves != Saves::AfterTwoSteps && optim.ledger().releases() == 0 {
        checkpointer.save(&model, &optim)?;
    }
    let rest = batches(optim.plan()).skip_to(optim.next_step())?;
    for batch in rest {
        let batch = batch?;
        for physical_batch in batch.physical_batches(50)? {
            optim.backward(&model, physical_batch?, |model: &Net, x| model.losses(x))?;
        }
        model = optim.step(0.1, model, batch)?;
        if optim.next_step().is_multiple_of(2) {
            checkpointer.save(&model, &optim)?;
        }
    }
    assert_eq!(optim.ledger().releases(), STEPS);
    // Also removes what a killed process left behind.
    checkpointer.save(&model, &optim)?;
    optim.forget_key()?;
    Ok(flat(&model))
}

/// The child process of the tests below; it does nothing on its own.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (saves, folder) = task.split_once(':').unwrap();
    let saves = match saves {
        "late" => Saves::AfterTwoSteps,
        "bands" => Saves::WithBands,
        _ => Saves::FromTheBeginning,
    };
    if let Err(error) = run(Path::new(folder), saves) {
        eprintln!("refused: {error}");
        std::process::exit(3);
    }
}

/// Runs a child with `fault` at an operation.
fn meet(fault: &str, saves: Saves, folder: &Path) -> Output {
    let saves = match saves {
        Saves::FromTheBeginning => "early",
        Saves::AfterTwoSteps => "late",
        Saves::WithBands => "bands",
    };
    Command::new(std::env::current_exe().unwrap())
        .args(["files::child", "--exact", "--nocapture"])
        .env(TASK, format!("{saves}:{}", folder.display()))
        .env(AT_OPERATION, fault)
        .output()
        .unwrap()
}

/// Injects `fault` at each operation of a run on files, and resumes the run.
#[cfg(debug_assertions)]
fn meet_everywhere(fault: &str, saves: Saves, check: impl Fn(&Output, &Path)) {
    let whole = run_folder();
    let expected = run(whole.path(), saves).unwrap();
    for operation in 1.. {
        let folder = run_folder();
        let output = meet(&format!("{fault}:{operation}"), saves, folder.path());
        if output.status.success() {
            assert!(operation > 60, "only {operation} operations on files");
            return;
        }
        check(&output, folder.path());
        // Resumed twice: nothing is left in a state that only the first attempt can use.
        for _ in 0..2 {
            let found = run(folder.path(), saves)
                .unwrap_or_else(|error| panic!("{saves:?}, {fault} {operation}: {error}"));
            assert_eq!(found, expected, "{saves:?}, {fault} {operation}");
        }
        assert_eq!(names(folder.path()), names(whole.path()), "{fault} {operation}");
        assert_eq!(names(folder.outside()), ["run"], "{fault} {operation}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(debug_assertions)]
#[test]
fn a_run_killed_at_any_operation_on_a_file_resumes_bit_for_bit() {
    for saves in [Saves::FromTheBeginning, Saves::AfterTwoSteps, Saves::WithBands] {
        meet_everywhere("abort", saves, |output, _| {
            assert!(crate::ended::aborted(output.status), "{output:?}");
        });
    }
}

// The key of the first run is in place, and no file says that it made a step.
#[cfg(debug_assertions)]
#[test]
fn a_new_run_can_use_the_folder_of_one_that_was_killed_in_its_first_checkpoint() {
    for saves in [Saves::FromTheBeginning, Saves::AfterTwoSteps] {
        for operation in 1.. {
            let folder = run_folder();
            let output = meet(&format!("abort:{operation}"), saves, folder.path());
            assert!(crate::ended::aborted(output.status), "{output:?}");
            let checkpointer = Checkpointer::new(folder.path());
            if checkpointer.latest().unwrap().is_some() {
                assert!(operation > 10, "only {operation} operations on files");
                break;
            }
            let plan = saves.config().with_insecure_seed(InsecureSeed(99)).init().unwrap();
            let optim = plan.optimizer(SgdConfig::new().init());
            let saved = checkpointer.save(&Net::new(), &optim);
            saved.unwrap_or_else(|error| panic!("{saves:?} {operation}: {error}"));
        }
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_full_disk_is_an_error_with_the_way_out_and_loses_nothing() {
    for saves in [Saves::FromTheBeginning, Saves::AfterTwoSteps] {
        meet_everywhere("full", saves, |output, folder| {
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{message}");
            let folder = folder.parent().unwrap().display().to_string();
            assert!(message.contains(&folder), "{message}");
            assert!(message.contains("no storage space; free space"), "{message}");
        });
    }
}

// Sharp edge: cleaning up must not touch foreign files.
#[test]
fn files_and_folders_of_others_are_left_as_they_are() {
    let folder = run_folder();
    let foreign = [
        "checkpoint-500/weights",
        "checkpoint-best/weights",
        "checkpoint-00000000000000000001-best/weights",
        "checkpoint-00000000000000000500/weights",
        "partial-results/weights",
        "partial-checkpoint-00000000000000000003-x/weights",
        "checkpoint-notes.txt",
        "settings.json",
    ];
    for name in foreign {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    run(folder.path(), Saves::FromTheBeginning).unwrap();
    // Another file, inside a checkpoint that is removed.
    let inside = folder.path().join("checkpoint-00000000000000000004/notes.txt");
    fs::write(&inside, "inside").unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    assert!(checkpointer.latest().unwrap().unwrap().folder().ends_with(inside.parent().unwrap()));
    checkpointer.remove_run().unwrap_err();
    let kept = folder.path().join("partial-checkpoint-00000000000000000004-0/notes.txt");
    assert_eq!(fs::read_to_string(kept).unwrap(), "inside");
    for name in foreign {
        assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), name);
    }
}

#[test]
fn a_folder_that_is_a_file_is_refused_with_the_way_out() {
    let folder = run_folder();
    let file = folder.outside().join("file");
    fs::write(&file, "mine").unwrap();
    for path in [file.clone(), file.join("run")] {
        let error = run(&path, Saves::FromTheBeginning).unwrap_err();
        assert!(matches!(error, DpError::Io { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("file") && error.contains("choose another"), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_to_is_refused_with_the_way_out() {
    use std::os::unix::fs::PermissionsExt;
    let folder = run_folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
    // The administrator can write everywhere.
    if fs::write(folder.path().join("probe"), "").is_err() {
        let error = run(folder.path(), Saves::FromTheBeginning).unwrap_err().to_string();
        assert!(error.contains("run") && error.contains("choose another"), "{error}");
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(folder.path().join("probe")).ok();
    run(folder.path(), Saves::FromTheBeginning).unwrap();
}

// Where the administrator cannot write either.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_nobody_can_write_to_is_refused_with_the_way_out() {
    if !Path::new("/sys/kernel").is_dir() {
        return;
    }
    let error = run("/sys/kernel/burn-dp".as_ref(), Saves::FromTheBeginning).unwrap_err();
    assert!(matches!(error, DpError::Io { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("/sys/kernel/burn-dp") && error.contains("choose another"), "{error}");
}

#[test]
fn a_run_that_another_process_uses_is_refused() {
    let folder = run_folder();
    let plan = config().with_steps(STEPS).init().unwrap();
    let optim = plan.optimizer(SgdConfig::new().init());
    Checkpointer::new(folder.path()).save(&Net::new(), &optim).unwrap();
    let output = meet("none", Saves::FromTheBeginning, folder.path());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("is in use by another process"), "{message}");
    drop(optim);
    assert!(meet("none", Saves::FromTheBeginning, folder.path()).status.success());
}
