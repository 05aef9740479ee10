//! What a forward pass stores in a model.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{GradientCheckpointingStrategy, Tensor};

/// A copy of a model whose forward passes leave no trace in the original: `clone` alone shares the
/// running statistics of Burn's BatchNorm.
///
/// # Privacy
///
/// For computing on private data: parameters and stored values are those of `model`, what is stored
/// later stays in the copy. State that a module keeps outside of Burn's parameters and running states
/// (a field that `#[module(skip)]` hides) is not copied apart.
pub fn private_copy<M: Module>(model: &M) -> M {
    // The round trip makes new running states; parameters keep identity, values and flags.
    let copy = model.valid().train();
    match strategy(model) {
        Some(original) if Some(original) != strategy(&copy) => copy.map(&mut SetStrategy(original)),
        _ => copy,
    }
}

/// The model with running statistics of public data: what a BatchNorm that was trained on private
/// batches uses for inference.
///
/// Running statistics are moving averages: with Burn's momentum of 0.1, after 50 calls of `forward`
/// the former values weigh less than 1 %.
///
/// # Arguments
///
/// - `forward`: called once for each of `batches`, with the model in training mode
///
/// # Privacy
///
/// `batches` must be public. The result depends on the parameters of `model` and on them alone, so a
/// private model stays as private as it is.
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
    // A running state holds back its last update; the copy of the copy has it.
    private_copy(&copy)
}

/// How the graph of a model keeps its intermediate values; nothing without automatic differentiation.
fn strategy<M: Module>(model: &M) -> Option<GradientCheckpointingStrategy> {
    let mut find = FindStrategy(None);
    model.visit(&mut find);
    find.0
}

struct FindStrategy(Option<GradientCheckpointingStrategy>);

impl ModuleVisitor for FindStrategy {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.0.is_none() {
            self.0 = param.base().gradient_checkpointing_strategy();
        }
    }
}

/// Gives every parameter and running state the strategy of the original: tensors of different ones do
/// not mix.
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
