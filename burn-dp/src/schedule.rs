//! Values that follow a schedule over the steps of a run.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::DpError;
use crate::error::positive;

/// Maximum number of pieces of a schedule: the accountant analyzes each distinct factor.
const MAX_RUNS: usize = 100_000;

/// Maximum number of steps at which a function is evaluated.
const MAX_EVALUATIONS: u64 = 10_000_000;

/// How a threshold or the noise changes over the steps: one factor for each step.
///
/// # Privacy
///
/// A schedule is public. It is fixed before the training, and readers of the statement can
/// recompute it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Kind", into = "Kind")]
pub struct Schedule {
    kind: Kind,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Kind {
    Constant,
    Exponential {
        decay: f64,
        every: u64,
    },
    Steps(Vec<(u64, f64)>),
    #[serde(skip_deserializing, serialize_with = "refuse_function")]
    Function {
        name: String,
        factor: Arc<dyn Fn(u64) -> f64 + Send + Sync>,
    },
}

/// A function is not data.
fn refuse_function<S: Serializer>(
    name: &str,
    _: &Arc<dyn Fn(u64) -> f64 + Send + Sync>,
    _: S,
) -> Result<S::Ok, S::Error> {
    Err(serde::ser::Error::custom(format!(
        "the schedule {name} is a function, which cannot be saved; use `Schedule::steps`, or set \
         it after loading"
    )))
}

impl Schedule {
    /// Creates a schedule with the factor 1 in every step.
    pub fn constant() -> Self {
        Self { kind: Kind::Constant }
    }

    /// Creates a schedule with the factor `decay^k` after k times `every` steps. If `every` is the
    /// number of steps in an epoch, this is the decay per epoch of the papers.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `decay` is not positive and finite, or if `every` is
    /// zero.
    pub fn exponential(decay: f64, every: u64) -> Result<Self, DpError> {
        positive("decay", decay)?;
        if every == 0 {
            return Err(DpError::invalid("every", "must be at least 1, got 0"));
        }
        Ok(Self { kind: Kind::Exponential { decay, every } })
    }

    /// Creates a schedule from pairs of a step and the factor that applies from this step on.
    /// Before the first of them, the factor is 1.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the steps do not increase, or if a factor is not
    /// positive and finite.
    pub fn steps(factors: impl Into<Vec<(u64, f64)>>) -> Result<Self, DpError> {
        let factors = factors.into();
        factors.iter().try_for_each(|&(_, factor)| positive("factors", factor))?;
        if let Some(pair) = factors.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            let reason =
                format!("must have increasing steps, got {} after {}", pair[1].0, pair[0].0);
            return Err(DpError::invalid("factors", reason));
        }
        Ok(Self { kind: Kind::Steps(factors) })
    }

    /// Creates a schedule from a function of the step. The name represents it in statements and
    /// checkpoints, so different functions need different names.
    ///
    /// For the noise, the accountant analyzes each distinct factor separately. Choose a function
    /// that changes once per epoch. A plan evaluates it at every step; for more than 10 million
    /// steps, use [`steps`](Self::steps).
    ///
    /// # Privacy
    ///
    /// The factor must follow from the step and from public values alone. The statement says that
    /// this was not checked.
    pub fn function(
        name: impl Into<String>,
        factor: impl Fn(u64) -> f64 + Send + Sync + 'static,
    ) -> Self {
        Self { kind: Kind::Function { name: name.into(), factor: Arc::new(factor) } }
    }

    /// Returns the factor of a step, counted from 0.
    pub fn factor(&self, step: u64) -> f64 {
        match &self.kind {
            Kind::Constant => 1.0,
            Kind::Exponential { decay, every } => {
                decay.powi(i32::try_from(step / every).unwrap_or(i32::MAX))
            }
            Kind::Steps(factors) => {
                let passed = factors.partition_point(|&(from, _)| from <= step);
                passed.checked_sub(1).map_or(1.0, |last| factors[last].1)
            }
            Kind::Function { factor, .. } => factor(step),
        }
    }

