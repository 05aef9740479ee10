//! Unit updates: the contribution of one privacy unit, computed by any closure.
//!
//! A **unit** is what the guarantee protects: one example, one mini-set of examples, or one user. A
//! closure maps it to a [`UnitUpdate`], one direction for all trained parameters. Each update is
//! clipped as a whole, and the clipped updates are added up by [`clip_updates`]. Together with the
//! private backward pass, this is the second source of a
//! [`ClippedSum`](crate::clipping::ClippedSum):
//!
//! | unit | update | algorithm |
//! |---|---|---|
//! | example | its gradient ([`UnitUpdate::gradient`]) | one backward pass per example (nxBP) |
//! | [mini-set](MiniSets) | its mean gradient ([`UnitUpdate::gradient`]) | batch clipping |
//! | [mini-set](MiniSets) | several optimizer steps ([`LocalTraining`]) | general batch clipping |
//! | user | optimizer epochs ([`FedAvgConfig`](federated::FedAvgConfig)) | federated averaging |
//! | user | one gradient ([`FedSgdConfig`](federated::FedSgdConfig)) | federated SGD |
//!
//! [`DpOptimizer::unit_updates`](crate::optim::DpOptimizer::unit_updates) runs a step of the first
//! three; [`FederatedTraining`](crate::optim::FederatedTraining) runs the rounds of the last two.
//!
//! # Privacy
//!
//! The guarantee only requires that an update depends on one unit and on public values. Therefore
//! the model needs no [`Private`](crate::nn::Private) layers, and may contain BatchNorm: the
//! examples of one unit may be mixed.
//!
//! The values that a forward pass stores in the model (the running statistics of BatchNorm) are
//! private data. Every unit therefore gets a separate copy of the model ([`private_copy`]), which
//! is dropped: the statistics of a unit reach neither the next unit nor the released model. For
//! inference, compute the statistics of a BatchNorm on [public data](crate::PublicData) with
//! [`public_statistics`].
//!
//! # Example
//!
//! Batch clipping of a model with BatchNorm:
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
//! use burn::optim::SgdConfig;
//! use burn::tensor::{Device, Tensor};
//! use burn_dp::DpError;
//! use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
//! use burn_dp::updates::{MiniSets, UnitUpdate};
//!
//! #[derive(Module, Debug)]
//! struct Net {
//!     fc: Linear,
//!     norm: BatchNorm,
//! }
//!
//! # fn main() -> Result<(), DpError> {
//! let device = Device::flex().autodiff();
//! let mut model = Net {
//!     fc: LinearConfig::new(1, 2).init(&device),
//!     norm: BatchNormConfig::new(2).init(&device),
//! };
//! let examples: Vec<f32> = (0..640).map(|i| (i as f32 * 0.1).sin()).collect();
//!
//! let sets = MiniSets::shuffled(examples.len(), 32, 7)?; // 20 mini-sets, public membership
//! let plan = PrivacyPlanConfig::for_mini_sets(&sets, 1)
//!     .with_sampling(SamplingScheme::FixedSize)
//!     .with_noise_multiplier(2.0)
//!     .with_steps(3)
//!     .init()?;
//! let sampler = plan.sampler()?;
//! let mut optim = plan.optimizer(SgdConfig::new().init());
//!
//! for step in 0..3 {
//!     let draw = sampler.draw(step)?;
//!     optim.unit_updates(&model, &draw, |copy: Net, set| {
//!         let members: Vec<f32> = sets.members(set).iter().map(|&i| examples[i]).collect();
//!         let x = Tensor::<1>::from_floats(members.as_slice(), &device).unsqueeze_dim::<2>(1);
//!         let output = copy.norm.forward(copy.fc.forward(x.clone()));
//!         let losses = (output - x).powi_scalar(2).mean_dim(1).flatten(0, 1);
//!         UnitUpdate::gradient(&copy, losses)
//!     })?;
//!     model = optim.step(0.1, model, draw)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # References
//!
//! - Nguyen, Nguyen, Nguyen, van Dijk, Batch clipping and adaptive layerwise clipping for
//!   differential private stochastic gradient descent, 2023, section 3.1.
//! - McMahan, Ramage, Talwar, Zhang, Learning differentially private recurrent language models,
//!   2018.

mod clip_updates;
pub mod federated;
mod local_training;
mod mini_sets;
mod public_update_norms;
mod running_statistics;
mod unit_update;

#[cfg(test)]
mod tests;

pub use clip_updates::{clip_updates, clip_updates_async};
pub use local_training::LocalTraining;
pub use mini_sets::{MiniSetDataset, MiniSets};
pub use public_update_norms::public_update_norms;
pub use running_statistics::{private_copy, public_statistics};
pub use unit_update::UnitUpdate;
