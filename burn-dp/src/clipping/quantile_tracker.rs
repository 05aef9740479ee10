use super::quantile_estimate::{check_learning_rate, restore, saved};
use super::{
    Clipping, Count, CountNoise, Counted, PublicNorms, QuantileEstimate, QuantileRule, Thresholds,
};
use crate::DpError;
use crate::model::ParameterGroups;
use crate::schedule::Schedule;

/// A mean is of norms that are cut at so many times the estimate of the highest quantile.
const CUT: f64 = 2.0;

/// Estimates quantiles of the gradient norms privately, for each group of parameters and any set of
/// quantiles: the median norm of every layer, say, or the smallest and largest norm. And, if asked, the
/// [mean norm](Self::with_means).
///
/// [`alone`](Self::alone) it releases counts and no gradient: a step leaves the model as it is, and the
/// whole noise multiplier of the plan goes into the counts. [`beside`](Self::beside) another policy
/// the counts take their part of the step's cost, and the model trains. The estimates are in
/// [`Clipping::adapted`].
///
/// # Privacy
///
/// One count for each estimate and step, on the same draw of units; see
/// [`QuantileClipping`](super::QuantileClipping). A mean costs what a quantile costs. What is estimated
/// is the quantile of the norms of all units under the model as it is, so the estimates lag behind a
/// model that trains.
///
/// # Example
///
/// Median and mean norm of each layer, beside a training with flat clipping, for a tenth of its cost:
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
/// let tracker = QuantileTracker::alone(ParameterGroups::per_layer(&model)?, [0.5])?
///     .with_means()
///     .beside(FlatClipping::new(1.0)?, CountNoise::Share(0.1));
/// let names: Vec<String> = tracker.adapted().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["first 0.5", "second 0.5", "first mean", "second mean"]);
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// Andrew, Thakkar, McMahan, Ramaswamy, Differentially private learning with adaptive clipping, 2021,
/// section 2.2 (range of the norms) and figure 1 (mean norm of the updates in each layer, which the paper
/// shows without noise).
#[derive(Clone, Debug)]
pub struct QuantileTracker {
    groups: ParameterGroups,
    /// For each group the estimates in the order of the quantiles.
    estimates: Vec<QuantileEstimate>,
    /// The mean norm of each group, if it is estimated.
    means: Option<Vec<f64>>,
    quantiles: Vec<f64>,
    initial: f64,
    rule: QuantileRule,
    learning_rate: f64,
    schedule: Schedule,
    clipping: Option<(Box<dyn Clipping>, CountNoise)>,
}

impl QuantileTracker {
    /// Estimates only.
    ///
    /// # Errors
    ///
    /// Refuses an empty list of quantiles and one outside of 0 to 1.
    pub fn alone(groups: ParameterGroups, quantiles: impl Into<Vec<f64>>) -> Result<Self, DpError> {
        let quantiles = quantiles.into();
        if quantiles.is_empty() {
            return Err(DpError::invalid("quantiles", "must hold at least one"));
        }
        let tracker = Self {
            groups,
            estimates: Vec::new(),
            means: None,
            quantiles,
            initial: 0.1,
            rule: QuantileRule::default(),
            learning_rate: 0.2,
            schedule: Schedule::constant(),
            clipping: None,
        };
        tracker.with_initial(0.1)
    }

    /// Estimates beside a policy that clips the whole gradient, or the same groups apart. All counts get
    /// `noise`, those of the policy too, in place of its own.
    pub fn beside(mut self, clipping: impl Clipping + 'static, noise: CountNoise) -> Self {
        self.clipping = Some((Box::new(clipping), noise));
        self
    }

    /// Where the estimates start. Default: 0.1.
    ///
    /// # Errors
    ///
    /// Refuses a value that is not positive and finite.
    pub fn with_initial(mut self, initial: f64) -> Result<Self, DpError> {
        self.initial = initial;
        self.estimates = (0..self.groups.len())
            .flat_map(|_| &self.quantiles)
            .map(|&quantile| QuantileEstimate::new(quantile, initial))
            .collect::<Result<_, _>>()?;
        self.means = self.means.map(|means| vec![initial; means.len()]);
        Ok(self)
    }