    /// Returns the factors of the first `steps` steps, run-length encoded as factor and count. Time
    /// and memory depend on the number of pieces, not of steps.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a factor is not positive and finite, if there are
    /// more pieces than an accountant can analyze, or more steps than a function can be evaluated
    /// at.
    pub(crate) fn runs(&self, steps: u64) -> Result<Vec<(f64, u64)>, DpError> {
        let refuse = |reason| Err(DpError::invalid("noise_schedule", reason));
        if matches!(self.kind, Kind::Function { .. }) && steps > MAX_EVALUATIONS {
            return refuse(format!(
                "is a function, which can be evaluated at {MAX_EVALUATIONS} steps, got {steps}; \
                 use `Schedule::steps` or `Schedule::exponential`"
            ));
        }
        let mut runs: Vec<(f64, u64)> = Vec::new();
        let mut step = 0;
        while step < steps {
            let end = self.end_of_run(step).min(steps);
            let factor = self.factor(step);
            positive("noise_schedule", factor)?;
            let full = runs.len() == MAX_RUNS;
            match runs.last_mut() {
                Some(last) if last.0 == factor => last.1 += end - step,
                _ if full => {
                    return refuse(format!(
                        "({self}) has more than {MAX_RUNS} different factors in {steps} steps, \
                         each of which the accountant analyzes; let it change less often"
                    ));
                }
                _ => runs.push((factor, end - step)),
            }
            step = end;
        }
        Ok(runs)
    }

    /// Returns the steps, among the first `steps`, in which the product of `schedules` is smallest
    /// and largest, up to one change of each exponential schedule. A factor that is not a number is
    /// the largest. Functions are evaluated at the first 10 million steps and at the last one.
    pub(crate) fn extremes(schedules: &[&Self], steps: u64) -> [u64; 2] {
        let factor = |step: &u64| -> f64 {
            let factor = schedules.iter().map(|schedule| schedule.factor(*step)).product::<f64>();
            // The sign of what is not a number is not defined.
            if factor.is_nan() { f64::NAN } else { factor }
        };
        let last = steps.saturating_sub(1);
        let is_function = |one: &&&Self| matches!(one.kind, Kind::Function { .. });
        let every = schedules.iter().find(is_function).map(|_| 0..steps.min(MAX_EVALUATIONS));
        // Between the changes of the others, the product is an exponential.
        let changes = schedules.iter().flat_map(|schedule| match &schedule.kind {
            Kind::Steps(factors) => factors.as_slice(),
            _ => &[],
        });
        let changes = changes.flat_map(|&(from, _)| [from.saturating_sub(1), from]);
        let some = changes.filter(|&step| step < last).chain([0, last]);
        let candidates = || some.clone().chain(every.clone().into_iter().flatten());
        let by_factor = |a: &u64, b: &u64| factor(a).total_cmp(&factor(b));
        [candidates().min_by(by_factor), candidates().max_by(by_factor)]
            .map(|step| step.unwrap_or(last))
    }

    /// Returns the first step after `step` that may have another factor.
    fn end_of_run(&self, step: u64) -> u64 {
        match &self.kind {
            Kind::Constant => u64::MAX,
            Kind::Exponential { decay, .. } if *decay == 1.0 => u64::MAX,
            Kind::Exponential { every, .. } => (step / every + 1).saturating_mul(*every),
            Kind::Steps(factors) => {
                let next = factors.partition_point(|&(from, _)| from <= step);
                factors.get(next).map_or(u64::MAX, |&(from, _)| from)
            }
            Kind::Function { .. } => step + 1,
        }
    }
}

/// Checks a schedule that was read.
impl TryFrom<Kind> for Schedule {
    type Error = DpError;

    fn try_from(kind: Kind) -> Result<Self, DpError> {
        match kind {
            Kind::Exponential { decay, every } => Self::exponential(decay, every),
            Kind::Steps(factors) => Self::steps(factors),
            kind => Ok(Self { kind }),
        }
    }
}

impl From<Schedule> for Kind {
    fn from(schedule: Schedule) -> Self {
        schedule.kind
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self::constant()
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Constant => f.write_str("constant"),
            Kind::Exponential { decay, every } => write!(f, "times {decay} every {every} steps"),
            Kind::Steps(factors) => {
                f.write_str("1")?;
                factors
                    .iter()
                    .try_for_each(|(from, factor)| write!(f, ", {factor} from step {from}"))
            }
            Kind::Function { name, .. } => f.write_str(name),
        }
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn runs_repeat_the_factors_step_by_step() {
        for (schedule, runs) in [
            (Schedule::constant(), 1),
            (Schedule::exponential(0.5, 4).unwrap(), 3),
            (Schedule::steps([(3, 2.0), (7, 0.5)]).unwrap(), 3),
            (Schedule::function("two halves", |step| if step < 5 { 1.0 } else { 0.25 }), 2),
        ] {
            let found = schedule.runs(10).unwrap();
            assert_eq!(found.len(), runs, "{schedule}");
            let steps: Vec<f64> = found
                .into_iter()
                .flat_map(|(factor, count)| std::iter::repeat_n(factor, count as usize))
                .collect();
            let expected: Vec<f64> = (0..10).map(|step| schedule.factor(step)).collect();
            assert_eq!(steps, expected, "{schedule}");
        }
    }

