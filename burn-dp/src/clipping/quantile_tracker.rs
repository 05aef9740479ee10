use super::quantile_estimate::{restore, saved};
use super::{
    Clipping, Count, CountNoise, ParameterGroups, PublicNorms, QuantileEstimate, QuantileRule,
    Thresholds,
};
use crate::DpError;
use crate::optim::Schedule;

/// Estimates quantiles of the gradient norms privately, for each group of parameters and any set of
/// quantiles: the median norm of every layer, say, or the smallest and largest norm.
///
/// [`alone`](Self::alone) it releases counts and no gradient: a step leaves the model as it is, and the
/// whole noise multiplier of the plan goes into the counts. [`beside`](Self::beside) another policy
/// the counts take their part of the step's cost, and the model trains. The estimates are in
/// [`Clipping::adapted`].
///
/// # Privacy
///
/// One count for each estimate and step, on the same draw of units; see
/// [`QuantileClipping`](super::QuantileClipping). What is estimated is the quantile of the norms of all
/// units under the model as it is, so the estimates lag behind a model that trains.
///
/// # References
///
/// Andrew, Thakkar, McMahan, Ramaswamy, Differentially private learning with adaptive clipping, 2021,
/// section 2.2 (range of the norms) and figure 1 (norms by layer).
#[derive(Clone, Debug)]
pub struct QuantileTracker {
    groups: ParameterGroups,
    /// For each group the estimates in the order of the quantiles.
    estimates: Vec<QuantileEstimate>,
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
            quantiles,
            initial: 0.1,
            rule: QuantileRule::default(),
            learning_rate: 0.2,
            schedule: Schedule::constant(),
            clipping: None,
        };
        tracker.with_initial(0.1)
    }

    /// Estimates beside a policy that clips the whole gradient, or the same groups apart.
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
        Ok(self)
    }

    /// How the estimates move. Default: geometric, learning rate 0.2.
    pub fn with_rule(mut self, rule: QuantileRule, learning_rate: f64) -> Self {
        self.rule = rule;
        self.learning_rate = learning_rate;
        self
    }

    /// How the learning rate changes over the steps. Default: it stays.
    pub fn with_schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    fn counts(&self) -> Vec<Count> {
        let group = |index: usize| (self.groups.len() > 1).then_some(index / self.quantiles.len());
        let at = self.estimates.iter().map(QuantileEstimate::value);
        at.enumerate().map(|(index, at)| Count { group: group(index), at }).collect()
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
            Some((clipping, noise)) => format!("beside {}; {noise}", clipping.describe()),
        };
        format!(
            "quantiles {:?} of the norms of {}, from {}, {:?} rule with learning rate {} ({}); {beside}",
            self.quantiles,
            self.groups.names().join(", "),
            self.initial,
            self.rule,
            self.learning_rate,
            self.schedule
        )
    }

    fn learn(&mut self, step: u64, fractions: &[f64]) {
        let others = fractions.len().saturating_sub(self.estimates.len());
        let (others, own) = fractions.split_at(others);
        if let Some((clipping, _)) = &mut self.clipping {
            clipping.learn(step, others);
        }
        let learning_rate = self.learning_rate * self.schedule.factor(step);
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
        self.clipping.iter().flat_map(|(clipping, _)| clipping.adapted()).chain(own).collect()
    }

    fn save_state(&self) -> serde_json::Value {
        let clipping = self.clipping.as_ref().map(|(clipping, _)| clipping.save_state());
        serde_json::json!([clipping, saved(&self.estimates)])
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        if let Some((clipping, _)) = &mut self.clipping {
            clipping.load_state(&state[0])?;
        }
        restore(&mut self.estimates, &state[1])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn_dp_accountant::{DpEvent, effective_noise_multiplier};

    use super::*;
    use crate::clipping::groups::three_groups;
    use crate::clipping::{FlatClipping, GroupedClipping, QuantileClipping};

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
