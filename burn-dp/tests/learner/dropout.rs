//! Random layers with the learner: their masks belong to units.

use burn::lr_scheduler::constant::ConstantLr;
use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::optim::{ModuleOptimizer, SgdConfig};
use burn::tensor::Tensor;
use burn::train::{InferenceStep, Learner, RegressionOutput};
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::Independence;
use burn_dp::train::{PrivateTrainStep, PrivateTrainingConfig};
use burn_dp::updates::UnitUpdate;

use crate::comparison::assert_same_units;
use crate::fixture::*;

const RATE: f64 = 0.1;

#[derive(Module, Debug)]
struct WithDropout {
    dropout: Private<Dropout>,
    net: Net,
}

impl WithDropout {
    fn new() -> Self {
        Self { dropout: DropoutConfig::new(0.5).init().private(), net: Net::new() }
    }

    fn output(&self, rows: Tensor<2>) -> (Tensor<1>, RegressionOutput) {
        let target = rows.clone().sum_dim(1);
        let hidden = self.dropout.forward(self.net.first.forward(rows).tanh());
        let output = self.net.second.forward(hidden);
        let losses = (output.clone() - target.clone()).powi_scalar(2).flatten(0, 1);
        (losses.clone(), RegressionOutput::new(losses, output, target))
    }
}

impl PrivateTrainStep for WithDropout {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn losses(&self, rows: Tensor<2>) -> (Tensor<1>, RegressionOutput) {
        self.output(rows)
    }
}

impl InferenceStep for WithDropout {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, rows: Tensor<2>) -> RegressionOutput {
        self.output(rows).1
    }
}

/// Trains in physical batches of this size, with the device in another state each time.
fn trained(
    physical: usize,
    seed: u64,
    by_units: bool,
    (optimizer, scheduler): (ModuleOptimizer, ModuleLrScheduler),
) -> (Vec<f32>, String) {
    device().seed(seed);
    let config = PrivateTrainingConfig::new(physical).with_steps_per_epoch(STEPS_PER_EPOCH);
    let private = config.init(plan()).unwrap();
    let mut model = private.model(WithDropout::new()).unwrap();
    if by_units {
        model = model.with_unit_updates(|copy, rows| {
            let losses = copy.output(rows).0;
            UnitUpdate::gradient(&copy, losses)
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let training = plain(private.supervised(folder.path(), loader(&private), valid()));
    let result = training.launch(Learner::new(model, optimizer, scheduler));
    if let Some(error) = private.error() {
        panic!("{error}");
    }
    let statement = private.statement(&[1e-3]).unwrap();
    (values(result.model.inner()).concat(), statement.facts["independence_of_examples"].clone())
}

#[test]
fn masks_follow_from_the_run_however_the_units_are_computed() {
    // A step of plain SGD is as long as its update, unlike one of Adam.
    let sgd = || (SgdConfig::new().init(), ConstantLr::from(RATE).into());
    let (expected, by_value) = trained(64, 1, false, sgd());
    assert_eq!(by_value, Independence::ByValue { step: 0 }.to_string());
    for (physical, seed, by_units) in [(3, 2, false), (64, 3, true)] {
        let (found, _) = trained(physical, seed, by_units, sgd());
        let unit = RATE / EXPECTED_BATCH_SIZE;
        assert_same_units(&device(), &found, &expected, 1e-4, unit);
    }
}

#[test]
fn the_learner_trains_dropout_as_the_custom_loop_bit_for_bit() {
    let (found, _) = trained(5, 1, false, (optimizer(), scheduler()));
    let mut optim = plan().optimizer(optimizer());
    let batches = optim.plan().batches(dataset(), Rows, &device()).unwrap();
    let (mut model, mut scheduler) = (WithDropout::new(), scheduler());
    for batch in batches {
        let batch = batch.unwrap();
        optim.backward_batch(&model, &batch, 5, |model, rows| model.output(rows).0).unwrap();
        model = optim.step(scheduler.step(), model, batch).unwrap();
    }
    assert_eq!(values(&model).concat(), found);
}
