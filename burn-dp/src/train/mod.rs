//! Training with Burn's `SupervisedTraining`: one device or several, dashboard, metrics, learning
//! rate schedulers, early stopping and checkpoints as in an ordinary Burn program. Feature `train`.
//!
//! The model computes its [per-example losses](PrivateTrainStep). A [`PrivateTraining`], created
//! from a [`PrivacyPlan`](crate::optim::PrivacyPlan), provides the
//! [loader](PrivateTraining::loader), the [model](PrivateTraining::model) and the
//! [training](PrivateTraining::supervised).
//!
//! | in Burn | here |
//! |---|---|
//! | item of the train loader | a logical batch of any size, even an empty one |
//! | iteration, tick of the scheduler | a step of the plan: one release, one entry of the ledger |
//! | epoch | the steps between two validations |
//! | `grads_accumulation` | rejected: the plan defines the logical batch |
//! | several devices, `ExecutionStrategy::multi` | the physical batches of one draw, in turn; same result as one device |
//! | `ExecutionStrategy::ddp` | rejected: every device would release its own sum |
//! | metrics of the training split | [`metrics`] of what was released; others as [`metrics::NonPrivateMetric`] |
//! | checkpoints | with the whole privacy state, atomic; an older one restores no budget |
//! | parameter groups, learning rate schedules | Burn's own; a schedule ticks once per step |
//! | `LearningResult::error` and `interrupted` | [`PrivateTraining::finish`], which has them with every dashboard |
//! | Burn's gradient clipping | post-processing of the noisy gradient, not private clipping |
//! | validation, `LearningResult::model` | of the [averaged weights](crate::optim::WeightAverage), if configured |
//!
//! Everything that a [`DpOptimizer`](crate::optim::DpOptimizer) does in a custom loop is available
//! here:
//!
//! | in a custom loop | here |
//! |---|---|
//! | [`unit_updates`]: (general) batch clipping | [`PrivateModel::with_unit_updates`] |
//! | `FederatedTraining`: federated averaging and SGD | [`PrivateModel::with_user_updates`] |
//! | [`with_sparsifier`] | [`PrivateTrainingConfig::with_sparsifier`] |
//! | [`with_weight_average`] | [`PrivateTrainingConfig::with_weight_average`] |
//! | [`learn_from_public`] | [`PrivateModel::with_public_norms`] |
//!
//! Several devices produce the result of one device, bit for bit if the devices compute alike.
//!
//! [`unit_updates`]: crate::optim::DpOptimizer::unit_updates
//! [`with_sparsifier`]: crate::optim::DpOptimizer::with_sparsifier
//! [`with_weight_average`]: crate::optim::DpOptimizer::with_weight_average
//! [`learn_from_public`]: crate::optim::DpOptimizer::learn_from_public

mod batch;
mod checkpoints;
mod config;
mod end;
mod key_location;
mod loader;
mod logical_step;
pub mod metrics;
mod model;
mod model_display;
mod output;
mod release;
mod saving;
mod session;
mod training;
mod unit_output;

pub use batch::PrivateBatch;
pub use checkpoints::PrivateCheckpointing;
pub use config::PrivateTrainingConfig;
pub use end::TrainingEnd;
pub use model::{PrivateModel, PrivateTrainStep};
pub use output::StepOutput;
pub use release::StepRelease;
pub use training::PrivateTraining;
pub use unit_output::UnitOutput;
