use super::config::{ClippingConfig, Settings};
use super::policy::{Clipping, Seal};
use super::public_norms::PublicNorms;
use super::quantile_estimate::{EstimateUpdates, QuantileEstimate, QuantileRule, restore, save};
use super::saved_values::saved_values;
use crate::DpError;
use crate::clipping::thresholds::{Count, CountKind, CountNoise, Thresholds};
use crate::model::ParameterGroups;
use crate::schedule::Schedule;

/// For a mean, norms are clipped to this multiple of the estimate of the highest quantile.
const MEAN_BOUND: f64 = 2.0;

/// Estimates quantiles of the gradient norms privately, for each group of parameters and any set of
/// quantiles: for example the median norm of every layer, or the smallest and largest norm. On
/// request it also estimates the [mean norm](Self::with_means).
///
/// On its own, it releases counts and no gradient: a step leaves the model unchanged, and the
/// plan's whole noise multiplier is spent on the counts. [With a clipping
/// policy](Self::with_clipping), the counts use a part of the step's cost, and the model trains.
/// [`Clipping::adapted`] returns the estimates.
///
/// # Privacy
///
/// Each step releases one count for each estimate, from the same draw of units; see
/// [`QuantileClipping`](super::QuantileClipping). A mean costs as much as a quantile. The estimates
/// are quantiles of the norms of all units under the current model, so they lag while a model
/// trains.
///
/// # Example
///
/// Estimates the median and mean norm of each layer during training with flat clipping, for a tenth
/// of its cost:
///
/// ```
/// # use burn::{module::Module, nn::{Linear, LinearConfig}, tensor::Device};
/// # use burn_dp::{DpError, nn::{IntoPrivate, Private}};
/// use burn_dp::clipping::{Clipping, CountNoise, FlatClipping, QuantileTracker};
/// use burn_dp::model::ParameterGroups;
/// # #[derive(Module, Debug)]
/// # struct Net { first: Private<Linear>, second: Private<Linear> }
/// # fn main() -> Result<(), DpError> {
/// # let device = Device::flex().autodiff();
/// # let model = Net {
/// #     first: LinearConfig::new(4, 3).init(&device).private(),
/// #     second: LinearConfig::new(3, 2).init(&device).private(),
/// # };
///
/// let tracker = QuantileTracker::new(ParameterGroups::per_layer(&model)?, [0.5])?
///     .with_means()
///     .with_clipping(FlatClipping::new(1.0)?, CountNoise::Share(0.1));
/// let names: Vec<String> = tracker.adapted().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["first 0.5", "second 0.5", "first mean", "second mean"]);
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// Andrew, Thakkar, McMahan, Ramaswamy, Differentially private learning with adaptive clipping,
/// 2021, section 2.2 (range of the norms) and figure 1 (mean norm of the updates in each layer,
/// which the paper shows without noise).
#[derive(Clone, Debug)]
pub struct QuantileTracker {
    groups: ParameterGroups,
    /// The estimates of each group, in the order of the quantiles.
    estimates: Vec<QuantileEstimate>,
    /// The mean norm of each group. Empty if means are not estimated.
    means: Vec<f64>,
    quantiles: Vec<f64>,
    initial: f64,
    updates: EstimateUpdates,
    clipping: Option<(Box<dyn Clipping>, CountNoise)>,
}

impl QuantileTracker {
    /// Creates a policy that estimates `quantiles` in each group, and releases nothing else.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `quantiles` is empty, or if one is not between 0 and
    /// 1.
    pub fn new(groups: ParameterGroups, quantiles: impl Into<Vec<f64>>) -> Result<Self, DpError> {
        let quantiles = quantiles.into();
        if quantiles.is_empty() {
            return Err(DpError::invalid("quantiles", "must hold at least one"));
        }
        let tracker = Self {
            groups,
            estimates: Vec::new(),
            means: Vec::new(),
            quantiles,
            initial: 0.1,
            updates: EstimateUpdates::default(),
            clipping: None,
        };
        tracker.with_initial(0.1)
    }

