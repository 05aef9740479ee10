//! Servers and networks that fail in the middle of a step.
#![cfg(unix)]

use std::fs;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use burn::data::dataset::{Dataset, DatasetError};
use burn::train::{ExecutionStrategy, MultiDeviceOptim};
use burn_dp::train::PrivateTraining;

use crate::fixture::*;
use crate::namespace::Network;
use crate::servers::{Process, Server, device_at, test_command, this_program};

/// The variable with the task of the training process: batches before it halts, servers, and the
/// folder of the run. Without it, the test that acts as the process does nothing.
const TASK: &str = "BURN_DP_TEST_TRAINING";

/// Printed by the process when it waits for a line on its input.
const HALTED: &str = "the training waits";
/// Printed at its end, followed by the error, if any.
const ENDED: &str = "the training ended: ";

/// Rows during which the training waits.
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
            std::io::stdin().lock().read_line(&mut String::new()).unwrap();
            // From here on no server answers, so the limit does not end a read that could succeed.
            burn_dp::remote::set_read_limit(Duration::from_secs(5));
        }
        Ok(indices)
    }

    fn len(&self) -> usize {
        UNITS
    }
}

fn private(folder: &Path) -> PrivateTraining {
    // The test of independence loads its own batches.
    let config = training_config().with_checkpoints(folder).with_independence_check(false);
    config.init_or_resume(crate::unclipped()).unwrap()
}

/// The training process of the tests below; it does nothing on its own.
#[test]
fn training() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut words = task.split(' ');
    let left: usize = words.next().unwrap().parse().unwrap();
    let devices = words.next().unwrap().split(',').map(|a| device_at(a.parse().unwrap())).collect();
    let private = private(Path::new(words.next().unwrap()));
    let loader = private.loader(builder(), Halting { left: AtomicUsize::new(left) }).unwrap();
    let metrics = run_folder();
    let training = plain(private.supervised(metrics.path(), loader, valid()));
    let strategy = ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice);
    let result = training.with_training_strategy(strategy.into()).launch(learner(&private));
    // After an error the model may be on a device that does not answer.
    let end = match private.error() {
        Some(error) => error.to_string(),
        None => {
            let values = values(result.model.inner()).concat();
            format!("{:?}", values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        }
    };
    println!("\n{ENDED}{end}");
}

/// Starts a training process that waits after `batches` physical batches.
fn start(batches: usize, servers: &[SocketAddr], folder: &Path) -> Process {
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    let mut command = test_command(this_program(), "failures::training");
    command.env(TASK, format!("{batches} {} {}", servers.join(","), folder.display()));
    Process::start(command)
}

/// Returns the values, as text, of undisturbed training.
fn result(servers: &[SocketAddr], folder: &Path) -> String {
    start(usize::MAX, servers, folder).line(ENDED).expect("the training ended by itself")
}

/// Returns the number of log lines without the header.
fn releases(folder: &Path) -> usize {
    fs::read_to_string(folder.join("releases.log")).unwrap().lines().count() - 1
}

/// Number of physical batches of the steps before `step`.
fn batches_before(step: u64) -> usize {
    let sampler = crate::unclipped().sampler().unwrap();
    (0..step).map(|s| sampler.draw(s).unwrap().private_indices().len().div_ceil(4)).sum()
}

/// Trains with a server that fails within step 6, and returns the message.
fn disturbed(folder: &Path, server: SocketAddr, fail: impl FnOnce()) -> String {
    let mut training = start(batches_before(6) + 1, &[server], folder);
    training.line(HALTED).expect("the training ended by itself");
    assert_eq!(releases(folder), 6);
    fail();
    training.go_on();
    let error = training.line(ENDED).expect("the training ended without an error");
    // Earlier releases remain, and the failed step released nothing.
    assert_eq!(releases(folder), 6, "{error}");
    error
}

#[test]
fn a_server_that_dies_ends_the_run_and_another_one_continues_it() {
    let mut server = Server::start();
    let expected = run_folder();
    let expected = result(&[server.address], expected.path());
    let folder = run_folder();
    let address = server.address;
    let error = disturbed(folder.path(), address, || server.process.kill());
    assert!(error.contains("device"), "{error}");
    // A server that comes back on its address.
    let server = server.start_again();
    assert_eq!(result(&[server.address], folder.path()), expected);
    assert_eq!(releases(folder.path()), STEPS as usize);
}

#[test]
fn a_server_that_hangs_ends_the_run_after_the_limit() {
    let server = Server::start();
    let folder = run_folder();
    let error = disturbed(folder.path(), server.address, || server.process.signal("STOP"));
    assert!(error.contains("did not answer within 5 s"), "{error}");
    server.process.signal("CONT");
    let expected = run_folder();
    let expected = result(&[server.address], expected.path());
    assert_eq!(result(&[server.address], folder.path()), expected);
    assert_eq!(releases(folder.path()), STEPS as usize);
}

#[test]
fn a_network_that_is_cut_ends_the_run_after_the_limit() {
    let Some(network) = Network::new(1) else { return };
    let [server] = network.servers().try_into().ok().unwrap();
    let folder = run_folder();
    let error = disturbed(folder.path(), server.address, || network.cut(0));
    assert!(error.contains("did not answer within 5 s"), "{error}");
    network.mend(0);
    let expected = run_folder();
    let expected = result(&[server.address], expected.path());
    assert_eq!(result(&[server.address], folder.path()), expected);
}
