use burn::module::{Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

use crate::grads::oracle::{TwoLayers, numbers};
use crate::grads::{PrivateBackward, check_independence};
use crate::nn::{IntoPrivate, Private};
use crate::test_devices::{devices, training_devices};

#[derive(Module, Debug)]
struct Mixed {
    encoder: Private<Linear>,
    head: Linear,
}

#[derive(Module, Debug)]
struct Normalized {
    fc: Private<Linear>,
    norm: BatchNorm,
}

#[derive(Module, Debug)]
struct WithScale {
    fc: Private<Linear>,
    scale: Param<Tensor<1>>,
}

fn layer(device: &Device) -> Linear {
    LinearConfig::new(3, 3).init(device)
}

fn losses(output: Tensor<2>) -> Tensor<1> {
    output.powi_scalar(2).sum_dim(1).reshape([-1])
}

#[track_caller]
fn refused<M: Module>(losses: Tensor<1>, model: &M, words: &[&str]) {
    let error = PrivateBackward::new().run(losses, model).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "`{error}` does not mention `{word}`");
    }
    // The recording is over: an ordinary backward pass works.
    assert!(!crate::ops::recording::is_active());
}

#[test]
fn a_layer_that_is_not_private_is_refused_with_its_path() {
    for device in training_devices() {
        let model = Mixed { encoder: layer(&device).private(), head: layer(&device) };
        let x = numbers([4, 3], 1, &device);
        let output = model.head.forward(model.encoder.forward(x));
        refused(losses(output), &model, &["`head.weight`", "Private::from"]);
    }
}

#[test]
fn a_plain_layer_may_be_frozen() {
    for device in training_devices() {
        let model = Mixed { encoder: layer(&device).private(), head: layer(&device).freeze() };
        let x = numbers([4, 3], 1, &device);
        let output = model.head.forward(model.encoder.forward(x));
        assert!(PrivateBackward::new().run(losses(output), &model).is_ok());
    }
}

#[test]
fn a_bare_parameter_is_refused_with_its_path() {
    for device in training_devices() {
        let model = WithScale {
            fc: layer(&device).private(),
            scale: Param::from_tensor(Tensor::ones([3], &device)),
        };
        let x = numbers([4, 3], 1, &device);
        let output = model.fc.forward(x) * model.scale.val().unsqueeze::<2>();
        refused(losses(output), &model, &["`scale`"]);
    }
}

#[test]
fn a_batch_norm_in_training_mode_is_refused_and_a_frozen_one_is_not() {
    for device in training_devices() {
        let model = Normalized {
            fc: layer(&device).private(),
            norm: BatchNormConfig::new(3).init(&device),
        };
        let forward = |model: &Normalized| {
            losses(model.norm.forward(model.fc.forward(numbers([4, 3], 1, &device))))
        };
        refused(forward(&model), &model, &["`norm`", "BatchNorm", "GroupNorm"]);

        let model = Normalized { norm: model.norm.freeze(), fc: model.fc };
        assert!(PrivateBackward::new().run(forward(&model), &model).is_ok());
    }
}

#[test]
fn a_loss_that_is_not_one_value_per_example_is_refused() {
    for device in training_devices() {
        let model = layer(&device).private();
        let x = numbers([4, 3], 1, &device);
        let mean = losses(model.forward(x)).mean();
        refused(mean, &model, &["another number of examples", "not their mean"]);
    }
}

#[test]
fn losses_without_a_graph_are_refused() {
    for device in training_devices() {
        let model = layer(&device).private();
        refused(numbers([4], 1, &device), &model, &["do not depend on any trained parameter"]);
    }
}

#[test]
fn a_model_with_nothing_to_train_is_refused() {
    for device in devices() {
        let model = layer(&device).private();
        refused(losses(model.forward(numbers([4, 3], 1, &device))), &model, &["autodiff"]);
    }
}

#[test]
fn a_copy_of_a_parameter_that_is_frozen_is_refused_with_both_paths() {
    for device in training_devices() {
        // Clones share a parameter, frozen or not, until it is initialized.
        let shared = layer(&device);
        let _ = shared.forward(numbers::<2>([1, 3], 1, &device));
        let model =
            TwoLayers { first: shared.clone().freeze().private(), second: shared.private() };
        let output = model.second.forward(model.first.forward(numbers([4, 3], 1, &device)));
        refused(losses(output), &model, &["second.weight", "first.weight", "freeze both"]);
    }
}

#[test]
fn losses_that_depend_on_other_examples_are_refused() {
    for device in training_devices() {
        let model = layer(&device).private();
        let x = numbers([5, 3], 1, &device);

        let rows = |items: Vec<usize>| {
            Tensor::cat(items.into_iter().map(|item| x.clone().narrow(0, item, 1)).collect(), 0)
        };
        let check = |losses: fn(&Private<Linear>, Tensor<2>) -> Tensor<1>| {
            check_independence(&model, &[0, 1, 2, 3, 4], |model, items| losses(model, rows(items)))
        };
        assert!(check(|model, x| losses(model.forward(x))).is_ok());

        // A normalizer over the batch.
        let error = check(|model, x| {
            let output = model.forward(x);
            let total = output.clone().abs().sum().reshape([1, 1]);
            losses(output / total)
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("depends on example"), "{error}");

        // A layer whose input has the mean of the batch.
        let mixed = check(|model, x| {
            let hidden = model.forward(x);
            losses(model.forward(hidden.clone() + hidden.mean_dim(0)))
        });
        assert!(mixed.is_err());

        assert!(check(|model, x| losses(model.forward(x)).mean()).is_err());

        let of_items = |items: &[usize]| {
            check_independence(&model, items, |model, items| losses(model.forward(rows(items))))
        };
        let error = of_items(&[0]).unwrap_err().to_string();
        assert!(error.contains("each of at least two examples"), "{error}");
        assert!(of_items(&[0, 1]).is_ok());
    }
}

#[test]
fn a_loss_that_panics_leaves_no_recording_behind() {
    let device = training_devices().remove(0);
    let model = layer(&device).private();
    let twice = losses(model.forward(numbers([4, 3], 1, &device)));
    let _ = twice.clone().sum().backward();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = PrivateBackward::new().run(twice, &model);
    }));
    assert!(panicked.is_err(), "the graph was consumed");
    assert!(!crate::ops::recording::is_active());
}
