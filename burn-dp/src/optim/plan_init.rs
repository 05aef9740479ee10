//! Creates a plan from a configuration: checks and calibration.
//!
//! Length: every check of a configuration comes before the calibration that relies on it.

use burn_dp_accountant::correlated_noise::Strategy;
use burn_dp_accountant::{Calibration, DpEvent, LedgerEntry, NeighboringRelation, UnitOfPrivacy};

use super::correlated::{CorrelatedPlan, bounds_participation, event_of_step};
use super::earlier::counted;
use super::plan::check_delta;
use super::{PrivacyPlan, PrivacyPlanConfig};
use crate::DpError;
use crate::clipping::{Clipping, FlatClipping, StepNoise};
use crate::noise::GaussianMechanism;
use crate::random::{InsecureSeed, NoiseSource};
use crate::sampling::Sampler;
use crate::schedule::Schedule;
use crate::updates::MiniSets;

/// A calibrated multiplier is rounded up by this factor, so that the rounding of its division among
/// a sum and counts does not break the budget in the last step.
const SPLIT_ROUNDING: f64 = 1.0 + 1e-12;

impl PrivacyPlanConfig {
    /// Checks the configuration, calibrates the noise, and takes a key from the operating system.
    /// Each plan has a key of its own.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] with the name of the value that cannot be used,
    /// [`DpError::Accountant`] if no noise reaches the budget, and [`DpError::Entropy`] if the
    /// operating system provides no entropy.
    pub fn init(&self) -> Result<PrivacyPlan, DpError> {
        self.clone().into_plan()
    }

    fn into_plan(self) -> Result<PrivacyPlan, DpError> {
        let steps = self.check_steps()?;
        let clipping = self.clipping()?;
        self.check_mini_sets()?;
        self.check_batch()?;
        if let Some(budget) = self.budget {
            check_delta(self.protected_units(), budget.delta())?;
        }
        let source = match self.insecure_seed {
            Some(seed) => NoiseSource::insecure(InsecureSeed(seed)),
            None => NoiseSource::from_os()?,
        };
        let (size, batch) = (self.dataset_size, self.expected_batch_size);
        let sampler = self.sampling.sampler(size, batch, source.key())?;
        let (mechanism, origin) = (sampler.mechanism(), sampler.origin());
        let relation = match self.owners {
            Some(owners) => owners.relation(mechanism.relation()),
            None => mechanism.relation(),
        };
        let unit = self.resolved_unit(relation)?;
        let runs = self.noise_schedule.runs(steps)?;
        let correlated = self.correlated(&*sampler, steps, &runs)?;
        let examples = self.owners.map_or(1, |owners| owners.examples_of(&unit));
        let event =
            |noise: &DpEvent| event_of_step(correlated.as_ref(), &mechanism, examples, 0, noise);
        let thresholds = clipping.thresholds(0)?;
        if correlated.is_none() {
            mechanism.check_accounted()?;
        }
        let earlier = self.earlier.checked(&unit, relation, self.mini_sets.as_ref())?;
        let noise_multiplier = self.noise_multiplier(&runs, relation, &earlier.entries, event)?;
        let planned = runs
            .iter()
            .map(|&(factor, count)| {
                let noise = thresholds.noise(noise_multiplier * factor, batch)?;
                check_deviations(&noise, noise_multiplier * factor, batch)?;
                if let Some(correlated) = &correlated {
                    correlated.check_release(&noise)?;
                }
                Ok((event(&noise.event)?, count))
            })
            .collect::<Result<Vec<_>, DpError>>()?;
        check_schedules(&*clipping, &self.noise_schedule, steps, noise_multiplier, batch)?;
        let mut plan = PrivacyPlan {
            dataset_size: self.dataset_size,
            expected_batch_size: self.expected_batch_size,
            steps,
            budget: self.budget,
            noise_multiplier,
            noise_schedule: self.noise_schedule,
            planned,
            certified: false,
            clipping,
            scheme: self.sampling,
            mechanism,
            relation,
            origin,
            unit,
            mini_sets: self.mini_sets,
            correlated,
            owners: self.owners,
            simulation: self.simulation,
            earlier,
            source,
        };
        // If all steps are equal, the ledger computes how many of them fit.
        if let Some(budget) = plan.budget
            && plan.planned.len() > 1
        {
            plan.certified = plan.epsilon_at_end(budget.delta())? <= budget.epsilon();
        }
        Ok(plan)
    }

