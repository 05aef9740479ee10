//! Thresholds change between steps, and never within one.

use burn::module::Module;
use burn::optim::SgdConfig;
use burn_dp::PublicSource;
use burn_dp::clipping::{ClippedSum, GroupedClipping, LayerwiseClipping, PublicNorms};
use burn_dp::grads::PrivateBackward;
use burn_dp::model::ParameterGroups;
use burn_dp::optim::DpOptimizer;
use burn_dp::sampling::Sampler;

use super::{config, layers, norms, policies, public_norms, quantile};
use crate::fixtures::{Net, rows, train_on};

// Sharp edges: physical batches make one release, with one set of thresholds.
#[test]
fn a_logical_step_is_one_release_with_fixed_thresholds() {
    let mut optim =
        config().with_clipping(quantile()).init().unwrap().optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    let data = rows(200);
    let mut path = Vec::new();
    for step in 0..5 {
        let draw = optim.plan().sampler().unwrap().draw(step).unwrap();
        let thresholds = optim.thresholds().unwrap();
        for part in draw.parts(1).unwrap() {
            let losses = |model: &Net, unit: Vec<usize>| model.losses_of_rows(&[data[unit[0]]]);
            optim.backward(&model, part, losses).unwrap();
            assert_eq!(optim.thresholds().unwrap(), thresholds);
            // Nothing may move them in between.
            let error = optim.learn_from_public(&public_norms()).unwrap_err().to_string();
            assert!(error.contains("are fixed until the step is made"), "{error}");
        }
        path.push(thresholds.norms().to_vec());
        model = optim.step(0.1, model, draw).unwrap();
        assert_eq!(optim.ledger().releases(), step + 1);
    }
    assert!(path.windows(2).all(|pair| pair[0] != pair[1]), "{path:?}");
    assert_eq!(optim.ledger().entries().len(), 1, "every step has the same event");
}

// Sharp edge: a sum with the thresholds of another step is refused.
#[test]
fn a_sum_with_the_thresholds_of_an_earlier_step_is_refused() {
    let mut optim =
        config().with_clipping(quantile()).init().unwrap().optimizer(SgdConfig::new().init());
    let model = Net::new();
    let old = optim.thresholds().unwrap();
    let model = train_on(&mut optim, model, 1, 1000);
    let grads = PrivateBackward::new().run(model.losses_of_rows(&rows(2)), &model).unwrap();
    let draw = optim.plan().sampler().unwrap().draw(1).unwrap();
    let (part, sum) =
        (draw.parts(2).unwrap().next().unwrap(), ClippedSum::from_gradients(grads, &old).unwrap());
    let error = optim.accumulate(part, sum).unwrap_err().to_string();
    assert!(error.contains("must be clipped to the thresholds of the logical step"), "{error}");
}

#[test]
fn thresholds_from_public_norms_change_between_two_steps_and_take_effect() {
    let clipping = LayerwiseClipping::enhanced(0.3, &public_norms()).unwrap();
    let mut optim =
        config().with_clipping(clipping).init().unwrap().optimizer(SgdConfig::new().init());
    let model = train_on(&mut optim, Net::new(), 1, 1000);
    let std = |optim: &DpOptimizer| optim.gradient_noise_std("first.weight").unwrap();
    let before = std(&optim);
    let public = PublicSource::generated("waves").data(rows(5)).unwrap().batches(2);
    let measured =
        PublicNorms::measure(layers(), &public, &model, |model, rows| model.losses_of_rows(rows));
    let measured = measured.unwrap();
    let means = measured.means();
    optim.learn_from_public(&measured).unwrap();
    optim.learn_from_public(&measured).unwrap();
    // Both sources are named once each.
    let statement = optim.statement(&[1e-5]).unwrap();
    let named = "letters (published, 500 items); waves (generated, 5 items)";
    assert_eq!(statement.facts["public_data"], named);
    assert!(statement.clipping.contains("letters (published, 500 items)"));
    train_on(&mut optim, model, 1, 1000);
    let largest = means[0].max(means[1]);
    let expected = (means[0] / largest).max(1e-3) / 1.0;
    assert!((std(&optim) / before / expected - 1.0).abs() < 1e-9);
    let whole = norms(ParameterGroups::whole(), [1.0]);
    assert!(optim.learn_from_public(&whole).unwrap_err().to_string().contains("first, second"));
}

// Sharp edge: one unit twice in a batch.
#[test]
fn a_unit_that_is_given_twice_is_refused_under_every_policy() {
    for (name, policy) in policies() {
        let plan = config().with_noise_multiplier(0.2).with_clipping(policy).init().unwrap();
        let draw = plan.sampler().unwrap().draw(0).unwrap();
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let model = Net::new();
        let data = rows(200);
        let losses = |model: &Net, units: Vec<usize>| {
            model.losses_of_rows(&units.iter().map(|&unit| data[unit]).collect::<Vec<_>>())
        };
        optim.backward(&model, &draw, losses).unwrap();
        let again = draw.parts(1).unwrap().next().unwrap();
        let error = optim.backward(&model, again, losses).unwrap_err().to_string();
        let unit = draw.private_indices()[0];
        assert!(
            error.contains(&format!("unit {unit} of step 0 was given twice")),
            "{name}: {error}"
        );
        // The repeated unit was not added.
        optim.step(0.1, model, draw).unwrap();
        assert_eq!(optim.ledger().releases(), 1);
    }
}

#[test]
fn a_step_with_a_parameter_without_a_group_releases_nothing() {
    let model = Net::new();
    let frozen = Net { first: model.first.clone().no_grad(), ..model.clone() };
    let groups = ParameterGroups::per_layer(&frozen).unwrap();
    assert_eq!(groups.names(), ["second"]);
    let clipping = GroupedClipping::equal(groups, 1.0).unwrap();
    let config = config().with_clipping(clipping);
    let begin = || config.clone().init().unwrap().optimizer(SgdConfig::new().init());
    let mut optim = begin();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let drawn: Vec<_> = draw.private_indices().iter().map(|&unit| rows(200)[unit]).collect();
    let losses = |model: &Net, _| model.losses_of_rows(&drawn);
    let error = begin().backward(&model, &draw, losses).unwrap_err().to_string();
    assert!(error.contains("`first.") && error.contains("no clipping group"), "{error}");
    optim.backward(&frozen, &draw, losses).unwrap();
    let error = optim.step(0.1, model, draw).unwrap_err().error().to_string();
    assert!(error.contains("`first.") && error.contains("no clipping group"), "{error}");
    assert_eq!(optim.ledger().releases(), 0);
}
