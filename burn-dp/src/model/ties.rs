//! Parameters that a model holds in several places.

use std::any::Any;
use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, Param, ParamId};
use burn::tensor::Tensor;

/// Gives every copy of a trained parameter the value of its first copy.
///
/// Burn's optimizers update the first copy that they meet and leave the others as they were. Afterwards
/// all copies are one leaf of the next graph, so that an ordinary backward pass adds up their gradients
/// as well.
pub(crate) fn tie<M: Module>(model: M) -> M {
    model.map(&mut Tie::default())
}

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
