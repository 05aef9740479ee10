//! Steps that are rejected, and values that no type reveals.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use burn_dp::DpError;
use burn_dp::clipping::GroupedClipping;
use burn_dp::model::ParameterGroups;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::SamplingScheme;
use burn_dp::sampling::Sampler;

use crate::fixtures::{Net, Rows, UNITS, config, device, inputs, layer, run};

#[test]
fn a_step_beyond_the_plan_is_refused() {
    let (model, mut optim) = run(config(), SgdConfig::new().init(), 7);
    let draw = optim.plan().sampler().unwrap().draw(8).unwrap();
    optim.backward(&model, &draw, |model, units| model.losses_of(&units)).unwrap();
    let error = optim.step(0.1, model, draw).unwrap_err().error().to_string();
    assert!(error.contains("all 8 planned steps"), "{error}");
    assert_eq!(optim.ledger().releases(), 8);
}

#[test]
fn a_learning_rate_that_is_not_finite_is_refused_before_the_release() {
    let mut optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    optim.backward(&model, &draw, |model, units| model.losses_of(&units)).unwrap();
    // The last one is infinite as a parameter of single precision.
    for lr in [f64::NAN, f64::INFINITY, 1e39] {
        let refused = optim.step(lr, model, draw.clone()).unwrap_err();
        assert!(refused.error().to_string().contains("lr must be finite"), "{}", refused.error());
        assert_eq!(optim.ledger().releases(), 0);
        model = refused.into_model();
    }
    // The step can still be taken.
    optim.step(0.1, model, draw).unwrap();
    assert_eq!(optim.ledger().releases(), 1);
}

#[test]
fn draws_that_the_plan_does_not_account_for_are_refused() {
    let plan = config().init().unwrap();
    let other = config().with_sampling(SamplingScheme::FixedSize).init().unwrap();
    let foreign = other.sampler().unwrap().draw(0).unwrap();
    let later = plan.sampler().unwrap().draw(3).unwrap();
    let mine = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Net::new();

    let mut refuse = |draw, words: &str| {
        let error = optim.step(0.1, model.clone(), draw).unwrap_err().error().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(optim.ledger().releases(), 0);
    };
    refuse(foreign, "not what the plan accounts for");
    refuse(later, "in order");
    let seeded = burn_dp::sampling::PoissonSampler::with_expected_batch_size(UNITS, 20.0)
        .unwrap()
        .with_key(burn_dp::random::InsecureSeed(42));
    refuse(seeded.draw(0).unwrap(), "a key that is not the plan's");
    // Nothing was passed to `backward`, although units were drawn.
    refuse(mine.clone(), "was drawn, but never given");

    optim.backward(&model, &mine, |model, units| model.losses_of(&units)).unwrap();
    assert!(optim.step(0.1, model, mine).is_ok());
}

// Sharp edge: a layer that changes its place gets the noise of another group.
#[test]
fn layers_that_change_places_within_a_step_are_refused() {
    #[derive(Module, Debug)]
    struct Pair {
        first: Private<Linear>,
        second: Private<Linear>,
    }
    let model = Pair { first: layer(3, 3, 1.0).private(), second: layer(3, 3, 2.0).private() };
    let swapped = Pair { first: model.second.clone(), second: model.first.clone() };
    let groups = ParameterGroups::per_layer(&model).unwrap();
    let clipping = GroupedClipping::new(groups, vec![0.2, 2.0]).unwrap();
    let plan = config().with_clipping(clipping).init().unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let losses = |model: &Pair, units: Vec<usize>| {
        let output = model.second.forward(model.first.forward(inputs(&units)).tanh());
        output.powi_scalar(2).sum_dim(1).reshape([-1])
    };
    // Between two physical batches.
    let mut parts = draw.parts(2).unwrap();
    optim.backward(&model, parts.next().unwrap(), losses).unwrap();
    let error = optim.backward(&swapped, parts.next().unwrap(), losses).unwrap_err().to_string();
    assert!(error.contains("changed its clipping group"), "{error}");
    // Before the release.
    optim.discard();
    optim.backward(&model, &draw, losses).unwrap();
    let refused = optim.step(0.1, swapped, draw.clone()).unwrap_err();
    let error = refused.error().to_string();
    assert!(error.contains("`first.weight` does not fit: it was in another clipping"), "{error}");
    assert_eq!(optim.ledger().releases(), 0);
    let Pair { first, second } = refused.into_model();
    optim.step(0.1, Pair { first: second, second: first }, draw).unwrap();
    assert_eq!(optim.ledger().releases(), 1);
}

