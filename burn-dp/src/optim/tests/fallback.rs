//! Layers without a rule: one backward pass for each unit.

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::Tensor;

use super::{config, device, values};
use crate::grads::oracle::numbers;
use crate::nn::{IntoPrivate, Private};
use crate::optim::{DpOptimizer, Independence};
use crate::sampling::Sampler;

/// The same function with private layers alone, and with a plain layer and a bare parameter.
#[derive(Module, Debug)]
struct WithRules {
    fc: Private<Linear>,
    head: Private<Linear>,
}

#[derive(Module, Debug)]
struct WithoutRules {
    fc: Private<Linear>,
    head: Linear,
}

#[derive(Module, Debug)]
struct Normalized {
    weight: Param<Tensor<1>>,
}

fn optimizer() -> DpOptimizer {
    config().init().unwrap().optimizer(SgdConfig::new().init())
}

fn loss(output: Tensor<2>) -> Tensor<1> {
    output.powi_scalar(2).sum_dim(1).reshape([-1])
}

#[test]
fn a_model_with_a_plain_layer_is_trained_as_its_private_twin() {
    let with = WithRules {
        fc: LinearConfig::new(3, 4).init(&device()).private(),
        head: LinearConfig::new(4, 2).init(&device()).private(),
    };
    let without = WithoutRules { fc: with.fc.clone(), head: with.head.clone().into_inner() };

    let mut optim = optimizer();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let units = draw.private_indices().len();
    let x = numbers([units, 3], 4, &device());
    let hidden = with.fc.forward(x.clone()).tanh();
    optim.backward(&with, &draw, |with, _| loss(with.head.forward(hidden))).unwrap();
    let expected = values(&optim.step(0.1, with, draw).unwrap());

    let mut optim = optimizer();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let mut rows = 0..units;
    optim
        .backward_each(&without, &draw, |model: &WithoutRules, _| {
            let x = x.clone().narrow(0, rows.next().unwrap(), 1);
            let hidden = model.fc.forward(x).tanh();
            loss(model.head.forward(hidden))
        })
        .unwrap();
    let found = values(&optim.step(0.1, without, draw).unwrap());
    for (found, expected) in found.concat().iter().zip(expected.concat()) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    assert_eq!(optim.independence(), Independence::ByConstruction);
    let text = optim.statement(&[1e-3]).unwrap().to_string();
    assert!(text.contains("every unit is computed by itself"), "{text}");
}

#[test]
fn the_copies_of_a_unit_are_averaged_before_clipping() {
    let model = Normalized { weight: Param::from_tensor(Tensor::ones([3], &device())) };
    let step = |copies: usize| {
        let mut optim = optimizer();
        let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
        optim
            .backward_each(&model, &draw, |model: &Normalized, unit| {
                let weight = model.weight.val();
                let weight = weight.clone() / weight.square().sum().sqrt();
                let x = numbers([3], unit as u64, &device());
                (weight * x).sum().powi_scalar(2).expand([copies])
            })
            .unwrap();
        values(&optim.step(0.1, model.clone(), draw).unwrap()).concat()
    };
    for (one, many) in step(1).iter().zip(step(5)) {
        assert!((one - many).abs() < 1e-6, "{one} {many}");
    }
}

#[test]
fn a_unit_that_is_left_out_or_given_twice_is_refused() {
    let model = Normalized { weight: Param::from_tensor(Tensor::ones([3], &device())) };
    let mut optim = optimizer();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let loss = |model: &Normalized, _| model.weight.val().sum();
    let (first, last) = (draw.private_indices()[0], *draw.private_indices().last().unwrap());
    let parts = draw.parts(1).unwrap();
    for part in parts.take(draw.private_indices().len() - 1) {
        optim.backward_each(&model, part, loss).unwrap();
    }
    let refused = optim.step(0.1, model, draw.clone()).unwrap_err();
    let error = refused.error().to_string();
    assert!(error.contains(&format!("unit {last} of step 0 was drawn, but never")), "{error}");
    let error = optim.backward_each(&refused.into_model(), &draw, loss).unwrap_err().to_string();
    assert!(error.contains(&format!("unit {first} of step 0 was given twice")), "{error}");
    assert_eq!(optim.ledger().releases(), 0);
}

#[test]
fn a_loss_without_a_trained_parameter_is_refused() {
    let model = Normalized { weight: Param::from_tensor(Tensor::ones([3], &device())) };
    let loss = |_: &Normalized, _| Tensor::<1>::ones([1], &device());
    let mut optim = optimizer();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let error = optim.backward_each(&model, &draw, loss).unwrap_err().to_string();
    assert!(error.contains("do not depend on any trained parameter"), "{error}");
}
