//! A model, its data, and the two ways to train it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher};
use burn::data::dataset::InMemDataset;
use burn::grad_clipping::GradientClippingConfig;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::{ModuleLrScheduler, ModuleLrSchedulerConfig};
use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
use burn::nn::{Linear, LinearConfig};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn::train::renderer::CliMetricsRenderer;
use burn::train::{
    InferenceStep, Learner, LearnerModel, LearningResult, RegressionOutput, SupervisedTraining,
};
use burn_dp::grads::has_coarse_products;
use burn_dp::losses::MseLossConfig;
use burn_dp::model::precision_of;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::{DpOptimizer, PrivacyPlan, PrivacyPlanConfig, PublicSchedule};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::PrivateDataLoaderBuilder;
use burn_dp::train::{
    PrivateBatch, PrivateModel, PrivateTrainStep, PrivateTraining, PrivateTrainingConfig,
};

use crate::chosen_device::chosen_device;
use crate::comparison::assert_close;

pub(crate) const UNITS: usize = 120;
pub(crate) const EXPECTED_BATCH_SIZE: f64 = 15.0;
pub(crate) const STEPS: u64 = 12;
pub(crate) const STEPS_PER_EPOCH: u64 = 4;

/// The folder of a run, removed with everything next to it when this is dropped.
pub(crate) struct RunFolder {
    _outside: tempfile::TempDir,
    path: PathBuf,
}

impl RunFolder {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

pub(crate) fn run_folder() -> RunFolder {
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("run");
    std::fs::create_dir(&path).unwrap();
    RunFolder { _outside: outside, path }
}

#[derive(Module, Debug)]
pub(crate) struct Net {
    pub(crate) first: Private<Linear>,
    pub(crate) second: Private<Linear>,
}

impl Net {
    pub(crate) fn new() -> Self {
        let device = device();
        let layer = |d_input: usize, d_output: usize, seed: f32| {
            let mut layer = LinearConfig::new(d_input, d_output).init(&device);
            let values: Vec<f32> =
                (0..d_input * d_output).map(|i| (seed + i as f32 * 0.7).sin()).collect();
            let weight = TensorData::new(values, [d_input, d_output]);
            layer.weight = layer.weight.map(|_| Tensor::from_data(weight, &device).require_grad());
            layer.bias = layer.bias.map(|bias| bias.map(|b| b.zeros_like().require_grad()));
            layer.private()
        };
        Self { first: layer(3, 8, 1.0), second: layer(8, 1, 2.0) }
    }

    pub(crate) fn output(&self, rows: Tensor<2>) -> (Tensor<1>, RegressionOutput) {
        let target = rows.clone().sum_dim(1);
        let rows = rows.cast(precision_of(self).unwrap());
        let output = self.second.forward(self.first.forward(rows).tanh()).cast(DType::F32);
        let losses = MseLossConfig::new().init().forward(output.clone(), target.clone());
        (losses.clone(), RegressionOutput::new(losses, output, target))
    }
}

impl PrivateTrainStep for Net {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn losses(&self, rows: Tensor<2>) -> (Tensor<1>, RegressionOutput) {
        self.output(rows)
    }
}

impl InferenceStep for Net {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, rows: Tensor<2>) -> RegressionOutput {
        self.output(rows).1
    }
}

#[derive(Clone)]
pub(crate) struct Rows;

impl Batcher<usize, Tensor<2>> for Rows {
    fn batch(&self, items: Vec<usize>, device: &Device) -> Tensor<2> {
        let values: Vec<f32> =
            items.iter().flat_map(|&i| (0..3).map(move |j| ((i * 3 + j) as f32).cos())).collect();
        Tensor::from_data(TensorData::new(values, [items.len(), 3]), device)
    }
}

#[derive(Default)]
struct Values(Vec<Vec<f32>>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().into_data().try_into_vec().unwrap());
    }
}

pub(crate) fn values<M: Module>(model: &M) -> Vec<Vec<f32>> {
    let mut visitor = Values::default();
    model.visit(&mut visitor);
    visitor.0
}

pub(crate) fn device() -> Device {
    chosen_device().autodiff()
}

pub(crate) fn dataset() -> InMemDataset<usize> {
    InMemDataset::new((0..UNITS).collect())
}

pub(crate) fn plan_config() -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(UNITS, EXPECTED_BATCH_SIZE)
        .with_steps(STEPS)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(11))
}

pub(crate) fn plan() -> PrivacyPlan {
    plan_config().init().unwrap()
}