#[test]
fn a_failing_backward_releases_nothing() {
    #[derive(Module, Debug)]
    struct Mixed {
        first: Private<Linear>,
        second: Linear,
    }
    let device = device();
    let model = Mixed {
        first: LinearConfig::new(3, 2).init(&device).private(),
        second: LinearConfig::new(2, 1).init(&device),
    };
    let plan = config().init().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let losses = |model: &Mixed, units: Vec<usize>| {
        let x = Rows.batch(units, &device);
        model.second.forward(model.first.forward(x)).reshape([-1])
    };
    assert!(matches!(
        optim.backward(&model, &draw, losses),
        Err(DpError::UnsupportedModel { path, .. }) if path == "second.weight"
    ));
    assert_eq!(optim.ledger().releases(), 0);
}

#[test]
fn a_buffer_that_a_forward_pass_changes_is_refused_with_its_path() {
    use burn::module::RunningState;
    #[derive(Module, Debug)]
    struct Tracking {
        fc: Private<Linear>,
        seen: RunningState<Tensor<1>>,
    }
    let device = device();
    let model = Tracking {
        fc: LinearConfig::new(3, 1).init(&device).private(),
        seen: RunningState::new(Tensor::zeros([1], &device)),
    };
    let mut optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let mut parts = draw.parts(2).unwrap();
    let mut pass = || {
        optim.backward(&model, parts.next().unwrap(), |model, units| {
            let x = Rows.batch(units, &device);
            let mean = x.clone().mean().reshape([1]).detach();
            model.seen.update(model.seen.value_sync() + mean);
            let _ = model.seen.value_sync();
            model.fc.forward(x).powi_scalar(2).reshape([-1])
        })
    };
    let error = pass().unwrap_err().to_string();
    assert!(error.contains("`seen`") && error.contains("not trained"), "{error}");
}

#[test]
fn a_parameter_frozen_between_batches_is_not_a_changed_buffer() {
    let mut optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let model = Net::new();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let mut parts = draw.parts(2).unwrap();
    let losses = |model: &Net, units: Vec<usize>| model.losses_of(&units);
    optim.backward(&model, parts.next().unwrap(), losses).unwrap();
    let frozen = Net { first: model.first.clone().no_grad(), ..model.clone() };
    optim.backward(&frozen, parts.next().unwrap(), losses).unwrap();
}

#[test]
fn a_delta_that_allows_to_publish_a_unit_is_not_stated() {
    let (_, optim) = run(config(), SgdConfig::new().init(), 7);
    for error in [optim.privacy_spent(0.1).err(), optim.statement(&[1e-5, 0.1]).err()] {
        assert!(error.unwrap().to_string().contains("1 / dataset_size"));
    }
}

#[test]
fn sums_of_single_examples_are_not_printed() {
    use burn_dp::clipping::{Clipping, FlatClipping};
    let model = Net::new();
    let x = Rows.batch(vec![1, 2], &device());
    let grads = burn_dp::grads::PrivateBackward::new().run(model.losses(x), &model).unwrap();
    assert_eq!(format!("{grads:?}"), "PerExampleGradients { .. }");
    let sum = FlatClipping::new(0.5).unwrap().clip(grads).unwrap();
    assert_eq!(format!("{sum:?}"), "ClippedSum { clipping_norm: 0.5, .. }");
}

#[test]
fn a_sum_that_was_clipped_to_another_threshold_is_refused() {
    use burn_dp::clipping::{Clipping, FlatClipping};
    let plan = config().init().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Net::new();
    let x = Rows.batch(vec![1, 2], &device());
    let grads = burn_dp::grads::PrivateBackward::new().run(model.losses(x), &model).unwrap();
    let sum = FlatClipping::new(2.0).unwrap().clip(grads).unwrap();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let part = draw.parts(2).unwrap().next().unwrap();
    let error = optim.accumulate(part, sum).unwrap_err().to_string();
    assert!(
        error.contains("must be clipped to the thresholds of the logical step, [1.0], got [2.0]"),
        "{error}"
    );
}

#[test]
fn every_statement_lists_the_refusals_and_so_does_the_book() {
    let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let statement = optim.statement(&[1e-5]).unwrap();
    let covers = |part: &str| statement.not_covered.iter().any(|said| said.contains(part));
    assert!(covers("A learning rate that depends on private values"));
    let mut said = statement.not_covered.iter();
    let refusals = said.find(|said| said.starts_with("That a step was refused")).unwrap();
    let (_, list) = refusals.split_once(": ").unwrap();
    let refusals: Vec<&str> = list.trim_end_matches('.').split("; ").collect();
    assert_eq!(refusals.len(), 11);
    // A package that was unpacked on its own has no book.
    let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/coverage.md");
    let Ok(page) = std::fs::read_to_string(book) else { return };
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for refusal in refusals {
        assert!(page.contains(&format!("- {refusal}")), "coverage.md lacks \"{refusal}\"");
    }
}
