//! The learning rate of each step.

use clap::ValueEnum;

/// How the learning rate changes over the training. It does not depend on private data.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleName {
    /// The same in every step.
    Constant,
    /// Falls linearly to zero after the last step, so that the noise of late steps has less weight.
    Linear,
}

impl ScheduleName {
    /// Returns the factor of the learning rate in this step, counted from 0.
    pub(super) fn factor(self, step: usize, steps: usize) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Linear => steps.saturating_sub(step) as f64 / steps as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linear_schedule_falls_from_one_and_stays_above_zero() {
        let factors: Vec<_> = (0..4).map(|step| ScheduleName::Linear.factor(step, 4)).collect();
        assert_eq!(factors, [1.0, 0.75, 0.5, 0.25]);
        assert_eq!(ScheduleName::Constant.factor(3, 4), 1.0);
    }
}
