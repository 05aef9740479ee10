//! User-level training: the guarantee covers everything that one user owns.
//!
//! In a round, every user takes part independently with the same probability and trains the model
//! on their own examples. The round releases the sum of the clipped changes, with noise, divided by
//! the expected number of users. A server optimizer uses it as a gradient. This is one application
//! of [unit updates](crate::updates) with the user as the unit; plan, ledger, noise and checkpoints
//! are the same as in every other training run.
//!
//! - [`UserUpdate`]: the computation of a user, created by [`FedAvgConfig`] (federated averaging)
//!   or [`FedSgdConfig`] (federated SGD);
//! - [`FederatedTraining`](crate::optim::FederatedTraining): the rounds.
//!
//! All users are simulated in one process, which has access to their data. The guarantee covers
//! what is released. Secure aggregation and the transport of updates are not part of it.
//!
//! # Example
//!
//! ```
//! use burn::data::dataset::InMemDataset;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::optim::SgdConfig;
//! use burn::tensor::{Device, Tensor};
//! use burn_dp::DpError;
//! use burn_dp::optim::{FederatedTraining, PrivacyPlanConfig};
//! use burn_dp::updates::federated::FedAvgConfig;
//! use burn_dp_accountant::{Budget, UnitOfPrivacy};
//!
//! # fn main() -> Result<(), DpError> {
//! // User u owns u % 5 examples.
//! let users: Vec<Vec<f32>> =
//!     (0..200).map(|u| (0..u % 5).map(|i| (u + i) as f32 * 0.01).collect()).collect();
//! let users = InMemDataset::new(users);
//! let device = Device::flex().autodiff();
//! let mut model: Linear = LinearConfig::new(1, 1).init(&device);
//!
//! let plan = PrivacyPlanConfig::new(200, 20.0)
//!     .with_unit(UnitOfPrivacy::User)
//!     .with_steps(3)
//!     .with_budget(Budget::new(4.0, 1e-3)?)
//!     .init()?;
//! let optim = plan.optimizer(SgdConfig::new().init()); // the server
//! let local = FedAvgConfig::new(0.1).with_epochs(2).with_batch_size(2);
//! let local = local.init(SgdConfig::new().init())?;
//! let mut training = FederatedTraining::new(optim, local)?;
//!
//! for _ in 0..3 {
//!     model = training.round(1.0, model, &users, |model: &Linear, batch: Vec<f32>| {
//!         let x = Tensor::<1>::from_floats(batch.as_slice(), &device).unsqueeze_dim::<2>(1);
//!         Ok((model.forward(x.clone()) - x).powi_scalar(2).flatten(0, 1))
//!     })?;
//! }
//! println!("{}", training.optimizer().statement(&[1e-3])?);
//! # Ok(())
//! # }
//! ```
//!
//! # References
//!
//! - McMahan, Ramage, Talwar, Zhang, Learning differentially private recurrent language models,
//!   2018, algorithm 1.
//! - Andrew, Thakkar, McMahan, Ramaswamy, Differentially private learning with adaptive clipping,
//!   2021, algorithm 1.
//! - Reddi et al., Adaptive federated optimization, 2021, algorithm 1 (server optimizers).

mod user_update;

pub use user_update::{FedAvgConfig, FedSgdConfig, UserUpdate};
