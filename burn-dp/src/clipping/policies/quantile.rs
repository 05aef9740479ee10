use super::config::{ClippingConfig, Settings};
use super::policy::{Clipping, Seal};
use super::quantile_estimate::{EstimateUpdates, QuantileEstimate, QuantileRule, restore, save};
use crate::DpError;
use crate::clipping::thresholds::{Count, CountKind, CountNoise, NoiseSplit, Thresholds};
use crate::model::ParameterGroups;
use crate::schedule::Schedule;

/// Clips to a quantile of the norms, which is estimated privately while the model trains.
///
/// Each step also releases, with noise, how many of its units were not clipped. The threshold of
/// the next step moves so that eventually a fraction `target` of the units is not clipped.
/// With groups, each group has its own threshold and count.
///
/// # Privacy
///
/// Sum and counts are released from the same draw of units: a joint Gaussian release. Together they
/// cost as much as one release with the plan's noise multiplier z: the sum gets a little more
/// noise, `z_Δ = (z⁻² − K (2σ_b)⁻²)^(-1/2)` for K counts with noise σ_b. A count of bits shifted to
/// ±½ has sensitivity ½ if a unit is added or removed, and 1 if one is replaced. Thresholds depend
/// only on noisy counts, and stay the same within a step.
///
/// # Example
///
/// ```
/// use burn_dp::clipping::QuantileClipping;
/// use burn_dp::optim::PrivacyPlanConfig;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let plan = PrivacyPlanConfig::new(60_000, 1024.0)
///     .with_steps(500)
///     .with_noise_multiplier(1.0)
///     .with_clipping(QuantileClipping::new(0.5)?)
///     .init()?;
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// Andrew, Thakkar, McMahan, Ramaswamy, Differentially private learning with adaptive clipping,
/// 2021, algorithm 1 and theorem 1.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantileClipping {
    groups: Option<ParameterGroups>,
    estimates: Vec<QuantileEstimate>,
    /// As configured: the description of the policy must not change while it adapts.
    initial: Vec<f64>,
    /// As configured; if `None`, it is derived from the initial estimates.
    floor: Option<f64>,
    updates: EstimateUpdates,
    kind: CountKind,
    noise: CountNoise,
    split: NoiseSplit,
}

impl QuantileClipping {
    /// Creates flat clipping to the `target` of the norms. The threshold starts at 0.1 and
    /// moves by the geometric rule with learning rate 0.2.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the target is not between 0 and 1.
    pub fn new(target: f64) -> Result<Self, DpError> {
        let estimate = QuantileEstimate::new(target, 0.1)?;
        Ok(Self {
            groups: None,
            initial: vec![estimate.value()],
            estimates: vec![estimate],
            floor: None,
            updates: EstimateUpdates::default(),
            kind: CountKind::Indicator,
            noise: CountNoise::default(),
            split: NoiseSplit::default(),
        })
    }

    /// Creates flat clipping whose threshold moves until the mean slack of the units is
    /// `target`. The slack of a unit is `√(1 - (‖g‖/C)²)` below the threshold C, and 0 above:
    /// a larger target means a larger threshold. If half of the units are clipped and the other
    /// norms are uniform, the mean slack is 0.39.
    ///
    /// # Privacy
    ///
    /// The slack is released with the noise multiplier of the sum and costs nothing, because a unit
    /// with slack uses that much less of the sensitivity: see [`CountKind::Slack`]. It says nothing
    /// about how far clipped norms are above the threshold. Runs with correlated noise reject it,
    /// because its proof needs the same noise on both.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the target is not between 0 and 1.
    pub fn by_slack(target: f64) -> Result<Self, DpError> {
        let policy = Self::new(target)?;
        Ok(Self { kind: CountKind::Slack, noise: CountNoise::Free, ..policy })
    }

