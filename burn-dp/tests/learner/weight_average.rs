//! Averaged weights with the learner.

use burn::module::Module;
use burn::train::logger::{FileMetricLogger, MetricLogger};
use burn::train::metric::LossMetric;
use burn::train::metric::NumericEntry;
use burn::train::metric::store::Split;
use burn::train::{ExecutionStrategy, MultiDeviceOptim};
use burn_dp::optim::WeightAverage;
use burn_dp::train::PrivateTrainingConfig;

use crate::checkpoints::config;
use crate::chosen_device::chosen_device;
use crate::fixture::*;

fn average() -> WeightAverage {
    WeightAverage::new(0.8).unwrap()
}

fn averaging() -> PrivateTrainingConfig {
    training_config().with_weight_average(average())
}

/// The custom loop with an average: returns the trained model and the evaluated one.
fn expected() -> (Net, Net) {
    let optim = plan().optimizer(optimizer()).with_weight_average(average()).unwrap();
    let (model, optim) = custom_loop_of(optim, scheduler(), 4);
    let averaged = optim.weight_average().unwrap().averaged(model.clone()).unwrap();
    (model, averaged)
}

#[test]
fn the_result_is_the_averaged_model_of_the_custom_loop_bit_for_bit() {
    let private = averaging().init(plan()).unwrap();
    let result = launch(&private, |training| training);
    assert!(private.error().is_none() && result.error.is_none());
    let (trained, averaged) = expected();
    assert_ne!(values(&trained), values(&averaged));
    assert_same_values(result.model.inner(), &averaged);
    assert_eq!(private.weight_average().unwrap().steps(), STEPS);
    // The trained model and its cost equal the result of a run without an average.
    assert_same_values(&trained, &custom_loop(plan(), 4).0);
    assert_eq!(private.ledger().entries(), custom_loop(plan(), 4).1.ledger().entries());
}

#[test]
fn several_devices_have_the_average_of_one() {
    let private = averaging().init(plan()).unwrap();
    let devices = vec![chosen_device(); 2];
    let strategy = ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice);
    let result = launch(&private, |training| training.with_training_strategy(strategy.into()));
    assert!(private.error().is_none() && result.error.is_none());
    assert_same_values(result.model.inner(), &expected().1);
}

#[test]
fn the_average_is_validated() {
    let private = averaging().init(plan()).unwrap();
    let folder = run_folder();
    let training = supervised(&private, folder.path()).metric_valid_numeric(LossMetric::new());
    assert!(training.launch(learner(&private)).error.is_none());
    let mut logger = FileMetricLogger::new(folder.path());
    let shown: Vec<f64> = logger
        .read_numeric("Loss", 3, &Split::Valid)
        .unwrap()
        .iter()
        .filter(|entry| !matches!(entry, NumericEntry::Final(_)))
        .map(NumericEntry::current)
        .collect();
    // The loss of the first batch.
    let loss = |model: &Net| {
        let rows = valid().iter().next().unwrap().unwrap();
        model.valid().output(rows).0.mean().into_data().iter::<f64>().next().unwrap()
    };
    let (trained, averaged) = expected();
    let is = |expected: f64| (shown[0] - expected).abs() < 1e-5 * expected;
    assert!(is(loss(&averaged)), "{shown:?} {}", loss(&averaged));
    assert!(!is(loss(&trained)), "{shown:?}");
}

#[test]
fn a_resumed_run_has_the_average_of_the_run_bit_for_bit() {
    let folder = run_folder();
    let averaging = || config(folder.path()).with_weight_average(average());
    let private = averaging().init(plan()).unwrap();
    let result = launch(&private, |training| training.num_epochs(2));
    assert!(result.error.is_none());
    drop((private, result));
    let refused = config(folder.path()).init_or_resume(plan()).unwrap_err().to_string();
    assert!(refused.contains("is now \"none\"") && refused.contains("with_weight_average"));

    let private = averaging().init_or_resume(plan()).unwrap();
    assert_eq!(private.weight_average().unwrap().steps(), 2 * STEPS_PER_EPOCH);
    let result = launch(&private, |training| training);
    assert!(private.error().is_none() && result.error.is_none());
    assert_eq!(values(result.model.inner()), values(&expected().1));
    drop((private, result));

    let average = folder.path().join("checkpoint-00000000000000000012/average.bpk");
    let mut bytes = std::fs::read(&average).unwrap();
    bytes[20] ^= 1;
    std::fs::write(average, bytes).unwrap();
    let error = averaging().init_or_resume(plan()).unwrap_err().to_string();
    assert!(error.contains("average.bpk is damaged"), "{error}");
}
