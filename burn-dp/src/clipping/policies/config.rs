//! The settings of the built-in policies, as data. This file names no policy, so that the policies
//! can return their settings.

use serde::{Deserialize, Serialize};

use super::quantile_estimate::EstimateUpdates;
use super::saved_groups::SavedGroups;
use crate::clipping::thresholds::{CountNoise, NoiseSplit};
use crate::schedule::Schedule;

/// The settings of a built-in clipping policy, as data.
///
/// A saved [`PrivacyPlanConfig`](crate::optim::PrivacyPlanConfig) contains it, and
/// [`init`](Self::init) creates the policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClippingConfig(pub(super) Settings);

/// One variant for each policy. `init` passes them to the constructors, which check them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Settings {
    Flat {
        max_grad_norm: f64,
    },
    Automatic {
        norm: f64,
        stability: f64,
    },
    Grouped {
        groups: SavedGroups,
        norms: Vec<f64>,
        noise_split: NoiseSplit,
    },
    Layerwise {
        groups: SavedGroups,
        public_data: String,
        master: Option<f64>,
        schedule: Schedule,
        noise_split: NoiseSplit,
        norms: Vec<f64>,
    },
    Multiplied {
        groups: SavedGroups,
        /// `None` if the multipliers were given.
        public_data: Option<String>,
        max_grad_norm: f64,
        multipliers: Vec<f64>,
    },
    Quantile {
        target: f64,
        by_slack: bool,
        groups: Option<SavedGroups>,
        initial: f64,
        floor: Option<f64>,
        updates: EstimateUpdates,
        count_noise: CountNoise,
        noise_split: NoiseSplit,
    },
    Scheduled {
        policy: Box<Settings>,
        schedule: Schedule,
    },
    Tracker {
        groups: SavedGroups,
        quantiles: Vec<f64>,
        with_means: bool,
        initial: f64,
        updates: EstimateUpdates,
        policy: Option<(Box<Settings>, CountNoise)>,
    },
    /// A policy that moved from where it started.
    Adapted {
        policy: Box<Settings>,
        state: serde_json::Value,
    },
}