    /// Trains with `clipping`, a policy that clips the whole gradient or the same groups. All
    /// counts, including the counts of `clipping`, get `noise`.
    pub fn with_clipping(mut self, clipping: impl Clipping + 'static, noise: CountNoise) -> Self {
        self.clipping = Some((Box::new(clipping), noise));
        self
    }

    /// Sets the initial value of all estimates. Default: 0.1.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the value is not positive and finite.
    pub fn with_initial(mut self, initial: f64) -> Result<Self, DpError> {
        self.initial = initial;
        self.estimates = (0..self.groups.len())
            .flat_map(|_| &self.quantiles)
            .map(|&quantile| QuantileEstimate::new(quantile, initial))
            .collect::<Result<_, _>>()?;
        self.means.fill(initial);
        Ok(self)
    }

    /// Also estimates the mean norm of each group: a moving average with the learning rate of the
    /// estimates, of norms clipped to twice the estimate of the highest quantile.
    ///
    /// The estimate is therefore below the mean until that quantile is found, and even if the norms
    /// have a long tail above it. Track a high quantile, for example 0.9, to average nearly all
    /// norms.
    pub fn with_means(mut self) -> Self {
        self.means = vec![self.initial; self.groups.len()];
        self
    }

    /// Sets how the estimates move. Default: geometric with learning rate 0.2; 0 keeps the
    /// estimates.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the learning rate is negative or not finite.
    pub fn with_rule(mut self, rule: QuantileRule, learning_rate: f64) -> Result<Self, DpError> {
        self.updates = self.updates.with_learning_rate(learning_rate)?;
        self.updates.rule = rule;
        Ok(self)
    }

    /// Sets rule, learning rate and schedule of the estimates.
    pub(super) fn with_updates(mut self, updates: EstimateUpdates) -> Result<Self, DpError> {
        self.updates = updates.checked()?;
        Ok(self)
    }

    /// Sets how the learning rate changes over the steps. Default: constant.
    pub fn with_schedule(mut self, schedule: Schedule) -> Self {
        self.updates.schedule = schedule;
        self
    }

    /// Returns the counts of the quantiles, then the counts of the means.
    fn counts(&self) -> Vec<Count> {
        let count = |group: usize, threshold: f64| match self.groups.len() {
            1 => Count::whole(threshold),
            _ => Count::of_group(group, threshold),
        };
        let values = self.estimates.iter().map(QuantileEstimate::value).enumerate();
        let quantiles = values.map(|(index, value)| count(index / self.quantiles.len(), value));
        let mean = |group| count(group, self.mean_bound(group)).with_kind(CountKind::ClippedNorm);
        quantiles.chain((0..self.means.len()).map(mean)).collect()
    }

    /// Returns the bound that the norms of a group are clipped to for their mean.
    fn mean_bound(&self, group: usize) -> f64 {
        let of_group = self.estimates.chunks(self.quantiles.len()).nth(group).unwrap_or_default();
        let highest = of_group.iter().max_by(|a, b| a.target().total_cmp(&b.target()));
        MEAN_BOUND * highest.map_or(self.initial, QuantileEstimate::value)
    }

    /// Moves the means by noisy fractions of their bounds.
    fn update_means(&mut self, learning_rate: f64, fractions: &[f64]) {
        let bounds: Vec<f64> = (0..self.groups.len()).map(|group| self.mean_bound(group)).collect();
        for ((mean, bound), fraction) in self.means.iter_mut().zip(bounds).zip(fractions) {
            let moved = *mean + learning_rate.min(1.0) * (fraction * bound - *mean);
            if moved.is_finite() {
                *mean = moved.max(0.0);
            }
        }
    }
}

