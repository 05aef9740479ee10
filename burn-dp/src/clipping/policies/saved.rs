//! Policies that are saved with a plan.

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::config::{ClippingConfig, Settings};
use super::policy::{Clipping, Seal};
use super::{
    AutomaticClipping, FlatClipping, GroupedClipping, LayerwiseClipping, MultipliedClipping,
    QuantileClipping, QuantileTracker, ScheduledClipping,
};
use crate::DpError;
use crate::public_data::checked_origin;

impl ClippingConfig {
    /// Creates the policy.
    ///
    /// # Errors
    ///
    /// Returns the errors of the policy's constructors, for settings that were read from a file.
    pub fn init(self) -> Result<Box<dyn Clipping>, DpError> {
        let policy = self.0.init()?;
        policy.thresholds(0)?;
        Ok(policy)
    }
}

impl Settings {
    fn init(self) -> Result<Box<dyn Clipping>, DpError> {
        Ok(match self {
            Self::Flat { max_grad_norm } => Box::new(FlatClipping::new(max_grad_norm)?),
            Self::Automatic { norm, stability } => {
                Box::new(AutomaticClipping::new().with_norm(norm)?.with_stability(stability)?)
            }
            Self::Grouped { groups, norms, noise_split } => {
                let policy = GroupedClipping::new(groups.try_into()?, norms)?;
                Box::new(policy.with_noise_split(noise_split)?)
            }
            Self::Layerwise { groups, public_data, master, schedule, noise_split, norms } => {
                let origin = checked_origin(public_data)?;
                let policy = LayerwiseClipping::new(groups.try_into()?, master, norms, origin)?;
                Box::new(policy.with_schedule(schedule).with_noise_split(noise_split)?)
            }
            Self::Multiplied { groups, public_data, max_grad_norm, multipliers } => {
                let origin = public_data.map(checked_origin).transpose()?;
                let policy =
                    MultipliedClipping::new(groups.try_into()?, max_grad_norm, multipliers);
                Box::new(policy?.with_origin(origin))
            }
            Self::Quantile {
                target,
                by_slack,
                groups,
                initial,
                floor,
                updates,
                count_noise,
                noise_split,
            } => {
                let policy = match by_slack {
                    true => QuantileClipping::by_slack(target)?,
                    false => QuantileClipping::new(target)?,
                };
                let mut policy = policy.with_initial(initial)?.with_updates(updates)?;
                if let Some(floor) = floor {
                    policy = policy.with_floor(floor)?;
                }
                if let Some(groups) = groups {
                    policy = policy.with_groups(groups.try_into()?);
                }
                Box::new(policy.with_count_noise(count_noise).with_noise_split(noise_split)?)
            }
            Self::Scheduled { policy, schedule } => {
                Box::new(ScheduledClipping::new(policy.init()?, schedule))
            }
            Self::Tracker { groups, quantiles, with_means, initial, updates, policy } => {
                let mut tracker = QuantileTracker::new(groups.try_into()?, quantiles)?
                    .with_initial(initial)?
                    .with_updates(updates)?;
                if with_means {
                    tracker = tracker.with_means();
                }
                if let Some((policy, noise)) = policy {
                    tracker = tracker.with_clipping(policy.init()?, noise);
                }
                Box::new(tracker)
            }
            Self::Adapted { policy, state } => {
                let mut policy = policy.init()?;
                policy.load_state(&state)?;
                policy
            }
        })
    }
}

