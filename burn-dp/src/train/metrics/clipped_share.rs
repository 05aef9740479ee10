use std::sync::Arc;

use burn::train::metric::MetricName;

use super::last_value::{LastValue, last_value_metric};
use crate::NonPrivate;
use crate::clipping::ClippingStatistics;

/// The exact share of the units of the last step whose gradient was clipped.
///
/// # Privacy
///
/// None: the counts have no noise. Show it only to people who may see the data; do not publish it,
/// or the files in which Burn's loggers store it.
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

last_value_metric!(
    ClippedShareMetric,
    NonPrivate<Option<ClippingStatistics>>,
    "Exact counts of the batch. Must not be published.",
    higher_is_better: false,
    |_this, item| item.reveal().map(|statistics| statistics.clipped_share())
);