impl Clipping for QuantileTracker {
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
        match &self.clipping {
            None => Thresholds::counts_only(self.groups.clone(), self.counts()),
            Some((clipping, noise)) => {
                let mut thresholds = clipping.thresholds(step)?;
                if *thresholds.groups() != self.groups {
                    thresholds = thresholds.with_groups(self.groups.clone())?;
                }
                // The counts of the policy come first.
                let counts = thresholds.counts().iter().copied().chain(self.counts()).collect();
                thresholds.with_counts(counts, *noise)
            }
        }
    }

    fn describe(&self) -> String {
        let clipping = match &self.clipping {
            None => "only counts are released".to_string(),
            Some((clipping, noise)) => {
                let counts = clipping.thresholds(0).is_ok_and(|own| !own.counts().is_empty());
                let replaced = if counts { "on all counts instead: " } else { "" };
                format!("together with {}; {replaced}{noise}", clipping.describe())
            }
        };
        let means = if self.means.is_empty() { "" } else { " and means" };
        format!(
            "quantiles {:?}{means} of the norms of {}, from {} by {}; {clipping}",
            self.quantiles,
            self.groups.describe(),
            self.initial,
            self.updates,
        )
    }

    fn update(&mut self, step: u64, fractions: &[f64]) {
        let own = self.estimates.len() + self.means.len();
        let (others, own) = fractions.split_at(fractions.len().saturating_sub(own));
        if let Some((clipping, _)) = &mut self.clipping {
            clipping.update(step, others);
        }
        // The bounds of the step follow from the estimates before they move.
        let of_means = own.get(self.estimates.len()..).unwrap_or_default();
        self.update_means(self.updates.learning_rate(step), of_means);
        self.updates.apply(&mut self.estimates, step, own);
    }

    fn set_public_norms(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        match &mut self.clipping {
            Some((clipping, _)) => clipping.set_public_norms(norms),
            None => Err(DpError::invalid("norms", "have no use where nothing is clipped")),
        }
    }

    fn public_data(&self) -> Vec<String> {
        let others = self.clipping.iter().flat_map(|(clipping, _)| clipping.public_data());
        others.chain(self.groups.public_data().map(String::from)).collect()
    }

    fn adapted(&self) -> Vec<(String, f64)> {
        let names = self.groups.names().iter();
        let labels =
            names.flat_map(|name| self.quantiles.iter().map(move |q| format!("{name} {q}")));
        let own = labels.zip(self.estimates.iter().map(QuantileEstimate::value));
        let means = self.groups.names().iter().zip(&self.means);
        let means = means.map(|(name, &mean)| (format!("{name} mean"), mean));
        let others = self.clipping.iter().flat_map(|(clipping, _)| clipping.adapted());
        others.chain(own).chain(means).collect()
    }

    fn schedules(&self) -> Vec<&Schedule> {
        self.clipping.as_ref().map_or(Vec::new(), |(clipping, _)| clipping.schedules())
    }

    fn to_config(&self, seal: Seal) -> Option<ClippingConfig> {
        let policy = match &self.clipping {
            Some((clipping, noise)) => Some((Box::new(clipping.to_config(seal)?.0), *noise)),
            None => None,
        };
        Some(ClippingConfig(Settings::Tracker {
            groups: (&self.groups).into(),
            quantiles: self.quantiles.clone(),
            with_means: !self.means.is_empty(),
            initial: self.initial,
            updates: self.updates.clone(),
            policy,
        }))
    }

    fn save_state(&self) -> serde_json::Value {
        let clipping = self.clipping.as_ref().map(|(clipping, _)| clipping.save_state());
        serde_json::json!([clipping, save(&self.estimates), self.means])
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        if let Some((clipping, _)) = &mut self.clipping {
            clipping.load_state(&state[0])?;
        }
        let is_mean = |_, mean: f64| mean >= 0.0 && mean.is_finite();
        let means = saved_values("means", &state[2], self.means.len(), is_mean)?;
        restore(&mut self.estimates, &state[1])?;
        self.means = means;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn_dp_accountant::{DpEvent, effective_noise_multiplier};

    use super::*;
    use crate::clipping::{FlatClipping, GroupedClipping, QuantileClipping};
    use crate::model::groups::three_groups;

    #[test]
    fn counts_alone_have_the_whole_noise_multiplier() {
        let tracker = QuantileTracker::new(three_groups(), [0.25, 0.5]).unwrap();
        let thresholds = tracker.thresholds(0).unwrap();
        assert!(!thresholds.releases_sum());
        let groups: Vec<_> = thresholds.counts().iter().map(|count| count.group).collect();
        assert_eq!(groups, [0, 0, 1, 1, 2, 2].map(Some));
        let noise = thresholds.noise(1.3, 50.0).unwrap();
        let DpEvent::JointGaussian { noise_multipliers } = noise.event else { panic!() };
        assert_eq!(noise_multipliers.len(), 6);
        assert!(noise_multipliers.iter().all(|&z| z == 2.0 * noise.count_std.unwrap()));
        let groups: Vec<_> = noise_multipliers.into_iter().map(|z| (1.0, z)).collect();
        let whole = effective_noise_multiplier(&groups).unwrap();
        assert!((whole / 1.3 - 1.0).abs() < 1e-11 && whole >= 1.3);
    }

    #[test]
    fn counts_of_the_clipping_policy_come_first() {
        let tracker = QuantileTracker::new(three_groups(), [0.5]).unwrap();
        let mut tracker = tracker
            .with_clipping(QuantileClipping::new(0.5).unwrap(), CountNoise::BatchFraction(0.1));
        let thresholds = tracker.thresholds(0).unwrap();
        assert_eq!(thresholds.counts().len(), 4);
        assert_eq!(thresholds.norms(), [0.1]);
        tracker.update(0, &[0.5, 0.0, 0.5, 1.0]);
        let adapted: Vec<f64> = tracker.adapted().into_iter().map(|(_, value)| value).collect();
        assert_eq!(adapted, [0.1, 0.1 * 0.1f64.exp(), 0.1, 0.1 * (-0.1f64).exp()]);
        assert_eq!(tracker.adapted()[1].0, "a 0.5");
        let mut other = QuantileTracker::new(three_groups(), [0.5])
            .unwrap()
            .with_clipping(QuantileClipping::new(0.5).unwrap(), CountNoise::BatchFraction(0.1));
        other.load_state(&tracker.save_state()).unwrap();
        assert_eq!(other.adapted(), tracker.adapted());
        assert!(other.load_state(&serde_json::Value::Null).is_err());
    }

    // Sharp edge: the statement contains the noise that was added.
    #[test]
    fn description_names_the_noise_on_the_counts_of_the_policy() {
        let own = QuantileClipping::new(0.5).unwrap().with_count_noise(CountNoise::Std(30.0));
        let tracker = || QuantileTracker::new(three_groups(), [0.5]).unwrap();
        let noise = CountNoise::BatchFraction(0.1);
        let text = tracker().with_clipping(own, noise).describe();
        assert!(text.ends_with(&format!("; on all counts instead: {noise}")), "{text}");
        let text = tracker().with_clipping(FlatClipping::new(1.0).unwrap(), noise).describe();
        assert!(text.ends_with(&format!("; {noise}")) && !text.contains("instead"), "{text}");
    }

    #[test]
    fn invalid_learning_rate_is_refused_by_name() {
        for rate in [f64::NAN, f64::INFINITY, -0.1] {
            let tracker = QuantileTracker::new(three_groups(), [0.5]).unwrap();
            let error = tracker.with_rule(QuantileRule::Linear, rate).unwrap_err().to_string();
            assert!(
                error.contains("learning_rate") && error.contains(&rate.to_string()),
                "{error}"
            );
        }
    }

    #[test]
    fn means_average_norms_clipped_to_twice_the_highest_quantile() {
        let new = || {
            let tracker = QuantileTracker::new(three_groups(), [0.9, 0.5]).unwrap();
            tracker.with_initial(1.0).unwrap().with_means()
        };
        let mut tracker = new();
        let thresholds = tracker.thresholds(0).unwrap();
        assert_eq!(thresholds.counts().len(), 9);
        let mean = Count::of_group(2, 2.0).with_kind(CountKind::ClippedNorm);
        assert_eq!(thresholds.counts()[8], mean);
        // The quantiles are unchanged. The noisy means over the bound of 2 are 1/4, 1/2 and
        // negative.
        tracker.update(0, &[0.9, 0.5, 0.9, 0.5, 0.9, 0.5, 0.25, 0.5, -9.0]);
        let means: Vec<(String, f64)> = tracker.adapted().split_off(6);
        for ((name, found), (label, expected)) in
            means.iter().zip([("a mean", 0.9), ("b mean", 1.0), ("c mean", 0.0)])
        {
            assert!(name == label && (found - expected).abs() < 1e-15, "{means:?}");
        }
        let text = tracker.save_state().to_string();
        let mut restored = new();
        restored.load_state(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(restored.adapted(), tracker.adapted());
        let mut negative = tracker.save_state();
        negative[2][0] = serde_json::json!(-1.0);
        assert!(new().load_state(&negative).is_err());
        let mut without = QuantileTracker::new(three_groups(), [0.9, 0.5]).unwrap();
        assert_ne!(without.describe(), new().describe());
        let error = without.load_state(&tracker.save_state()).unwrap_err().to_string();
        assert!(error.contains("the means of the clipping policy"), "{error}");
        assert!(new().load_state(&without.save_state()).is_err());
    }

    #[test]
    fn the_bound_of_a_mean_follows_the_highest_quantile_in_any_order() {
        for (quantiles, highest) in [([0.9, 0.5], 0), ([0.5, 0.9], 1)] {
            let tracker = QuantileTracker::new(ParameterGroups::whole(), quantiles).unwrap();
            let mut tracker = tracker.with_means();
            // The estimates move apart, the one of 0.9 upward.
            tracker.update(0, &if highest == 0 { [0.0, 1.0, 0.5] } else { [1.0, 0.0, 0.5] });
            let thresholds = tracker.thresholds(1).unwrap();
            let [low, high] = [thresholds.counts()[1 - highest], thresholds.counts()[highest]];
            assert!(low.threshold < 0.1 && high.threshold > 0.1, "{low:?} {high:?}");
            let mean = Count::whole(2.0 * high.threshold).with_kind(CountKind::ClippedNorm);
            assert_eq!(thresholds.counts()[2], mean);
        }
    }

    #[test]
    fn groups_must_be_absent_from_the_policy_or_equal_to_its_groups() {
        let tracker = || QuantileTracker::new(three_groups(), [0.5]).unwrap();
        let flat = tracker().with_clipping(FlatClipping::new(1.0).unwrap(), CountNoise::default());
        assert_eq!(flat.thresholds(0).unwrap().groups().len(), 3);
        let grouped = GroupedClipping::equal(three_groups(), 1.0).unwrap();
        let same = tracker().with_clipping(grouped.clone(), CountNoise::default());
        assert_eq!(same.thresholds(0).unwrap().norms().len(), 3);
        let whole = QuantileTracker::new(ParameterGroups::whole(), [0.5]).unwrap();
        assert!(whole.with_clipping(grouped, CountNoise::default()).thresholds(0).is_err());
    }

    #[test]
    fn the_policy_that_trains_gets_its_own_counts_and_is_described() {
        let clipping = || QuantileClipping::new(0.5).unwrap();
        let tracker = QuantileTracker::new(three_groups(), [0.25, 0.5]).unwrap();
        let mut tracker = tracker.with_clipping(clipping(), CountNoise::default());
        let (mut alone, before) = (clipping(), tracker.thresholds(0).unwrap().total_norm());
        tracker.update(0, &[1.0, 0.25, 0.5, 0.25, 0.5, 0.25, 0.5]);
        alone.update(0, &[1.0]);
        let found = tracker.thresholds(1).unwrap().total_norm();
        assert_eq!(found, alone.thresholds(1).unwrap().total_norm());
        assert_ne!(found, before);
        assert!(tracker.describe().contains(&clipping().describe()), "{}", tracker.describe());
        assert!(!tracker.describe().contains("and means"));
        assert!(tracker.clone().with_means().describe().contains("and means"));
    }
}