impl Serialize for dyn Clipping + '_ {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(ClippingConfig(settings)) = self.to_config(Seal) else {
            return Err(S::Error::custom(format!(
                "the clipping policy ({}) cannot be saved, because it is not one of burn-dp; leave \
                 it out, and give it with `with_clipping` after loading",
                self.describe()
            )));
        };
        let (initial, state) =
            (settings.clone().init().map_err(S::Error::custom)?, self.save_state());
        match initial.save_state() == state {
            true => settings.serialize(serializer),
            false => Settings::Adapted { policy: Box::new(settings), state }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Box<dyn Clipping> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ClippingConfig::deserialize(deserializer)?.init().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::public_norms::of_drawings;
    use super::*;
    use crate::clipping::{CountNoise, NoiseSplit, Own, PublicNorms, QuantileRule};
    use crate::model::groups::three_groups;
    use crate::optim::PrivacyPlanConfig;
    use crate::random::InsecureSeed;
    use crate::schedule::Schedule;

    fn norms() -> PublicNorms {
        of_drawings(three_groups(), vec![0.3, 0.7, 0.1])
    }

    fn decay() -> Schedule {
        Schedule::exponential(0.9, 2).unwrap()
    }

    /// Policies of every kind, with settings that are not the defaults.
    fn policies() -> Vec<Box<dyn Clipping>> {
        let quantile = QuantileClipping::new(0.7)
            .unwrap()
            .with_initial(0.5)
            .unwrap()
            .with_floor(0.01)
            .unwrap()
            .with_rule(QuantileRule::Linear)
            .with_learning_rate(0.3)
            .unwrap()
            .with_schedule(decay());
        let grouped = quantile
            .clone()
            .with_groups(three_groups())
            .with_count_noise(CountNoise::Share(0.2))
            .with_noise_split(NoiseSplit::Shares(vec![1.0, 2.0, 3.0]))
            .unwrap();
        let layerwise = LayerwiseClipping::enhanced(0.2, &norms()).unwrap();
        let merged = norms().merged_groups(2).unwrap();
        let tracker = QuantileTracker::new(three_groups(), [0.9, 0.5])
            .unwrap()
            .with_initial(0.4)
            .unwrap()
            .with_rule(QuantileRule::Linear, 0.3)
            .unwrap();
        let scheduled = ScheduledClipping::new(grouped.clone(), decay());
        let noise = CountNoise::Std(30.0);
        vec![
            Box::new(FlatClipping::new(0.1 + 0.2).unwrap()),
            Box::new(AutomaticClipping::new().with_norm(2.0).unwrap().with_stability(0.3).unwrap()),
            Box::new(GroupedClipping::equal(merged.clone(), 1.0).unwrap()),
            Box::new(
                GroupedClipping::new(three_groups(), vec![0.1, 0.2, 0.4])
                    .unwrap()
                    .with_noise_split(NoiseSplit::Uniform)
                    .unwrap(),
            ),
            Box::new(layerwise.clone().with_schedule(decay())),
            Box::new(LayerwiseClipping::zhang(&norms()).unwrap()),
            Box::new(
                LayerwiseClipping::enhanced(0.2, &of_drawings(merged, vec![2.0, 3.0])).unwrap(),
            ),
            Box::new(MultipliedClipping::new(three_groups(), 1.5, vec![1.0, 2.0, 3.0]).unwrap()),
            Box::new(MultipliedClipping::from_public(1.5, &norms()).unwrap()),
            Box::new(quantile.clone()),
            Box::new(QuantileClipping::by_slack(0.3).unwrap()),
            Box::new(grouped),
            Box::new(tracker.clone().with_means()),
            Box::new(tracker.clone().with_clipping(layerwise, noise).with_schedule(decay())),
            Box::new(tracker.with_means().with_clipping(scheduled, noise)),
            Box::new(ScheduledClipping::new(quantile, decay())),
        ]
    }

    fn saved(policy: &dyn Clipping) -> String {
        serde_json::to_string(policy).unwrap()
    }

    fn read(text: &str) -> Result<Box<dyn Clipping>, serde_json::Error> {
        serde_json::from_str(text)
    }

    fn assert_same(found: &dyn Clipping, expected: &dyn Clipping) {
        assert_eq!(found.describe(), expected.describe());
        assert_eq!(found.public_data(), expected.public_data());
        assert_eq!(found.adapted(), expected.adapted());
        for step in [0, 1, 7] {
            assert_eq!(found.thresholds(step).unwrap(), expected.thresholds(step).unwrap());
        }
        assert_eq!(saved(found), saved(expected));
    }

    /// Moves the policy by counts and, if it uses them, by public norms.
    fn adapt(policy: &mut dyn Clipping) {
        for step in 0..3 {
            let counts = policy.thresholds(step).unwrap().counts().len();
            let fractions: Vec<f64> = (0..counts).map(|count| 0.1 * count as f64).collect();
            policy.update(step, &fractions);
        }
        let _ = policy.set_public_norms(&of_drawings(three_groups(), vec![0.2, 0.9, 0.4]));
    }

    #[test]
    fn a_loaded_policy_behaves_like_the_saved_one() {
        for mut policy in policies() {
            let text = saved(&*policy);
            let mut loaded = read(&text).unwrap();
            assert!(!text.contains("adapted"), "{text}");
            assert_same(&*loaded, &*policy);
            adapt(&mut *policy);
            adapt(&mut *loaded);
            assert_same(&*loaded, &*policy);
            // One that has adapted is saved where it is.
            assert_same(&*read(&saved(&*policy)).unwrap(), &*policy);
        }
    }

    #[test]
    fn a_plan_that_was_saved_with_its_policy_releases_the_same() {
        for policy in policies() {
            let config = PrivacyPlanConfig::new(1000, 100.0)
                .with_steps(9)
                .with_noise_multiplier(1.0)
                .with_insecure_seed(InsecureSeed(3))
                .with_clipping(policy);
            let loaded: PrivacyPlanConfig =
                serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
            let (plan, loaded) = (config.init().unwrap(), loaded.init().unwrap());
            assert_eq!(loaded.fingerprint(), plan.fingerprint());
            assert_eq!(loaded.event(), plan.event());
            assert_eq!(loaded.new_ledger().header(), plan.new_ledger().header());
        }
    }

    #[test]
    fn settings_that_a_constructor_rejects_are_not_read() {
        // Each number of each policy, as a file could contain it.
        fn numbers(value: &serde_json::Value, path: String, found: &mut Vec<String>) {
            match value {
                serde_json::Value::Number(_) => found.push(path),
                serde_json::Value::Array(items) => items
                    .iter()
                    .enumerate()
                    .for_each(|(at, item)| numbers(item, format!("{path}/{at}"), found)),
                serde_json::Value::Object(fields) => fields
                    .iter()
                    .for_each(|(name, field)| numbers(field, format!("{path}/{name}"), found)),
                _ => {}
            }
        }
        let mut checked = 0;
        for policy in policies() {
            let json: serde_json::Value = serde_json::from_str(&saved(&*policy)).unwrap();
            let mut paths = Vec::new();
            numbers(&json, String::new(), &mut paths);
            for path in paths {
                for wrong in [serde_json::json!(-1.5), serde_json::json!("x")] {
                    let mut other = json.clone();
                    *other.pointer_mut(&path).unwrap() = wrong;
                    assert!(read(&other.to_string()).is_err(), "{path} of {other}");
                    checked += 1;
                }
            }
        }
        assert!(checked > 200, "{checked}");
        // JSON writes NaN and infinity as null.
        for text in [
            r#"{"flat": {"max_grad_norm": null}}"#,
            r#"{"flat": {"max_grad_norm": 0.0}}"#,
            r#"{"flat": {"max_grad_norm": 1e999}}"#,
            r#"{"flat": {"max_grad_norm": 1.0, "stability": 0.1}}"#,
            r#"{"flat": {}}"#,
            r#"{"automatic": {"norm": 1.0, "stability": 0.0}}"#,
            r#"{"flatt": {"max_grad_norm": 1.0}}"#,
            r#"{"scheduled": {"policy": {"flat": {"max_grad_norm": 0}}, "schedule": "constant"}}"#,
            r#"{"adapted": {"policy": {"flat": {"max_grad_norm": 1.0}}, "state": [1.0]}}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    // Sharp edge: what was computed from public data is never without the name of the data.
    #[test]
    fn public_data_of_a_saved_policy_has_source_and_size() {
        let policy = LayerwiseClipping::enhanced(0.2, &norms()).unwrap();
        let text = saved(&policy);
        let origin = "drawings (generated, 9 items)";
        assert!(text.contains(origin), "{text}");
        for other in
            ["", " ", "drawings", "(generated, 9 items)", " (generated, 9 items)", "drawings ()"]
                .into_iter()
                .chain(["drawings (generated, 0 items)", "drawings (private, 9 items)"])
                .chain(["a; b (generated, 9 items)", "drawings (generated, 1 items)"])
        {
            let error = read(&text.replace(origin, other)).unwrap_err().to_string();
            assert!(error.contains("public"), "{other}: {error}");
        }
        assert!(read(&text.replace("\"public_data\":\"drawings", "\"other\":\"drawings")).is_err());
        let other = read(&text.replace(origin, "a (b) (published, 1 item)")).unwrap();
        assert_eq!(other.public_data(), ["a (b) (published, 1 item)"]);
    }

    #[test]
    fn groups_without_a_parameter_and_parameters_without_a_group_are_refused() {
        let text = saved(&GroupedClipping::equal(three_groups(), 1.0).unwrap());
        for (part, other) in [
            (r#""c":2"#, r#""c":1"#),
            (r#""c":2"#, r#""c":3"#),
            (r#"{"a":0,"b":1,"c":2}"#, "null"),
            (r#"{"a":0,"b":1,"c":2}"#, "{}"),
            (
                r#""names":["a","b","c"],"parameters":{"a":0,"b":1,"c":2}"#,
                r#""names":[],"parameters":{}"#,
            ),
        ] {
            assert!(text.contains(part), "{text}");
            let error = read(&text.replace(part, other)).unwrap_err().to_string();
            assert!(error.contains("groups must each have a parameter"), "{error}");
        }
    }

    #[test]
    fn another_policy_is_refused_when_it_is_saved() {
        let own = || Own("my own");
        let tracker = QuantileTracker::new(three_groups(), [0.5]).unwrap();
        let policies: [Box<dyn Clipping>; 3] = [
            Box::new(own()),
            Box::new(ScheduledClipping::new(own(), decay())),
            Box::new(tracker.with_clipping(own(), CountNoise::default())),
        ];
        for policy in policies {
            let error = serde_json::to_string(&policy).unwrap_err().to_string();
            assert!(error.contains("my own") && error.contains("`with_clipping`"), "{error}");
        }
        let function = Schedule::function("half", |_| 0.5);
        let scheduled = ScheduledClipping::new(FlatClipping::new(1.0).unwrap(), function);
        let error = serde_json::to_string::<dyn Clipping>(&scheduled).unwrap_err().to_string();
        assert!(error.contains("the schedule half is a function"), "{error}");
    }
}
