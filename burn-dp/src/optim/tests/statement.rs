//! What the statement says about a run.

use burn::nn::Linear;
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use burn_dp_accountant::PrivacyStatement;

use super::{PrivacyPlanConfig, config, device, layer};
use crate::PublicSource;
use crate::clipping::{FlatClipping, Own, ScheduledClipping};
use crate::nn::Private;
use crate::optim::DpOptimizer;
use crate::sampling::Sampler;
use crate::schedule::Schedule;
use crate::updates::UnitUpdate;

fn optimizer() -> DpOptimizer {
    config().init().unwrap().optimizer(SgdConfig::new().init())
}

fn not_covered(optim: &DpOptimizer) -> String {
    optim.statement(&[1e-3]).unwrap().not_covered.join(" ")
}

fn losses(model: &Private<Linear>, units: Vec<usize>) -> Tensor<1> {
    let units: Vec<f32> = units.into_iter().map(|unit| unit as f32).collect();
    let x = Tensor::<1>::from_floats(units.as_slice(), &device()).unsqueeze_dim::<2>(1);
    model.forward(x).reshape([-1])
}

#[test]
fn noise_that_covers_rounding_is_stated_if_it_is_more_than_usual() {
    for (multiplier, stated) in [(1.0, None), (8e10, Some("1.11 times the noise of the plan"))] {
        let plan = config().with_noise_multiplier(multiplier).init().unwrap();
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let (model, draw) = (layer(1, 1, 1), optim.plan().sampler().unwrap().draw(0).unwrap());
        optim.backward(&model, &draw, losses).unwrap();
        optim.step(0.1, model, draw).unwrap();
        let facts = optim.statement(&[1e-3]).unwrap().facts;
        let found = facts.get("noise_for_rounding");
        assert_eq!(found.is_some(), stated.is_some(), "{found:?}");
        assert!(found.is_none_or(|fact| fact.starts_with(stated.unwrap())), "{found:?}");
    }
}

#[test]
fn errors_that_depend_on_the_data_are_not_covered() {
    assert!(not_covered(&optimizer()).contains("a token that is not in the vocabulary"));
}

#[test]
fn random_values_of_unit_updates_are_not_covered() {
    let mut optim = optimizer();
    let (model, draw) = (layer(1, 1, 1), optim.plan().sampler().unwrap().draw(0).unwrap());
    let update = |model: Private<Linear>, unit: usize| {
        let losses = losses(&model, vec![unit]);
        UnitUpdate::gradient(&model, losses)
    };
    optim.unit_updates(&model, &draw, update).unwrap();
    let text = not_covered(&optim);
    assert!(text.contains("An update of one unit that depends on other units"), "{text}");
    assert!(text.contains("how it loads a batch, or random values"), "{text}");
    // Alongside rows of a batch, which have a sentence of their own.
    let model = optim.step(0.1, model, draw).unwrap();
    let draw = optim.plan().sampler().unwrap().draw(1).unwrap();
    optim.backward(&model, &draw, losses).unwrap();
    let text = not_covered(&optim);
    assert!(text.contains("An update of one unit that depends on other units"), "{text}");
    assert!(text.contains("A loss of one example that depends on other examples"), "{text}");
}

#[test]
fn values_that_are_not_trained_are_replaced_between_two_steps_and_stated() {
    let (mut optim, model) = (optimizer(), layer(1, 1, 1));
    let letters = PublicSource::published("letters").data(vec![0]).unwrap();
    // Thresholds without a sum, as after a pass that was rejected.
    optim.thresholds().unwrap();
    let error = optim.accept_public_buffers(&model, &letters).unwrap_err().to_string();
    assert!(error.contains("within a logical step"), "{error}");
    optim.discard();
    optim.accept_public_buffers(&model, &letters).unwrap();
    assert!(optim.statement(&[1e-3]).unwrap().facts.contains_key("values_not_trained"));
}

/// The description of a flat policy, in a policy of the program: the run resumes with either.
const OWN: Own = Own("flat, L2 norm of each unit at most 1");

