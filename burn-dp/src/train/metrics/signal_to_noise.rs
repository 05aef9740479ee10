use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use super::last_value::LastValue;
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

impl Metric for SignalToNoiseMetric {
    type Input = Option<Arc<StepRelease>>;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn description(&self) -> Option<String> {
        Some("Estimated from the noisy gradient alone. Post-processing.".into())
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: None, higher_is_better: true }.into()
    }

    fn update(
        &mut self,
        item: &Self::Input,
        _: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.last.update(item.as_ref().and_then(|release| release.signal_to_noise())))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.last.compute())
    }

    /// The last value stays: it does not belong to an epoch.
    fn clear(&mut self) {}
}

impl Numeric for SignalToNoiseMetric {
    fn value(&self) -> Option<NumericEntry> {
        self.last.value()
    }

    fn running_value(&self) -> Option<NumericEntry> {
        self.last.value()
    }

    fn final_value(&self) -> NumericEntry {
        self.last.final_value()
    }
}