    /// Also estimates the mean norm of each group: a moving average with the learning rate of the
    /// estimates, of norms that are cut at twice the estimate of the highest quantile. So it is below
    /// the mean until that quantile is found, and where the norms have a long tail beyond it; track a
    /// high quantile, 0.9 say, to have a mean of nearly all.
    pub fn with_means(mut self) -> Self {
        self.means = Some(vec![self.initial; self.groups.len()]);
        self
    }

    /// How the estimates move. Default: geometric, learning rate 0.2.
    ///
    /// # Errors
    ///
    /// Refuses a learning rate that is negative or not finite; 0 keeps the estimates.
    pub fn with_rule(mut self, rule: QuantileRule, learning_rate: f64) -> Result<Self, DpError> {
        check_learning_rate(learning_rate)?;
        self.rule = rule;
        self.learning_rate = learning_rate;
        Ok(self)
    }

    /// How the learning rate changes over the steps. Default: it stays.
    pub fn with_schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Those of the estimates, then those of the means.
    fn counts(&self) -> Vec<Count> {
        let count = |group: usize, at: f64| match self.groups.len() {
            1 => Count::whole(at),
            _ => Count::of_group(group, at),
        };
        let at = self.estimates.iter().map(QuantileEstimate::value);
        let quantiles = at.enumerate().map(|(index, at)| count(index / self.quantiles.len(), at));
        let mean = |group: usize| count(group, self.cut(group)).counting(Counted::Norm);
        let means = self.means.iter().flatten().enumerate().map(|(group, _)| mean(group));
        quantiles.chain(means).collect()
    }

    /// Where the norms of a group are cut for their mean.
    fn cut(&self, group: usize) -> f64 {
        let of_group = self.estimates.chunks(self.quantiles.len()).nth(group).unwrap_or_default();
        let highest = of_group.iter().max_by(|a, b| a.target().total_cmp(&b.target()));
        CUT * highest.map_or(self.initial, QuantileEstimate::value)
    }

    /// Moves the means by noisy fractions of the cuts.
    fn learn_means(&mut self, learning_rate: f64, fractions: &[f64]) {
        let cuts: Vec<f64> = (0..self.groups.len()).map(|group| self.cut(group)).collect();
        let means = self.means.iter_mut().flatten();
        for ((mean, cut), fraction) in means.zip(cuts).zip(fractions) {
            let moved = *mean + learning_rate.min(1.0) * (fraction * cut - *mean);
            if moved.is_finite() {
                *mean = moved.max(0.0);
            }
        }
    }
}

