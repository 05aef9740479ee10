//! Training with Burn's `SupervisedTraining`: one device or several, dashboard, metrics, learning
//! rate schedulers, early stopping and checkpoints as in an ordinary Burn program. Feature `train`.
//!
//! The model says what its [per-example losses](PrivateTrainStep) are. A [`PrivateTraining`], made
//! of a [`PrivacyPlan`](crate::optim::PrivacyPlan), gives the [loader](PrivateTraining::loader),
//! the [model](PrivateTraining::model) and the [training](PrivateTraining::supervised).
//!
//! | in Burn | here |
//! |---|---|
//! | item of the train loader | a logical batch, whatever it takes in memory; empty ones too |
//! | iteration, tick of the scheduler | a step of the plan: one release, one entry of the ledger |
//! | epoch | so many steps between two validations |
//! | `grads_accumulation` | refused: the plan defines the logical batch |
//! | several devices, `ExecutionStrategy::multi` | the virtual batches of one draw, in turn; the result is that of one device, bit for bit where the devices compute alike |
//! | `ExecutionStrategy::ddp` | refused: every device would release its own sum |
//! | metrics of the training split | the [`metrics`] of what was released; others only as [`NonPrivateMetric`](metrics::NonPrivateMetric) |
//! | checkpoints | with the whole privacy state, atomic; an older one gives no budget back |
//! | parameter groups, learning rate schedules | Burn's own; a schedule ticks once a step |
//! | `LearningResult::error` and `interrupted` | [`PrivateTraining::finish`], which knows them under every dashboard |
//! | Burn's gradient clipping | post-processing of the noisy gradient, not private clipping |
//! | validation, `LearningResult::model` | of the [averaged weights](crate::optim::WeightAverage), where [asked for](PrivateTrainingConfig::with_weight_average) |
//!
//! Where the model has no private layers, one unit at a time, train with a
//! [`DpOptimizer`](crate::optim::DpOptimizer) in a loop of your own.

mod batch;
mod checkpoints;
mod end;
mod loader;
pub mod metrics;
mod model;
mod output;
mod release;
mod session;
mod training;

pub use batch::PrivateBatch;
pub use checkpoints::PrivateCheckpointing;
pub use end::TrainingEnd;
pub use model::{PrivateModel, PrivateTrainStep};
pub use output::StepOutput;
pub use release::StepRelease;
pub use training::{PrivateTraining, PrivateTrainingConfig};
