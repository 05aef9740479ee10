//! Unit updates and the sparsifier with the learner: bit for bit like the custom loop.

use burn::data::dataloader::{DataLoaderBuilder, batcher::Batcher};
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::constant::ConstantLr;
use burn::module::Module;
use burn::optim::{AdamConfig, SgdConfig};
use burn::tensor::{Device, Tensor};
use burn::train::logger::{FileMetricLogger, MetricLogger};
use burn::train::metric::LossMetric;
use burn::train::metric::store::Split;
use burn::train::{ExecutionStrategy, InferenceStep, Learner, MultiDeviceOptim, RegressionOutput};
use burn_dp::DpError;
use burn_dp::optim::FederatedTraining;
use burn_dp::optim::{
    DpOptimizer, Independence, PrivacyPlan, PrivacyPlanConfig, PublicSchedule, SamplingScheme,
    Sparsifier,
};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::PrivateDataLoaderBuilder;
use burn_dp::train::{PrivateModel, PrivateTrainStep, PrivateTraining};
use burn_dp::updates::federated::{FedAvgConfig, FedSgdConfig, UserUpdate};
use burn_dp::updates::{LocalTraining, MiniSets, UnitUpdate};
use burn_dp_accountant::UnitOfPrivacy;

use crate::checkpoints::config;
use crate::chosen_device::chosen_device;
use crate::fixture::*;

/// Returns the examples of the one unit that it receives.
#[derive(Clone)]
struct Members;

impl Batcher<Vec<usize>, Vec<usize>> for Members {
    fn batch(&self, units: Vec<Vec<usize>>, _: &Device) -> Vec<usize> {
        assert_eq!(units.len(), 1);
        units.concat()
    }
}

/// Returns the units unchanged.
struct Sets;

impl Batcher<Vec<usize>, Vec<Vec<usize>>> for Sets {
    fn batch(&self, units: Vec<Vec<usize>>, _: &Device) -> Vec<Vec<usize>> {
        units
    }
}

/// The network of the other tests, whose physical batches are examples of one unit.
#[derive(Module, Debug)]
struct UnitNet {
    net: Net,
}

impl UnitNet {
    fn new() -> Self {
        Self { net: Net::new() }
    }
}

impl PrivateTrainStep for UnitNet {
    type Input = Vec<usize>;
    type Output = RegressionOutput;

    fn losses(&self, examples: Vec<usize>) -> (Tensor<1>, RegressionOutput) {
        self.net.output(Rows.batch(examples, &device()))
    }
}

impl InferenceStep for UnitNet {
    type Input = Vec<usize>;
    type Output = RegressionOutput;

    fn step(&self, examples: Vec<usize>) -> RegressionOutput {
        self.losses(examples).1
    }
}

/// The mean gradient of a mini-set.
fn batch_clipping(copy: UnitNet, examples: Vec<usize>) -> Result<UnitUpdate, DpError> {
    UnitUpdate::gradient(&copy, copy.losses(examples).0)
}

/// Several local steps on a mini-set.
fn general_batch_clipping(copy: UnitNet, examples: Vec<usize>) -> Result<UnitUpdate, DpError> {
    let training = LocalTraining::new(AdamConfig::new().init(), 0.01)?;
    let batches: Vec<Vec<usize>> = examples.chunks(3).map(<[usize]>::to_vec).collect();
    training.run(copy, batches, |model, batch| Ok(model.losses(batch).0))
}

type Update = fn(UnitNet, Vec<usize>) -> Result<UnitUpdate, DpError>;

fn mini_sets() -> MiniSets {
    MiniSets::shuffled(UNITS, 6, 1).unwrap()
}

fn mini_set_plan(scheme: SamplingScheme) -> PrivacyPlan {
    let config = PrivacyPlanConfig::for_mini_sets(&mini_sets(), 4.0)
        .with_sampling(scheme)
        .with_steps(STEPS)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(11));
    config.init().unwrap()
}

/// The custom loop of a plan for mini-sets.
fn mini_set_loop(plan: PrivacyPlan, update: Update) -> (UnitNet, DpOptimizer) {
    let batches = plan.batches(sets_as_units(), Sets, &device()).unwrap();
    let mut optim = plan.optimizer(optimizer());
    let (mut model, mut scheduler) = (UnitNet::new(), scheduler());
    for batch in batches {
        let batch = batch.unwrap();
        for physical_batch in batch.physical_batches(1).unwrap() {
            optim.unit_updates(&model, physical_batch.unwrap(), update).unwrap();
        }
        model = optim.step(scheduler.step(), model, batch).unwrap();
    }
    (model, optim)
}

