//! Canaries in whole training runs: examples in batches of a plan, and users in federated rounds.

#![allow(clippy::unwrap_used)]

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::{Dataset, InMemDataset};
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_dp_accountant::UnitOfPrivacy;

use super::{Audit, AuditScores, CanaryCoins, CanaryDataset, wrong_labels};
use crate::losses::CrossEntropyLossConfig;
use crate::nn::IntoPrivate;
use crate::optim::{FederatedTraining, PrivacyPlanConfig};
use crate::random::InsecureSeed;
use crate::test_devices::devices;
use crate::updates::federated::FedSgdConfig;

const CLASSES: usize = 4;
const CANARIES: usize = 60;
const SEED: InsecureSeed = InsecureSeed(2);

/// The number of an example, which is the place of its one feature, and its label.
type Example = (usize, usize);

struct OneHot;

impl Batcher<Example, (Tensor<2>, Tensor<1, Int>)> for OneHot {
    fn batch(&self, items: Vec<Example>, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        let mut rows = vec![0f32; items.len() * CANARIES];
        for (row, (place, _)) in items.iter().enumerate() {
            rows[row * CANARIES + place] = 1.0;
        }
        let labels: Vec<i32> = items.iter().map(|(_, label)| *label as i32).collect();
        let x = Tensor::from_data(TensorData::new(rows, [items.len(), CANARIES]), device);
        (x, Tensor::from_ints(labels.as_slice(), device))
    }
}

/// Mislabeled canaries: the label of example i should be `i % CLASSES`.
fn canaries() -> Vec<Example> {
    let labels: Vec<usize> = (0..CANARIES).map(|i| i % CLASSES).collect();
    wrong_labels(&labels, CLASSES, SEED).unwrap().into_iter().enumerate().collect()
}

/// Minus the loss of each canary.
fn scores(logits: impl Fn(Tensor<2>) -> Tensor<2>, device: &Device) -> Vec<f64> {
    let (x, labels) = OneHot.batch(canaries(), device);
    let losses = CrossEntropyLossConfig::new().init().forward(logits(x), labels);
    losses.into_data().try_to_vec::<f32>().unwrap().iter().map(|&loss| -f64::from(loss)).collect()
}

/// Trains with mislabeled canaries; returns their scores and the ε of the plan.
fn train(sigma: f64) -> (AuditScores, f64) {
    let device = devices().remove(0).autodiff();
    let coins = CanaryCoins::from_seed(CANARIES, SEED);
    let others = InMemDataset::new((0..CANARIES).map(|i| (i, i % CLASSES)).collect());
    let dataset = CanaryDataset::new(others, canaries(), &coins).unwrap();
    let units = dataset.len();
    let config = PrivacyPlanConfig::new(units, units as f64 / 2.0).with_steps(30);
    let config = config.with_noise_multiplier(sigma).with_insecure_seed(SEED);
    let plan = config.init().unwrap();
    let epsilon = plan.epsilon_at_end(1e-5).unwrap();
    let mut model = LinearConfig::new(CANARIES, CLASSES).init(&device).private();
    let batches = plan.batches(dataset, OneHot, &device).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let loss = CrossEntropyLossConfig::new().init();
    for batch in batches {
        let batch = batch.unwrap();
        optim
            .backward_batch(&model, &batch, 64, |model, (x, labels)| {
                loss.forward(model.forward(x), labels)
            })
            .unwrap();
        model = optim.step(5.0, model, batch).map_err(|error| error.to_string()).unwrap();
    }
    (coins.scores(&scores(|x| model.forward(x), &device)).unwrap(), epsilon)
}

#[test]
fn mislabeled_examples_tell_little_noise_from_much() {
    let area = |scores: &AuditScores| Audit::new(scores, 1e-5).unwrap().auc().measured["auc"];
    let (remembered, _) = train(0.01);
    assert!(area(&remembered) > 0.9, "{}", area(&remembered));
    let (hidden, epsilon) = train(2.0);
    assert!(area(&hidden) < area(&remembered) - 0.1, "{}", area(&hidden));
    assert!(Audit::new(&hidden, 1e-5).unwrap().one_run().epsilon_lower <= epsilon);
}

#[test]
fn canary_users_take_part_in_federated_rounds() {
    let device = devices().remove(0).autodiff();
    let coins = CanaryCoins::from_seed(CANARIES, SEED);
    let others = InMemDataset::new((0..CANARIES).map(|i| vec![(i, i % CLASSES)]).collect());
    // Each canary user owns one mislabeled example, three times.
    let users: Vec<Vec<Example>> = canaries().into_iter().map(|item| vec![item; 3]).collect();
    let users = CanaryDataset::new(others, users, &coins).unwrap();
    let config = PrivacyPlanConfig::new(users.len(), users.len() as f64 / 2.0).with_steps(30);
    let config = config.with_unit(UnitOfPrivacy::User).with_insecure_seed(SEED);
    let plan = config.with_noise_multiplier(0.01).init().unwrap();
    let server = plan.optimizer(SgdConfig::new().init());
    let mut training =
        FederatedTraining::new(server, FedSgdConfig::new(3).init().unwrap()).unwrap();
    let mut model: Linear = LinearConfig::new(CANARIES, CLASSES).init(&device);
    let loss = CrossEntropyLossConfig::new().init();
    for _ in 0..30 {
        let losses = |model: &Linear, examples: Vec<Example>| {
            let (x, labels) = OneHot.batch(examples, &device);
            Ok(loss.forward(model.forward(x), labels))
        };
        let round = training.round(5.0, model, &users, losses);
        model = round.map_err(|error| error.to_string()).unwrap();
    }
    let scores = coins.scores(&scores(|x| model.forward(x), &device)).unwrap();
    let area = Audit::new(&scores, 1e-5).unwrap().auc().measured["auc"];
    assert!(area > 0.9, "{area}");
}
