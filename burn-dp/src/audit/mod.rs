//! Audits: canaries for private trainings, and lower bounds on ε from their scores.
//!
//! A **canary** is a unit (an example, a mini-set or a user) that is included in the training or
//! left out by a [coin](CanaryCoins). An attacker, who does not have the coins, gives each canary a
//! score. Scores that distinguish the two kinds better than ε allows refute ε: [`Audit`] computes
//! by how much, at a confidence level. The estimators need no tensors and are in
//! [`burn_dp_accountant::audit`]; this module re-exports them.
//!
//! | canary | created by | score |
//! |---|---|---|
//! | gradient in one direction | [`GradientCanaries`] | the released updates in that direction |
//! | inserted example or user | [`CanaryDataset`] | any, for example minus the loss of the model |
//! | mislabeled example | [`wrong_labels`], [`CanaryDataset`] | minus the loss |
//!
//! Gradient canaries reveal mistakes in clipping, noise and sampling. They are the strongest: with
//! the full batch in every step and one clipping threshold, their scores have the distribution that
//! the accountant assumes in the worst case. For other plans, see [`GradientCanaries`]. Inserted
//! examples show what an attacker without access to the updates learns.
//!
//! # Example
//!
//! 200 gradient canaries in one training run with the full batch. The ordinary units are left out
//! here; their updates are `UnitUpdate::gradient`.
//!
//! ```
//! use burn::nn::{Linear, LinearConfig};
//! use burn::{optim::SgdConfig, tensor::Device};
//! use burn_dp::DpError;
//! use burn_dp::audit::{Audit, CanaryCoins, GradientCanaries};
//! use burn_dp::optim::PrivacyPlanConfig;
//! use burn_dp::updates::UnitUpdate;
//!
//! # fn main() -> Result<(), DpError> {
//! let device = Device::flex().autodiff();
//! let mut model: Linear = LinearConfig::new(20, 10).init(&device);
//! let coins = CanaryCoins::toss(200)?;
//! let mut canaries = GradientCanaries::new(&model, 200, 1.0)?;
//!
//! let config = PrivacyPlanConfig::new(200, 200.0).with_steps(2).with_noise_multiplier(1.0);
//! let plan = config.init()?;
//! let sampler = plan.sampler()?;
//! let mut optim = plan.optimizer(SgdConfig::new().init());
//! for step in 0..2 {
//!     let draw = sampler.draw(step)?;
//!     optim.unit_updates(&model, &draw, |copy: Linear, unit| {
//!         // A canary that is left out contributes nothing.
//!         if !coins.is_included(unit) {
//!             return Ok(UnitUpdate::zero());
//!         }
//!         canaries.update(unit, &copy)
//!     })?;
//!     let before = model.clone();
//!     model = optim.step(1.0, model, draw)?;
//!     canaries.observe(&before, &model)?;
//! }
//! let scores = coins.scores(canaries.scores())?;
//! println!("measured: {}", Audit::new(&scores, 1e-5)?.gdp());
//! println!("accounted: {}", optim.privacy_spent(1e-5)?);
//! # Ok(())
//! # }
//! ```
//!
//! # References
//!
//! - M. Jagielski, J. Ullman, A. Oprea, "Auditing Differentially Private Machine Learning: How
//!   Private is Private SGD?", 2020.
//! - M. Nasr et al., "Tight Auditing of Differentially Private Machine Learning", 2023.
//! - T. Steinke, M. Nasr, M. Jagielski, "Privacy Auditing with One (1) Training Run", 2023.
//! - G. Andrew et al., "One-shot Empirical Privacy Estimation for Federated Learning", 2024.

mod coins;
mod examples;
mod gradient;
#[cfg(test)]
mod honest;
#[cfg(test)]
mod tests;

pub use burn_dp_accountant::audit::{
    Audit, AuditEstimate, AuditScores, Estimator, GaussianLowerBound, OneRunGuesses, ThresholdRule,
};
pub use coins::CanaryCoins;
pub use examples::{CanaryDataset, wrong_labels};
pub use gradient::GradientCanaries;
