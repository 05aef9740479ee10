//! Several devices are one run.

use burn::tensor::Device;
use burn::tensor::distributed::{DistributedConfig, DistributedContext, ReduceOperation};
use burn::train::{ExecutionStrategy, MultiDeviceOptim};
use burn_dp::train::PrivateTrainingConfig;

use crate::fixture::*;

fn devices(count: usize) -> Vec<Device> {
    (0..count).map(|_| Device::flex()).collect()
}

fn agrees(count: usize, optim: MultiDeviceOptim, physical: usize) {
    let config = PrivateTrainingConfig::new(physical).with_steps_per_epoch(STEPS_PER_EPOCH);
    let private = config.init(plan()).unwrap();
    let strategy = ExecutionStrategy::multi(devices(count), optim);
    let result = launch(&private, |training| training.with_training_strategy(strategy.into()));
    assert_same_run(&private, &result, &custom_loop(plan(), physical));
    assert_eq!(private.ledger().releases(), STEPS);
}

#[test]
fn two_devices_train_what_one_trains_bit_for_bit() {
    agrees(2, MultiDeviceOptim::OptimMainDevice, 4);
    // One physical batch: the second device has none, and the step is still made.
    agrees(2, MultiDeviceOptim::OptimMainDevice, 64);
}

#[test]
fn three_devices_and_sharded_optimizers_release_one_sum_as_well() {
    agrees(3, MultiDeviceOptim::OptimMainDevice, 4);
    agrees(2, MultiDeviceOptim::OptimSharded, 4);
    agrees(1, MultiDeviceOptim::OptimMainDevice, 4);
}

#[test]
fn slices_that_are_not_the_whole_data_set_are_refused() {
    let private = training_config().init(plan()).unwrap();
    let whole = loader(&private);
    let (first, second) = (whole.slice(0, 50), whole.slice(60, UNITS));
    let error = first.iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("left out or counted twice"), "{error}");
    drop(second);
    let rest = whole.slice(50, UNITS);
    assert!(first.iter().next().unwrap().is_ok());
    assert!(rest.iter().next().unwrap().is_ok());
}

#[test]
fn devices_that_step_separately_are_refused() {
    let private = training_config().init(plan()).unwrap();
    let whole = loader(&private);
    let (first, second) = (whole.slice(0, 60), whole.slice(60, UNITS));
    assert!(first.iter().next().unwrap().is_ok());
    let error = std::thread::scope(|scope| {
        let other = scope.spawn(|| second.iter().next().unwrap().unwrap_err().to_string());
        other.join().unwrap()
    });
    assert!(error.contains("ExecutionStrategy::ddp"), "{error}");
    assert_eq!(private.ledger().releases(), 0);
}

#[test]
fn a_step_that_not_all_devices_began_is_refused() {
    use burn::optim::GradientsParams;
    use burn::train::TrainStep;

    let private = training_config().init(plan()).unwrap();
    let whole = loader(&private);
    let (first, _second) = (whole.slice(0, 60), whole.slice(60, UNITS));
    let batch = first.iter().next().unwrap().unwrap();
    let model = private.model(Net::new()).unwrap();
    let before = values(&model);
    let _ = TrainStep::step(&model, batch);
    let model = model.optimize(&mut optimizer(), 0.1.into(), GradientsParams::new());
    assert_eq!(values(&model), before);
    let error = private.error().unwrap().to_string();
    assert!(error.contains("not all parts"), "{error}");
    assert_eq!(private.ledger().releases(), 0);
}

#[test]
fn workers_that_step_separately_release_nothing() {
    use burn::optim::GradientsParams;
    use burn::train::TrainStep;

    let private = training_config().init(plan()).unwrap();
    let whole = loader(&private);
    let slices = [whole.slice(0, 60), whole.slice(60, UNITS)];
    let model = private.model(Net::new()).unwrap();
    // What each worker of Burn's DDP does in a step.
    let models = std::thread::scope(|scope| {
        let workers = slices.each_ref().map(|slice| {
            let model = model.clone();
            scope.spawn(move || match slice.iter().next().unwrap() {
                Ok(batch) => {
                    let _ = TrainStep::step(&model, batch);
                    model.optimize(&mut optimizer(), 0.1.into(), GradientsParams::new())
                }
                Err(_) => model,
            })
        });
        workers.map(|worker| worker.join().unwrap())
    });
    for model in models {
        assert_eq!(values(&model), values(&Net::new()));
    }
    let error = private.error().unwrap().to_string();
    assert!(error.contains("ExecutionStrategy::ddp") && error.contains("::multi"), "{error}");
    assert_eq!(private.ledger().releases(), 0);
}

// The context without devices starts no collective operations, so that Burn's own loop begins; Flex
// has none of them, and Burn panics where it marks the parameters for them.
#[test]
fn ddp_without_collective_operations_releases_nothing() {
    let private = training_config().init(plan()).unwrap();
    let config = DistributedConfig { all_reduce_op: ReduceOperation::Mean };
    let strategy = ExecutionStrategy::DistributedDataParallel {
        devices: devices(2),
        context: DistributedContext::init(Vec::new(), config),
    };
    let launched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        launch(&private, |training| training.with_training_strategy(strategy.into()))
    }));
    assert!(launched.is_err());
    assert_eq!((private.ledger().releases(), private.next_step()), (0, 0));
}
