//! Several devices are one run.

use burn::lr_scheduler::constant::ConstantLr;
use burn::module::{Module, RunningState};
use burn::optim::SgdConfig;
use burn::tensor::distributed::{DistributedConfig, DistributedContext, ReduceOperation};
use burn::tensor::{Device, Tensor};
use burn::train::{ExecutionStrategy, InferenceStep, Learner, MultiDeviceOptim, RegressionOutput};
use burn_dp::grads::has_coarse_products;
use burn_dp::train::{PrivateTrainStep, PrivateTrainingConfig};

use crate::chosen_device::chosen_device;
use crate::comparison::assert_no_unit_is_lost;
use crate::fixture::*;
use crate::stored::{Counter, Flags};

fn devices(count: usize) -> Vec<Device> {
    vec![chosen_device(); count]
}

/// A network that stores a mean of its examples, like a BatchNorm, or how many there were, or that
/// there were any.
#[derive(Module, Debug)]
struct Tracking {
    net: Net,
    mean: RunningState<Tensor<1>>,
    count: Counter,
    seen: Flags,
    /// The path of what it stores.
    #[module(skip)]
    stores: &'static str,
}

impl PrivateTrainStep for Tracking {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn losses(&self, rows: Tensor<2>) -> (Tensor<1>, RegressionOutput) {
        let (number, device) = (rows.dims()[0] as i32, device());
        match self.stores {
            "count" => self.count.set(Tensor::from_ints([number], &device)),
            "seen" => self.seen.set(Tensor::from_data([true], &device)),
            _ => {
                let mean = rows.clone().mean().reshape([1]).detach();
                self.mean.update(self.mean.value_sync() * 0.9 + mean * 0.1);
            }
        }
        self.net.output(rows)
    }
}

impl InferenceStep for Tracking {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, rows: Tensor<2>) -> RegressionOutput {
        self.net.output(rows).1
    }
}

// Sharp edge: observations on two threads do not see a running state, whose update is pending on
// each.
#[test]
fn a_running_mean_of_several_devices_is_never_released() {
    for (count, physical) in [(1, 4), (1, 64), (2, 3), (2, 4), (2, 6), (2, 8), (2, 64), (3, 4)] {
        never_released("mean", count, physical);
    }
}

#[test]
fn counts_and_flags_of_several_devices_are_never_released() {
    for (stores, count, physical) in
        [("count", 1, 4), ("count", 2, 4), ("seen", 2, 4), ("seen", 2, 64)]
    {
        never_released(stores, count, physical);
    }
}

fn never_released(stores: &'static str, count: usize, physical: usize) {
    let config = PrivateTrainingConfig::new(physical).with_steps_per_epoch(STEPS_PER_EPOCH);
    let folder = run_folder();
    let private = config.with_checkpoints(folder.path()).init(plan()).unwrap();
    let device = device();
    let model = Tracking {
        net: Net::new(),
        mean: RunningState::new(Tensor::zeros([1], &device)),
        count: Counter::new(Tensor::from_ints([0], &device)),
        seen: Flags::new(Tensor::from_data([false], &device)),
        stores,
    };
    let model = private.model(model).unwrap();
    let metrics = tempfile::tempdir().unwrap();
    let training = plain(private.supervised(metrics.path(), loader(&private), valid()));
    let strategy = ExecutionStrategy::multi(devices(count), MultiDeviceOptim::OptimMainDevice);
    let result = training.with_training_strategy(strategy.into()).launch(Learner::new(
        model,
        optimizer(),
        scheduler(),
    ));
    let error = private.finish(&result).unwrap_err().to_string();
    assert!(error.contains(&format!("`{stores}`")), "{error}");
    assert!(error.contains("not trained"), "{error}");
    assert_eq!(private.ledger().releases(), 0, "{count} devices, {physical}");
    let saved = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
    let saved = saved.filter(|entry| entry.path().is_dir()).count();
    assert_eq!(saved, 0, "what the passes of the first step stored is not saved");
}

/// Compares several devices with one: bit for bit where their number does not change the rounding.
fn agrees(count: usize, optim: MultiDeviceOptim, physical: usize) {
    if has_coarse_products(&device()) {
        return no_unit_is_lost(count, optim, physical);
    }
    let config = PrivateTrainingConfig::new(physical).with_steps_per_epoch(STEPS_PER_EPOCH);
    let private = config.init(plan()).unwrap();
    let strategy = ExecutionStrategy::multi(devices(count), optim);
    let result = launch(&private, |training| training.with_training_strategy(strategy.into()));
    assert_same_run(&private, &result, &custom_loop(plan(), physical));
    assert_eq!(private.ledger().releases(), STEPS);
}

/// Compares several devices with one in plain SGD, where a clipped unit moves the parameters by the
/// learning rate times the threshold, divided by the batch size. Half of that is allowed.
fn no_unit_is_lost(count: usize, optim: MultiDeviceOptim, physical: usize) {
    let config = PrivateTrainingConfig::new(physical).with_steps_per_epoch(STEPS_PER_EPOCH);
    let private = config.init(plan()).unwrap();
    let strategy = ExecutionStrategy::multi(devices(count), optim);
    let metrics = run_folder();
    let training = supervised(&private, metrics.path()).with_training_strategy(strategy.into());
    let (sgd, rate) = (|| SgdConfig::new().init(), 0.1);
    let model = private.model(Net::new()).unwrap();
    let result = training.launch(Learner::new(model, sgd(), ConstantLr::from(rate)));
    if let Some(error) = private.error() {
        panic!("{error}");
    }
    let optim = plan().optimizer(sgd());
    let (expected, optim) = custom_loop_of(optim, ConstantLr::from(rate).into(), physical);
    assert_eq!(private.ledger().entries(), optim.ledger().entries());
    assert_eq!(private.ledger().releases(), STEPS);
    let (found, expected) = (values(result.model.inner()).concat(), values(&expected).concat());
    assert_no_unit_is_lost(&found, &expected, rate / EXPECTED_BATCH_SIZE);
}

#[test]
fn two_devices_lose_no_unit_whatever_their_precision() {
    no_unit_is_lost(2, MultiDeviceOptim::OptimMainDevice, 4);
}

#[test]
fn two_devices_train_what_one_trains_bit_for_bit() {
    agrees(2, MultiDeviceOptim::OptimMainDevice, 4);
    // One physical batch: the second device has none, and the step still runs.
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

// The context without devices starts no collective operations, so that Burn's own loop starts; Flex
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
    assert_eq!((private.ledger().releases(), private.next_step()), (0, 0));
    let is_cuda = std::env::var("BURN_DP_TEST_BACKEND").is_ok_and(|name| name == "cuda");
    // CUDA has collective operations.
    assert!(launched.is_err() || is_cuda);
}