    fn clipping(&self) -> Result<Box<dyn Clipping>, DpError> {
        match (&self.clipping, self.max_grad_norm) {
            (Some(clipping), None) => Ok(clipping.clone()),
            (None, norm) => Ok(Box::new(FlatClipping::new(norm.unwrap_or(1.0))?)),
            (Some(clipping), Some(norm)) => Err(DpError::invalid(
                "max_grad_norm",
                format!(
                    "{norm} and a clipping policy ({}) were both given; give one of them",
                    clipping.describe()
                ),
            )),
        }
    }

    /// Returns the number of protected units, which δ is compared with.
    fn protected_units(&self) -> usize {
        let units = self.mini_sets.as_ref().map_or(self.dataset_size, MiniSets::examples);
        self.owners.map_or(units, |owners| owners.units(units))
    }

    /// Returns the unit of privacy: it follows from the relation if mini-sets are drawn, and from
    /// the selection if examples have several owners.
    fn resolved_unit(&self, relation: NeighboringRelation) -> Result<UnitOfPrivacy, DpError> {
        if let Some(owners) = self.owners {
            return owners.unit(&self.unit, self.sampling);
        }
        let Some(mini_sets) = &self.mini_sets else { return Ok(self.unit.clone()) };
        let one_example = mini_sets.size() == 1 || relation == NeighboringRelation::ReplaceOne;
        match &self.unit {
            UnitOfPrivacy::Example if one_example => Ok(UnitOfPrivacy::Example),
            UnitOfPrivacy::Example | UnitOfPrivacy::MiniSet => Ok(UnitOfPrivacy::MiniSet),
            other => Err(DpError::invalid(
                "unit",
                format!("is {other}, but the plan draws mini-sets of examples; leave it out"),
            )),
        }
    }

    /// Returns an error unless the units are the mini-sets, because a file can contradict this.
    fn check_mini_sets(&self) -> Result<(), DpError> {
        match &self.mini_sets {
            Some(_) if self.owners.is_some() => Err(DpError::invalid(
                "mini_sets",
                "and owners were both given: a plan draws either mini-sets or a selection of owned \
                 examples; mini-sets and a selection cannot be combined",
            )),
            Some(sets) if sets.len() != self.dataset_size => Err(DpError::invalid(
                "dataset_size",
                format!("must be the {} mini-sets, got {}", sets.len(), self.dataset_size),
            )),
            _ => Ok(()),
        }
    }

    fn check_batch(&self) -> Result<(), DpError> {
        let (size, batch) = (self.dataset_size, self.expected_batch_size);
        if size == 0 {
            return Err(DpError::invalid("dataset_size", "must be at least 1, got 0"));
        }
        if !(batch > 0.0 && batch <= size as f64) {
            return Err(DpError::invalid(
                "expected_batch_size",
                format!("must be positive and at most dataset_size = {size}, got {batch}"),
            ));
        }
        if self.sampling.has_fixed_size() && batch.fract() != 0.0 {
            return Err(DpError::invalid(
                "expected_batch_size",
                format!("must be a whole number where all draws have that size, got {batch}"),
            ));
        }
        Ok(())
    }

    fn check_steps(&self) -> Result<u64, DpError> {
        match (self.steps, self.epochs) {
            (Some(0), _) => Err(DpError::invalid("steps", "must be at least 1, got 0")),
            (Some(steps), None) => Ok(steps),
            (None, Some(epochs)) if epochs > 0.0 && epochs.is_finite() => {
                let steps = epochs * self.dataset_size as f64 / self.expected_batch_size;
                Ok((steps.round() as u64).max(1))
            }
            (None, Some(epochs)) => Err(DpError::invalid(
                "epochs",
                format!("must be positive and finite, got {epochs}"),
            )),
            (Some(steps), Some(epochs)) => Err(DpError::invalid(
                "steps",
                format!("and epochs were both given ({steps} and {epochs}); give one of them"),
            )),
            (None, None) => {
                Err(DpError::invalid("steps", "or epochs must be given: the noise depends on them"))
            }
        }
    }

