//! Weights that have converged are fixed.

use burn::module::Module;
use burn::nn::Linear;
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::clipping::GroupedClipping;
use burn_dp::model::ParameterGroups;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig, Sparsifier};
use burn_dp::sampling::Sampler;

use crate::fixtures::{Net, config, flat, layer, train_on, values};

fn optimizer(config: PrivacyPlanConfig, sparsifier: Sparsifier) -> DpOptimizer {
    let optim = config.init().unwrap().optimizer(SgdConfig::new().init());
    optim.with_sparsifier(sparsifier).unwrap()
}

/// Fixes weights that move by noise, and by gradients of about its size.
fn sparsifier() -> Sparsifier {
    Sparsifier::new(3, 3.0).unwrap()
}

/// Values that are the same before and after.
fn still<M: Module>(before: &M, after: &M) -> usize {
    flat(before).iter().zip(flat(after)).filter(|(before, after)| **before == *after).count()
}

#[test]
fn fixed_weights_do_not_move_and_the_ledger_is_unchanged() {
    let mut optim = optimizer(config(), sparsifier());
    let first = train_on(&mut optim, Net::new(), 3, 7);
    let fixed = optim.sparsifier().unwrap().fixed();
    assert!(fixed > 0 && fixed < flat(&first).len(), "{fixed}");
    let second = train_on(&mut optim, first.clone(), 2, 7);
    assert_eq!(still(&first, &second), fixed);

    let mut without = config().init().unwrap().optimizer(SgdConfig::new().init());
    let moved = train_on(&mut without, Net::new(), 5, 7);
    assert_eq!(still(&Net::new(), &moved), 0);
    assert_eq!(without.ledger().entries(), optim.ledger().entries());
    let statement = optim.statement(&[1e-5]).unwrap();
    assert!(statement.facts["sparsification"].contains("fixed at their average"));
}

// Sharp edge: a run that is interrupted within a window keeps its statistics.
#[test]
fn a_resumed_run_has_the_fixed_weights_of_the_run_bit_for_bit() {
    for interrupted in [1, 4, 6] {
        let mut whole = optimizer(config(), sparsifier());
        let expected = train_on(&mut whole, Net::new(), 8, 7);

        let folder = crate::fixtures::run_folder();
        let checkpointer = Checkpointer::new(folder.path());
        let mut first = optimizer(config(), sparsifier());
        let model = train_on(&mut first, Net::new(), interrupted, 7);
        checkpointer.save(&model, &first).unwrap();
        let known = first.sparsifier().cloned();
        drop(first);
        let checkpoint = checkpointer.latest().unwrap().unwrap();
        let plan = config().init().unwrap();
        let (mut second, model) =
            checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap();
        assert_eq!(second.sparsifier().cloned(), known);
        let found = train_on(&mut second, model, 8 - interrupted, 7);
        assert_eq!(values(&found), values(&expected), "interrupted after {interrupted}");
        assert_eq!(second.sparsifier(), whole.sparsifier());
    }
}

#[test]
fn a_restored_run_keeps_its_sparsifier_and_damage_is_refused() {
    let folder = crate::fixtures::run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let mut optim = optimizer(config(), sparsifier());
    let model = train_on(&mut optim, Net::new(), 2, 7);
    checkpointer.save(&model, &optim).unwrap();
    drop(optim);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let restore = || {
        let plan = config().init().unwrap();
        checkpoint.restore(plan, SgdConfig::new().init(), Net::new())
    };
    let (restored, _) = restore().unwrap();
    let error = restored.with_sparsifier(sparsifier()).unwrap_err().to_string();
    assert!(error.contains("has a sparsifier already"), "{error}");

    let path = checkpoint.folder().join("sparsifier.bpk");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = restore().unwrap_err().to_string();
    assert!(error.contains("sparsifier.bpk is damaged"), "{error}");
}

#[test]
fn weights_are_compared_with_the_noise_of_their_own_group() {
    let layers = ParameterGroups::per_layer(&Net::new()).unwrap();
    // Both layers move by about their threshold, which counts as noise only for the second one.
    let clipping = GroupedClipping::new(layers, vec![1e-4, 1.0]).unwrap();
    let config = config().with_clipping(clipping).with_noise_multiplier(5.0);
    let mut optim = optimizer(config, Sparsifier::new(4, 3.0).unwrap());
    let first = train_on(&mut optim, Net::new(), 4, 7);
    let second = train_on(&mut optim, first.clone(), 2, 7);
    let std = |path| optim.gradient_noise_std(path).unwrap();
    assert!((std("second.weight") / std("first.weight") / 1e4 - 1.0).abs() < 1e-9);
    // Weights that move only by noise follow a random walk: over four steps they deviate by about
    // their step size, so most of both layers is fixed, and each is compared with the noise of its
    // group.
    for layer in [0..2, 2..4] {
        let (before, after) = (&values(&first)[layer.clone()], &values(&second)[layer]);
        let count = before.concat().len();
        let still = before.concat().iter().zip(after.concat()).filter(|(b, a)| **b == *a).count();
        assert!(still > count / 2, "{still} of {count}");
    }
}

/// A layer that the model holds twice.
#[derive(Module, Debug)]
struct Tied {
    first: Private<Linear>,
    second: Private<Linear>,
}

#[test]
fn the_copies_of_a_tied_parameter_are_fixed_as_one() {
    let shared = layer(3, 3, 1.0).private();
    let model = Tied { first: shared.clone(), second: shared };
    for grouped in [false, true] {
        let mut config = config();
        if grouped {
            let groups = ParameterGroups::per_parameter(&model).unwrap();
            assert_eq!(groups.len(), 2);
            config = config.with_clipping(GroupedClipping::equal(groups, 1.0).unwrap());
        }
        let mut optim = optimizer(config, sparsifier());
        let mut model = model.clone();
        for step in 0..6 {
            let draw = optim.plan().sampler().unwrap().draw(step).unwrap();
            let losses = |model: &Tied, units: Vec<usize>| {
                let x: Tensor<2> = crate::fixtures::inputs(&units);
                let output = model.second.forward(model.first.forward(x).tanh());
                output.powi_scalar(2).sum_dim(1).reshape([-1])
            };
            optim.backward(&model, &draw, losses).unwrap();
            model = optim.step(0.1, model, draw).unwrap();
            let values = values(&model);
            assert_eq!(values[..2], values[2..]);
        }
        // Twelve weights, not twenty-four.
        let fixed = optim.sparsifier().unwrap().fixed();
        assert!(fixed > 0 && fixed <= 12, "{fixed}");
    }
}