    /// Sets the threshold of the first step, in all groups. Default: 0.1.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the threshold is not positive and finite, or is
    /// below the floor.
    pub fn with_initial(mut self, initial: f64) -> Result<Self, DpError> {
        let mut estimate = QuantileEstimate::new(self.estimates[0].target(), initial)?;
        if let Some(floor) = self.floor {
            estimate = estimate.with_floor(floor)?;
        }
        self.estimates = vec![estimate; self.estimates.len()];
        self.initial = vec![initial; self.estimates.len()];
        Ok(self)
    }

    /// Clips each group to the quantile of its own norms.
    pub fn with_groups(mut self, groups: ParameterGroups) -> Self {
        self.estimates = vec![self.estimates[0].clone(); groups.len()];
        self.initial = vec![self.initial[0]; groups.len()];
        self.groups = Some(groups);
        self
    }

    /// Sets how the noise of the sum is divided among the groups. Default:
    /// [`NoiseSplit::Proportional`].
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a share is not positive and finite, or if there is
    /// not one for each group.
    pub fn with_noise_split(mut self, split: NoiseSplit) -> Result<Self, DpError> {
        self.split = split;
        self.thresholds(0)?;
        Ok(self)
    }

    /// Sets how the thresholds move. Default: [`QuantileRule::Geometric`].
    pub fn with_rule(mut self, rule: QuantileRule) -> Self {
        self.updates.rule = rule;
        self
    }

    /// Sets rule, learning rate and schedule of the thresholds.
    pub(super) fn with_updates(mut self, updates: EstimateUpdates) -> Result<Self, DpError> {
        self.updates = updates.checked()?;
        Ok(self)
    }

    /// Sets the learning rate η_C of the thresholds. Default: 0.2; 0 keeps the thresholds.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the learning rate is negative or not finite.
    pub fn with_learning_rate(mut self, learning_rate: f64) -> Result<Self, DpError> {
        self.updates = self.updates.with_learning_rate(learning_rate)?;
        Ok(self)
    }

    /// Sets how the learning rate of the thresholds changes over the steps. Default: constant.
    pub fn with_schedule(mut self, schedule: Schedule) -> Self {
        self.updates.schedule = schedule;
        self
    }

    /// Sets the smallest threshold. Default: a billionth of the initial one.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the floor is not positive, or is above the current
    /// thresholds.
    pub fn with_floor(mut self, floor: f64) -> Result<Self, DpError> {
        let floored = self.estimates.into_iter().map(|estimate| estimate.with_floor(floor));
        self.estimates = floored.collect::<Result<_, _>>()?;
        self.floor = Some(floor);
        Ok(self)
    }

    /// Sets the noise of the counts. Default: a standard deviation of 1/20 of the expected batch
    /// size.
    pub fn with_count_noise(mut self, noise: CountNoise) -> Self {
        self.noise = noise;
        self
    }
}

impl Clipping for QuantileClipping {
    fn thresholds(&self, _step: u64) -> Result<Thresholds, DpError> {
        let values: Vec<f64> = self.estimates.iter().map(QuantileEstimate::value).collect();
        let (thresholds, counts) = match &self.groups {
            None => {
                let count = Count::whole(values[0]).with_kind(self.kind);
                (Thresholds::whole(values[0])?, vec![count])
            }
            Some(groups) => {
                let counts = values.iter().enumerate();
                let counts = counts.map(|(group, &value)| Count::of_group(group, value)).collect();
                (Thresholds::per_group(groups.clone(), values, &self.split)?, counts)
            }
        };
        thresholds.with_counts(counts, self.noise)
    }

    fn describe(&self) -> String {
        let groups = self.groups.as_ref().map_or_else(
            || "flat".to_string(),
            |groups| format!("per group ({}; noise {})", groups.describe(), self.split),
        );
        let initial: Vec<_> = self.initial.iter().map(f64::to_string).collect();
        format!(
            "{groups}, to the {} {}; from {} by {}, at least {:e}; {}",
            self.estimates[0].target(),
            if self.kind == CountKind::Slack { "mean slack" } else { "quantile of the norms" },
            initial.join(", "),
            self.updates,
            self.estimates[0].floor(),
            self.noise,
        )
    }