    fn correlated(
        &self,
        sampler: &dyn Sampler,
        steps: u64,
        runs: &[(f64, u64)],
    ) -> Result<Option<CorrelatedPlan>, DpError> {
        let strategy = match &self.correlated_noise {
            Some(strategy) => strategy.clone(),
            // A run costs less than its steps one by one.
            None if bounds_participation(sampler.participation()) && runs.len() == 1 => {
                Strategy::identity(steps)?
            }
            None => return Ok(None),
        };
        if let [_, _, ..] = *runs {
            return Err(DpError::invalid(
                "noise_schedule",
                format!(
                    "must be constant in a run with correlated noise, got {}; leave one of the two \
                     out",
                    self.noise_schedule
                ),
            ));
        }
        CorrelatedPlan::new(strategy, sampler, steps, self.noise_memory).map(Some)
    }

    /// Returns the noise multiplier before the schedule.
    fn noise_multiplier(
        &self,
        runs: &[(f64, u64)],
        relation: NeighboringRelation,
        earlier: &[LedgerEntry],
        event: impl Fn(&DpEvent) -> Result<DpEvent, DpError>,
    ) -> Result<f64, DpError> {
        match (self.noise_multiplier, self.budget) {
            (Some(sigma), _) if sigma > 0.0 && sigma.is_finite() => Ok(sigma),
            (Some(sigma), _) => Err(DpError::invalid(
                "noise_multiplier",
                format!(
                    "must be positive and finite, got {sigma}; without noise nothing is private: \
                     to train without privacy, train the plain model"
                ),
            )),
            (None, Some(budget)) => {
                let calibration = Calibration::new(budget).with_relation(relation);
                let calibration = calibration.with_simulation(self.simulation);
                let calibrated = |steps, event: &dyn Fn(f64) -> DpEvent| {
                    calibration.noise_multiplier_after(counted(earlier), steps, event)
                };
                // A plain Gaussian release has an event.
                let event = |sigma: f64| {
                    let noise = DpEvent::gaussian(sigma);
                    event(&noise).unwrap_or(noise)
                };
                if let [(1.0, steps)] = *runs {
                    return Ok(calibrated(steps, &event)? * SPLIT_ROUNDING);
                }
                let whole = |sigma: f64| DpEvent::Composed {
                    events: runs
                        .iter()
                        .map(|&(factor, count)| {
                            DpEvent::self_composed(event(sigma * factor), count)
                        })
                        .collect(),
                };
                Ok(calibrated(1, &whole)? * SPLIT_ROUNDING)
            }
            (None, None) => Err(DpError::invalid(
                "budget",
                "or noise_multiplier must be given: without either there is no noise",
            )),
        }
    }
}

/// Returns an error if there is a step in which a schedule of the thresholds or of the noise leaves
/// nothing to which noise can be added: the run could never be finished.
fn check_schedules(
    clipping: &dyn Clipping,
    schedule: &Schedule,
    steps: u64,
    noise_multiplier: f64,
    batch: f64,
) -> Result<(), DpError> {
    let of_thresholds = clipping.schedules();
    let of_noise: Vec<_> = of_thresholds.iter().copied().chain([schedule]).collect();
    let extremes = [&of_thresholds, &of_noise].map(|all| Schedule::extremes(all, steps));
    let check = |step: u64| {
        let noise_multiplier = noise_multiplier * schedule.factor(step);
        let noise = clipping.thresholds(step).and_then(|all| all.noise(noise_multiplier, batch));
        noise.and_then(|noise| check_deviations(&noise, noise_multiplier, batch)).map_err(|error| {
            let reason = format!(
                "has thresholds in step {step} of {steps} to which no noise can be added \
                 ({error}); give a schedule whose factor is closer to 1, or fewer steps"
            );
            DpError::invalid("clipping", reason)
        })
    };
    extremes.into_iter().flatten().chain([steps - 1]).try_for_each(check)
}

