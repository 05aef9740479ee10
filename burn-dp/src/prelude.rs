//! The names that a private training loop needs.
//!
//! ```
//! use burn_dp::prelude::*;
//! ```
//!
//! | Step of the loop | Names |
//! |---|---|
//! | wrap the layers | [`Private`], [`IntoPrivate`] |
//! | compute one loss for each example | [`CrossEntropyLossConfig`], [`BinaryCrossEntropyLossConfig`], [`MseLossConfig`] |
//! | plan the training within a budget | [`PrivacyPlanConfig`], [`PrivacyPlan`], [`Budget`], [`UnitOfPrivacy`], [`SamplingScheme`] |
//! | choose how to clip | [`Clipping`], [`FlatClipping`], [`QuantileClipping`] |
//! | load what a step draws | [`PrivateDataLoaderBuilder`], [`Distinct`], [`LogicalBatch`], [`PhysicalBatch`] |
//! | clip, add noise and update the model | [`DpOptimizer`], [`PublicSchedule`], [`WeightAverage`] |
//! | train with Burn's learner (feature `train`) | `PrivateTrainStep`, `PrivateTrainingConfig` |
//! | save and resume the run | [`Checkpointer`] |
//! | handle errors | [`DpError`] |

pub use burn_dp_accountant::{Budget, UnitOfPrivacy};

pub use crate::checkpoint::Checkpointer;
pub use crate::clipping::{Clipping, FlatClipping, QuantileClipping};
pub use crate::error::DpError;
pub use crate::losses::{BinaryCrossEntropyLossConfig, CrossEntropyLossConfig, MseLossConfig};
pub use crate::nn::{IntoPrivate, Private};
pub use crate::optim::{
    DpOptimizer, PrivacyPlan, PrivacyPlanConfig, PublicSchedule, SamplingScheme, WeightAverage,
};
pub use crate::sampling::{Distinct, LogicalBatch, PhysicalBatch, PrivateDataLoaderBuilder};
#[cfg(feature = "train")]
pub use crate::train::{PrivateTrainStep, PrivateTrainingConfig};