    #[test]
    fn a_billion_steps_are_as_many_runs_as_there_are_factors() {
        let steps = 1_000_000_000;
        for (schedule, runs) in [
            (Schedule::constant(), 1),
            (Schedule::exponential(0.5, steps / 4).unwrap(), 4),
            (Schedule::steps([(3, 2.0), (steps / 2, 0.5), (2 * steps, 9.0)]).unwrap(), 3),
        ] {
            let found = schedule.runs(steps).unwrap();
            assert_eq!(found.len(), runs, "{schedule}");
            assert_eq!(found.iter().map(|run| run.1).sum::<u64>(), steps);
        }
        assert_eq!(Schedule::exponential(1.0, 1).unwrap().runs(u64::MAX).unwrap().len(), 1);
        // It becomes zero after 1,075 of the 10^15 pieces in the plan.
        let error = Schedule::exponential(0.5, 10).unwrap().runs(u64::MAX / 1000).unwrap_err();
        assert!(error.to_string().contains("must be positive and finite, got 0"), "{error}");
        let error = Schedule::exponential(1.0 - 1e-9, 1).unwrap().runs(steps).unwrap_err();
        assert!(error.to_string().contains("more than 100000 different factors"), "{error}");
        let error = Schedule::function("one", |_| 1.0).runs(steps).unwrap_err().to_string();
        assert!(error.contains("evaluated at 10000000 steps, got 1000000000"), "{error}");
    }

    #[test]
    fn extremes_are_the_steps_with_the_smallest_and_the_largest_product() {
        let restarts = Schedule::function("restarts", |step| 2.0 - (step % 50) as f64 / 49.0);
        let exponential = |decay, every| Schedule::exponential(decay, every).unwrap();
        let steps = Schedule::steps([(10, 4.0), (30, 0.25), (31, 1.0), (500, 9.0)]).unwrap();
        let constant = Schedule::constant();
        let [down, up] = [exponential(0.99, 3), exponential(1.01, 7)];
        for schedules in [
            vec![],
            vec![&constant],
            vec![&down],
            vec![&up, &down],
            vec![&steps],
            vec![&steps, &up],
            vec![&down, &steps, &up],
            vec![&restarts],
            vec![&restarts, &up, &steps],
        ] {
            let factor = |step| schedules.iter().map(|one| one.factor(step)).product::<f64>();
            let factors: Vec<f64> = (0..120).map(factor).collect();
            let [low, high] = Schedule::extremes(&schedules, 120).map(factor);
            let least = factors.iter().copied().fold(f64::INFINITY, f64::min);
            let most = factors.iter().copied().fold(0.0, f64::max);
            // Two exponentials that change in different steps can differ by one change of each.
            assert!(low <= 1.021 * least && high >= most / 1.021, "{schedules:?}");
            let exact = schedules.len() < 2 || schedules.contains(&&restarts);
            assert!(!exact || (low, high) == (least, most), "{schedules:?}");
        }
        let unknown = Schedule::function("root", |step| (4.0 - step as f64).sqrt());
        assert!(unknown.factor(Schedule::extremes(&[&unknown], 9)[1]).is_nan());
        // Also of more steps than can be looked at.
        let [low, high] = Schedule::extremes(&[&down, &steps], u64::MAX);
        assert_eq!((down.factor(low) * steps.factor(low), high), (0.0, 10));
    }

    #[test]
    fn exponential_schedule_decays_once_per_interval() {
        let schedule = Schedule::exponential(0.9, 10).unwrap();
        assert_eq!(schedule.factor(9), 1.0);
        assert_eq!(schedule.factor(10), 0.9);
        assert!((schedule.factor(25) - 0.81).abs() < 1e-15);
    }

    #[test]
    fn invalid_schedules_are_refused() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Schedule::exponential(factor, 1).is_err());
            assert!(Schedule::steps([(1, factor)]).is_err());
        }
        assert!(Schedule::exponential(0.5, 0).is_err());
        assert!(Schedule::steps([(5, 1.0), (5, 2.0)]).is_err());
    }
}