/// Returns an error if the noise cannot be added, before anything is trained.
fn check_deviations(noise: &StepNoise, noise_multiplier: f64, batch: f64) -> Result<(), DpError> {
    let deviations = noise.group_stds.iter().copied().chain(noise.count_std);
    for deviation in deviations {
        if GaussianMechanism::new(deviation, 1.0 / batch).is_err() {
            let reason = format!(
                "times the clipping norm must be between 1e-25 and 1e25, and between 1e-25 and \
                 1e15 over the expected batch size ({batch}): {noise_multiplier:e} gives noise of \
                 standard deviation {deviation:e}; change one of the two"
            );
            return Err(DpError::invalid("noise_multiplier", reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::f64::consts::PI;

    use burn::config::Config;
    use burn_dp_accountant::{Budget, Simulation};

    use super::*;
    use crate::optim::SamplingScheme;

    fn config() -> PrivacyPlanConfig {
        PrivacyPlanConfig::new(10_000, 100.0).with_steps(500)
    }

    fn refused(config: PrivacyPlanConfig) -> String {
        config.init().unwrap_err().to_string()
    }

    #[test]
    fn the_calibrated_noise_multiplier_keeps_the_budget() {
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let plan = config().with_budget(budget).init().unwrap();
        let spent = plan.epsilon_at_end(1e-5).unwrap();
        assert!(spent <= 2.0 && spent > 1.99, "{spent}");
    }

    #[test]
    fn thresholds_that_vanish_before_the_last_step_are_refused_before_the_first() {
        use crate::clipping::ScheduledClipping;
        let decaying = |decay: f64| {
            let schedule = Schedule::exponential(decay, 10).unwrap();
            let clipping = ScheduledClipping::new(FlatClipping::new(1.0).unwrap(), schedule);
            config().with_noise_multiplier(1.0).with_clipping(clipping)
        };
        // 49 decays in 500 steps.
        for decay in [0.1, 10.0, 1e-10, 1e10] {
            let error = refused(decaying(decay));
            assert!(error.contains("in step 499 of 500 to which no noise"), "{error}");
        }
        decaying(0.5).init().unwrap();
        // What vanishes after the last step does not matter.
        let schedule = Schedule::steps([(500, 1e-30)]).unwrap();
        let clipping = ScheduledClipping::new(FlatClipping::new(1.0).unwrap(), schedule);
        config().with_noise_multiplier(1.0).with_clipping(clipping).init().unwrap();
    }

    #[test]
    fn thresholds_that_vanish_in_a_step_between_are_refused_before_the_first() {
        use crate::PublicSource;
        use crate::clipping::{
            CountNoise, LayerwiseClipping, PublicNorms, QuantileTracker, ScheduledClipping,
        };
        use crate::model::ParameterGroups;
        // Falls from one to zero in 50 steps, and starts again.
        let restarts = |least: f64| {
            let cosine = move |step: u64| 0.5 + 0.5 * ((step % 50) as f64 / 49.0 * PI).cos();
            Schedule::function("restarts", move |step| cosine(step).max(least))
        };
        let scheduled = |schedule| {
            let clipping = ScheduledClipping::new(FlatClipping::new(1.0).unwrap(), schedule);
            config().with_steps(120).with_noise_multiplier(1.0).with_clipping(clipping)
        };
        scheduled(restarts(1e-3)).init().unwrap();
        let nested = |schedule| {
            let clipping = ScheduledClipping::new(FlatClipping::new(1.0).unwrap(), schedule);
            let tracker = QuantileTracker::new(ParameterGroups::whole(), [0.5]).unwrap();
            let tracker = tracker.with_clipping(clipping, CountNoise::Share(0.1));
            config().with_steps(120).with_noise_multiplier(1.0).with_clipping(tracker)
        };
        let layerwise = |schedule| {
            let source = PublicSource::published("letters");
            let norms = PublicNorms::from_means(source, 9, ParameterGroups::whole(), vec![1.0]);
            let clipping = LayerwiseClipping::enhanced(1.0, &norms.unwrap()).unwrap();
            let clipping = clipping.with_schedule(schedule);
            config().with_steps(120).with_noise_multiplier(1.0).with_clipping(clipping)
        };
        layerwise(restarts(1e-3)).init().unwrap();
        let vanishing = [scheduled, nested, layerwise].map(|config| config(restarts(0.0)));
        for config in vanishing {
            let error = refused(config);
            assert!(error.contains("in step 49 of 120 to which no noise"), "{error}");
        }
        let peak = Schedule::steps([(60, 1e30), (61, 1.0)]).unwrap();
        let error = refused(scheduled(peak));
        assert!(error.contains("in step 60 of 120 to which no noise"), "{error}");
        // Neither the thresholds nor the noise alone.
        let peak = |steps| Schedule::steps([(steps, 1e10), (steps + 1, 1.0)]).unwrap();
        let both = |other| scheduled(peak(60)).with_noise_schedule(peak(other));
        both(70).init().unwrap();
        let error = refused(both(60));
        assert!(error.contains("in step 60 of 120 to which no noise"), "{error}");
    }

    #[test]
    fn epochs_become_whole_steps() {
        let config = PrivacyPlanConfig::new(1000, 30.0).with_noise_multiplier(1.0);
        assert_eq!(config.clone().with_epochs(3.0).init().unwrap().steps(), 100);
        assert_eq!(config.with_epochs(0.001).init().unwrap().steps(), 1);
    }

    #[test]
    fn an_epoch_is_the_steps_of_one_use_of_every_unit() {
        for (batch, steps) in [(30.0, 33), (1.0, 1000), (1000.0, 1)] {
            let config = PrivacyPlanConfig::new(1000, batch).with_noise_multiplier(1.0);
            assert_eq!(config.with_steps(5).init().unwrap().steps_per_epoch(), steps, "{batch}");
        }
    }

    #[test]
    fn every_plan_of_a_configuration_has_its_own_key() {
        let config = PrivacyPlanConfig::new(1000, 30.0).with_noise_multiplier(1.0).with_steps(1);
        let [one, other] = [(); 2].map(|()| config.init().unwrap().sampler().unwrap());
        assert!(one.draw(0).unwrap() != other.draw(0).unwrap());
    }

    #[test]
    fn a_saved_configuration_gives_the_same_plan() {
        use crate::clipping::QuantileClipping;
        use crate::schedule::Schedule;
        let sets = MiniSets::shuffled(1000, 8, 3).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        let budget = Budget::new(2.0, 1e-5).unwrap();
        for config in [
            config().with_budget(budget).with_max_grad_norm(0.7),
            config().with_budget(budget).with_clipping(QuantileClipping::new(0.5).unwrap()),
            config()
                .with_noise_multiplier(1.1)
                .with_noise_schedule(Schedule::exponential(0.9, 50).unwrap())
                .with_sampling(SamplingScheme::FixedSize)
                .with_unit(UnitOfPrivacy::User),
            config()
                .with_noise_multiplier(1.1)
                .with_sampling(SamplingScheme::TruncatedPoisson { max_batch_size: 150 }),
            config().with_noise_multiplier(1.1).with_sampling(SamplingScheme::WithReplacement),
            config().with_noise_multiplier(1.1).with_simulation(Simulation::new(4)),
            config().with_noise_multiplier(1.1).with_sampling(SamplingScheme::ShuffledOnce),
            PrivacyPlanConfig::for_mini_sets(&sets, 5.0)
                .with_epochs(2.0)
                .with_noise_multiplier(0.1 + 0.2)
                .with_noise_schedule(Schedule::steps([(3, 2.0), (7, 0.5)]).unwrap()),
        ] {
            let config = config.with_insecure_seed(InsecureSeed(9));
            config.save(&path).unwrap();
            let (plan, loaded) =
                (config.init().unwrap(), PrivacyPlanConfig::load(&path).unwrap().init().unwrap());
            assert_eq!(loaded.fingerprint(), plan.fingerprint());
            assert_eq!(loaded.planned, plan.planned);
            assert!(!plan.is_secure());
            let draw = |plan: &PrivacyPlan| plan.sampler().unwrap().draw(1).unwrap();
            assert!(draw(&loaded) == draw(&plan));
        }
        // Optional fields may be left out, and a misspelled one is not ignored.
        let read = |text: &str| serde_json::from_str::<PrivacyPlanConfig>(text);
        let short = r#"{"dataset_size": 1000, "expected_batch_size": 50,
            "steps": 3, "noise_multiplier": 1}"#;
        assert_eq!(read(short).unwrap().init().unwrap().steps(), 3);
        assert!(read(&short.replace("noise_multiplier", "noise_multiplyer")).is_err());
        // The units of batch clipping are the mini-sets, regardless of the file.
        let config = PrivacyPlanConfig::for_mini_sets(&sets, 5.0).with_steps(3);
        let mut json = serde_json::to_value(config.with_noise_multiplier(1.0)).unwrap();
        json["dataset_size"] = 60_000.into();
        let other: PrivacyPlanConfig = serde_json::from_value(json).unwrap();
        let error = other.init().unwrap_err().to_string();
        assert!(error.contains("must be the 125 mini-sets, got 60000"), "{error}");
    }

    #[test]
    fn a_configuration_with_an_unknown_or_repeated_field_is_refused() {
        use crate::clipping::GroupedClipping;
        use crate::model::groups::three_groups;
        use crate::schedule::Schedule;
        use burn_dp_accountant::correlated_noise::Strategy;
        let config = config()
            .with_clipping(GroupedClipping::equal(three_groups(), 1.0).unwrap())
            .with_noise_schedule(Schedule::exponential(0.9, 50).unwrap())
            .with_sampling(SamplingScheme::TruncatedPoisson { max_batch_size: 150 })
            .with_correlated_noise(Strategy::identity(500).unwrap());
        let text = serde_json::to_string(&config).unwrap();
        let load = |text: &str| PrivacyPlanConfig::load_binary(text.as_bytes());
        assert!(load(&text).is_ok());
        for field in ["\"c\":2", "\"steps\":500"] {
            assert!(text.contains(field), "{text}");
            let error = load(&text.replace(field, &format!("{field},{field}"))).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("repeated") || error.contains("duplicate"), "{error}");
        }
        for field in ["\"every\":50", "\"max_batch_size\":150", "\"kind\":\"identity\""] {
            assert!(text.contains(field), "{text}");
            let error = load(&text.replace(field, &format!("{field},\"x\":1"))).unwrap_err();
            assert!(error.to_string().contains("unknown field `x`"), "{field}: {error}");
        }
    }

    #[test]
    fn a_simulation_calibrates_less_noise_and_is_part_of_the_plan() {
        use burn_dp_accountant::correlated_noise::Strategy;
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let strategy = Strategy::banded_toeplitz(30, &[1.0, 0.5, 0.25]).unwrap();
        let config = || {
            PrivacyPlanConfig::new(1_000, 100.0)
                .with_steps(30)
                .with_budget(budget)
                .with_sampling(SamplingScheme::BallsInBins { bins: 10 })
                .with_correlated_noise(strategy.clone())
        };
        let certified = config().init().unwrap();
        let simulation = Simulation::new(7).with_samples(100_000).unwrap();
        let plan = config().with_simulation(simulation).init().unwrap();
        let (less, more) = (plan.noise_multiplier(), certified.noise_multiplier());
        assert!(less < 0.99 * more, "{less} {more}");
        let ledger = plan.new_ledger();
        assert_eq!(ledger.header().simulation, Some(simulation));
        let spent = plan.epsilon_at_end(1e-5).unwrap();
        assert!(spent <= 2.0 && spent > 1.8, "{spent}");
        // The whole run fits, and not one step more.
        assert_eq!(ledger.max_steps_within(&plan.event(), budget).unwrap(), 30);
        assert!(plan.fingerprint()["simulation"].contains("seed 7"));
        assert!(!certified.fingerprint().contains_key("simulation"));
    }

    #[test]
    fn a_plan_of_a_billion_steps_does_not_expand() {
        use crate::schedule::Schedule;
        let steps = 1_000_000_000;
        let plan = |schedule: Schedule| {
            let config = PrivacyPlanConfig::new(1_000_000, 1_000.0).with_steps(steps);
            config.with_noise_multiplier(100.0).with_noise_schedule(schedule).init()
        };
        for (schedule, pieces) in [
            (Schedule::constant(), 1),
            (Schedule::steps([(7, 2.0), (steps - 1, 0.5)]).unwrap(), 3),
            (Schedule::exponential(1.1, steps / 4).unwrap(), 4),
        ] {
            let plan = plan(schedule).unwrap();
            assert_eq!(plan.planned.len(), pieces);
            assert_eq!(plan.planned.iter().map(|piece| piece.1).sum::<u64>(), steps);
            if pieces == 1 {
                let spent = plan.epsilon_at_end(1e-7).unwrap();
                assert!(spent > 1.0 && spent < 2.0, "{spent}");
            }
        }
        let every = plan(Schedule::exponential(1.0 - 1e-9, 1).unwrap()).unwrap_err().to_string();
        assert!(every.contains("more than 100000 different factors"), "{every}");
    }

    #[test]
    fn what_is_not_data_is_refused_when_a_configuration_is_saved() {
        use crate::clipping::Own;
        use crate::schedule::Schedule;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        for number in [f64::NAN, f64::INFINITY] {
            assert!(config().with_max_grad_norm(number).save(&path).is_err());
        }
        let error = config().with_clipping(Own("my own")).save(&path).unwrap_err().to_string();
        assert!(error.contains("my own") && error.contains("with_clipping"), "{error}");
        let function = Schedule::function("half", |_| 0.5);
        let error = config().with_noise_schedule(function).save(&path).unwrap_err().to_string();
        assert!(error.contains("the schedule half is a function"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn impossible_configurations_are_refused_by_name() {
        let noisy = || config().with_noise_multiplier(1.0);
        let of_fixed_size = |batch: f64| {
            let config = PrivacyPlanConfig::new(10, batch).with_steps(1).with_noise_multiplier(1.0);
            config.with_sampling(SamplingScheme::FixedSize)
        };
        let epochs = |number: f64| {
            PrivacyPlanConfig::new(10, 5.0).with_noise_multiplier(1.0).with_epochs(number)
        };
        for (config, name) in [
            (
                PrivacyPlanConfig::new(0, 1.0).with_steps(1).with_noise_multiplier(1.0),
                "dataset_size",
            ),
            (PrivacyPlanConfig::new(10, 11.0).with_steps(1).with_noise_multiplier(1.0), "batch"),
            (PrivacyPlanConfig::new(10, 0.0).with_steps(1).with_noise_multiplier(1.0), "batch"),
            (of_fixed_size(11.0), "expected_batch_size must be positive and at most"),
            (of_fixed_size(0.0), "expected_batch_size must be positive and at most"),
            (epochs(0.0), "epochs must be positive and finite"),
            (epochs(-1.0), "epochs must be positive and finite"),
            (epochs(f64::NAN), "epochs must be positive and finite"),
            (epochs(f64::INFINITY), "epochs must be positive and finite"),
            (of_fixed_size(2.5), "whole number"),
            (config().with_noise_multiplier(0.0), "noise_multiplier must be positive"),
            (config().with_noise_multiplier(f64::NAN), "noise_multiplier must be positive"),
            (config(), "budget"),
            (noisy().with_epochs(1.0), "give one of them"),
            (noisy().with_steps(0), "steps"),
            (noisy().with_max_grad_norm(0.0), "max_grad_norm"),
            (noisy().with_max_grad_norm(1e-70), "standard deviation 1e-70"),
            (config().with_noise_multiplier(1e300), "change one of the two"),
            (PrivacyPlanConfig::new(10, 5.0).with_noise_multiplier(1.0), "steps or epochs"),
        ] {
            let error = refused(config);
            assert!(error.contains(name), "{error} does not mention {name}");
        }
        // The largest noise is that over the expected batch size, 100.
        assert!(config().with_noise_multiplier(5e16).init().is_ok());
        assert!(config().with_noise_multiplier(2e17).init().is_err());
    }

    #[test]
    fn a_calibrated_noise_multiplier_is_rounded_up() {
        use crate::schedule::Schedule;
        let budget = Budget::new(2.0, 1e-5).unwrap();
        let step = |sigma| DpEvent::dp_sgd_step(0.01, sigma);
        let whole = |sigma: f64| DpEvent::Composed {
            events: vec![
                DpEvent::self_composed(step(sigma), 250),
                DpEvent::self_composed(step(sigma * 2.0), 250),
            ],
        };
        let schedule = Schedule::steps([(250, 2.0)]).unwrap();
        let calibration =
            Calibration::new(budget).with_relation(NeighboringRelation::AddOrRemoveOne);
        let calibrated = |steps, event: &dyn Fn(f64) -> DpEvent| {
            calibration.noise_multiplier_after([], steps, event).unwrap()
        };
        for (config, exact) in [
            (config(), calibrated(500, &step)),
            (config().with_noise_schedule(schedule), calibrated(1, &whole)),
        ] {
            let found = config.with_budget(budget).init().unwrap().noise_multiplier();
            assert!(found > exact && found < exact * (1.0 + 1e-11), "{found} {exact}");
        }
    }

    #[test]
    fn a_delta_of_one_over_the_dataset_size_is_refused() {
        let error = refused(config().with_budget(Budget::new(1.0, 1e-4).unwrap()));
        assert!(error.contains("1 / dataset_size"), "{error}");
    }

    // Sharp edge: the relation determines what a mini-set protects.
    #[test]
    fn the_unit_of_mini_sets_follows_from_the_relation() {
        let sets = MiniSets::consecutive(1000, 10).unwrap();
        let plan = |sets: &MiniSets, scheme| {
            PrivacyPlanConfig::for_mini_sets(sets, 5.0)
                .with_noise_multiplier(1.0)
                .with_steps(3)
                .with_sampling(scheme)
        };
        let fixed = plan(&sets, SamplingScheme::FixedSize).init().unwrap();
        assert_eq!(fixed.unit, UnitOfPrivacy::Example);
        assert_eq!(fixed.relation(), NeighboringRelation::ReplaceOne);
        assert_eq!((fixed.dataset_size(), fixed.expected_batch_size()), (100, 5.0));
        assert_eq!(fixed.sampling(), SamplingScheme::FixedSize);
        assert_eq!(fixed.mini_sets().map(MiniSets::size), Some(10));
        let poisson = plan(&sets, SamplingScheme::Poisson).init().unwrap();
        assert_eq!(poisson.unit, UnitOfPrivacy::MiniSet);
        let not_covered = poisson.new_ledger().header().not_covered.join(" ");
        assert!(not_covered.contains("one mini-set removed and another added"), "{not_covered}");
        let single = MiniSets::consecutive(1000, 1).unwrap();
        let single = plan(&single, SamplingScheme::Poisson).init().unwrap();
        assert_eq!(single.unit, UnitOfPrivacy::Example);
        let user = plan(&sets, SamplingScheme::Poisson).with_unit(UnitOfPrivacy::User);
        assert!(refused(user).starts_with("unit is one user"));
        // There are 1000 examples, not 100: a larger delta would allow publishing one.
        let budget = Budget::new(1.0, 0.002).unwrap();
        let error = refused(plan(&sets, SamplingScheme::FixedSize).with_budget(budget));
        assert!(error.contains("1 / dataset_size = 1e-3"), "{error}");
    }

    #[test]
    fn replacement_costs_more_than_addition_and_shuffling_is_not_amplified() {
        let epsilon = |scheme| {
            let plan = config().with_noise_multiplier(4.0).with_sampling(scheme).init().unwrap();
            plan.epsilon_at_end(1e-5).unwrap()
        };
        let poisson = epsilon(SamplingScheme::Poisson);
        let fixed = epsilon(SamplingScheme::FixedSize);
        let shuffled = epsilon(SamplingScheme::Shuffled);
        assert!(poisson < fixed && fixed < shuffled, "{poisson} {fixed} {shuffled}");
        // A limit far above the mean costs little, and sampling with replacement costs more than
        // without.
        let truncated = epsilon(SamplingScheme::TruncatedPoisson { max_batch_size: 200 });
        assert!(poisson <= truncated && truncated < 1.01 * poisson, "{poisson} {truncated}");
        let repeated = epsilon(SamplingScheme::WithReplacement);
        assert!(fixed < repeated && repeated < shuffled, "{fixed} {repeated} {shuffled}");
        assert_eq!(shuffled, epsilon(SamplingScheme::ShuffledOnce));
    }

    #[test]
    fn a_step_is_certified_only_if_it_and_all_before_are_the_planned_ones() {
        use crate::schedule::Schedule;
        let plan = config()
            .with_budget(Budget::new(2.0, 1e-5).unwrap())
            .with_noise_schedule(Schedule::steps([(3, 2.0), (5, 3.0)]).unwrap())
            .init()
            .unwrap();
        let event = |step| {
            let multiplier = plan.noise_multiplier_at(step);
            let thresholds = plan.clipping.thresholds(step).unwrap();
            let noise = thresholds.noise(multiplier, plan.expected_batch_size).unwrap();
            plan.event_of(step, &noise).unwrap()
        };
        let mut ledger = plan.new_ledger();
        for step in 0..6 {
            assert!(plan.is_certified(step, &event(step), &ledger), "{step}");
            assert!(!plan.is_certified(step, &event(5 - step), &ledger), "{step}");
            ledger.record(&event(step)).unwrap();
        }
        let mut other = plan.new_ledger();
        other.record(&event(4)).unwrap();
        assert!(!plan.is_certified(1, &event(1), &other));
        other.record(&event(4)).unwrap();
        assert!(!plan.is_certified(4, &event(4), &other));
        // Another number of the same events.
        let mut fewer = plan.new_ledger();
        fewer.record_many(&event(0), 2).unwrap();
        assert!(plan.is_prefix(&fewer));
        fewer.record(&event(3)).unwrap();
        assert!(!plan.is_prefix(&fewer));
        // Without a schedule the ledger computes how many steps fit.
        let plan = config().with_budget(Budget::new(2.0, 1e-5).unwrap()).init().unwrap();
        assert!(!plan.is_certified(0, &event(0), &plan.new_ledger()));
    }
}
