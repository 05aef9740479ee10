//! Users who own several examples.

use burn::data::dataloader::{DataLoaderBuilder, batcher::Batcher};
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::constant::ConstantLr;
use burn::module::Module;
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};
use burn::train::{InferenceStep, Learner, RegressionOutput};
use burn_dp::optim::FederatedTraining;
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::{PrivateDataLoaderBuilder, UserDataset};
use burn_dp::train::PrivateTrainStep;
use burn_dp::updates::federated::FedSgdConfig;
use burn_dp_accountant::UnitOfPrivacy;

use crate::comparison::assert_same_units;
use crate::fixture::*;

const USERS: usize = 40;
/// Maximum number of examples that a user owns.
const MOST: usize = 3;

/// User u owns u % 4 examples, some none.
fn users() -> Vec<Vec<usize>> {
    (0..USERS).map(|u| (0..u % (MOST + 1)).map(|i| 4 * u + i).collect()).collect()
}

fn user_plan() -> PrivacyPlan {
    plan_of(USERS)
}

fn plan_of(users: usize) -> PrivacyPlan {
    PrivacyPlanConfig::new(users, 10.0)
        .with_unit(UnitOfPrivacy::User)
        .with_steps(STEPS)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(11))
        .init()
        .unwrap()
}

/// The examples of several users side by side, and their shares of the user's loss: 0 for none.
#[derive(Clone, Debug)]
struct UserRows {
    /// `[users, most, 3]`
    rows: Tensor<3>,
    /// `[users, most]`
    shares: Tensor<2>,
}

#[derive(Clone)]
struct UserBatcher;

impl Batcher<Vec<usize>, UserRows> for UserBatcher {
    fn batch(&self, users: Vec<Vec<usize>>, device: &Device) -> UserRows {
        let count = users.len();
        let padded = users
            .iter()
            .flat_map(|owned| owned.iter().copied().chain(std::iter::repeat(0)).take(MOST));
        let shares: Vec<f32> = users
            .iter()
            .flat_map(|owned| {
                let share = 1.0 / owned.len().max(1) as f32;
                (0..MOST).map(move |i| if i < owned.len() { share } else { 0.0 })
            })
            .collect();
        let rows = Rows.batch(padded.collect(), device).reshape([count, MOST, 3]);
        UserRows { rows, shares: Tensor::from_data(TensorData::new(shares, [count, MOST]), device) }
    }
}

/// One loss for each user: the mean loss of the user's examples.
#[derive(Module, Debug)]
struct UserNet {
    net: Net,
}

impl UserNet {
    fn output(&self, batch: UserRows) -> (Tensor<1>, RegressionOutput) {
        let [users, most, _] = batch.rows.dims();
        let target = batch.rows.clone().sum_dim(2).reshape([users, most]);
        let hidden = self.net.first.forward(batch.rows).tanh();
        let output = self.net.second.forward(hidden).reshape([users, most]);
        let squares = (output.clone() - target.clone()).powi_scalar(2);
        let losses = (squares * batch.shares).sum_dim(1).reshape([users]);
        (losses.clone(), RegressionOutput::new(losses, output, target))
    }
}

impl PrivateTrainStep for UserNet {
    type Input = UserRows;
    type Output = RegressionOutput;

    fn losses(&self, batch: UserRows) -> (Tensor<1>, RegressionOutput) {
        self.output(batch)
    }
}

impl InferenceStep for UserNet {
    type Input = UserRows;
    type Output = RegressionOutput;

    fn step(&self, batch: UserRows) -> RegressionOutput {
        self.output(batch).1
    }
}

/// The same training computed differently: every user computes a gradient separately.
fn expected() -> (Net, FederatedTraining) {
    let server = user_plan().optimizer(SgdConfig::new().init());
    let update = FedSgdConfig::new(MOST).init().unwrap();
    let mut training = FederatedTraining::new(server, update).unwrap();
    let users = InMemDataset::new(users());
    let mut model = Net::new();
    for _ in 0..STEPS {
        let losses =
            |model: &Net, items: Vec<usize>| Ok(model.output(Rows.batch(items, &device())).0);
        model = training.round(0.1, model, &users, losses).unwrap();
    }
    (model, training)
}

