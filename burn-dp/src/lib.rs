//! Differentially private training for [Burn](burn).
//!
//! A model that is trained with this crate hides whether any single example was part of its
//! training data, up to a bound that two numbers, ε and δ, describe. Three parts of an ordinary
//! Burn program change:
//!
//! 1. [`Private`](nn::Private) wraps the layers, so that one backward pass gives the norm of every
//!    example's gradient.
//! 2. A [`PrivacyPlan`](optim::PrivacyPlan) draws the batches.
//! 3. A [`DpOptimizer`](optim::DpOptimizer) wraps Burn's optimizer. It clips, adds noise, records
//!    every release in a ledger, and stops before a step would exceed the budget.
//!
//! ```
//! use burn::data::{dataloader::batcher::Batcher, dataset::InMemDataset};
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Int, Tensor};
//! use burn::{module::Module, optim::SgdConfig};
//! use burn_dp::prelude::*;
//!
//! #[derive(Module, Debug)]
//! struct Classifier {
//!     fc1: Private<Linear>,
//!     fc2: Private<Linear>,
//! }
//! # struct Points;
//! # impl Batcher<usize, (Tensor<2>, Tensor<1, Int>)> for Points {
//! #     fn batch(&self, items: Vec<usize>, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
//! #         let classes: Vec<i32> = items.iter().map(|&i| i32::from(i % 2 == 0)).collect();
//! #         let classes = Tensor::<1, Int>::from_ints(classes.as_slice(), device);
//! #         (classes.clone().float().unsqueeze_dim(1), classes)
//! #     }
//! # }
//!
//! # fn main() -> Result<(), DpError> {
//! let device = Device::flex().autodiff();
//! let mut model = Classifier {
//!     fc1: LinearConfig::new(1, 16).init(&device).private(),
//!     fc2: LinearConfig::new(16, 2).init(&device).private(),
//! };
//! let dataset = InMemDataset::new((0..2000).collect::<Vec<usize>>());
//!
//! let plan = PrivacyPlanConfig::new(2000, 100.0) // examples, and expected examples in a batch
//!     .with_epochs(2.0)
//!     .with_budget(Budget::new(2.0, 1e-5)?)
//!     .init()?; // computes the noise multiplier
//! let batches = plan.batches(dataset, Points, &device)?;
//! let mut optim = plan.optimizer(SgdConfig::new().init());
//! let loss = CrossEntropyLossConfig::new().init(); // one value for each example
//!
//! for batch in batches {
//!     let batch = batch?; // may be empty: then the step is noise alone
//!     optim.backward_batch(&model, &batch, 64, |model, (x, y)| {
//!         let logits = model.fc2.forward(model.fc1.forward(x).tanh());
//!         loss.forward(logits, y)
//!     })?;
//!     model = optim.step(0.5, model, batch)?;
//! }
//! println!("{}", optim.statement(&[1e-6, 1e-5])?);
//! # Ok(())
//! # }
//! ```
//!
//! # The data flow of a step
//!
//! ```text
//! losses ─▶ PrivateBackward ─▶ PerExampleGradients ─▶ Clipping ─▶ ClippedSum ─▶ noise ─▶ optimizer
//! ```
//!
//! The types allow no other order: per-example values move from stage to stage, and only the last
//! stage returns tensors.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`prelude`] | the names that a training loop needs |
//! | [`nn`] | private counterparts of Burn's layers |
//! | [`losses`] | losses with one value for each example |
//! | [`sampling`] | Poisson and other samplers, logical and physical batches |
//! | [`grads`] | the private backward pass |
//! | [`clipping`] | clipping policies |
//! | [`noise`], [`random`] | the Gaussian mechanism, and its cryptographic randomness |
//! | [`optim`] | plan and optimizer |
//! | [`checkpoint`] | checkpoints and the log of releases |
//! | `remote` | devices that other machines host (feature `remote`) |
//! | `train` | training with Burn's `SupervisedTraining` (feature `train`) |
//! | [`tune`] | private search of hyperparameters |
//! | [`updates`] | updates of mini-sets and users: batch clipping, federated training |
//! | [`model`] | validation, and groups of parameters |
//! | [`schedule`] | factors that follow the steps |
//! | [`accountant`] | the crate `burn-dp-accountant`: budgets, ledgers and statements |
//! | [`audit`] | canaries, and lower bounds on ε from their scores |
//! | [`baselines`] | slower ways to compute the same sums, for benchmarks and oracles |
//!
//! Two pages: [`sharp_edges`] lists how private training fails without an error, with the test for
//! each failure; [`from_burn`] turns a program for Burn's learner into a private one.
//!
//! # Features
//!
//! Backends have Burn's names: `flex` (default), `ndarray`, `wgpu`, `vulkan`, `metal`, `webgpu`,
//! `cuda`, `rocm`. Enable a backend on this crate, which enables it on Burn; a backend that is
//! enabled on Burn alone lacks the private primitives. `simd`, `rayon` and `autotune` (default) are
//! Burn's features.
//!
//! `remote` runs on devices that other machines host, through Iroh; `remote-websocket` adds
//! WebSocket, and `remote-server` the server.
//!
//! `train` integrates with Burn's learner, and `tui` adds its terminal dashboard.

// Burn deprecates NdArray but keeps it as its second CPU backend.
#![cfg_attr(feature = "ndarray", allow(deprecated))]

#[macro_use]
mod opaque_debug;
#[macro_use]
mod walk;

pub mod audit;
pub mod baselines;
pub mod checkpoint;
pub mod clipping;
mod device_read;
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
pub mod prelude;
mod public_data;
pub mod random;
#[cfg(feature = "remote")]
pub mod remote;
pub mod sampling;
pub mod schedule;
mod thread_pool;
#[cfg(feature = "train")]
pub mod train;
pub mod tune;
pub mod updates;

#[doc = include_str!("../docs/sharp-edges.md")]
pub mod sharp_edges {}

#[doc = include_str!("../docs/from-burn.md")]
pub mod from_burn {}

#[cfg(test)]
mod test_devices;

pub use burn_dp_accountant as accountant;
pub use error::DpError;
pub use grads::{check_independence, check_independence_async};
pub use non_private::NonPrivate;
pub use public_data::{PublicData, PublicSource};
pub use thread_pool::on_thread_pool;
