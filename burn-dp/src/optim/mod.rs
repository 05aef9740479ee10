//! The training step: plan, noise, ledger, and Burn's optimizer.
//!
//! [`PrivacyPlanConfig`] turns a budget and the length of the training into a [`PrivacyPlan`], the
//! single source of the numbers that the sampler, clipping, noise, and accounting use.
//! [`PrivacyPlan::optimizer`] wraps an optimizer of Burn.
//!
//! An optimizer that evaluates the loss itself, several times in a step, is not post-processing of
//! one noisy gradient. Burn's L-BFGS is such an optimizer; it does not compile:
//!
//! ```compile_fail
//! use burn::optim::LBFGSConfig;
//! use burn_dp::optim::PrivacyPlanConfig;
//!
//! let config = PrivacyPlanConfig::new(1000, 50.0).with_steps(10).with_noise_multiplier(1.0);
//! let plan = config.init().unwrap();
//! let optim = plan.optimizer(LBFGSConfig::new().init());
//! ```

pub(crate) mod buffers;
mod correlated;
mod dp_optimizer;
mod earlier;
pub(crate) mod engine;
mod federated;
mod independence;
mod loss_function;
mod model_values;
mod owner_limit;
pub(crate) mod pack;
mod plan;
mod plan_config;
mod plan_init;
mod public_schedule;
mod refused;
mod release;
pub(crate) mod releases;
mod sampling_scheme;
mod sparsifier;
mod sums;
mod weight_average;

pub use dp_optimizer::DpOptimizer;
pub use federated::FederatedTraining;
pub use independence::{Independence, IndependenceCheck};
pub(crate) use independence::{LossFunction, Outcome};
pub use plan::PrivacyPlan;
pub use plan_config::PrivacyPlanConfig;
pub use public_schedule::PublicSchedule;
pub use refused::RefusedStep;
pub use sampling_scheme::SamplingScheme;
pub use sparsifier::Sparsifier;
pub use weight_average::WeightAverage;

/// The fact of a statement that names public data.
const PUBLIC_DATA: &str = "public_data";

#[cfg(test)]
mod tests;