    fn update(&mut self, step: u64, fractions: &[f64]) {
        self.updates.apply(&mut self.estimates, step, fractions);
    }

    fn adapted(&self) -> Vec<(String, f64)> {
        let whole = ParameterGroups::whole();
        let names = self.groups.as_ref().unwrap_or(&whole).names();
        names.iter().cloned().zip(self.estimates.iter().map(QuantileEstimate::value)).collect()
    }

    fn to_config(&self, _: Seal) -> Option<ClippingConfig> {
        Some(ClippingConfig(Settings::Quantile {
            target: self.estimates[0].target(),
            by_slack: self.kind == CountKind::Slack,
            groups: self.groups.as_ref().map(Into::into),
            initial: self.initial[0],
            floor: self.floor,
            updates: self.updates.clone(),
            count_noise: self.noise,
            noise_split: self.split.clone(),
        }))
    }

    fn save_state(&self) -> serde_json::Value {
        save(&self.estimates)
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        restore(&mut self.estimates, state)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn_dp_accountant::DpEvent;

    use super::*;
    use crate::model::groups::three_groups;

    // Sharp edge: slack is free only together with the clipped gradient that leaves it.
    #[test]
    fn slack_has_the_noise_of_the_sum_and_no_cost() {
        let mut policy = QuantileClipping::by_slack(0.3).unwrap().with_initial(2.0).unwrap();
        let thresholds = policy.thresholds(0).unwrap();
        let noise = thresholds.noise(0.8, 100.0).unwrap();
        assert_eq!((noise.event, noise.group_stds), (DpEvent::gaussian(0.8), vec![1.6]));
        let std = noise.count_std.unwrap();
        assert!((0.8..0.8 * (1.0 + 1e-11)).contains(&std), "{std}");
        // A schedule of thresholds also moves the slack.
        let scaled = thresholds.clone().scaled(0.5).unwrap();
        assert_eq!((scaled.norms(), scaled.counts()[0].threshold), (&[1.0][..], 1.0));
        policy.update(0, &[0.1]);
        assert!(policy.adapted()[0].1 > 2.0);
        (0..20).for_each(|step| policy.update(step, &[0.9]));
        assert!(policy.adapted()[0].1 < 2.0);
        assert!(policy.describe().contains("mean slack"), "{}", policy.describe());
        let slack = |threshold| Count::whole(threshold).with_kind(CountKind::Slack);
        let whole = || Thresholds::whole(1.0).unwrap();
        for (thresholds, counts, noise) in [
            (whole(), vec![slack(2.0)], CountNoise::Free),
            (whole(), vec![slack(1.0), slack(1.0)], CountNoise::Free),
            (whole(), vec![Count::whole(1.0)], CountNoise::Free),
            (whole(), vec![slack(1.0)], CountNoise::Std(5.0)),
            (whole().normalized(0.01).unwrap(), vec![slack(1.0)], CountNoise::Free),
        ] {
            let error = thresholds.with_counts(counts, noise).unwrap_err().to_string();
            assert!(error.contains("free for one count of slack"), "{error}");
        }
        let free = whole().with_counts(vec![slack(1.0)], CountNoise::Free).unwrap();
        assert!(free.normalized(0.01).is_err());
        let grouped = QuantileClipping::by_slack(0.3).unwrap().with_groups(three_groups());
        assert!(grouped.thresholds(0).is_err());
        let counted = QuantileClipping::new(0.3).unwrap().with_count_noise(CountNoise::Free);
        assert!(counted.thresholds(0).is_err());
    }

    // Sharp edge: noisy counts move a threshold, and their cost is in the event.
    #[test]
    fn counts_are_part_of_the_event_of_the_step() {
        let clipping = QuantileClipping::new(0.5).unwrap().with_groups(three_groups());
        let noise = clipping.thresholds(0).unwrap().noise(0.9, 100.0).unwrap();
        let DpEvent::JointGaussian { noise_multipliers } = noise.event else { panic!() };
        // σ_b is a twentieth of 100; a count has sensitivity ½.
        assert_eq!(noise_multipliers[1..], [10.0; 3]);
        let expected = (0.9f64.powi(-2) - 3.0 * 10f64.powi(-2)).powf(-0.5);
        assert!((noise_multipliers[0] - expected).abs() < 1e-14);
        assert_eq!(noise.count_std, Some(5.0));
    }

    #[test]
    fn thresholds_follow_their_groups_and_the_description_stays() {
        let mut clipping = QuantileClipping::new(0.5)
            .unwrap()
            .with_groups(three_groups())
            .with_initial(1.0)
            .unwrap()
            .with_schedule(Schedule::steps([(5, 0.5)]).unwrap());
        let description = clipping.describe();
        clipping.update(0, &[1.0, 0.5, 0.0]);
        let expected = [(-0.1f64).exp(), 1.0, 0.1f64.exp()];
        assert_eq!(clipping.thresholds(1).unwrap().norms(), expected);
        clipping.update(5, &[0.0, 0.5, 0.5]);
        assert!((clipping.adapted()[0].1 - (-0.05f64).exp()).abs() < 1e-15);
        assert_eq!(clipping.describe(), description);
    }

    #[test]
    fn the_description_has_every_setting() {
        let flat = QuantileClipping::new(0.7)
            .unwrap()
            .with_initial(0.5)
            .unwrap()
            .with_floor(0.01)
            .unwrap()
            .with_rule(QuantileRule::Linear)
            .with_learning_rate(0.3)
            .unwrap();
        assert_eq!(
            flat.describe(),
            "flat, to the 0.7 quantile of the norms; from 0.5 by the linear rule with learning \
             rate 0.3 (constant), at least 1e-2; noise of standard deviation 0.05 times the \
             expected batch on each count"
        );
        let schedule = Schedule::steps([(5, 0.5)]).unwrap();
        let grouped = QuantileClipping::new(0.5).unwrap().with_groups(three_groups());
        let grouped = grouped.with_schedule(schedule).with_count_noise(CountNoise::Share(0.1));
        assert_eq!(
            grouped.describe(),
            "per group (a, b, c; noise proportional to the thresholds), to the 0.5 quantile of the \
             norms; from 0.1, 0.1, 0.1 by the geometric rule with learning rate 0.2 (1, 0.5 from \
             step 5), at least 1e-10; counts use 0.1 of the cost of a step"
        );
        let slack = QuantileClipping::by_slack(0.3).unwrap().describe();
        assert!(slack.starts_with("flat, to the 0.3 mean slack; from 0.1 by "), "{slack}");
        assert!(slack.ends_with("; counts of slack, which cost nothing"), "{slack}");
    }

    #[test]
    fn floor_is_kept_by_later_settings() {
        let clipping = QuantileClipping::new(0.5).unwrap().with_floor(0.05).unwrap();
        assert!(clipping.clone().with_initial(0.01).is_err());
        let mut clipping = clipping.with_initial(1.0).unwrap().with_groups(three_groups());
        for step in 0..1000 {
            clipping.update(step, &[1.0, 1.0, 1.0]);
        }
        assert_eq!(clipping.thresholds(1000).unwrap().norms(), [0.05; 3]);
    }

    // Sharp edge: an adapted threshold is restored from a checkpoint bit for bit.
    #[test]
    fn state_is_restored_bit_for_bit_and_invalid_state_is_refused() {
        let new = || QuantileClipping::new(0.3).unwrap().with_groups(three_groups());
        let mut clipping = new();
        for step in 0..100 {
            clipping.update(step, &[0.1 + 0.001 * step as f64, 1.0 / 3.0, 0.9]);
        }
        let text = clipping.save_state().to_string();
        let mut restored = new();
        restored.load_state(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(restored, clipping);
        for text in ["[1.0]", "null", "[1.0, 2.0, -3.0]", "[1.0, 2.0, \"x\"]"] {
            let state = serde_json::from_str(text).unwrap();
            assert!(
                new().load_state(&state).unwrap_err().to_string().contains("expected"),
                "{text}"
            );
        }
    }
}
