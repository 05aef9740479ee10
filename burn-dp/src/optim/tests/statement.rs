//! What the statement says about a run.

use burn::optim::SgdConfig;

use super::config;
use crate::optim::DpOptimizer;

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

// No CPU device has such products; the fact is noted for those that have.
#[test]
fn kernels_that_depend_on_the_shape_are_not_covered() {
    let mut optim = optimizer();
    assert!(!not_covered(&optim).contains("kernels by the shape"));
    optim.engine.note("matrix_products", "TF32 where the device chooses it");
    assert!(not_covered(&optim).contains("kernels by the shape"));
}
