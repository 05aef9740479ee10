//! One parameter in several places of a model.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;

use crate::baselines::{microbatch, reweight};
use crate::clipping::{Clipping, FlatClipping};
use crate::grads::oracle::{self, TwoLayers, check_twins, clipped_by_loop, numbers};
use crate::grads::{MemoryBound, NormMethod, PrivateBackward};
use crate::model::TrainableParameters;
use crate::nn::Private;
use crate::test_devices::training_devices;

type Twin = TwoLayers<Private<Linear>>;

fn loss(output: Tensor<2>) -> Tensor<1> {
    output.powi_scalar(2).sum_dim(1).reshape([-1])
}

#[test]
fn uses_of_a_tied_parameter_are_summed_before_the_norm() {
    for device in training_devices() {
        let shared: Linear = LinearConfig::new(4, 4).init(&device);
        let plain = TwoLayers { first: shared.clone(), second: shared };
        let private = plain.private();
        assert_eq!(TrainableParameters::of(&private).unwrap().iter().count(), 2);
        let x = numbers([5, 4], 3, &device);
        check_twins!(&private, &plain, x, |model, x| {
            loss(model.second.forward(model.first.forward(x).tanh()))
        });
    }
}

// The gradients of both uses are smaller than half their records, so each use is instantiated when
// it is recorded, and added to the one before: at once, or one example after another.
#[test]
fn uses_that_are_instantiated_in_the_pass_are_summed_before_the_norm() {
    for device in training_devices() {
        let shared: Linear = LinearConfig::new(4, 4).init(&device);
        let plain = TwoLayers { first: shared.clone(), second: shared };
        let private = plain.private();
        let x: Tensor<3> = numbers([5, 24, 4], 3, &device);
        let output = |hidden: Tensor<3>| loss(hidden.flatten(1, 2));
        let losses = |x: Tensor<3>| output(private.second.forward(private.first.forward(x).tanh()));
        let expected = clipped_by_loop(&plain, 5, 0.5, |model, example| {
            let x = x.clone().narrow(0, example, 1);
            output(model.second.forward(model.first.forward(x).tanh()))
        });
        for bytes in [0, MemoryBound::default().as_bytes()] {
            let backward = PrivateBackward::new().with_memory_bound(MemoryBound::bytes(bytes));
            let grads = backward.run(losses(x.clone()), &private).unwrap();
            let methods: Vec<_> = grads.norm_methods().map(|(_, method)| method).collect();
            assert_eq!(methods, [NormMethod::Instantiate; 2]);
            let found = FlatClipping::new(0.5).unwrap().clip(grads).unwrap();
            oracle::assert_close(
                &device,
                &oracle::flat_sum(found),
                &expected,
                &format!("{bytes} bytes"),
            );
        }
    }
}

// One use has many positions, the other one has one: its record is kept until the end of the pass.
#[test]
fn a_use_whose_record_is_kept_is_added_to_one_that_was_instantiated() {
    for device in training_devices() {
        let shared: Linear = LinearConfig::new(4, 4).init(&device);
        let plain = TwoLayers { first: shared.clone(), second: shared };
        let private = plain.private();
        let x: Tensor<3> = numbers([5, 24, 4], 3, &device);
        check_twins!(&private, &plain, x.clone(), |model, x| {
            let pooled = model.first.forward(x).tanh().mean_dim(1).squeeze_dim(1);
            loss(model.second.forward(pooled))
        });
        // And in the other order, in which the backward pass begins with many positions.
        check_twins!(&private, &plain, x, |model, x| {
            let pooled = model.first.forward(x.clone().mean_dim(1).squeeze_dim::<2>(1)).tanh();
            let hidden = model.second.forward(x + pooled.unsqueeze_dim(1));
            loss(hidden.flatten(1, 2))
        });
    }
}

#[test]
fn copies_that_were_loaded_separately_are_one_parameter() {
    for device in training_devices() {
        let shared: Linear = LinearConfig::new(4, 4).init(&device);
        let tied = TwoLayers { first: shared.clone(), second: shared }.private();
        // Loading makes each copy a separate leaf of the graph.
        let apart = tied.clone().load_record(tied.clone().into_record());
        let x = numbers([5, 4], 3, &device);
        let losses =
            |model: &Twin| loss(model.second.forward(model.first.forward(x.clone()).tanh()));
        let clipping = FlatClipping::new(0.5).unwrap();
        let sum = |model: &Twin| {
            let grads = PrivateBackward::new().run(losses(model), model).unwrap();
            oracle::flat_sum(clipping.clip(grads).unwrap())
        };
        let expected = sum(&tied);
        oracle::assert_close(&device, &sum(&apart), &expected, "backward pass");
        let twice = reweight(&clipping, &apart, |model| losses(model)).unwrap();
        oracle::assert_close(&device, &oracle::flat_sum(twice), &expected, "reweighted");
        let each = microbatch(&clipping, &apart, 5, |model, example| {
            let x = x.clone().narrow(0, example, 1);
            loss(model.second.forward(model.first.forward(x).tanh()))
        });
        oracle::assert_close(&device, &oracle::flat_sum(each.unwrap()), &expected, "loop");
    }
}
