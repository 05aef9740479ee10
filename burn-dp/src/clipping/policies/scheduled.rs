use super::policy::Clipping;
use super::public_norms::PublicNorms;
use crate::DpError;
use crate::clipping::thresholds::Thresholds;
use crate::schedule::Schedule;

/// Multiplies the thresholds of another policy by a factor that changes over the steps.
///
/// # Privacy
///
/// The noise follows the thresholds of each step, so every step costs the same. The counts of the
/// other policy keep their own thresholds.
///
/// # Example
///
/// ```
/// use burn_dp::clipping::{Clipping, FlatClipping, ScheduledClipping};
/// use burn_dp::schedule::Schedule;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let schedule = Schedule::exponential(0.5, 100)?;
/// let clipping = ScheduledClipping::new(FlatClipping::new(1.0)?, schedule);
/// assert_eq!(clipping.thresholds(100)?.norms(), [0.5]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ScheduledClipping {
    clipping: Box<dyn Clipping>,
    schedule: Schedule,
}

impl ScheduledClipping {
    /// Multiplies the thresholds of `clipping` by the factors of `schedule`.
    pub fn new(clipping: impl Clipping + 'static, schedule: Schedule) -> Self {
        Self { clipping: Box::new(clipping), schedule }
    }
}

impl Clipping for ScheduledClipping {
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
        self.clipping.thresholds(step)?.scaled(self.schedule.factor(step))
    }

    fn describe(&self) -> String {
        format!("{}; thresholds times a schedule: {}", self.clipping.describe(), self.schedule)
    }

    fn update(&mut self, step: u64, fractions: &[f64]) {
        self.clipping.update(step, fractions);
    }

    fn set_public_norms(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        self.clipping.set_public_norms(norms)
    }

    fn public_data(&self) -> Vec<String> {
        self.clipping.public_data()
    }

    fn adapted(&self) -> Vec<(String, f64)> {
        self.clipping.adapted()
    }

    fn save_state(&self) -> serde_json::Value {
        self.clipping.save_state()
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        self.clipping.load_state(state)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn_dp_accountant::DpEvent;

    use super::*;
    use crate::clipping::FlatClipping;

    // Sharp edge: a scheduler changes the threshold, and the noise follows.
    #[test]
    fn noise_follows_scheduled_thresholds() {
        let schedule = Schedule::steps([(2, 0.01), (3, 100.0)]).unwrap();
        let clipping = ScheduledClipping::new(FlatClipping::new(2.0).unwrap(), schedule);
        for (step, norm) in [(0, 2.0), (2, 0.02), (3, 200.0)] {
            let thresholds = clipping.thresholds(step).unwrap();
            let noise = thresholds.noise(1.5, 10.0).unwrap();
            assert!((noise.group_stds[0] / (1.5 * norm) - 1.0).abs() < 1e-14);
            assert_eq!(noise.event, DpEvent::gaussian(1.5));
        }
    }

    #[test]
    fn factor_of_nan_gives_no_thresholds() {
        let schedule = Schedule::function("bad", |_| f64::NAN);
        let clipping = ScheduledClipping::new(FlatClipping::new(2.0).unwrap(), schedule);
        assert!(clipping.thresholds(0).is_err());
    }
}
