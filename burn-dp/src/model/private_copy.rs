//! Copies of a model that share no state with it.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{GradientCheckpointingStrategy, Tensor};

use crate::walk::for_each_parameter;

/// Returns a copy of a model whose forward passes do not change the original. A `clone` shares the
/// running statistics of Burn's BatchNorm with the original.
///
/// # Privacy
///
/// Use it to compute on private data. The copy starts with the parameters and stored values of
/// `model`; values that are stored later stay in the copy. State that a module keeps outside Burn's
/// parameters and running states (a field with `#[module(skip)]`) is shared.
pub fn private_copy<M: Module>(model: &M) -> M {
    // The round trip creates new running states; parameters keep identity, values and flags.
    let copy = model.valid().train();
    match strategy(model) {
        Some(original) if Some(original) != strategy(&copy) => copy.map(&mut SetStrategy(original)),
        _ => copy,
    }
}

/// Returns the checkpointing strategy of a model, or `None` without autodiff.
fn strategy<M: Module>(model: &M) -> Option<GradientCheckpointingStrategy> {
    let mut found = None;
    for_each_parameter(model, |_, parameter| {
        found = found.or_else(|| parameter.value.checkpointing());
    });
    found
}

/// Gives every parameter and running state the strategy of the original: tensors with different
/// strategies cannot be combined.
struct SetStrategy(GradientCheckpointingStrategy);

impl ModuleMapper for SetStrategy {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let strategy = self.0;
        param.map(|tensor| {
            let trained = tensor.is_require_grad();
            tensor.detach().with_gradient_checkpointing_strategy(strategy).set_require_grad(trained)
        })
    }
}
