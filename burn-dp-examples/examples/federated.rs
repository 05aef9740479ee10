//! User-level training: `cargo run -p burn-dp-examples --example federated`.
//!
//! Every user owns some digits. What is protected is everything that one user owns.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;
use burn::{module::Module, optim::SgdConfig};
use burn_dp::optim::FederatedTraining;
use burn_dp::updates::federated::FedAvgConfig;
use burn_dp::{DpError, losses::CrossEntropyLossConfig, optim::PrivacyPlanConfig};
use burn_dp_accountant::{Budget, UnitOfPrivacy};
use burn_dp_examples::data::{ImageBatcher, ImageItem, digits};

const USERS: usize = 200;
const ROUNDS: u64 = 10;

#[derive(Module, Debug)]
struct Net {
    fc: Linear, // any layer: the change of the whole model is clipped, not the gradient of an example
}

fn main() -> Result<(), DpError> {
    let device = Device::flex().autodiff();
    let mut model = Net { fc: LinearConfig::new(784, 10).init(&device) };
    let loss = CrossEntropyLossConfig::new().init();
    let digits = digits::splits(0, 2_000, 0).train;
    // User u owns every digit whose number is u modulo the number of users.
    let mut users: Vec<Vec<ImageItem>> = vec![Vec::new(); USERS];
    for (number, item) in digits.items().iter().enumerate() {
        users[number % USERS].push(item.clone());
    }
    let users = InMemDataset::new(users);

    let plan = PrivacyPlanConfig::new(USERS, 20.0)
        .with_unit(UnitOfPrivacy::User)
        .with_steps(ROUNDS)
        .with_budget(Budget::new(8.0, 1e-3)?)
        .with_max_grad_norm(0.5)
        .init()?;
    let server = plan.optimizer(SgdConfig::new().init());
    let local = FedAvgConfig::new(0.1).with_epochs(1).with_batch_size(5);
    let mut training = FederatedTraining::new(server, local.init(SgdConfig::new().init())?)?;
    for _ in 0..ROUNDS {
        model = training.round(1.0, model, &users, |model: &Net, items: Vec<ImageItem>| {
            let batch = ImageBatcher::MNIST.batch(items, &device);
            let scores = model.fc.forward(batch.inputs.flatten::<2>(1, 3));
            Ok(loss.forward(scores, batch.targets))
        })?;
    }
    println!("{}", training.optimizer().statement(&[1e-3])?);
    Ok(())
}
