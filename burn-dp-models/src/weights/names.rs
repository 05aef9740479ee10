//! The names of parameters in a checkpoint.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorData};

/// Names that are different in the checkpoint because Rust does not allow them.
const RENAMED: [(&str, &str); 4] =
    [("self_attention", "self"), ("layer_norm", "LayerNorm"), ("conv", "0"), ("norm", "1")];

/// Modules whose weights GPT-2 stores like Burn does: `[d_input, d_output]`.
const NOT_TRANSPOSED: [&str; 3] = ["c_attn", "c_proj", "c_fc"];

/// The layers of a ViT: parts of their names in checkpoints and in `transformers` 4, and the names
/// of the layers in `transformers` 5, which reads both.
const VIT: [(&str, &str); 6] = [
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
];

/// The position of a walk through a model.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Names and containers, outermost first.
    segments: Vec<(String, String)>,
}

/// The name of a parameter in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// The path in our model.
    pub(crate) path: String,
    /// The name in the checkpoint. The factors of an adapter end in `.lora.a` and `.lora.b`.
    pub(crate) stored: String,
    /// Whether the checkpoint has the transposed matrix.
    pub(crate) is_transposed: bool,
    /// The layer of a weight, or of the weight whose factor this is.
    pub(crate) layer: LayerKind,
}

/// A layer whose weight can have an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LayerKind {
    Linear,
    Embedding,
    Convolution,
    /// Another layer, or a parameter that is not a weight.
    Other,
}

/// Returns whether the path of a parameter is in a part of a model, or the part itself.
pub(crate) fn is_in(part: &str, path: &str) -> bool {
    path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Name {
    /// Returns the module and the letter of a factor of an adapter.
    pub(super) fn factor(&self) -> Option<(&str, char)> {
        let factor = |end, letter| Some((self.stored.strip_suffix(end)?, letter));
        factor(".weight.lora.a", 'A').or_else(|| factor(".weight.lora.b", 'B'))
    }

    /// Returns this name, and the other name of a layer of a ViT in `transformers` 5. Adapters need
    /// the names of the layers, which a checkpoint does not have.
    pub(super) fn versions(&self) -> Vec<Self> {
        let mut versions = vec![self.clone()];
        if let Some(layer) = self.stored.strip_prefix("vit.encoder.layer.") {
            let renamed =
                VIT.iter().fold(layer.to_string(), |name, (old, new)| name.replace(old, new));
            versions.push(Self { stored: format!("vit.layers.{renamed}"), ..self.clone() });
        }
        versions
    }
}

impl Place {
    pub(super) fn enter(&mut self, name: &str, container: &str) {
        self.segments.push((name.into(), container.into()));
    }

    pub(super) fn exit(&mut self) {
        self.segments.pop();
    }

    /// Returns the name of the parameter at this place.
    pub(super) fn name(&self) -> Name {
        let names = self.segments.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        let leaf = self.segments.last().map_or("", |(leaf, _)| leaf.as_str());
        let is_weight = leaf == "weight";
        // For a factor, the weight is two levels up.
        let weight = self.segments.iter().rev().find(|(name, _)| name == "weight");
        let layer = match weight.map_or("", |(_, container)| container.as_str()) {
            "Struct:Linear" => LayerKind::Linear,
            "Struct:Embedding" => LayerKind::Embedding,
            "Struct:Conv2d" => LayerKind::Convolution,
            _ => LayerKind::Other,
        };
        let is_linear = is_weight && layer == LayerKind::Linear;
        let module = names.len().checked_sub(2).map_or("", |index| names[index]);
        // A variant of an enum has no name in the checkpoint.
        let kept = self.segments.iter().filter(|(_, kind)| !kind.starts_with("Enum:"));
        let stored = kept.map(|(name, _)| match name.as_str() {
            "gamma" => "weight",
            "beta" => "bias",
            name => {
                RENAMED.iter().find(|(ours, _)| *ours == name).map_or(name, |(_, theirs)| theirs)
            }
        });
        Name {
            stored: stored.collect::<Vec<_>>().join("."),
            path: names.join("."),
            is_transposed: is_linear && !NOT_TRANSPOSED.contains(&module),
            layer,
        }
    }
}

/// Calls a function for each float parameter of a model, with its stored value.
pub(crate) fn parameters<M: Module>(model: &M, visit: impl FnMut(Name, AnyParameter<'_>)) {
    model.visit(&mut Visitor { place: Place::default(), visit });
}

/// A parameter of any rank.
pub(crate) trait Parameter {
    /// Returns the value without an adapter, transposed if a checkpoint has it like this.
    fn value(&self, transpose: bool) -> TensorData;

    /// Returns the shape.
    fn dims(&self) -> Vec<usize>;
}

/// A reference to a parameter of any rank.
pub(crate) type AnyParameter<'a> = &'a dyn Parameter;

impl<const D: usize> Parameter for Param<Tensor<D>> {
    fn value(&self, transpose: bool) -> TensorData {
        let value = self.base().detach();
        let value = if transpose { value.transpose() } else { value };
        value.into_data().convert::<f32>()
    }

    fn dims(&self) -> Vec<usize> {
        self.lazy_shape().to_vec()
    }
}

struct Visitor<F> {
    place: Place,
    visit: F,
}

impl<F: FnMut(Name, AnyParameter<'_>)> ModuleVisitor for Visitor<F> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        (self.visit)(self.place.name(), param);
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
    }
}

/// Replaces the values of parameters with what `value` returns.
pub(super) struct Mapper<F> {
    place: Place,
    value: F,
}

impl<F: FnMut(Name, &[usize]) -> Option<TensorData>> Mapper<F> {
    pub(super) fn new(value: F) -> Self {
        Self { place: Place::default(), value }
    }
}

impl<F: FnMut(Name, &[usize]) -> Option<TensorData>> ModuleMapper for Mapper<F> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let shape = param.lazy_shape().to_vec();
        match (self.value)(self.place.name(), &shape) {
            None => param,
            Some(data) => param.map(|value| {
                let is_trained = value.is_require_grad();
                let loaded = Tensor::from_data(data, &value.device());
                if is_trained { loaded.require_grad() } else { loaded }
            }),
        }
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
    }
}

/// Returns the model whose factors of adapters, and the part at the path `head`, have the values
/// that `value` returns for their indices.
pub(crate) fn fill_trained<M: Module>(
    model: M,
    head: Option<&str>,
    value: impl Fn(usize) -> f32,
) -> M {
    model.map(&mut Mapper::new(|name: Name, shape: &[usize]| {
        if name.factor().is_none() && !head.is_some_and(|head| is_in(head, &name.path)) {
            return None;
        }
        let count = shape.iter().product();
        Some(TensorData::new((0..count).map(&value).collect::<Vec<_>>(), shape.to_vec()))
    }))
}