/// Trains to the end.
fn trained(
    private: &PrivateTraining,
    units: InMemDataset<Vec<usize>>,
    model: PrivateModel<UnitNet>,
    strategy: Option<ExecutionStrategy>,
) -> UnitNet {
    let builder = PrivateDataLoaderBuilder::new(Members);
    let train = private.loader(builder, units).unwrap();
    let valid = DataLoaderBuilder::new(Members)
        .batch_size(1)
        .build(InMemDataset::new(vec![vec![501], vec![502, 503]]));
    let folder = run_folder();
    let training = plain(private.supervised(folder.path(), train, valid));
    let training = match strategy {
        Some(strategy) => training.with_training_strategy(strategy.into()),
        None => training,
    };
    let result = training.launch(Learner::new(model, optimizer(), scheduler()));
    if let Some(error) = private.error() {
        panic!("{error}");
    }
    assert!(result.error.is_none());
    result.model.into_inner()
}

fn sets_as_units() -> InMemDataset<Vec<usize>> {
    let sets = mini_sets();
    InMemDataset::new((0..sets.len()).map(|set| sets.members(set).to_vec()).collect())
}

#[test]
fn batch_clipping_under_the_learner_is_that_of_the_custom_loop() {
    let updates: [Update; 2] = [batch_clipping, general_batch_clipping];
    for update in updates {
        for scheme in [SamplingScheme::Poisson, SamplingScheme::FixedSize] {
            // The physical batch size does not matter: units are computed one at a time.
            let private = training_config().init(mini_set_plan(scheme)).unwrap();
            let model = private.model(UnitNet::new()).unwrap().with_unit_updates(update);
            let found = trained(&private, sets_as_units(), model, None);
            let (expected, optim) = mini_set_loop(mini_set_plan(scheme), update);
            assert_eq!(values(&found), values(&expected));
            assert_eq!(private.ledger().entries(), optim.ledger().entries());
            let statements = [private.statement(&[1e-3]), optim.statement(&[1e-3])];
            let [found, expected] = statements.map(|statement| statement.unwrap().to_string());
            assert_eq!(found, expected);
            assert_eq!(optim.independence(), Independence::ByConstruction);
        }
    }
}

#[test]
fn two_devices_clip_the_units_of_one() {
    let scheme = SamplingScheme::Poisson;
    let private = training_config().init(mini_set_plan(scheme)).unwrap();
    let model = private.model(UnitNet::new()).unwrap().with_unit_updates(batch_clipping);
    let devices = vec![chosen_device(); 2];
    let strategy = ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice);
    let found = trained(&private, sets_as_units(), model, Some(strategy));
    let expected = mini_set_loop(mini_set_plan(scheme), batch_clipping).0;
    assert_same_values(&found, &expected);
}

const USERS: usize = 40;

/// User u owns u % 4 examples, some none.
fn users() -> InMemDataset<Vec<usize>> {
    InMemDataset::new((0..USERS).map(|u| (0..u % 4).map(|i| 4 * u + i).collect()).collect())
}

fn user_plan() -> PrivacyPlan {
    PrivacyPlanConfig::new(USERS, 10.0)
        .with_unit(UnitOfPrivacy::User)
        .with_steps(STEPS)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(11))
        .init()
        .unwrap()
}

fn user_updates() -> [UserUpdate; 2] {
    let average = FedAvgConfig::new(0.1).with_epochs(2).with_batch_size(2).with_max_examples(3);
    [average.init(SgdConfig::new().init()).unwrap(), FedSgdConfig::new(2).init().unwrap()]
}

#[test]
fn federated_updates_of_the_learner_match_federated_training() {
    for update in user_updates() {
        let server = user_plan().optimizer(optimizer());
        let mut federated = FederatedTraining::new(server, update.clone()).unwrap();
        let (mut expected, mut scheduler) = (UnitNet::new(), scheduler());
        for _ in 0..STEPS {
            let losses = |model: &UnitNet, batch| Ok(model.losses(batch).0);
            expected = federated.round(scheduler.step(), expected, &users(), losses).unwrap();
        }
        let private = training_config().init(user_plan()).unwrap();
        let model = private.model(UnitNet::new()).unwrap().with_user_updates(update).unwrap();
        let found = trained(&private, users(), model, None);
        assert_eq!(values(&found), values(&expected));
        assert_eq!(private.ledger().entries(), federated.optimizer().ledger().entries());
        let expected = federated.optimizer().statement(&[1e-3]).unwrap();
        assert_eq!(private.statement(&[1e-3]).unwrap().to_string(), expected.to_string());
    }
}

