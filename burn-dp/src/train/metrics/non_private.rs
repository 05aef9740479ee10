use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericEntry, SerializedEntry,
};

use crate::NonPrivate;

/// A Burn metric on the training batches, such as their loss; created by
/// [`PrivateTraining::non_private_metric`](crate::train::PrivateTraining::non_private_metric).
///
/// A step updates it once for every physical batch, or for every output that the updates of its
/// units return; a step with an empty batch does not change it.
///
/// # Privacy
///
/// None: it is computed from private data without noise. Show it only to people who may see the
/// data; do not publish it, or the files in which Burn's loggers store it.
#[derive(Clone, Debug)]
pub struct NonPrivateMetric<Me> {
    metric: Me,
    seen: bool,
}

impl<Me> NonPrivateMetric<Me> {
    pub(in crate::train) fn new(metric: Me) -> Self {
        Self { metric, seen: false }
    }
}

impl<Me: Metric> Metric for NonPrivateMetric<Me> {
    type Input = NonPrivate<Vec<Me::Input>>;

    fn name(&self) -> MetricName {
        Arc::new(format!("{} (not private)", self.metric.name()))
    }

    fn description(&self) -> Option<String> {
        let described = self.metric.description().unwrap_or_default();
        Some(format!(
            "{described} Computed from private data without noise; must not be published."
        ))
    }

    fn attributes(&self) -> MetricAttributes {
        self.metric.attributes()
    }

    fn update(
        &mut self,
        item: &Self::Input,
        metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        let mut entry = SerializedEntry::not_available(None);
        for input in item.look() {
            entry = self.metric.update(input, metadata)?;
            self.seen = true;
        }
        Ok(entry)
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        match self.seen {
            true => self.metric.compute(),
            false => Ok(SerializedEntry::not_available(None)),
        }
    }

    fn clear(&mut self) {
        self.metric.clear();
        self.seen = false;
    }
}

impl<Me: Metric + Numeric> Numeric for NonPrivateMetric<Me> {
    fn value(&self) -> Option<NumericEntry> {
        self.seen.then(|| self.metric.value()).flatten()
    }

    fn running_value(&self) -> Option<NumericEntry> {
        self.seen.then(|| self.metric.running_value()).flatten()
    }

    fn final_value(&self) -> NumericEntry {
        self.metric.final_value()
    }
}