#[test]
fn thresholds_and_noise_that_the_program_computes_are_not_covered() {
    let sentence = "A clipping policy or a schedule that the program defines";
    let flat = || FlatClipping::new(1.0).unwrap();
    let function = || Schedule::function("half", |_| 0.5);
    let data = || Schedule::steps([(2, 0.5)]).unwrap();
    for (config, own) in [
        (config(), false),
        (config().with_clipping(ScheduledClipping::new(flat(), data())), false),
        (config().with_noise_schedule(data()), false),
        (config().with_clipping(OWN), true),
        (config().with_clipping(ScheduledClipping::new(OWN, data())), true),
        (config().with_clipping(ScheduledClipping::new(flat(), function())), true),
        (config().with_noise_schedule(function()), true),
    ] {
        let plan = config.init().unwrap();
        let name = format!("{:?}, {}", plan.clipping, plan.noise_schedule);
        let optim = plan.optimizer(SgdConfig::new().init());
        assert_eq!(not_covered(&optim).contains(sentence), own, "{name}");
        let statement = optim.statement(&[1e-3]).unwrap();
        assert_eq!(statement.facts.contains_key("thresholds_and_noise"), own, "{name}");
    }
}

#[test]
fn a_resumed_run_states_the_policies_of_both_parts() {
    let optimizer = |own| {
        let config = config().with_clipping(FlatClipping::new(1.0).unwrap());
        let config = if own { config.with_clipping(OWN) } else { config };
        config.init().unwrap().optimizer(SgdConfig::new().init())
    };
    let folder = tempfile::tempdir().unwrap();
    for (begun, resumed) in [(true, false), (false, true)] {
        let log = folder.path().join(format!("{begun}.log"));
        let optim = optimizer(begun).with_release_log(log).unwrap();
        let record = optim.to_record().unwrap();
        drop(optim);
        let optim = optimizer(resumed).load_record(record).unwrap();
        assert!(not_covered(&optim).contains("a schedule that the program defines"), "{begun}");
    }
}

#[test]
fn stopping_by_values_that_are_not_private_is_not_covered() {
    assert!(not_covered(&optimizer()).contains("The number of steps, or the choice of a check"));
}

// No CPU device has such products, so the function that queries the device is replaced.
#[test]
fn kernels_that_depend_on_the_shape_are_not_covered() {
    for coarse in [false, true] {
        let mut optim = optimizer();
        if coarse {
            optim.engine.coarse_products = |_| true;
        }
        assert!(!not_covered(&optim).contains("kernels by the shape"));
        let (model, draw) = (layer(1, 1, 1), optim.plan().sampler().unwrap().draw(0).unwrap());
        optim.backward(&model, &draw, losses).unwrap();
        let statement = optim.statement(&[1e-3]).unwrap();
        assert_eq!(statement.facts.contains_key("matrix_products"), coarse);
        assert!(!statement.facts.contains_key("augmentation_multiplicity"));
        assert_eq!(not_covered(&optim).contains("kernels by the shape"), coarse);
    }
}

#[test]
fn the_ledger_says_what_the_statement_says_and_so_does_a_later_run() {
    let secret = || PrivacyPlanConfig::new(12, 8.0).with_steps(6).with_noise_multiplier(1.0);
    let mut optim = secret().init().unwrap().optimizer(SgdConfig::new().init());
    let drawings = PublicSource::published("drawings of the museum").data(vec![0]).unwrap();
    optim.name_public_data(&drawings);
    let (model, draw) = (layer(1, 1, 1), optim.plan().sampler().unwrap().draw(0).unwrap());
    optim.backward(&model, &draw, losses).unwrap();
    optim.step(0.1, model, draw).unwrap();
    let ledger = optim.ledger();
    let statement = PrivacyStatement::from_ledger(&ledger, &[1e-3]).unwrap();
    assert_eq!(statement, optim.statement(&[1e-3]).unwrap());
    assert_eq!(statement.facts["identity_of_records"], "not checked");
    assert!(statement.facts["public_data"].contains("drawings of the museum"));

    let later = secret().with_earlier_releases(ledger).init().unwrap();
    let later = later.optimizer(SgdConfig::new().init());
    let text = not_covered(&later);
    for sentence in [
        "Of an earlier release: One record under several indices",
        "Of an earlier release: A loss of one example that depends on other examples",
    ] {
        assert!(text.contains(sentence), "{sentence}: {text}");
    }
    // What every statement says, it says once.
    assert_eq!(text.matches("The number of steps, or the choice of a check").count(), 1, "{text}");
}
