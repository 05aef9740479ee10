//! The record of a model, read without blocking.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Bytes, Int, Tensor};

use crate::DpError;
use crate::device_read::{Read, read};
use crate::walk::Place;

/// Returns the record of a model as bytes: the result of `model.into_record().into_bytes()`, which
/// needs a thread that can wait for the device. `ModuleRecord::from_bytes` reads them.
///
/// # Errors
///
/// Returns [`DpError::Device`] if a parameter cannot be read, and [`DpError::Encoding`] if the
/// record cannot be encoded.
pub async fn model_to_bytes_async<M: Module>(model: &M) -> Result<Bytes, DpError> {
    let mut walk = Walk::default();
    model.visit(&mut walk);
    let mut tensors = Vec::new();
    for (path, id, data) in walk.reads {
        let (bytes, shape, dtype) = data.await?.into_parts();
        tensors.push(burn_pack::Tensor::new(path, dtype, shape, Some(id.val()), bytes));
    }
    let written = burn_pack::Writer::new(tensors).into_bytes();
    written.map_err(|error| DpError::encoding("the model", error))
}

#[derive(Default)]
struct Walk {
    place: Place,
    reads: Vec<(String, ParamId, Read)>,
}

impl Walk {
    fn add<const D: usize, K: Basic + 'static>(&mut self, id: ParamId, tensor: Tensor<D, K>) {
        self.reads.push((self.place.path().to_string(), id, Box::pin(read(tensor, "a parameter"))));
    }
}

impl ModuleVisitor for Walk {
    track_place!(place);

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.add(param.id, param.transform_for_save().val());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.add(param.id, param.transform_for_save().val());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.add(param.id, param.transform_for_save().val());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};

    use super::*;
    use crate::device_read::wait;
    use crate::nn::{IntoPrivate, Private};
    use crate::test_devices::devices;

    #[derive(Module, Debug)]
    struct Net {
        conv: Private<Conv2d>,
        norm: BatchNorm,
        linear: Option<Linear>,
        steps: Param<Tensor<1, Int>>,
    }

    #[test]
    fn the_bytes_are_those_of_burns_record() {
        for device in devices() {
            let device = device.autodiff();
            let net = Net {
                conv: Conv2dConfig::new([1, 2], [3, 3]).init(&device).private(),
                norm: BatchNormConfig::new(2).init(&device),
                linear: Some(LinearConfig::new(3, 2).init(&device)),
                steps: Param::initialized(ParamId::new(), Tensor::from_data([3, 4], &device)),
            };
            let expected = net.clone().into_record().into_bytes().unwrap();
            assert_eq!(wait(model_to_bytes_async(&net)).unwrap(), expected);
        }
    }
}
