//! Optimizers by name.

use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};

use super::options::OptimizerName;

/// Returns an optimizer; the momentum is for sgd.
pub fn optimizer(name: OptimizerName, momentum: f64) -> ModuleOptimizer {
    match name {
        OptimizerName::Adam => AdamConfig::new().init(),
        OptimizerName::Sgd => {
            let momentum = MomentumConfig::new().with_momentum(momentum).with_dampening(0.0);
            SgdConfig::new().with_momentum(Some(momentum)).init()
        }
    }
}
