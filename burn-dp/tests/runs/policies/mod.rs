//! Every clipping policy in the private step.

mod adaptation;
mod checkpoints;
mod ledger;
mod tracking;

use burn::module::ParamGroup;
use burn_dp::PublicSource;
use burn_dp::clipping::{
    AutomaticClipping, Clipping, CountNoise, FlatClipping, GroupedClipping, LayerwiseClipping,
    MultipliedClipping, NoiseSplit, PublicNorms, QuantileClipping, QuantileRule, QuantileTracker,
    ScheduledClipping,
};
use burn_dp::model::ParameterGroups;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::schedule::Schedule;

use crate::fixtures::{self, Net};

pub(crate) fn layers() -> ParameterGroups {
    ParameterGroups::per_layer(&Net::new()).unwrap()
}

/// Norms that were measured elsewhere.
pub(crate) fn norms(groups: ParameterGroups, means: impl Into<Vec<f64>>) -> PublicNorms {
    let source = PublicSource::published("letters");
    PublicNorms::from_means(source, 500, groups, means.into()).unwrap()
}

pub(crate) fn public_norms() -> PublicNorms {
    norms(layers(), [3.0, 1.0])
}

/// Groups that span several layers.
fn kinds() -> ParameterGroups {
    let groups = [("biases", ParamGroup::from_predicate("bias")), ("rest", ParamGroup::all())];
    ParameterGroups::by_param_group(&Net::new(), &groups).unwrap()
}

/// Groups of parameters with similar norms.
fn alike() -> ParameterGroups {
    let parameters = ParameterGroups::per_parameter(&Net::new()).unwrap();
    norms(parameters, [1.0, 0.1, 1.2, 0.15]).merged_groups(2).unwrap()
}

/// The policies with their names.
pub(crate) fn policies() -> Vec<(&'static str, Box<dyn Clipping>)> {
    let flat = || FlatClipping::new(0.5).unwrap();
    let quantile = || {
        let clipping = QuantileClipping::new(0.5).unwrap().with_initial(0.5).unwrap();
        clipping.with_count_noise(CountNoise::Std(0.5))
    };
    let grouped = |groups, norms| GroupedClipping::new(groups, norms).unwrap();
    let tracker = || QuantileTracker::new(layers(), [0.25, 0.75]).unwrap();
    let schedule = || Schedule::steps([(0, 0.5)]).unwrap();
    let enhanced = || LayerwiseClipping::enhanced(0.3, &public_norms()).unwrap();
    let multiplied = MultipliedClipping::from_public(0.7, &public_norms()).unwrap();
    let uniform = grouped(layers(), vec![0.1, 1.0]).with_noise_split(NoiseSplit::Uniform).unwrap();
    let shares = NoiseSplit::Shares(vec![3.0, 1.0]);
    vec![
        ("flat", Box::new(flat())),
        ("automatic", Box::new(AutomaticClipping::new())),
        ("per layer", Box::new(GroupedClipping::equal(layers(), 0.5).unwrap())),
        ("per layer, uniform noise", Box::new(uniform)),
        (
            "by parameter group, noise by shares",
            Box::new(grouped(kinds(), vec![0.2, 0.6]).with_noise_split(shares).unwrap()),
        ),
        ("by similar norms", Box::new(grouped(alike(), vec![0.7, 0.1]))),
        ("quantile", Box::new(quantile())),
        ("quantile per layer", Box::new(quantile().with_groups(layers()))),
        ("quantile, linear", Box::new(quantile().with_rule(QuantileRule::Linear))),
        (
            "quantile by share, scheduled",
            Box::new(ScheduledClipping::new(
                quantile().with_groups(kinds()).with_count_noise(CountNoise::Share(0.2)),
                schedule(),
            )),
        ),
        ("layerwise", Box::new(enhanced())),
        ("layerwise, decaying", Box::new(enhanced().with_schedule(schedule()))),
        ("zhang", Box::new(LayerwiseClipping::zhang(&public_norms()).unwrap())),
        ("multiplied", Box::new(multiplied)),
        ("scheduled", Box::new(ScheduledClipping::new(flat(), schedule()))),
        ("tracked", Box::new(tracker().with_clipping(flat(), CountNoise::Share(0.1)))),
        (
            "tracked with means",
            Box::new(tracker().with_means().with_clipping(quantile(), CountNoise::Share(0.1))),
        ),
        ("tracker alone", Box::new(tracker().with_means())),
        (
            "quantile by slack",
            Box::new(QuantileClipping::by_slack(0.4).unwrap().with_initial(0.5).unwrap()),
        ),
    ]
}

fn quantile() -> QuantileClipping {
    QuantileClipping::new(0.5)
        .unwrap()
        .with_groups(layers())
        .with_count_noise(CountNoise::Share(0.1))
}

fn config() -> PrivacyPlanConfig {
    fixtures::config().with_steps(10)
}
