//! The values that a forward pass stores in a model.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{GradientCheckpointingStrategy, Tensor};

use crate::model::for_each_parameter;

/// Returns a copy of a model whose forward passes do not change the original. A `clone` shares the
/// running statistics of Burn's BatchNorm with the original.
///
/// # Privacy
///
/// Use it to compute on private data. The copy starts with the parameters and stored values of
/// `model`; what is stored later stays in the copy. State that a module keeps outside of Burn's
/// parameters and running states (a field with `#[module(skip)]`) is shared.
pub fn private_copy<M: Module>(model: &M) -> M {
    // The round trip creates new running states; parameters keep identity, values and flags.
    let copy = model.valid().train();
    match strategy(model) {
        Some(original) if Some(original) != strategy(&copy) => copy.map(&mut SetStrategy(original)),
        _ => copy,
    }
}

/// Returns the model with running statistics of public data. A BatchNorm that was trained on
/// private batches needs them for inference.
///
/// Running statistics are moving averages. With Burn's momentum of 0.1, the former values have a
/// weight of less than 1 % after 50 calls of `forward`.
///
/// # Arguments
///
/// - `forward`: is called once for each of `batches`, with the model in training mode
///
/// # Privacy
///
/// `batches` must be public. The result depends on them and on the parameters of `model` alone, so
/// a private model stays private.
///
/// # Example
///
/// ```
/// use burn::nn::BatchNormConfig;
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::updates::public_statistics;
///
/// let device = Device::flex().autodiff();
/// let norm = BatchNormConfig::new(3).with_momentum(1.0).init(&device);
/// let public = Tensor::<2>::ones([4, 3], &device) * 5.0;
/// let norm = public_statistics(norm, [public], |norm, batch| {
///     norm.forward(batch);
/// });
/// norm.running_mean.value().into_data().assert_eq(&[5.0f32, 5.0, 5.0].into(), false);
/// ```
pub fn public_statistics<M: Module, B>(
    model: M,
    batches: impl IntoIterator<Item = B>,
    mut forward: impl FnMut(&M, B),
) -> M {
    let copy = private_copy(&model);
    for batch in batches {
        forward(&copy, batch);
    }
    // A running state delays its last update; the copy of the copy has it.
    private_copy(&copy)
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
