//! Parameters that a model holds in several places.

use std::any::Any;
use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::Tensor;

/// Returns the model with the value of the first copy in every copy of a trained parameter.
///
/// Burn's optimizers update the first copy of a parameter and leave the others unchanged. After
/// this call all copies are one leaf of the next graph, so an ordinary backward pass adds up their
/// gradients.
pub(crate) fn tie<M: Module>(model: M) -> M {
    model.map(&mut Tie::default())
}

/// A separate mapper, because [`map_parameters`](super::map_parameters) creates a new leaf for each
/// copy.
#[derive(Default)]
struct Tie {
    first: HashMap<ParamId, Box<dyn Any>>,
}

impl ModuleMapper for Tie {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let value = param.base();
        if !value.is_require_grad() {
            return param;
        }
        match self.first.get(&param.id).and_then(|first| first.downcast_ref::<Tensor<D>>()) {
            Some(first) if first.dims() == value.dims() => {
                let first = first.clone();
                param.map(|_| first)
            }
            _ => {
                self.first.insert(param.id, Box::new(value));
                param
            }
        }
    }
}
