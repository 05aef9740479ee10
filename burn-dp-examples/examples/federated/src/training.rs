//! Federated averaging with user-level privacy.

use burn::data::dataloader::batcher::Batcher;
use burn::optim::SgdConfig;
use burn::tensor::Device;
use burn_dp::optim::FederatedTraining;
use burn_dp::updates::federated::FedAvgConfig;
use burn_dp::{DpError, losses::CrossEntropyLossConfig, optim::PrivacyPlanConfig};
use burn_dp_accountant::{Budget, UnitOfPrivacy};
use burn_dp_examples::data::{ImageBatcher, ImageItem};

use super::data::{USERS, users};
use super::model::Network;

/// δ; less than 1 / the number of users.
pub const DELTA: f64 = 1e-3;

/// Trains for a number of rounds and returns the training, which holds the ledger.
///
/// # Errors
///
/// Returns the errors of the plan and of a rejected round.
pub fn run(rounds: u64, device: &Device) -> Result<FederatedTraining, DpError> {
    let mut model = Network::new(device);
    let (users, loss) = (users(), CrossEntropyLossConfig::new().init());
    // The unit of privacy is a user: everything that one user owns is protected.
    let plan = PrivacyPlanConfig::new(USERS, 20.0)
        .with_unit(UnitOfPrivacy::User)
        .with_steps(rounds)
        .with_budget(Budget::new(8.0, DELTA)?)
        .with_max_grad_norm(0.5)
        .init()?;
    let server = plan.optimizer(SgdConfig::new().init());
    // Each user of a round trains a copy of the model; the change is clipped and added up.
    let local = FedAvgConfig::new(0.1).with_epochs(1).with_batch_size(5);
    let mut training = FederatedTraining::new(server, local.init(SgdConfig::new().init())?)?;
    for _ in 0..rounds {
        model = training.round(1.0, model, &users, |model: &Network, items: Vec<ImageItem>| {
            let batch = ImageBatcher::MNIST.batch(items, device);
            Ok(loss.forward(model.forward(batch.inputs), batch.targets))
        })?;
    }
    Ok(training)
}
