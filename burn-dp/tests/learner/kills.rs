//! Processes that are ended at any time.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::data::dataset::{Dataset, DatasetError};
use burn_dp::optim::{PrivacyPlan, SamplingScheme};
use burn_dp_accountant::correlated_noise::Strategy;

use crate::checkpoints::config;
#[cfg(debug_assertions)]
use crate::ended::aborted;
use crate::fixture::*;

/// The variable with the task of the child and its folder. Without it, the child's test does
/// nothing.
const TASK: &str = "BURN_DP_LEARNER_CHILD";

/// Printed by the child when it waits for its end.
const HALTED: &str = "the child waits for its end";

/// Loads `left` physical batches, says so, and waits for the end of the process.
struct Halting {
    left: AtomicUsize,
}

impl burn_dp::sampling::DistinctRecords<usize> for Halting {}

impl Dataset<usize> for Halting {
    fn get(&self, index: usize) -> Result<usize, DatasetError> {
        Ok(index)
    }

    fn get_many(&self, indices: Vec<usize>) -> Result<Vec<usize>, DatasetError> {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            println!("\n{HALTED}");
            loop {
                std::thread::park();
            }
        }
        Ok(indices)
    }

    fn len(&self) -> usize {
        UNITS
    }
}

/// Ends the process within the checkpoint after this number of steps. The library reads it in
/// builds with debug assertions.
const FAIL_POINT: &str = "BURN_DP_TEST_ABORT_IN_CHECKPOINT";

/// Returns whether a checkpoint is incomplete.
fn partial(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("partial-"))
}

/// The plan of a run. Its name is part of the child's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// Poisson sampling and independent noise.
    Independent,
    /// Cyclic Poisson sampling and noise with three bands.
    Banded,
}

impl Run {
    fn plan(self) -> PrivacyPlan {
        let strategy = || Strategy::banded_toeplitz(STEPS, &[1.0, 0.5, 0.2]).unwrap();
        match self {
            Self::Independent => plan(),
            Self::Banded => {
                let cyclic = SamplingScheme::CyclicPoisson { parts: 3 };
                let config = plan_config().with_sampling(cyclic);
                config.with_correlated_noise(strategy()).init().unwrap()
            }
        }
    }
}

/// The child process of the tests below; it does nothing on its own.
#[test]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let [run, task, folder] = task.splitn(3, ':').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let run = if run == "Banded" { Run::Banded } else { Run::Independent };
    let folder = Path::new(folder);
    // The test of independence loads its own batches.
    let config = config(folder).with_independence_check(false);
    let private = config.init_or_resume(run.plan()).unwrap();
    let metrics = run_folder();
    match task {
        "write" => {
            supervised(&private, metrics.path()).launch(learner(&private));
        }
        batches => {
            let left = AtomicUsize::new(batches.parse().unwrap());
            // The rows of padding would be loaded too.
            let builder = builder().without_padding();
            let loader = private.loader(builder, Halting { left }).unwrap();
            plain(private.supervised(metrics.path(), loader, valid())).launch(learner(&private));
        }
    }
}

fn start(run: Run, task: &str, folder: &Path, configure: impl FnOnce(&mut Command)) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["kills::child", "--exact", "--nocapture"])
        .env(TASK, format!("{run:?}:{task}:{}", folder.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    configure(&mut command);
    command.spawn().unwrap()
}

/// Returns whether `Child::kill` ended a process.
#[cfg(unix)]
fn killed(status: ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
}

/// Returns whether `Child::kill` ended a process.
#[cfg(windows)]
fn killed(status: ExitStatus) -> bool {
    // A test that fails ends its process with the code 101.
    status.code() == Some(1)
}

/// Kills a child while it loads the physical batch after `batches` others. Returns the
/// number of stored releases.
fn kill_after(run: Run, batches: usize, folder: &Path) -> u64 {
    let mut child = start(run, &batches.to_string(), folder, |_| {});
    // Blocks until the child has started or exited.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == HALTED), "the child ended by itself");
    child.kill().unwrap();
    assert!(killed(child.wait().unwrap()));
    releases(folder)
}

/// Returns the number of complete log lines without the header. A line that was cut off when the
/// process ended was not released.
fn releases(folder: &Path) -> u64 {
    fs::read_to_string(folder.join("releases.log")).unwrap().matches('\n').count() as u64 - 1
}

/// Number of physical batches of the steps before `step`.
fn batches_before(run: Run, step: u64) -> usize {
    let sampler = run.plan().sampler().unwrap();
    (0..step).map(|s| sampler.draw(s).unwrap().private_indices().len().div_ceil(4)).sum()
}

/// Continues to the end: no release is lost, nothing is charged twice, and the result equals the
/// result of an uninterrupted run.
fn finish(run: Run, folder: &Path, released: u64) {
    let private = config(folder).init_or_resume(run.plan()).unwrap();
    assert_eq!(private.ledger().releases(), released);
    let result = launch(&private, |training| training);
    assert_same_run(&private, &result, &custom_loop(run.plan(), 4));
    // On Windows no other handle can read a locked log.
    drop((private, result));
    assert_eq!(releases(folder), STEPS);
}

const RUNS: [Run; 2] = [Run::Independent, Run::Banded];

#[test]
fn a_run_killed_within_an_epoch_continues_as_if_never_stopped() {
    for run in RUNS {
        let folder = run_folder();
        // In the second epoch, between two physical batches of step 6.
        let released = kill_after(run, batches_before(run, 6) + 1, folder.path());
        assert_eq!(released, 6);
        finish(run, folder.path(), released);
    }
}

#[test]
fn a_run_killed_before_its_first_checkpoint_continues_from_its_beginning() {
    for run in RUNS {
        let folder = run_folder();
        let released = kill_after(run, batches_before(run, 2) + 1, folder.path());
        assert_eq!(released, 2);
        finish(run, folder.path(), released);
    }
}

#[test]
fn a_run_killed_while_it_repeats_lost_steps_continues() {
    for run in RUNS {
        let folder = run_folder();
        assert_eq!(kill_after(run, batches_before(run, 7) + 1, folder.path()), 7);
        // From step 4 on again, as far as step 5.
        let again = batches_before(run, 5) - batches_before(run, 4) + 1;
        assert_eq!(kill_after(run, again, folder.path()), 7);
        finish(run, folder.path(), 7);
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_run_killed_within_a_checkpoint_continues_from_the_checkpoint_before() {
    let cases = RUNS.into_iter().flat_map(|run| {
        [(STEPS_PER_EPOCH, 0), (2 * STEPS_PER_EPOCH, STEPS_PER_EPOCH)].map(|case| (run, case))
    });
    for (run, (step, before)) in cases {
        let folder = run_folder();
        let mut child = start(run, "write", folder.path(), |command| {
            command.env(FAIL_POINT, step.to_string()).stdout(Stdio::null());
        });
        assert!(aborted(child.wait().unwrap()));
        assert!(partial(folder.path()));
        let released = releases(folder.path());
        // The loop continues while it saves.
        assert!((step..=STEPS).contains(&released), "{released}");
        let private = config(folder.path()).init_or_resume(run.plan()).unwrap();
        assert_eq!(private.next_step(), before);
        drop(private);
        finish(run, folder.path(), released);
        assert!(!partial(folder.path()));
    }
}
