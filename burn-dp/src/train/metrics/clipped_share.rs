use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use super::last_value::LastValue;
use crate::NonPrivate;
use crate::clipping::ClippingStatistics;

/// The exact share of the units of the last step whose gradient was clipped.
///
/// # Privacy
///
/// None: the counts have no noise. For eyes that may see the data; do not publish it, or what Burn's
/// loggers store of it.
#[derive(Clone, Debug)]
pub struct ClippedShareMetric {
    name: MetricName,
    last: LastValue,
}

impl ClippedShareMetric {
    pub(in crate::train) fn new() -> Self {
        Self { name: Arc::new("Clipped share (not private)".into()), last: LastValue::default() }
    }
}

impl Metric for ClippedShareMetric {
    type Input = NonPrivate<Option<ClippingStatistics>>;

    fn name(&self) -> MetricName {
        self.name.clone()
    }

    fn description(&self) -> Option<String> {
        Some("Exact counts of the batch. Must not be published.".into())
    }

    fn attributes(&self) -> MetricAttributes {
        NumericAttributes { unit: None, higher_is_better: false }.into()
    }

    fn update(
        &mut self,
        item: &Self::Input,
        _: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        let statistics = item.reveal();
        Ok(self.last.update(statistics.map(|statistics| statistics.clipped_share())))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.last.compute())
    }

    /// The last value stays: it does not belong to an epoch.
    fn clear(&mut self) {}
}

impl Numeric for ClippedShareMetric {
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
