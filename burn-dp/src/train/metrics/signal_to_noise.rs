use std::sync::Arc;

use burn::train::metric::MetricName;

use super::last_value::{LastValue, last_value_metric};
use crate::train::StepRelease;

/// Estimate of the norm of the clipped sum over that of the noise on it; 0 where the noise hides it.
///
/// # Privacy
///
/// Post-processing of the released gradient: its squared norm less the known variance of the noise.
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
