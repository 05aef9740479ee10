//! Copies of a model in another precision.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, FloatDType, Tensor};

use super::{for_each_parameter, private_copy};

/// Returns a copy of a model whose float parameters, buffers and running states have this
/// precision. Packed values keep theirs. Parameters keep their identity, and trained parameters
/// stay trained.
pub(crate) fn in_precision<M: Module>(model: &M, precision: FloatDType) -> M {
    private_copy(model).map(&mut Cast(precision))
}

/// Returns the name of a precision, for example `bf16`.
pub(crate) fn precision_name(precision: FloatDType) -> String {
    format!("{precision:?}").to_lowercase()
}

/// Returns the precision of the first float parameter of a model, for losses that are computed with
/// copies in [another precision](crate::optim::DpOptimizer::with_precision); `None` without a float
/// parameter, and for a packed one.
pub fn precision_of<M: Module>(model: &M) -> Option<FloatDType> {
    let mut found = None;
    for_each_parameter(model, |_, parameter| {
        found = found.or(Some(parameter.value.dtype()));
    });
    match found? {
        DType::QFloat(_) => None,
        dtype => Some(dtype.into()),
    }
}

struct Cast(FloatDType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Self(precision) = *self;
        param.map(|tensor| {
            if matches!(tensor.dtype(), DType::QFloat(_)) {
                return tensor;
            }
            let is_trained = tensor.is_require_grad();
            let strategy = tensor.gradient_checkpointing_strategy();
            let values = tensor.inner().cast(precision);
            let values = match strategy {
                Some(strategy) => values.autodiff().with_gradient_checkpointing_strategy(strategy),
                None => values,
            };
            values.set_require_grad(is_trained)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;
    use crate::nn::{IntoPrivate, Private};

    #[derive(Module, Debug)]
    struct Net {
        first: Private<Linear>,
        tied: Private<Linear>,
        norm: BatchNorm,
    }

    #[test]
    fn a_copy_has_another_precision_and_the_same_parameters() {
        for device in
            [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()]
        {
            let first = LinearConfig::new(2, 3).init(&device).private();
            let norm = BatchNormConfig::new(3).init(&device).no_grad();
            let net = Net { tied: first.clone(), first, norm };
            let copy = in_precision(&net, FloatDType::BF16);
            let described = |net: &Net| {
                let mut all = Vec::new();
                for_each_parameter(net, |path, parameter| {
                    let value = parameter.value;
                    let shape = (value.shape(), value.checkpointing());
                    all.push((path.to_string(), parameter.id, parameter.is_trained, shape));
                });
                all
            };
            assert_eq!(described(&copy), described(&net));
            let precisions = |net: &Net| {
                let mut all = Vec::new();
                for_each_parameter(net, |_, parameter| all.push(parameter.value.dtype()));
                all
            };
            assert_eq!(precisions(&copy), [DType::BF16; 8]);
            assert_eq!(precisions(&net), [DType::F32; 8]);
            assert_eq!(precision_of(&copy), Some(FloatDType::BF16));
            assert_eq!(precision_of(&net), Some(FloatDType::F32));
        }
    }
}
