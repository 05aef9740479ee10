use std::sync::Arc;

use burn::train::metric::MetricName;

use super::last_value::{LastValue, last_value_metric};
use crate::train::StepRelease;

/// An estimate of the ratio of the norm of the clipped sum to the norm of its noise; 0 if the noise
/// hides the sum.
///
/// # Privacy
///
/// Post-processing of the released gradient: its squared norm minus the known variance of the
/// noise.
#[derive(Clone, Debug)]
pub struct SignalToNoiseMetric {
    name: MetricName,
    last: LastValue,
}

impl SignalToNoiseMetric {
    pub(in crate::train) fn new() -> Self {
        Self { name: Arc::new("Signal to noise".into()), last: LastValue::default() }
    }
}

last_value_metric!(
    SignalToNoiseMetric,
    Option<Arc<StepRelease>>,
    "Estimated from the noisy gradient alone. Post-processing.",
    higher_is_better: true,
    |_this, item| item.as_ref().and_then(|release| release.signal_to_noise())
);
