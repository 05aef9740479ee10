//! A small network, its data, and runs on them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::ModuleOptimizer;
use burn::tensor::{Device, Tensor, TensorData};
use burn_dp::DpError;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::{DpOptimizer, PrivacyPlan, PrivacyPlanConfig};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::{LogicalBatch, LogicalBatches};

use crate::chosen_device::chosen_device;
use crate::comparison;
pub(crate) use crate::comparison::{assert_close, distance};

pub(crate) const UNITS: usize = 200;

/// The folder of a run, removed with everything next to it when this is dropped.
pub(crate) struct RunFolder {
    outside: tempfile::TempDir,
    path: PathBuf,
}

impl RunFolder {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that contains the folder of the run and its key.
    pub(crate) fn outside(&self) -> &Path {
        self.outside.path()
    }
}

pub(crate) fn run_folder() -> RunFolder {
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("run");
    std::fs::create_dir(&path).unwrap();
    RunFolder { outside, path }
}

thread_local! {
    static DEVICE: RefCell<Option<Device>> = const { RefCell::new(None) };
}

/// The device of the models and tensors of this thread: the [chosen](chosen_device) one, unless the
/// test is run [`on`] another.
pub(crate) fn device() -> Device {
    DEVICE.with_borrow(|device| device.clone().unwrap_or_else(|| chosen_device().autodiff()))
}

/// Runs a test on a device.
pub(crate) fn on(device: &Device, test: impl FnOnce()) {
    DEVICE.set(Some(device.clone().autodiff()));
    test();
    DEVICE.set(None);
}

/// The other devices, where a backend is compiled. Without CUDA, which multiplies in TF32: tests
/// run on it if it is chosen.
#[allow(deprecated)] // Burn's name for its second CPU backend.
pub(crate) fn other_devices() -> Vec<Device> {
    vec![
        #[cfg(feature = "ndarray")]
        Device::ndarray(),
        #[cfg(feature = "wgpu")]
        Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
    ]
}

/// A layer whose values are determined by its shape and a seed.
pub(crate) fn layer(d_input: usize, d_output: usize, seed: f32) -> Linear {
    let mut layer = LinearConfig::new(d_input, d_output).init(&device());
    let values: Vec<f32> = (0..d_input * d_output).map(|i| (seed + i as f32 * 0.7).sin()).collect();
    let weight = TensorData::new(values, [d_input, d_output]);
    layer.weight = layer.weight.map(|_| Tensor::from_data(weight, &device()).require_grad());
    layer.bias = layer.bias.map(|bias| bias.map(|bias| bias.zeros_like().require_grad()));
    layer
}

#[derive(Module, Debug)]
pub(crate) struct Net {
    pub(crate) first: Private<Linear>,
    pub(crate) second: Private<Linear>,
}

/// Its parameters, in the order in which they are visited.
pub(crate) const PATHS: [&str; 4] = ["first.weight", "first.bias", "second.weight", "second.bias"];

impl Net {
    pub(crate) fn new() -> Self {
        Self { first: layer(3, 8, 1.0).private(), second: layer(8, 1, 2.0).private() }
    }

    pub(crate) fn losses(&self, x: Tensor<2>) -> Tensor<1> {
        let target = x.clone().sum_dim(1);
        let output = self.second.forward(self.first.forward(x).tanh());
        (output - target).powi_scalar(2).reshape([-1])
    }

    pub(crate) fn losses_of_rows(&self, rows: &[[f32; 3]]) -> Tensor<1> {
        self.losses(tensor(rows))
    }

    pub(crate) fn losses_of(&self, examples: &[usize]) -> Tensor<1> {
        self.losses(inputs(examples))
    }
}

/// The row of an example.
pub(crate) fn row(example: usize) -> [f32; 3] {
    [0, 1, 2].map(|j| (3 * example + j) as f32).map(f32::cos)
}

pub(crate) fn rows(count: usize) -> Vec<[f32; 3]> {
    (0..count).map(row).collect()
}

pub(crate) fn tensor(rows: &[[f32; 3]]) -> Tensor<2> {
    tensor_on(rows, &device())
}

pub(crate) fn tensor_on(rows: &[[f32; 3]], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(rows.concat(), [rows.len(), 3]), device)
}

pub(crate) fn inputs(examples: &[usize]) -> Tensor<2> {
    tensor(&examples.iter().map(|&example| row(example)).collect::<Vec<_>>())
}

#[derive(Clone)]
pub(crate) struct Rows;

impl Batcher<usize, Tensor<2>> for Rows {
    fn batch(&self, items: Vec<usize>, _device: &Device) -> Tensor<2> {
        inputs(&items)
    }
}

#[derive(Default)]
struct Values(Vec<Vec<f32>>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().into_data().try_into_vec().unwrap());
    }
}

/// The values of each parameter.
pub(crate) fn values<M: Module>(model: &M) -> Vec<Vec<f32>> {
    let mut visitor = Values::default();
    model.visit(&mut visitor);
    visitor.0
}

/// The values of all parameters.
pub(crate) fn flat<M: Module>(model: &M) -> Vec<f32> {
    values(model).concat()
}

/// Compares the parameters of two models on the device of this thread; see
/// [`comparison::assert_same_units`].
pub(crate) fn assert_same_units(found: &[f32], expected: &[f32], tolerance: f32, unit: f64) {
    comparison::assert_same_units(&device(), found, expected, tolerance, unit);
}

pub(crate) fn config() -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(UNITS, 20.0)
        .with_steps(8)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(5))
}

pub(crate) fn batches(plan: &PrivacyPlan) -> LogicalBatches<Tensor<2>> {
    let dataset = InMemDataset::new((0..UNITS).collect::<Vec<usize>>());
    plan.batches(dataset, Rows, &device()).unwrap()
}

/// The steps of these batches, in physical batches of `physical` rows.
pub(crate) fn train_with<M: Module>(
    optim: &mut DpOptimizer,
    mut model: M,
    batches: impl Iterator<Item = Result<LogicalBatch<Tensor<2>>, DpError>>,
    physical: usize,
    losses: impl Fn(&M, Tensor<2>) -> Tensor<1>,
) -> M {
    for batch in batches {
        let batch = batch.unwrap();
        for physical_batch in batch.physical_batches(physical).unwrap() {
            optim.backward(&model, physical_batch.unwrap(), &losses).unwrap();
        }
        model = optim.step(0.1, model, batch).unwrap();
    }
    model
}

pub(crate) fn train(
    optim: &mut DpOptimizer,
    model: Net,
    batches: impl Iterator<Item = Result<LogicalBatch<Tensor<2>>, DpError>>,
    physical: usize,
) -> Net {
    train_with(optim, model, batches, physical, Net::losses)
}

/// The next steps of a run.
pub(crate) fn train_on(optim: &mut DpOptimizer, model: Net, steps: usize, physical: usize) -> Net {
    let batches = batches(optim.plan()).skip_to(optim.next_step()).unwrap();
    train(optim, model, batches.take(steps), physical)
}

/// A whole run.
pub(crate) fn run(
    config: PrivacyPlanConfig,
    inner: ModuleOptimizer,
    physical: usize,
) -> (Net, DpOptimizer) {
    let plan = config.init().unwrap();
    let batches = batches(&plan);
    let mut optim = plan.optimizer(inner);
    let model = train(&mut optim, Net::new(), batches, physical);
    (model, optim)
}
