use std::sync::{Arc, Weak};

use burn::train::metric::MetricName;
use burn_dp_accountant::{AccountantError, DpEvent, Epsilon, PrivacyLedger};

use super::last_value::{LastValue, last_value_metric};
use crate::train::StepRelease;
use crate::train::session::Session;

/// The ε of everything that was released so far, at one δ: an upper bound, as in the statement.
///
/// The accountant takes milliseconds, so ε is computed for a block of steps at a time, with twenty
/// blocks per epoch unless [`with_interval`](Self::with_interval) changes it. The value within a
/// block is ε at its end, or after the last of its steps that the budget allows: never less than
/// the privacy spent so far, and never more than these steps spend (with a noise schedule: than if
/// its noise did not change in the block). At the end of an epoch, and
/// whenever the training ends, it is the ε of the ledger; a process that is killed within a block
/// leaves the ε of the block behind.
///
/// # Privacy
///
/// Public: the ledger depends only on the plan.
#[derive(Clone, Debug)]
pub struct EpsilonMetric {
    name: MetricName,
    last: LastValue,
    delta: f64,
    interval: u64,
    /// The number of releases at the end of the block that the last value is for, and the number of
    /// different releases before it.
    block_end: Option<(u64, usize)>,
    /// The ledger that the last value is for. The rest of a block may turn out different.
    shown: Option<PrivacyLedger>,
    /// The last step, until the end of its epoch.
    seen: Option<Arc<StepRelease>>,
    /// Weak, so that the dashboard does not keep the run and its log open.
    session: Weak<Session>,
}

impl EpsilonMetric {
    pub(in crate::train) fn new(delta: f64, steps_per_epoch: u64, session: Weak<Session>) -> Self {
        Self {
            name: Arc::new(format!("Epsilon (delta {delta:e})")),
            last: LastValue::default(),
            delta,
            interval: (steps_per_epoch / 20).max(1),
            block_end: None,
            shown: None,
            seen: None,
            session,
        }
    }

    /// Computes ε every `steps` steps; 1 for every step.
    ///
    /// # Panics
    ///
    /// Panics if `steps` is zero.
    pub fn with_interval(mut self, steps: u64) -> Self {
        assert!(steps > 0, "steps must be at least 1, got 0");
        self.interval = steps;
        self
    }

    /// Returns an upper bound for the ledger of a step, exact at the end of a block; `None` if it
    /// equals the bound of the previous step.
    fn epsilon(&mut self, release: &Arc<StepRelease>) -> Option<f64> {
        self.seen = Some(release.clone());
        let (events, releases) = (release.events(), release.releases());
        // Only equal steps are known in advance.
        let end = match events.len() {
            1 => release.end_of_block(self.interval).max(releases),
            _ => releases,
        };
        if self.block_end == Some((end, events.len())) {
            return None;
        }
        self.block_end = Some((end, events.len()));
        let (event, count) = events.last()?;
        // With correlated noise, the next step continues the run of the last ones.
        let next = event.advanced(*count);
        self.shown = None;
        Some(match ledger_at(release, &next, end - releases) {
            Ok(ledger) => self.show(ledger),
            Err(error) => upper(Err(error)),
        })
    }

    /// Returns the ε of a ledger, and remembers the ledger.
    fn show(&mut self, ledger: PrivacyLedger) -> f64 {
        let epsilon = upper(ledger.epsilon(self.delta));
        self.shown = Some(ledger);
        epsilon
    }

    /// Returns the ε of the ledger at the end of an epoch, where some steps of the last block may
    /// not have run.
    fn settled(&mut self) -> Option<f64> {
        // An error after the last step may have left a release in the ledger that no step reported.
        let ended = self.session.upgrade().and_then(|session| session.final_ledger());
        let seen = self.seen.take();
        let (ledger, releases) = match ended {
            Some(ended) => ended,
            None => {
                let seen = seen?;
                match seen.ledger() {
                    Ok(ledger) => (ledger, seen.releases()),
                    Err(error) => return Some(upper(Err(error))),
                }
            }
        };
        let is_shown = self.shown.as_ref().is_some_and(|shown| shown.entries() == ledger.entries());
        if releases == 0 || is_shown {
            return None;
        }
        Some(self.show(ledger))
    }
}

/// Returns the ledger after up to `steps` more steps of `event`: as many as the budget allows.
fn ledger_at(
    release: &StepRelease,
    event: &DpEvent,
    mut steps: u64,
) -> Result<PrivacyLedger, AccountantError> {
    let mut ledger = release.ledger()?;
    if let Some(budget) = release.budget()
        && steps > 0
        && ledger.epsilon_after(event, steps, budget.delta())?.upper > budget.epsilon()
    {
        steps = steps.min(ledger.max_steps(event, budget.epsilon(), budget.delta())?);
    }
    ledger.record_many(event, steps)?;
    Ok(ledger)
}

fn upper(epsilon: Result<Epsilon, AccountantError>) -> f64 {
    match epsilon {
        Ok(epsilon) => epsilon.upper,
        Err(error) => {
            log::error!("epsilon cannot be computed: {error}");
            f64::INFINITY
        }
    }
}

last_value_metric!(
    EpsilonMetric,
    Option<Arc<StepRelease>>,
    "Upper bound of what was spent so far. Public.",
    higher_is_better: false,
    |this, item| item.as_ref().and_then(|release| this.epsilon(release)),
    at_end: |this| this.settled()
);
