//! Walks the values of a model without a visitor for each purpose.

use std::collections::HashSet;

use burn::module::{Flag, Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::kind::Basic;
use burn::tensor::{
    Bool, DType, GradientCheckpointingStrategy, Gradients, Int, Shape, Tensor, TensorData,
};

use crate::device_read::{Read, read};

/// A place in the module tree. Its memory is used again: a training step walks the model several
/// times.
#[derive(Debug, Default)]
pub(crate) struct Place {
    path: String,
    names: Vec<String>,
    containers: Vec<String>,
    /// Number of parts of the path. The names and containers after them are of earlier places.
    depth: usize,
}

impl Place {
    pub(crate) fn enter(&mut self, name: &str, container_type: &str) {
        if self.depth > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        if self.depth == self.names.len() {
            self.names.push(String::new());
            self.containers.push(String::new());
        }
        name.clone_into(&mut self.names[self.depth]);
        container_type.clone_into(&mut self.containers[self.depth]);
        self.depth += 1;
    }

    pub(crate) fn exit(&mut self) {
        let Some(depth) = self.depth.checked_sub(1) else { return };
        let part = self.names[depth].len() + usize::from(depth > 0);
        self.path.truncate(self.path.len() - part);
        self.depth = depth;
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the parts of the path: the names of modules, and the name of the value.
    pub(crate) fn names(&self) -> &[String] {
        &self.names[..self.depth]
    }

    /// Returns, for each part of the path, the type of the module that holds it.
    pub(crate) fn containers(&self) -> &[String] {
        &self.containers[..self.depth]
    }

    /// Returns the name of the struct that holds the value, if a struct holds it.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.containers().last()?.strip_prefix("Struct:")
    }
}

/// Implements the methods of a [`ModuleVisitor`] or [`ModuleMapper`] that keep the current
/// [`Place`] in a field.
macro_rules! track_place {
    ($place:ident) => {
        fn enter_module(&mut self, name: &str, container_type: &str) {
            self.$place.enter(name, container_type);
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.$place.exit();
        }
    };
}

/// A value that a module holds.
pub(crate) enum Value<'a> {
    /// A parameter, buffer or running state.
    Float(ParameterRef<'a>),
    /// Returns `[num_values]`, without autodiff.
    Int(&'a dyn Fn() -> Tensor<1, Int>),
    /// Returns `[num_values]`, without autodiff.
    Bool(&'a dyn Fn() -> Tensor<1, Bool>),
    Flag(&'a Param<Flag>),
}

/// One float parameter, buffer or running state of a model.
pub(crate) struct ParameterRef<'a> {
    /// Identity; the copies of a tied parameter share it.
    pub(crate) id: ParamId,
    /// Whether it requires a gradient.
    pub(crate) is_trained: bool,
    /// Whether a trained parameter with this identity came before it in the walk.
    pub(crate) is_repeated: bool,
    /// The stored value, without the effect of an adapter.
    pub(crate) value: &'a dyn AnyRank,
}

/// A float tensor of any rank.
pub(crate) trait AnyRank {
    /// Returns the shape.
    fn shape(&self) -> Shape;

    /// Returns the type of the elements.
    fn dtype(&self) -> DType;

    /// Returns the checkpointing strategy, or `None` without autodiff.
    fn checkpointing(&self) -> Option<GradientCheckpointingStrategy>;

    /// Returns the values as `[num_values]`, without autodiff. A packed value must not be
    /// flattened.
    fn flat(&self) -> Tensor<1>;

    /// Returns whether the value is packed (quantized).
    fn is_packed(&self) -> bool {
        matches!(self.dtype(), DType::QFloat(_))
    }

    /// Returns the read of the value, packed or not.
    fn read(&self, what: &'static str) -> Read;

    /// Returns the gradient of an ordinary backward pass as `[num_values]`.
    fn gradient(&self, grads: &Gradients) -> Option<Tensor<1>>;

    /// Returns the gradient that `grads` has for the parameter `id` of this rank, as
    /// `[num_values]`.
    fn registered(&self, id: ParamId, grads: &GradientsParams) -> Option<Tensor<1>>;

    /// Adds `values` to `grads` as the gradient of the parameter `id`, in its shape and precision.
    fn register(&self, id: ParamId, grads: &mut GradientsParams, values: TensorData);

    /// Adds the tensor `values` to `grads`, like [`register`](Self::register).
    fn register_tensor(&self, id: ParamId, grads: &mut GradientsParams, values: Tensor<1>);
}

impl<const D: usize> AnyRank for Tensor<D> {
    fn shape(&self) -> Shape {
        Tensor::shape(self)
    }

    fn dtype(&self) -> DType {
        Tensor::dtype(self)
    }

    fn checkpointing(&self) -> Option<GradientCheckpointingStrategy> {
        self.gradient_checkpointing_strategy()
    }

    fn flat(&self) -> Tensor<1> {
        flatten(self.clone().inner())
    }

    fn read(&self, what: &'static str) -> Read {
        Box::pin(read(self.clone(), what))
    }

    fn gradient(&self, grads: &Gradients) -> Option<Tensor<1>> {
        self.grad(grads).map(flatten)
    }

    fn registered(&self, id: ParamId, grads: &GradientsParams) -> Option<Tensor<1>> {
        grads.get::<D>(id).map(flatten)
    }

    fn register(&self, id: ParamId, grads: &mut GradientsParams, values: TensorData) {
        let (bytes, _, dtype) = values.into_parts();
        let values = TensorData::from_bytes(bytes, Tensor::shape(self), dtype);
        let device = self.device().inner();
        grads.register(id, Tensor::<D>::from_data(values, (&device, Tensor::dtype(self))));
    }

    fn register_tensor(&self, id: ParamId, grads: &mut GradientsParams, values: Tensor<1>) {
        let values = values.to_device(&self.device().inner()).reshape(Tensor::shape(self));
        grads.register::<D>(id, values.cast(Tensor::dtype(self)));
    }
}

fn flatten<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> Tensor<1, K> {
    let values = Tensor::shape(&tensor).num_elements();
    tensor.reshape([values])
}

/// Calls `visit` with every value of a model and its place, in the order in which Burn visits them.
pub(crate) fn for_each_value<M: Module>(model: &M, mut visit: impl FnMut(&Place, Value<'_>)) {
    model.visit(&mut Walk::<&mut Visit<'_>>::new(&mut visit));
}

/// Calls `visit` with the path and the reference of every float parameter, buffer and running
/// state, in the order in which Burn visits them. A tied parameter is visited once for each of its
/// copies.
pub(crate) fn for_each_parameter<M: Module>(
    model: &M,
    mut visit: impl FnMut(&str, &ParameterRef<'_>),
) {
    for_each_value(model, |place, value| {
        if let Value::Float(parameter) = value {
            visit(place.path(), &parameter);
        }
    });
}

/// Calls `visit` for every parameter that requires a gradient: the first copy of a tied parameter,
/// in the order of [`TrainableParameters`](crate::model::TrainableParameters).
pub(crate) fn for_each_trained<M: Module>(
    model: &M,
    mut visit: impl FnMut(&str, &ParameterRef<'_>),
) {
    for_each_parameter(model, |path, parameter| {
        if parameter.is_trained && !parameter.is_repeated {
            visit(path, parameter);
        }
    });
}

/// Returns the model with the values that `new_value` returns for its float parameters, buffers,
/// and running states. `None` leaves a parameter unchanged.
///
/// New values are `[num_values]`, on any device, without autodiff. A parameter keeps its shape,
/// precision, device and autodiff setting, and whether it is trained.
pub(crate) fn map_parameters<M: Module>(
    model: M,
    mut new_value: impl FnMut(&str, &ParameterRef<'_>) -> Option<Tensor<1>>,
) -> M {
    model.map(&mut Walk::<&mut NewValue<'_>>::new(&mut new_value))
}

// Not generic, so that the walk of a model is compiled once and not for every closure.
type Visit<'a> = dyn FnMut(&Place, Value<'_>) + 'a;
type NewValue<'a> = dyn FnMut(&str, &ParameterRef<'_>) -> Option<Tensor<1>> + 'a;

struct Walk<F> {
    place: Place,
    /// Trained parameters that were visited.
    seen: HashSet<ParamId>,
    call: F,
}

impl<F> Walk<F> {
    fn new(call: F) -> Self {
        Self { place: Place::default(), seen: HashSet::new(), call }
    }

    fn reference<'a, const D: usize>(
        &mut self,
        id: ParamId,
        value: &'a Tensor<D>,
    ) -> ParameterRef<'a> {
        let is_trained = value.is_require_grad();
        let is_repeated = is_trained && !self.seen.insert(id);
        ParameterRef { id, is_trained, is_repeated, value }
    }
}

impl ModuleVisitor for Walk<&mut Visit<'_>> {
    track_place!(place);

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let value = param.base();
        let parameter = self.reference(param.id, &value);
        (self.call)(&self.place, Value::Float(parameter));
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        (self.call)(&self.place, Value::Int(&|| flatten(param.val().inner())));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        (self.call)(&self.place, Value::Bool(&|| flatten(param.val().inner())));
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        (self.call)(&self.place, Value::Flag(flag));
    }
}

impl ModuleMapper for Walk<&mut NewValue<'_>> {
    track_place!(place);

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let value = param.base();
        let parameter = self.reference(param.id, &value);
        let Some(new) = (self.call)(self.place.path(), &parameter) else { return param };
        let new = new.to_device(&value.device().inner()).cast(value.dtype());
        let new: Tensor<D> = new.reshape(value.shape());
        let new = match value.gradient_checkpointing_strategy() {
            Some(strategy) => new.autodiff().with_gradient_checkpointing_strategy(strategy),
            None => new,
        };
        param.map(|_| new.set_require_grad(parameter.is_trained))
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
        tied: Linear,
        norm: BatchNorm,
    }

    fn net(device: &Device) -> Net {
        let layer = LinearConfig::new(2, 3).init(device);
        // Clones share parameters after these are initialized.
        let _ = layer.forward(Tensor::<2>::zeros([1, 2], device));
        let norm = BatchNormConfig::new(3).init(device).no_grad();
        Net { first: layer.clone().private(), tied: layer, norm }
    }

    fn paths<M: Module>(model: &M, select: impl Fn(&ParameterRef<'_>) -> bool) -> Vec<String> {
        let mut paths = Vec::new();
        for_each_parameter(model, |path, parameter| {
            if select(parameter) {
                paths.push(path.to_string());
            }
        });
        paths
    }

    #[test]
    fn walk_visits_parameters_copies_and_buffers_with_their_paths() {
        let net = net(&Device::flex().autodiff());
        let tied = ["first.weight", "first.bias", "tied.weight", "tied.bias"];
        let buffers = ["norm.gamma", "norm.beta", "norm.running_mean", "norm.running_var"];
        assert_eq!(paths(&net, |_| true), [&tied[..], &buffers[..]].concat());
        assert_eq!(paths(&net, |parameter| parameter.is_trained), tied);
        assert_eq!(paths(&net, |parameter| parameter.is_repeated), tied[2..]);
        let mut trained = Vec::new();
        for_each_trained(&net, |path, parameter| {
            trained.push((path.to_string(), parameter.value.shape().num_elements()));
        });
        assert_eq!(trained, [("first.weight".to_string(), 6), ("first.bias".to_string(), 3)]);
    }

    #[test]
    fn walk_reads_gradients_of_every_rank() {
        let layer = LinearConfig::new(2, 3).init(&Device::flex().autodiff());
        let input = Tensor::<2>::ones([1, 2], &layer.weight.device());
        let grads = layer.forward(input).sum().backward();
        let mut released = GradientsParams::new();
        for_each_trained(&layer, |_, parameter| {
            let gradient = parameter.value.gradient(&grads).unwrap();
            assert_eq!(gradient.dims(), [parameter.value.shape().num_elements()]);
            parameter.value.register(parameter.id, &mut released, gradient.into_data());
        });
        let weight = released.get::<2>(layer.weight.id).unwrap();
        weight.into_data().assert_eq(&TensorData::from([[1.0f32; 3]; 2]), true);
        for_each_trained(&layer, |_, parameter| {
            let registered = parameter.value.registered(parameter.id, &released).unwrap();
            registered.into_data().assert_eq(&parameter.value.flat().ones_like().into_data(), true);
        });
    }

    #[test]
    fn mapped_parameters_keep_shape_autodiff_and_training() {
        let device = Device::flex().autodiff().gradient_checkpointing();
        let mapped = map_parameters(net(&device), |path, parameter| {
            let values = parameter.value.flat();
            (path != "first.bias").then(|| values.zeros_like().add_scalar(7.0))
        });
        for_each_parameter(&mapped, |path, parameter| {
            assert_eq!(parameter.is_trained, !path.starts_with("norm"), "{path}");
            assert_eq!(
                parameter.value.checkpointing(),
                Some(GradientCheckpointingStrategy::Balanced)
            );
            let sevens = parameter.value.flat().equal_elem(7.0).all().into_scalar::<bool>();
            assert_eq!(sevens, path != "first.bias", "{path}");
        });
        assert_eq!(mapped.tied.weight.dims(), [2, 3]);
    }
}
