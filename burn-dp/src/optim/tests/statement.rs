//! What the statement says about a run.

use burn::nn::Linear;
use burn::optim::SgdConfig;
use burn::tensor::Tensor;

use super::{config, device, layer};
use crate::nn::Private;
use crate::optim::DpOptimizer;
use crate::sampling::Sampler;

fn optimizer() -> DpOptimizer {
    config().init().unwrap().optimizer(SgdConfig::new().init())
}

fn not_covered(optim: &DpOptimizer) -> String {
    optim.statement(&[1e-3]).unwrap().not_covered.join(" ")
}

#[test]
fn errors_that_depend_on_the_data_are_not_covered() {
    assert!(not_covered(&optimizer()).contains("a token that is not in the vocabulary"));
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
        let losses = |model: &Private<Linear>, units: Vec<usize>| {
            let units: Vec<f32> = units.into_iter().map(|unit| unit as f32).collect();
            let x = Tensor::<1>::from_floats(units.as_slice(), &device()).unsqueeze_dim::<2>(1);
            model.forward(x).reshape([-1])
        };
        optim.backward(&model, &draw, losses).unwrap();
        let statement = optim.statement(&[1e-3]).unwrap();
        assert_eq!(statement.facts.contains_key("matrix_products"), coarse);
        assert_eq!(not_covered(&optim).contains("kernels by the shape"), coarse);
    }
}
