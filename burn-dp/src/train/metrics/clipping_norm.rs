use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use super::last_value::LastValue;
use crate::train::StepRelease;

/// The largest norm that a unit contributed to the last step.
///
/// # Privacy
///
/// Public: it is a constant, or follows from noisy counts that are in the ledger.
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

impl Metric for ClippingNormMetric {
    type Input = Option<Arc<StepRelease>>;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn description(&self) -> Option<String> {
        Some("Largest norm that a unit contributes. Public.".into())
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: None, higher_is_better: false }.into()
    }

    fn update(
        &mut self,
        item: &Self::Input,
        _: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.last.update(item.as_ref().map(|release| release.clipping_norm())))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.last.compute())
    }

    /// The last value stays: it does not belong to an epoch.
    fn clear(&mut self) {}
}

impl Numeric for ClippingNormMetric {
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