impl Clipping for QuantileTracker {
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
        match &self.clipping {
            None => Thresholds::counts_alone(self.groups.clone(), self.counts()),
            Some((clipping, noise)) => {
                let mut thresholds = clipping.thresholds(step)?;
                if *thresholds.groups() != self.groups {
                    thresholds = thresholds.looking_at(self.groups.clone())?;
                }
                // The policy's own counts come first.
                let counts = thresholds.counts().iter().copied().chain(self.counts()).collect();
                thresholds.counting(counts, *noise)
            }
        }
    }

    fn describe(&self) -> String {
        let beside = match &self.clipping {
            None => "nothing but counts is released".to_string(),
            Some((clipping, noise)) => {
                let counts = clipping.thresholds(0).is_ok_and(|own| !own.counts().is_empty());
                let whose = if counts { "on all counts, in place of that, " } else { "" };
                format!("beside {}; {whose}{noise}", clipping.describe())
            }
        };
        let means = if self.means.is_some() { " and means" } else { "" };
        format!(
            "quantiles {:?}{means} of the norms of {}, from {}, {:?} rule with learning rate {} ({}); {beside}",
            self.quantiles,
            self.groups.names().join(", "),
            self.initial,
            self.rule,
            self.learning_rate,
            self.schedule
        )
    }

    fn learn(&mut self, step: u64, fractions: &[f64]) {
        let own = self.estimates.len() + self.means.as_ref().map_or(0, Vec::len);
        let (others, own) = fractions.split_at(fractions.len().saturating_sub(own));
        if let Some((clipping, _)) = &mut self.clipping {
            clipping.learn(step, others);
        }
        let learning_rate = self.learning_rate * self.schedule.factor(step);
        // The cuts are those that the step had: of the estimates before they move.
        self.learn_means(learning_rate, own.get(self.estimates.len()..).unwrap_or_default());
        for (estimate, &fraction) in self.estimates.iter_mut().zip(own) {
            estimate.update(self.rule, learning_rate, fraction);
        }
    }

    fn learn_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        match &mut self.clipping {
            Some((clipping, _)) => clipping.learn_public(norms),
            None => Err(DpError::invalid("public norms", "have no use where nothing is clipped")),
        }
    }

    fn adapted(&self) -> Vec<(String, f64)> {
        let names = self.groups.names().iter();
        let labels =
            names.flat_map(|name| self.quantiles.iter().map(move |q| format!("{name} {q}")));
        let own = labels.zip(self.estimates.iter().map(QuantileEstimate::value));
        let means = self.groups.names().iter().zip(self.means.iter().flatten());
        let means = means.map(|(name, &mean)| (format!("{name} mean"), mean));
        let others = self.clipping.iter().flat_map(|(clipping, _)| clipping.adapted());
        others.chain(own).chain(means).collect()
    }

    fn save_state(&self) -> serde_json::Value {
        let clipping = self.clipping.as_ref().map(|(clipping, _)| clipping.save_state());
        serde_json::json!([clipping, saved(&self.estimates), self.means])
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        if let Some((clipping, _)) = &mut self.clipping {
            clipping.load_state(&state[0])?;
        }
        let means: Option<Option<Vec<f64>>> = serde_json::from_value(state[2].clone()).ok();
        let valid = |mean: &f64| *mean >= 0.0 && mean.is_finite();
        let means = means
            .filter(|means| means.as_ref().map(Vec::len) == self.means.as_ref().map(Vec::len))
            .filter(|means| means.iter().flatten().all(valid))
            .ok_or_else(|| {
                DpError::state(format!(
                    "the means of the clipping policy are {}, and one for each of {} groups is \
                     expected; resume with the policy of the run",
                    state[2],
                    self.means.as_ref().map_or(0, Vec::len)
                ))
            })?;
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
    fn alone_the_counts_have_the_whole_noise_multiplier() {
        let tracker = QuantileTracker::alone(three_groups(), [0.25, 0.5]).unwrap();
        let thresholds = tracker.thresholds(0).unwrap();
        assert!(!thresholds.releases_sum());
        let noise = thresholds.noise(1.3, 50.0).unwrap();
        let DpEvent::JointGaussian { noise_multipliers } = noise.event else { panic!() };
        assert_eq!(noise_multipliers.len(), 6);
        assert!(noise_multipliers.iter().all(|&z| z == 2.0 * noise.count_std.unwrap()));
        let groups: Vec<_> = noise_multipliers.into_iter().map(|z| (1.0, z)).collect();
        let whole = effective_noise_multiplier(&groups).unwrap();
        assert!((whole / 1.3 - 1.0).abs() < 1e-11 && whole >= 1.3);
    }

    #[test]
    fn beside_a_policy_its_counts_come_after_those_of_the_policy() {
        let tracker = QuantileTracker::alone(three_groups(), [0.5]).unwrap();
        let mut tracker =
            tracker.beside(QuantileClipping::new(0.5).unwrap(), CountNoise::PartOfBatch(0.1));
        let thresholds = tracker.thresholds(0).unwrap();
        assert_eq!(thresholds.counts().len(), 4);
        assert_eq!(thresholds.norms(), [0.1]);
        tracker.learn(0, &[0.5, 0.0, 0.5, 1.0]);
        let adapted: Vec<f64> = tracker.adapted().into_iter().map(|(_, value)| value).collect();
        assert_eq!(adapted, [0.1, 0.1 * 0.1f64.exp(), 0.1, 0.1 * (-0.1f64).exp()]);
        assert_eq!(tracker.adapted()[1].0, "a 0.5");
        let mut other = QuantileTracker::alone(three_groups(), [0.5])
            .unwrap()
            .beside(QuantileClipping::new(0.5).unwrap(), CountNoise::PartOfBatch(0.1));
        other.load_state(&tracker.save_state()).unwrap();
        assert_eq!(other.adapted(), tracker.adapted());
        assert!(other.load_state(&serde_json::Value::Null).is_err());
    }

    // Sharp edge: the statement says the noise that was added.
    #[test]
    fn the_words_say_that_the_counts_of_a_policy_have_the_noise_of_the_tracker() {
        let own = QuantileClipping::new(0.5).unwrap().with_count_noise(CountNoise::Std(30.0));
        let tracker = || QuantileTracker::alone(three_groups(), [0.5]).unwrap();
        let noise = CountNoise::PartOfBatch(0.1);
        let words = tracker().beside(own, noise).describe();
        assert!(words.ends_with(&format!("; on all counts, in place of that, {noise}")), "{words}");
        let words = tracker().beside(FlatClipping::new(1.0).unwrap(), noise).describe();
        assert!(words.ends_with(&format!("; {noise}")) && !words.contains("in place"), "{words}");
    }

    #[test]
    fn learning_rates_that_cannot_be_used_are_refused() {
        for rate in [f64::NAN, f64::INFINITY, -0.1] {
            let tracker = QuantileTracker::alone(three_groups(), [0.5]).unwrap();
            let error = tracker.with_rule(QuantileRule::Linear, rate).unwrap_err().to_string();
            assert!(error.contains("quantile_lr") && error.contains(&rate.to_string()), "{error}");
        }
    }

    #[test]
    fn means_are_moving_averages_of_norms_up_to_twice_the_highest_quantile() {
        let new = || {
            let tracker = QuantileTracker::alone(three_groups(), [0.9, 0.5]).unwrap();
            tracker.with_initial(1.0).unwrap().with_means()
        };
        let mut tracker = new();
        let thresholds = tracker.thresholds(0).unwrap();
        assert_eq!(thresholds.counts().len(), 9);
        let mean = Count::of_group(2, 2.0).counting(Counted::Norm);
        assert_eq!(thresholds.counts()[8], mean);
        // The quantiles stay; the noisy means over the cut of 2 are 1/4, 1/2 and below zero.
        tracker.learn(0, &[0.9, 0.5, 0.9, 0.5, 0.9, 0.5, 0.25, 0.5, -9.0]);
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
        let mut without = QuantileTracker::alone(three_groups(), [0.9, 0.5]).unwrap();
        assert_ne!(without.describe(), new().describe());
        let error = without.load_state(&tracker.save_state()).unwrap_err().to_string();
        assert!(error.contains("the means of the clipping policy"), "{error}");
        assert!(new().load_state(&without.save_state()).is_err());
    }

    #[test]
    fn it_looks_at_the_layers_of_a_gradient_that_is_clipped_as_a_whole_and_at_the_same_groups() {
        let tracker = || QuantileTracker::alone(three_groups(), [0.5]).unwrap();
        let flat = tracker().beside(FlatClipping::new(1.0).unwrap(), CountNoise::default());
        assert_eq!(flat.thresholds(0).unwrap().groups().len(), 3);
        let grouped = GroupedClipping::equal(three_groups(), 1.0).unwrap();
        let same = tracker().beside(grouped.clone(), CountNoise::default());
        assert_eq!(same.thresholds(0).unwrap().norms().len(), 3);
        let whole = QuantileTracker::alone(ParameterGroups::whole(), [0.5]).unwrap();
        assert!(whole.beside(grouped, CountNoise::default()).thresholds(0).is_err());
    }
}
