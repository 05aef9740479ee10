//! Unit updates: what one privacy unit contributes, whatever computes it.
//!
//! A **unit** is what the guarantee protects: one example, one mini-set of examples, one user. A
//! closure maps it to a [`UnitUpdate`], one direction for all trained parameters; each update is clipped
//! as a whole, and the clipped updates are added up. That is the second source of a
//! [`ClippedSum`](crate::clipping::ClippedSum), beside the private backward pass, and the whole of it:
//!
//! | unit | update | name |
//! |---|---|---|
//! | example | its gradient | one backward pass for each example (nxBP) |
//! | mini-set | its mean gradient | batch clipping |
//! | mini-set | several steps of any optimizer ([`LocalTraining`]) | general batch clipping |
//! | user | several epochs of an optimizer | federated averaging ([`federated`](crate::updates::federated)) |
//! | user | one gradient | federated SGD |
//!
//! The privacy argument needs nothing of how an update is computed but that it depends on one unit and
//! on public values. So a model needs no [`Private`](crate::nn::Private) layers here, and may contain
//! BatchNorm: the examples of a unit may mix.
//!
//! What a forward pass stores in the model (the running statistics of BatchNorm) is private data. Every
//! unit therefore gets a copy of the model of its own ([`private_copy`]), which is thrown away: the
//! statistics of a unit reach neither the next unit nor the model that is released. A BatchNorm that
//! was trained in this way needs statistics for inference all the same: compute them on public data with
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
//! let sets = MiniSets::shuffled(examples.len(), 32, 7)?; // 20 mini-sets, membership public
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
//!     optim.unit_updates(&model, draw.private_indices(), |copy: Net, &set| {
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
//! - Nguyen, Nguyen, Nguyen, van Dijk, Batch clipping and adaptive layerwise clipping for differential
//!   private stochastic gradient descent, 2023, section 3.1.
//! - McMahan, Ramage, Talwar, Zhang, Learning differentially private recurrent language models, 2018.

mod clipped;
pub mod federated;
mod local;
mod mini_sets;
mod statistics;
mod update;

#[cfg(test)]
mod oracle;

pub use clipped::clip_updates;
pub use local::LocalTraining;
pub use mini_sets::{MiniSetDataset, MiniSets};
pub use statistics::{private_copy, public_statistics};
pub use update::UnitUpdate;