#[test]
fn a_data_set_of_users_is_trained_with_user_level_privacy() {
    for (physical, padding) in [(64, false), (3, false), (4, true)] {
        let private = burn_dp::train::PrivateTrainingConfig::new(physical)
            .with_steps_per_epoch(STEPS_PER_EPOCH)
            .init(user_plan())
            .unwrap();
        let builder = PrivateDataLoaderBuilder::new(UserBatcher);
        let builder = if padding { builder.with_padding() } else { builder };
        let train = private.loader(builder, InMemDataset::new(users())).unwrap();
        assert_eq!(train.num_items(), USERS);
        let valid = DataLoaderBuilder::new(UserBatcher)
            .batch_size(4)
            .build(InMemDataset::new(vec![vec![501], vec![502, 503]]));
        let folder = run_folder();
        let model = private.model(UserNet { net: Net::new() }).unwrap();
        let learner = Learner::new(model, SgdConfig::new().init(), ConstantLr::from(0.1));
        let result = plain(private.supervised(folder.path(), train, valid)).launch(learner);
        if let Some(error) = private.error() {
            panic!("{error}");
        }
        assert!(result.error.is_none());

        let (model, federated) = expected();
        let found = values(&result.model.inner().net).concat();
        assert_same_units(&device(), &found, &values(&model).concat(), 1e-5, 0.1 / 10.0);
        assert_eq!(private.ledger().entries(), federated.optimizer().ledger().entries());
        assert_eq!(private.ledger().releases(), STEPS);
        assert_eq!(private.statement(&[1e-3]).unwrap().unit, UnitOfPrivacy::User);
    }
}

#[test]
fn a_plan_for_examples_has_no_loader_of_users() {
    let config = PrivacyPlanConfig::new(30, 10.0).with_steps(STEPS).with_noise_multiplier(1.0);
    let plan = config.with_insecure_seed(InsecureSeed(11)).init().unwrap();
    let private = burn_dp::train::PrivateTrainingConfig::new(64).init(plan).unwrap();
    let examples = InMemDataset::new((0..120).collect());
    let users = UserDataset::by_key(examples, |example: &usize| example / 4).unwrap();
    let refused = private.loader(PrivateDataLoaderBuilder::new(UserBatcher), users);
    let error = refused.err().unwrap().to_string();
    assert!(
        error.contains("with all of their examples, but the plan draws one example"),
        "{error}"
    );
}

#[test]
fn users_of_a_flat_data_set_use_other_examples_in_each_step() {
    // Every user owns 4 of 120 examples, and a step uses 3 of them.
    let flat = || {
        let examples = InMemDataset::new((0..120).map(|i| (7 * i) % 120).collect());
        let users = UserDataset::by_key(examples, |example: &usize| example / 4).unwrap();
        users.with_max_examples(MOST).unwrap()
    };
    assert_eq!(flat().users(), 30);
    for (physical, padding) in [(64, false), (4, true)] {
        let private = burn_dp::train::PrivateTrainingConfig::new(physical)
            .with_steps_per_epoch(STEPS_PER_EPOCH)
            .init(plan_of(30))
            .unwrap();
        let builder = PrivateDataLoaderBuilder::new(UserBatcher);
        let builder = if padding { builder.with_padding() } else { builder };
        let train = private.loader(builder, flat()).unwrap();
        let valid = DataLoaderBuilder::new(UserBatcher)
            .batch_size(4)
            .build(InMemDataset::new(vec![vec![501], vec![502, 503]]));
        let folder = run_folder();
        let model = private.model(UserNet { net: Net::new() }).unwrap();
        let learner = Learner::new(model, SgdConfig::new().init(), ConstantLr::from(0.1));
        let result = plain(private.supervised(folder.path(), train, valid)).launch(learner);
        if let Some(error) = private.error() {
            panic!("{error}");
        }
        // The same examples, one user after another.
        let server = plan_of(30).optimizer(SgdConfig::new().init());
        let update = FedSgdConfig::new(MOST).init().unwrap();
        let mut training = FederatedTraining::new(server, update).unwrap();
        let mut model = Net::new();
        for _ in 0..STEPS {
            let losses =
                |model: &Net, items: Vec<usize>| Ok(model.output(Rows.batch(items, &device())).0);
            model = training.round(0.1, model, &flat(), losses).unwrap();
        }
        let found = values(&result.model.inner().net).concat();
        assert_same_units(&device(), &found, &values(&model).concat(), 1e-5, 0.1 / 10.0);
    }
}

#[test]
fn a_data_set_without_one_of_the_users_is_refused() {
    let private = training_config().init(user_plan()).unwrap();
    let builder = PrivateDataLoaderBuilder::new(UserBatcher);
    let some = InMemDataset::new(users().into_iter().take(USERS - 1).collect());
    let error = private.loader(builder, some).err().unwrap().to_string();
    assert!(error.contains("data set has 39"), "{error}");
}
