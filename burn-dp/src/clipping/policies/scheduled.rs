use super::config::{ClippingConfig, Settings};
use super::policy::{Clipping, Seal};
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

    fn schedules(&self) -> Vec<&Schedule> {
        self.clipping.schedules().into_iter().chain([&self.schedule]).collect()
    }

    fn to_config(&self, seal: Seal) -> Option<ClippingConfig> {
        let policy = Box::new(self.clipping.to_config(seal)?.0);
        let schedule = self.schedule.clone();
        Some(ClippingConfig(Settings::Scheduled { policy, schedule }))
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

    use super::super::public_norms::of_drawings;
    use super::*;
    use crate::clipping::{
        CountNoise, FlatClipping, LayerwiseClipping, QuantileClipping, QuantileTracker,
    };
    use crate::model::groups::three_groups;

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

    #[test]
    fn everything_but_the_thresholds_is_that_of_the_policy() {
        let adaptive = || QuantileClipping::new(0.5).unwrap();
        let policies: [Box<dyn Clipping>; 2] = [
            Box::new(adaptive()),
            Box::new(
                QuantileTracker::new(three_groups(), [0.5]).unwrap().with_clipping(
                    LayerwiseClipping::enhanced(
                        0.2,
                        &of_drawings(three_groups(), vec![1.0, 4.0, 2.0]),
                    )
                    .unwrap(),
                    CountNoise::default(),
                ),
            ),
        ];
        let norms = of_drawings(three_groups(), vec![2.0, 1.0, 1.0]);
        for (mut policy, by_norms) in policies.into_iter().zip([false, true]) {
            let schedule = Schedule::steps([(1, 0.25)]).unwrap();
            let mut scheduled = ScheduledClipping::new(policy.clone_clipping(), schedule);
            let counts = policy.thresholds(0).unwrap().counts().len();
            for fractions in [vec![0.1; counts], vec![0.9; counts]] {
                policy.update(1, &fractions);
                scheduled.update(1, &fractions);
                let expected = policy.thresholds(1).unwrap();
                let found = scheduled.thresholds(1).unwrap();
                for (found, expected) in found.norms().iter().zip(expected.norms()) {
                    assert!((found / expected - 0.25).abs() < 1e-15, "{found} {expected}");
                }
                assert_eq!(scheduled.adapted(), policy.adapted());
            }
            assert!(!policy.adapted().is_empty());
            assert_eq!(scheduled.public_data(), policy.public_data());
            assert_eq!(
                policy.public_data(),
                if by_norms { vec![norms.public_data()] } else { Vec::new() }
            );
            let described = scheduled.describe();
            assert!(described.starts_with(&policy.describe()), "{described}");
            assert!(described.contains("times a schedule"), "{described}");

            let mut loaded = scheduled.clone();
            loaded.update(1, &vec![0.2; counts]);
            assert_ne!(loaded.adapted(), scheduled.adapted());
            loaded.load_state(&scheduled.save_state()).unwrap();
            assert_eq!(loaded.adapted(), scheduled.adapted());

            assert_eq!(scheduled.set_public_norms(&norms).is_ok(), by_norms);
            if by_norms {
                assert_eq!(scheduled.thresholds(0).unwrap().norms(), [0.2, 0.1, 0.1]);
            }
        }
    }
}
