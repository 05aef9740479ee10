//! The names that a private training loop needs.
//!
//! ```
//! use burn_dp::prelude::*;
//! ```
//!
//! | Step of the loop | Names |
//! |---|---|
//! | wrap the layers | [`Private`], [`IntoPrivate`] |
//! | compute one loss for each example | [`CrossEntropyLossConfig`] |
//! | plan the training within a budget | [`PrivacyPlanConfig`], [`PrivacyPlan`], [`Budget`] |
//! | choose how to clip | [`Clipping`], [`FlatClipping`], [`QuantileClipping`] |
//! | load the drawn units of a step | [`LogicalBatch`], [`PhysicalBatch`] |
//! | clip, add noise and update the model | [`DpOptimizer`] |
//! | save and resume the run | [`Checkpointer`] |
//! | handle errors | [`DpError`] |

pub use burn_dp_accountant::Budget;

pub use crate::checkpoint::Checkpointer;
pub use crate::clipping::{Clipping, FlatClipping, QuantileClipping};
pub use crate::error::DpError;
pub use crate::losses::CrossEntropyLossConfig;
pub use crate::nn::{IntoPrivate, Private};
pub use crate::optim::{DpOptimizer, PrivacyPlan, PrivacyPlanConfig};
pub use crate::sampling::{LogicalBatch, PhysicalBatch};
