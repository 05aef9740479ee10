use std::sync::Arc;

use burn::train::metric::MetricName;

use super::last_value::{LastValue, last_value_metric};
use crate::train::StepRelease;

/// The largest norm that a unit contributed to the last step.
///
/// # Privacy
///
/// Public: a constant, or computed from noisy counts that are in the ledger.
#[derive(Clone, Debug)]
pub struct ClippingNormMetric {
    name: MetricName,
    last: LastValue,
}

impl ClippingNormMetric {
    pub(in crate::train) fn new() -> Self {
        Self { name: Arc::new("Clipping norm".into()), last: LastValue::default() }
    }
}

last_value_metric!(
    ClippingNormMetric,
    Option<Arc<StepRelease>>,
    "Largest norm that a unit contributes. Public.",
    higher_is_better: false,
    |_this, item| item.as_ref().map(|release| release.clipping_norm())
);