/// Two optimizers; the second one's gradients are clipped by Burn, after the noise.
pub(crate) fn optimizer() -> ModuleOptimizer {
    let clipping = GradientClippingConfig::Norm(0.5).init();
    let momentum = SgdConfig::new().with_momentum(Some(MomentumConfig::new())).build();
    AdamConfig::new().init().with_group(
        ParamGroup::from_predicate("second"),
        momentum,
        Some(clipping),
    )
}

/// Another learning rate for every step and group.
pub(crate) fn scheduler() -> ModuleLrScheduler {
    let schedule = |from, to| LinearLrSchedulerConfig::new(from, to, STEPS as usize);
    let second = ParamGroup::from_predicate("second");
    ModuleLrSchedulerConfig::new(schedule(0.1, 0.01).into())
        .with_group(second, schedule(0.2, 0.1))
        .init()
        .unwrap()
}

pub(crate) fn training_config() -> PrivateTrainingConfig {
    PrivateTrainingConfig::new(4).with_steps_per_epoch(STEPS_PER_EPOCH)
}

pub(crate) fn builder() -> PrivateDataLoaderBuilder<usize, Tensor<2>> {
    PrivateDataLoaderBuilder::new(Rows)
}

pub(crate) fn loader(private: &PrivateTraining) -> Arc<dyn DataLoader<PrivateBatch<Tensor<2>>>> {
    private.loader(builder(), dataset()).unwrap()
}

pub(crate) fn valid() -> Arc<dyn DataLoader<Tensor<2>>> {
    DataLoaderBuilder::new(Rows).batch_size(10).build(InMemDataset::new((500..520).collect()))
}

/// The training with plain output, and without Burn's log file: a process has only one.
pub(crate) fn supervised(
    private: &PrivateTraining,
    folder: &Path,
) -> SupervisedTraining<PrivateModel<Net>> {
    plain(private.supervised(folder, loader(private), valid()))
}

pub(crate) fn plain<M: LearnerModel>(training: SupervisedTraining<M>) -> SupervisedTraining<M> {
    training.with_application_logger(None).renderer(Box::new(CliMetricsRenderer::new()))
}

pub(crate) fn learner(private: &PrivateTraining) -> Learner<PrivateModel<Net>> {
    let schedule = PublicSchedule::declared_public(scheduler());
    private.model(Net::new()).unwrap().learner(optimizer(), schedule)
}

/// Trains to the end.
pub(crate) fn launch(
    private: &PrivateTraining,
    configure: impl FnOnce(
        SupervisedTraining<PrivateModel<Net>>,
    ) -> SupervisedTraining<PrivateModel<Net>>,
) -> LearningResult<PrivateModel<Net>> {
    let folder = tempfile::tempdir().unwrap();
    configure(supervised(private, folder.path())).launch(learner(private))
}

/// The same run in a custom loop.
pub(crate) fn custom_loop(plan: PrivacyPlan, physical_batch_size: usize) -> (Net, DpOptimizer) {
    custom_loop_of(plan.optimizer(optimizer()), scheduler(), physical_batch_size)
}

pub(crate) fn custom_loop_of(
    mut optim: DpOptimizer,
    mut scheduler: ModuleLrScheduler,
    physical_batch_size: usize,
) -> (Net, DpOptimizer) {
    let batches = optim.plan().batches(dataset(), Rows, &device()).unwrap();
    let mut model = Net::new();
    for batch in batches {
        let batch = batch.unwrap();
        let losses = |model: &Net, rows| model.output(rows).0;
        optim.backward_batch(&model, &batch, physical_batch_size, losses).unwrap();
        model = optim.step(scheduler.step(), model, batch).unwrap();
    }
    (model, optim)
}

/// Compares the parameters of two runs bit for bit. On a device that multiplies in TF32, Burn fuses
/// the operations of the learner and of a loop into other kernels, which round differently.
pub(crate) fn assert_same_values<M: Module, N: Module>(found: &M, expected: &N) {
    let [found, expected] = [values(found), values(expected)];
    match has_coarse_products(&device()) {
        false => assert_eq!(found, expected),
        true => assert_close(&found.concat(), &expected.concat(), 1e-5),
    }
}

/// Ends well, and is the run of `expected`, ledger included.
pub(crate) fn assert_same_run(
    private: &PrivateTraining,
    result: &LearningResult<PrivateModel<Net>>,
    expected: &(Net, DpOptimizer),
) {
    if let Some(error) = private.error() {
        panic!("{error}");
    }
    assert!(result.error.is_none() && private.stopped().is_none());
    assert_same_values(result.model.inner(), &expected.0);
    assert_eq!(private.ledger().entries(), expected.1.ledger().entries());
    assert_eq!(private.ledger().releases(), private.next_step());
}
