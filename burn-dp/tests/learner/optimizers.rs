//! Burn's processing of the noisy gradient is post-processing, and it is unchanged.

use burn::grad_clipping::GradientClippingConfig;
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::lr_scheduler::exponential::ExponentialLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::{ModuleLrScheduler, ModuleLrSchedulerConfig};
use burn::lr_scheduler::noam::NoamLrSchedulerConfig;
use burn::lr_scheduler::step::StepLrSchedulerConfig;
use burn::module::ParamGroup;
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn::train::Learner;

use crate::fixture::*;

/// The constant learning rate.
fn constant(lr: f64) -> ModuleLrScheduler {
    burn::lr_scheduler::constant::ConstantLr::from(lr).into()
}

/// Runs the learner, checks that the custom loop produces the same result, and returns the trained
/// model.
fn trained(optim: impl Fn() -> ModuleOptimizer, scheduler: impl Fn() -> ModuleLrScheduler) -> Net {
    let private = training_config().init(plan()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let model = private.model(Net::new()).unwrap();
    let learner = Learner::new(model, optim(), scheduler());
    let result = supervised(&private, folder.path()).launch(learner);
    let expected = custom_loop_of(plan().optimizer(optim()), scheduler(), 4);
    assert_same_run(&private, &result, &expected);
    expected.0
}

fn sgd() -> ModuleOptimizer {
    SgdConfig::new().init()
}

#[test]
fn parameter_groups_have_an_optimizer_of_their_own() {
    let second = || ParamGroup::from_predicate("second");
    let still =
        trained(|| sgd().with_group(second(), SgdConfig::new().build(), None), || constant(0.1));
    assert_eq!(values(&still), values(&trained(sgd, || constant(0.1))));

    let mixed =
        trained(|| sgd().with_group(second(), AdamConfig::new().build(), None), || constant(0.1));
    let plain = trained(sgd, || constant(0.1));
    let adam = trained(|| AdamConfig::new().init(), || constant(0.1));
    for other in [&plain, &adam] {
        assert_ne!(values(&mixed), values(other));
    }
}

#[test]
fn a_group_with_a_vanishing_learning_rate_does_not_move() {
    let scheduler = || {
        ModuleLrSchedulerConfig::new(
            CosineAnnealingLrSchedulerConfig::new(0.1, STEPS as usize).into(),
        )
        .with_group(
            ParamGroup::from_predicate("first"),
            // Too small to change a weight in single precision.
            ExponentialLrSchedulerConfig::new(1e-30, 0.5),
        )
        .init()
        .unwrap()
    };
    let model = trained(sgd, scheduler);
    let (before, after) = (values(&Net::new()), values(&model));
    assert_eq!(before[0], after[0]);
    assert_ne!(before[2], after[2]);
}

#[test]
fn gradient_clipping_of_burn_bounds_the_noisy_gradient() {
    let clipped = || {
        let clipping = GradientClippingConfig::Norm(1e-3).init();
        sgd().with_grad_clipping(clipping)
    };
    let model = trained(clipped, || constant(1.0));
    // Each step moves each parameter by at most the norm, regardless of the noise.
    let moved = values(&Net::new()).into_iter().zip(values(&model)).map(|(before, after)| {
        before.iter().zip(&after).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
    });
    let moved: Vec<f64> = moved.collect();
    assert!(moved.iter().all(|&norm| norm <= STEPS as f64 * 1e-3 * 1.001), "{moved:?}");
    // A bias of one value moves by the norm in every step, up or down, and may end where it began.
    let (bias, others) = moved.split_last().unwrap();
    let steps = bias / 1e-3;
    assert!(
        (steps - steps.round()).abs() < 1e-2 && steps.round() as u64 % 2 == STEPS % 2,
        "{bias}"
    );
    assert!(others.iter().all(|&norm| norm > 1e-3 / 2.0), "{others:?}");
}

#[test]
fn a_learning_rate_that_is_not_finite_ends_the_training_before_the_release() {
    for rate in [f64::NAN, f64::INFINITY, 1e39] {
        let private = training_config().init(plan()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let learner = Learner::new(private.model(Net::new()).unwrap(), sgd(), constant(rate));
        let result = supervised(&private, folder.path()).launch(learner);
        let error = private.finish(&result).unwrap_err().to_string();
        assert!(error.contains("lr must be finite"), "{error}");
        assert_eq!(private.ledger().releases(), 0);
        assert_eq!(values(result.model.inner()), values(&Net::new()));
    }
}

#[test]
fn learning_rate_schedulers_tick_once_per_step() {
    let steps = STEPS as usize;
    trained(sgd, move || CosineAnnealingLrSchedulerConfig::new(0.1, steps).init().unwrap());
    trained(sgd, || ExponentialLrSchedulerConfig::new(0.1, 0.8).init().unwrap());
    trained(sgd, || NoamLrSchedulerConfig::new(0.5).with_warmup_steps(4).init().unwrap());

    // The rate is zero from the fifth step on: the model equals the model after four steps.
    let stopped = trained(sgd, || {
        let config = StepLrSchedulerConfig::new(0.1, 4).with_gamma(0.0);
        config.init().unwrap()
    });
    let private = training_config().init(plan()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let learner = Learner::new(private.model(Net::new()).unwrap(), sgd(), constant(0.1));
    let result = supervised(&private, folder.path()).num_epochs(1).launch(learner);
    assert_eq!(values(&stopped), values(result.model.inner()));
}