/// The losses that the dashboard shows for the first epoch.
fn shown_losses(
    private: &PrivateTraining,
    units: InMemDataset<Vec<usize>>,
    model: PrivateModel<UnitNet>,
) -> Vec<f64> {
    let train = private.loader(PrivateDataLoaderBuilder::new(Members), units).unwrap();
    let valid =
        DataLoaderBuilder::new(Members).batch_size(1).build(InMemDataset::new(vec![vec![501]]));
    let folder = tempfile::tempdir().unwrap();
    let result = plain(private.supervised(folder.path(), train, valid))
        .metric_train_numeric(private.non_private_metric(LossMetric::new()))
        .launch(model.learner(optimizer(), PublicSchedule::declared_public(scheduler())));
    assert!(result.error.is_none() && private.error().is_none());
    let mut logger = FileMetricLogger::new(folder.path());
    let losses = logger.read_numeric("Loss (not private)", 1, &Split::Train);
    losses.unwrap_or_default().iter().map(|entry| entry.current()).collect()
}

#[test]
fn non_private_metrics_see_unit_and_user_updates() {
    let begin = |plan| training_config().init(plan).unwrap();
    let private = begin(mini_set_plan(SamplingScheme::Poisson));
    let model = private.model(UnitNet::new()).unwrap().with_unit_updates(|copy, examples| {
        let (losses, output) = copy.losses(examples);
        Ok((UnitUpdate::gradient(&copy, losses)?, output))
    });
    let losses = shown_losses(&private, sets_as_units(), model);
    assert!(losses.iter().any(|&loss| loss > 0.0), "{losses:?}");

    for update in user_updates() {
        let private = begin(user_plan());
        let model = private.model(UnitNet::new()).unwrap().with_user_updates(update).unwrap();
        let losses = shown_losses(&private, users(), model);
        assert!(losses.iter().any(|&loss| loss > 0.0), "{losses:?}");
    }
    // Without an output, there is no value.
    let private = begin(mini_set_plan(SamplingScheme::Poisson));
    let model = private.model(UnitNet::new()).unwrap().with_unit_updates(batch_clipping);
    let losses = shown_losses(&private, sets_as_units(), model);
    assert!(losses.iter().all(|loss| loss.is_nan()), "{losses:?}");
}

#[test]
fn a_plan_for_examples_does_not_train_users() {
    let private = training_config().init(plan()).unwrap();
    let [update, _] = user_updates();
    let model = private.model(UnitNet::new()).unwrap();
    let error = model.with_user_updates(update).unwrap_err().to_string();
    assert!(error.contains("unit must be the user") && error.contains("with_unit"), "{error}");
}

fn sparsifier() -> Sparsifier {
    Sparsifier::new(3, 3.0).unwrap()
}

/// The custom loop with a sparsifier, and plain SGD.
fn sparse_loop() -> (Net, DpOptimizer) {
    let optim = plan().optimizer(SgdConfig::new().init()).with_sparsifier(sparsifier()).unwrap();
    custom_loop_of(optim, ConstantLr::from(0.1).into(), 4)
}

#[test]
fn the_sparsifier_under_the_learner_is_that_of_the_custom_loop() {
    let folder = run_folder();
    let launch = |private: &PrivateTraining, epochs: usize| {
        let model = private.model(Net::new()).unwrap();
        let sgd = SgdConfig::new().init();
        let learner = Learner::new(model, sgd, ConstantLr::from(0.1));
        let metrics = run_folder();
        supervised(private, metrics.path()).num_epochs(epochs).launch(learner)
    };
    let expected = sparse_loop();
    assert!(expected.1.sparsifier().unwrap().fixed() > 0);
    let statement = expected.1.statement(&[1e-3]).unwrap().to_string();
    assert!(statement.contains("fixed at their average"));

    let private = training_config().with_sparsifier(sparsifier()).init(plan()).unwrap();
    let result = launch(&private, 3);
    assert_same_run(&private, &result, &expected);
    assert_eq!(private.statement(&[1e-3]).unwrap().to_string(), statement);

    // Within a window: four steps are one window and a third of the next.
    let sparse = || config(folder.path()).with_sparsifier(sparsifier());
    let private = sparse().init(plan()).unwrap();
    launch(&private, 1);
    drop(private);
    let private = sparse().init_or_resume(plan()).unwrap();
    assert_eq!(private.next_step(), STEPS_PER_EPOCH);
    let result = launch(&private, 3);
    assert_same_run(&private, &result, &expected);
}
