//! One parameter in several places of a model.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Tensor;

use crate::baselines::{microbatch, reweight};
use crate::clipping::{Clipping, FlatClipping};
use crate::grads::PrivateBackward;
use crate::grads::oracle::{self, TwoLayers, check_twins, numbers};
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
        oracle::assert_close(&sum(&apart), &expected, "backward pass");
        let twice = reweight(&clipping, &apart, |model| losses(model)).unwrap();
        oracle::assert_close(&oracle::flat_sum(twice), &expected, "reweighted");
        let each = microbatch(&clipping, &apart, 5, |model, example| {
            let x = x.clone().narrow(0, example, 1);
            loss(model.second.forward(model.first.forward(x).tanh()))
        });
        oracle::assert_close(&oracle::flat_sum(each.unwrap()), &expected, "loop");
    }
}
