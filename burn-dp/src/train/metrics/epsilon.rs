use std::sync::Arc;

use burn::train::metric::MetricName;

use super::last_value::{LastValue, last_value_metric};
use crate::train::StepRelease;

/// ε of everything that was released so far, at one δ: an upper bound, as in the statement.
///
/// The accountant takes milliseconds, so it is asked for a block of steps at a time, twenty in an epoch
/// unless [`with_interval`](Self::with_interval) says otherwise. What is shown within a block is ε at its
/// end, so never less than what was spent; after the last step of an epoch it is the ε of the ledger.
///
/// # Privacy
///
/// Public: the ledger depends on the plan alone.
#[derive(Clone, Debug)]
pub struct EpsilonMetric {
    name: MetricName,
    last: LastValue,
    delta: f64,
    interval: u64,
    /// The number of releases that the last value is for.
    known: Option<u64>,
}

impl EpsilonMetric {
    pub(in crate::train) fn new(delta: f64, steps_per_epoch: u64) -> Self {
        Self {
            name: Arc::new(format!("Epsilon (delta {delta:e})")),
            last: LastValue::default(),
            delta,
            interval: (steps_per_epoch / 20).max(1),
            known: None,
        }
    }

    /// Asks the accountant every so many steps; 1 for every step.
    ///
    /// # Panics
    ///
    /// Panics if `steps` is zero.
    pub fn with_interval(mut self, steps: u64) -> Self {
        assert!(steps > 0, "steps must be at least 1, got 0");
        self.interval = steps;
        self
    }

    /// An upper bound for the ledger of a step, exact at the end of a block. `None` if it is known.
    fn epsilon(&mut self, release: &StepRelease) -> Option<f64> {
        let (ledger, releases) = (release.ledger(), release.ledger().releases());
        // Only equal steps can be told in advance.
        let end = match ledger.entries() {
            [_] => release.end_of_block(self.interval).max(releases),
            _ => releases,
        };
        if self.known == Some(end) {
            return None;
        }
        let mut ahead = ledger.clone();
        let event = &ledger.entries().last()?.event;
        let epsilon =
            ahead.record_many(event, end - releases).and_then(|()| ahead.epsilon(self.delta));
        self.known = Some(end);
        Some(match epsilon {
            Ok(epsilon) => epsilon.upper,
            Err(error) => {
                log::error!("epsilon is not known: {error}");
                f64::INFINITY
            }
        })
    }
}

last_value_metric!(
    EpsilonMetric,
    Option<Arc<StepRelease>>,
    "Upper bound of what was spent so far. Public.",
    higher_is_better: false,
    |this, item| item.as_ref().and_then(|release| this.epsilon(release))
);
