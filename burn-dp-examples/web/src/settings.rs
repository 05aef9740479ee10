//! The user's settings, and the resulting plan.

use burn_dp::DpError;
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig};
use burn_dp_accountant::Budget;
use serde::{Deserialize, Serialize};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// The numbers of a run. The page stores them with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) epsilon: f64,
    pub(crate) delta: f64,
    pub(crate) batch_size: f64,
    pub(crate) epochs: f64,
    pub(crate) max_grad_norm: f64,
    pub(crate) learning_rate: f64,
}

impl Settings {
    pub(crate) fn parse(json: &str) -> Result<Self, JsError> {
        Ok(serde_json::from_str(json)?)
    }

    /// Returns the plan for a data set of this size.
    pub(crate) fn plan(&self, dataset_size: usize) -> Result<PrivacyPlan, DpError> {
        PrivacyPlanConfig::new(dataset_size, self.batch_size)
            .with_epochs(self.epochs)
            .with_budget(Budget::new(self.epsilon, self.delta)?)
            .with_max_grad_norm(self.max_grad_norm)
            .init()
    }
}

/// The parts of a plan that the page shows.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    dataset_size: usize,
    noise_multiplier: f64,
    sampling_probability: f64,
    steps: u64,
    epsilon_at_end: f64,
}

/// Returns the noise and the number of steps of a run with these settings, as JSON.
#[wasm_bindgen]
pub fn plan(settings: &str, dataset_size: usize) -> Result<String, JsError> {
    let settings = Settings::parse(settings)?;
    let plan = settings.plan(dataset_size)?;
    let shown = Shown {
        dataset_size,
        noise_multiplier: plan.noise_multiplier(),
        sampling_probability: plan.sampling_probability(),
        steps: plan.steps(),
        epsilon_at_end: plan.epsilon_at_end(settings.delta)?,
    };
    Ok(serde_json::to_string(&shown)?)
}
