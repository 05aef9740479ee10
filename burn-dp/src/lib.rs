//! Differentially private training for [Burn](burn).
//!
//! A model trained with this crate hides whether any single example took part in its training, to a
//! degree that two numbers, (ε, δ), bound. Three things of an ordinary Burn program change:
//!
//! 1. layers are wrapped in [`Private`](nn::Private), so that one backward pass yields the norm of every
//!    example's gradient;
//! 2. batches are drawn by a [`PrivacyPlan`](optim::PrivacyPlan);
//! 3. the optimizer is decorated by it: it clips, adds noise, keeps a ledger, and stops at the budget.
//!
//! ```
//! use burn::data::{dataloader::batcher::Batcher, dataset::InMemDataset};
//! use burn::module::Module;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::optim::SgdConfig;
//! use burn::tensor::{Device, Int, Tensor};
//! use burn_dp::losses::CrossEntropyLossConfig;
//! use burn_dp::nn::{IntoPrivate, Private};
//! use burn_dp::optim::PrivacyPlanConfig;
//! use burn_dp_accountant::Budget;
//!
//! #[derive(Module, Debug)]
//! struct Classifier {
//!     fc1: Private<Linear>,
//!     fc2: Private<Linear>,
//! }
//! # struct Points;
//! # impl Batcher<usize, (Tensor<2>, Tensor<1, Int>)> for Points {
//! #     fn batch(&self, items: Vec<usize>, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
//! #         let x: Vec<f32> = items.iter().map(|&i| (i as f32).sin()).collect();
//! #         let y: Vec<i32> = x.iter().map(|&x| i32::from(x > 0.0)).collect();
//! #         let x = Tensor::<1>::from_floats(x.as_slice(), device).unsqueeze_dim(1);
//! #         (x, Tensor::from_ints(y.as_slice(), device))
//! #     }
//! # }
//!
//! # fn main() -> Result<(), burn_dp::DpError> {
//! let device = Device::flex().autodiff();
//! let mut model = Classifier {
//!     fc1: LinearConfig::new(1, 16).init(&device).private(),
//!     fc2: LinearConfig::new(16, 2).init(&device).private(),
//! };
//! let dataset = InMemDataset::new((0..2000).collect::<Vec<usize>>());
//!
//! let plan = PrivacyPlanConfig::new(2000, 100.0)
//!     .with_epochs(2.0)
//!     .with_budget(Budget::new(2.0, 1e-5)?)
//!     .init()?;
//! let batches = plan.batches(dataset, Points, &device)?;
//! let mut optim = plan.optimizer(SgdConfig::new().init());
//! let loss = CrossEntropyLossConfig::new().init();
//!
//! for batch in batches {
//!     let batch = batch?; // may be empty: the step is then noise alone
//!     for chunk in batch.chunks(64)? {
//!         let ((x, y), _) = chunk?.into_parts();
//!         let logits = model.fc2.forward(model.fc1.forward(x).tanh());
//!         optim.backward(loss.forward(logits, y), &model)?;
//!     }
//!     model = optim.step(0.5, model, batch)?;
//! }
//! println!("epsilon {}", optim.privacy_spent(1e-5)?.upper);
//! println!("{}", optim.statement(&[1e-6, 1e-5])?);
//! # Ok(())
//! # }
//! ```
//!
//! # The way of a gradient
//!
//! ```text
//! losses [B] ─▶ PrivateBackward ─▶ PerExampleGradients ─▶ Clipping ─▶ ClippedSum ─▶ noise ─▶ optimizer
//! ```
//!
//! The types allow no other order. What depends on single examples is moved into the next stage, never
//! copied out:
//!
//! ```compile_fail
//! # fn twice(grads: burn_dp::grads::PerExampleGradients) -> Result<(), burn_dp::DpError> {
//! use burn_dp::clipping::{Clipping, FlatClipping};
//! let first = FlatClipping::new(1.0)?.clip(grads)?;
//! let second = FlatClipping::new(1.0)?.clip(grads)?; // `grads` was moved
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail
//! # fn read(sum: burn_dp::clipping::ClippedSum) {
//! let sums = &sum.sums; // a sum without noise is not readable
//! # }
//! ```
//!
//! ```compile_fail
//! # fn keep(sum: burn_dp::clipping::ClippedSum) {
//! let copy = sum.clone(); // nor is it copied
//! # }
//! ```
//!
//! # Modules
//!
//! | module | what |
//! |---|---|
//! | [`nn`] | private twins of Burn's layers |
//! | [`losses`] | losses with one value per example |
//! | [`sampling`] | Poisson and other samplers, logical and physical batches |
//! | [`grads`] | the private backward pass |
//! | [`clipping`] | clipping policies, and two baselines |
//! | [`noise`] | the Gaussian mechanism and its cryptographic source |
//! | [`optim`] | plan, optimizer, checkpoints |
//! | `train` | training with Burn's `SupervisedTraining` (feature `train`) |
//! | [`units`] | unit updates: batch clipping, models with BatchNorm, one pass an example |
//! | [`federated`] | user-level training |
//! | [`validate`] | what cannot be trained privately, all faults at once |
//!
//! How such training fails in silence, and the test against each failure: [`sharp_edges`]. How a program
//! for Burn's learner becomes a private one: [`from_burn`].
//!
//! # Features
//!
//! Backends are called as in Burn: `flex` (default), `ndarray`, `wgpu`, `vulkan`, `metal`, `webgpu`,
//! `cuda`, `rocm`. `simd` and `rayon` (default) are those of Burn's CPU backends. Enable a backend on
//! this crate, which forwards it: enabling it on Burn alone does not compile the primitives for it.
//!
//! `train` is the integration into Burn's learner, `tui` its terminal dashboard.

// Burn keeps NdArray as its second CPU backend, deprecated, and so do we.
#![cfg_attr(feature = "ndarray", allow(deprecated))]

mod baselines;
pub mod checkpoint;
pub mod clipping;
mod error;
pub mod grads;
pub mod losses;
pub mod model;
pub mod nn;
pub mod noise;
mod non_private;
#[doc(hidden)]
pub mod ops;
pub mod optim;
pub mod random;
pub mod sampling;
pub mod schedule;
#[cfg(feature = "train")]
pub mod train;
pub mod updates;

#[doc = include_str!("../docs/sharp-edges.md")]
pub mod sharp_edges {}

#[doc = include_str!("../docs/from-burn.md")]
pub mod from_burn {}

#[cfg(test)]
mod test_devices;

pub use error::DpError;
pub use grads::check_independence;
pub use non_private::NonPrivate;
