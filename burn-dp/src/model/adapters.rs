//! Low-rank adapters for chosen layers.

use std::collections::HashMap;

use burn::module::{
    LoraAdapter, Module, ModuleVisitor, Param, ParamGroup, ParamId, Reparameterizer,
};
use burn::tensor::quantization::QuantScheme;
use burn::tensor::{DType, Distribution, Tensor};

use super::scan::may_be_adapted;
use crate::DpError;
use crate::error::{at_least_one, positive};
use crate::walk::map_parameters;

/// Low-rank adapters (LoRA) for chosen layers, with a rank for each choice.
///
/// A weight W with an adapter of rank r is `W + (alpha / r) · a @ b`, in the shape of W, where a
/// has one row for each index of the first axis and b one column for each index of the other axes.
/// Only the factors are trained, so only their gradients are clipped and noised.
///
/// The weights of linear layers (also in attention and transformer layers), embeddings and
/// convolutions can have an adapter; [`LAYERS`](crate::nn::LAYERS) lists the layers. The linear
/// layers of recurrent gates cannot.
///
/// - [`Module::materialize`] merges the adapters into the weights.
/// - [`detach`](Self::detach) removes them and restores the weights.
/// - The record of the factors alone is `model.into_record_group(LowRankAdapters::group())`, which
///   `load_record` applies with `allow_partial` to a model with the same adapters.
///
/// # Example
///
/// ```
/// use burn::module::{Module, ParamGroup};
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::Device;
/// use burn_dp::model::{LowRankAdapters, TrainableParameters};
/// use burn_dp::prelude::*;
///
/// #[derive(Module, Debug)]
/// struct Classifier {
///     body: Private<Linear>,
///     head: Private<Linear>,
/// }
///
/// # fn main() -> Result<(), DpError> {
/// let device = Device::flex().autodiff();
/// let model = Classifier {
///     body: LinearConfig::new(64, 32).init(&device).private(),
///     head: LinearConfig::new(32, 2).init(&device).private(),
/// };
/// let adapters = LowRankAdapters::new()
///     .with_layers(ParamGroup::from_predicate("body"), 4, 8.0)
///     .with_trained(ParamGroup::from_predicate("head")); // in full
/// let model = adapters.attach(model)?;
/// let trained = TrainableParameters::of(&model)?;
/// let paths: Vec<_> = trained.iter().map(|parameter| parameter.path.as_str()).collect();
/// assert_eq!(paths, ["body.weight.lora.a", "body.weight.lora.b", "head.weight", "head.bias"]);
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// Hu et al., LoRA: low-rank adaptation of large language models, 2021; Yu et al., Differentially
/// private fine-tuning of language models, 2022; Dettmers et al., QLoRA: efficient finetuning of
/// quantized LLMs, 2023.
#[derive(Clone, Debug, Default)]
pub struct LowRankAdapters {
    choices: Vec<Choice>,
    trained: Vec<ParamGroup>,
    packing: Option<QuantScheme>,
}

/// The adapters of one group of weights.
#[derive(Clone, Debug)]
struct Choice {
    layers: ParamGroup,
    rank: usize,
    alpha: f64,
}

/// The factors of one adapter. The weight at `path` is `W + scale · a @ b`, in the shape of W.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AdapterFactors {
    /// Path of the weight.
    pub path: String,
    /// Shape of the weight.
    pub shape: Vec<usize>,
    /// `[first axis of the weight, rank]`.
    pub a: Tensor<2>,
    /// `[rank, product of the other axes of the weight]`.
    pub b: Tensor<2>,
    /// alpha / rank.
    pub scale: f64,
}

impl LowRankAdapters {
    /// Creates a configuration without adapters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds adapters of this rank to the weights in `layers`; the product of the factors is scaled
    /// by `alpha / rank`. Other parameters in the group (biases) get none. A weight in several
    /// choices has the adapter of the last one.
    pub fn with_layers(mut self, layers: ParamGroup, rank: usize, alpha: f64) -> Self {
        self.choices.push(Choice { layers, rank, alpha });
        self
    }

    /// Also trains the parameters in `group` that have no adapter: a new head, biases or norms.
    pub fn with_trained(mut self, group: ParamGroup) -> Self {
        self.trained.push(group);
        self
    }

    /// Packs the weights of linear layers that have an adapter (QLoRA). A private linear layer
    /// unpacks such a weight in the forward and again in the backward pass, and drops it in
    /// between.
    pub fn with_packed_base(mut self, scheme: QuantScheme) -> Self {
        self.packing = Some(scheme);
        self
    }

    /// Returns the group of all factors.
    pub fn group() -> ParamGroup {
        ParamGroup::from_any_predicates(vec![".lora.a", ".lora.b"])
    }

    /// Adds the adapters to `model` and freezes all other parameters. The outputs of the model do
    /// not change: in each adapter the factor that is applied first is random, with values from the
    /// generator of the device, and the other is zero. Flags such as the mode of a BatchNorm or a
    /// dropout stay as they are.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a rank is zero, an alpha is not positive and finite,
    /// or a group has no parameter to adapt or to train, and [`DpError::UnsupportedModel`] if the
    /// model already has adapters, or if the model holds a chosen weight in several places, whose
    /// adapters would differ.
    pub fn attach<M: Module>(&self, model: M) -> Result<M, DpError> {
        let found = Weights::of(&model);
        if let Some(path) = found.adapted {
            let reason = "it has an adapter; merge it with `Module::materialize`, or remove it \
                          with `LowRankAdapters::detach`";
            return Err(DpError::UnsupportedModel { path, reason: reason.into() });
        }
        for choice in &self.choices {
            at_least_one("rank", choice.rank)?;
            positive("alpha", choice.alpha)?;
            if !found.weights.iter().any(|weight| weight.is_in(&choice.layers)) {
                return Err(no_parameter("layers", &choice.layers, "weight that can be adapted"));
            }
        }
        let chosen = |weight: &Weight| Some((weight.path.clone(), self.choice(weight)?.clone()));
        let chosen: HashMap<String, Choice> = found.weights.iter().filter_map(chosen).collect();
        for group in &self.trained {
            let trains = |(id, path): &(ParamId, String)| {
                group.matches(id, Some(path)) && !chosen.contains_key(path)
            };
            if !found.parameters.iter().any(trains) {
                return Err(no_parameter("trained", group, "parameter without an adapter"));
            }
        }
        for (index, weight) in found.weights.iter().enumerate() {
            let copy = found.weights[..index].iter().find(|other| other.id == weight.id);
            let of_either = |copy: &&Weight| {
                chosen.contains_key(&weight.path) || chosen.contains_key(&copy.path)
            };
            if let Some(copy) = copy.filter(of_either) {
                let reason = format!(
                    "it is one parameter with `{}`, and two adapters would make them differ; hold \
                     the layer in one place, or leave both out",
                    copy.path
                );
                return Err(DpError::UnsupportedModel { path: weight.path.clone(), reason });
            }
        }
        let adapted = ParamGroup::from_paths(chosen.keys().cloned().collect());
        let layers = found.weights.iter().map(|weight| (weight.path.clone(), weight.layer));
        let attach = Attach { chosen, layers: layers.collect(), packing: self.packing };
        let model = model.apply_reparameterization(attach);
        Ok(self.trained.iter().fold(model, |model, group| {
            model.set_require_grad_group(group.clone().exclude(adapted.clone()), true)
        }))
    }

    /// Returns the factors of all adapters of `model`, without autodiff.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::OtherModel`] if an adapter is not one that this configuration
    /// attaches.
    pub fn factors<M: Module>(&self, model: &M) -> Result<Vec<AdapterFactors>, DpError> {
        let found = Weights::of(model);
        let mut factors = Vec::new();
        for weight in found.weights {
            let Some([a, b]) = weight.factors.clone() else { continue };
            let choice = self.choice(&weight).filter(|choice| choice.rank == b.dims()[0]);
            let Some(choice) = choice else {
                let reason = format!(
                    "its adapter of rank {} is not one of this configuration; use the \
                     configuration that attached it",
                    b.dims()[0]
                );
                return Err(DpError::OtherModel { path: weight.path, reason });
            };
            let scale = choice.alpha / choice.rank as f64;
            factors.push(AdapterFactors { path: weight.path, shape: weight.shape, a, b, scale });
        }
        Ok(factors)
    }

    /// Removes all adapters of `model`. The weights are the original ones; a packed weight is
    /// unpacked.
    pub fn detach<M: Module>(model: M) -> M {
        let group = Self::group();
        let zeros = map_parameters(model, |path, parameter| {
            let values = parameter.value.flat();
            group.matches(&parameter.id, Some(path)).then(|| values.zeros_like())
        });
        zeros.materialize()
    }

    /// Returns the last choice of a weight.
    fn choice(&self, weight: &Weight) -> Option<&Choice> {
        self.choices.iter().rev().find(|choice| weight.is_in(&choice.layers))
    }
}

fn no_parameter(name: &'static str, group: &ParamGroup, what: &str) -> DpError {
    DpError::invalid(name, format!("no {what} is in the group {group:?}; check its paths"))
}

/// A weight that may have an adapter.
struct Weight {
    path: String,
    id: ParamId,
    shape: Vec<usize>,
    layer: Layer,
    /// The factors a and b.
    factors: Option<[Tensor<2>; 2]>,
}

impl Weight {
    fn is_in(&self, group: &ParamGroup) -> bool {
        group.matches(&self.id, Some(&self.path))
    }
}

/// The type of a layer, as far as it matters for its adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layer {
    Linear,
    Embedding,
    /// Its output channels are the first axis of the weight.
    Convolution,
    /// Its input channels are the first axis of the weight.
    Transposed,
}

impl Layer {
    fn of(container: &str) -> Self {
        match container {
            "Struct:Linear" => Self::Linear,
            "Struct:Embedding" => Self::Embedding,
            name if name.starts_with("Struct:ConvTranspose") => Self::Transposed,
            _ => Self::Convolution,
        }
    }
}

/// The weights of a model that may have an adapter.
#[derive(Default)]
struct Weights {
    path: Vec<String>,
    containers: Vec<String>,
    weights: Vec<Weight>,
    /// Every float parameter.
    parameters: Vec<(ParamId, String)>,
    /// Path of the first weight with a reparameterization of any kind.
    adapted: Option<String>,
}

impl Weights {
    fn of<M: Module>(model: &M) -> Self {
        let mut weights = Self::default();
        model.visit(&mut weights);
        weights
    }
}

impl ModuleVisitor for Weights {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        if container_type == "Reparameterization" {
            self.adapted.get_or_insert_with(|| self.path.join("."));
        }
        self.path.push(name.to_string());
        self.containers.push(container_type.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
        self.containers.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let [.., lora, factor] = self.path.as_slice()
            && lora == "lora"
            && let Some(weight) = self.weights.last_mut()
            && weight.path.split('.').eq(&self.path[..self.path.len() - 2])
        {
            let dims = param.lazy_shape();
            let value: Tensor<2> = param.base().inner().reshape([dims[0], dims[D - 1]]);
            let factors = weight.factors.get_or_insert_with(|| [value.clone(), value.clone()]);
            factors[usize::from(factor == "b")] = value;
            return;
        }
        let path = self.path.join(".");
        self.parameters.push((param.id, path.clone()));
        if may_be_adapted(&self.path, &self.containers) {
            let layer = self.containers.last().map_or(Layer::Linear, |name| Layer::of(name));
            let shape = param.lazy_shape().to_vec();
            self.weights.push(Weight { path, id: param.id, shape, layer, factors: None });
        }
    }
}

/// Freezes every parameter and attaches the chosen adapters.
struct Attach {
    chosen: HashMap<String, Choice>,
    layers: HashMap<String, Layer>,
    packing: Option<QuantScheme>,
}

impl Reparameterizer for Attach {
    type Reparam = LoraAdapter;

    fn reparameterize<const D: usize>(
        &mut self,
        path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<LoraAdapter>) {
        let base = param.set_require_grad(false);
        let (Some(choice), Some(&layer)) = (self.chosen.get(path), self.layers.get(path)) else {
            return (base, None);
        };
        let value = base.base();
        let dims = value.dims();
        let (rows, columns) = (dims[0], dims[1..].iter().product::<usize>());
        let dtype = if value.dtype().is_float() { value.dtype() } else { DType::F32 };
        let options = (&value.device(), dtype);
        let [a, b] = [[rows, choice.rank], [choice.rank, columns]];
        // The values of the factor that is applied first scale with the inverse square root of the
        // number of inputs, so that its outputs have the size of one input.
        let random = |shape: [usize; 2], inputs: usize| {
            let deviation = (inputs.max(1) as f64).sqrt().recip();
            Tensor::random(shape, Distribution::Normal(0.0, deviation), options)
        };
        let (a, b) = match layer {
            Layer::Convolution => (Tensor::zeros(a, options), random(b, columns)),
            Layer::Embedding => (random(a, choice.rank), Tensor::zeros(b, options)),
            Layer::Linear | Layer::Transposed => (random(a, rows), Tensor::zeros(b, options)),
        };
        let base = match self.packing {
            Some(scheme) if layer == Layer::Linear && value.dtype().is_float() => {
                base.map(|value| value.quantize_dynamic(&scheme))
            }
            _ => base,
        };
        let [a, b] = [a, b].map(Param::from_tensor);
        (base, Some(LoraAdapter { a, b, scale: choice.alpha / choice.rank as f64 }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::tensor::{Device, Int};

    use super::*;
    use crate::model::TrainableParameters;
    use crate::nn::{IntoPrivate, Private};

    #[derive(Module, Debug)]
    struct Net {
        words: Private<Embedding>,
        conv: Private<Conv2d>,
        body: Private<Linear>,
        head: Private<Linear>,
    }

    fn net() -> Net {
        let device = Device::flex().autodiff();
        Net {
            words: EmbeddingConfig::new(9, 6).init(&device).private(),
            conv: Conv2dConfig::new([2, 4], [2, 2]).init(&device).private(),
            body: LinearConfig::new(6, 5).init(&device).private(),
            head: LinearConfig::new(5, 3).init(&device).private(),
        }
    }

    fn output(net: &Net) -> Vec<f32> {
        let device = Device::flex().autodiff();
        let ids = Tensor::<2, Int>::from_ints([[0, 8, 3], [2, 2, 1]], &device);
        let text = net.head.forward(net.body.forward(net.words.forward(ids)).tanh());
        let image = net.conv.forward(Tensor::ones([2, 2, 3, 3], &device));
        let flat = |values: usize, tensor: Tensor<1>| tensor.reshape([values]);
        let text = flat(18, text.flatten(0, 2));
        let all = Tensor::cat(vec![text, image.flatten(0, 3)], 0);
        all.into_data().try_into_vec().unwrap()
    }

    fn adapters() -> LowRankAdapters {
        LowRankAdapters::new().with_layers(ParamGroup::all(), 2, 4.0).with_layers(
            ParamGroup::from_predicate("body"),
            3,
            1.0,
        )
    }

    fn paths(net: &Net) -> Vec<String> {
        let trained = TrainableParameters::of(net).unwrap();
        trained.iter().map(|parameter| parameter.path.clone()).collect()
    }

    /// Sets all factors to nonzero values.
    fn filled(net: Net) -> Net {
        map_parameters(net, |path, parameter| {
            let values = parameter.value.flat();
            path.contains(".lora.").then(|| values.zeros_like().add_scalar(0.25))
        })
    }

    #[test]
    fn attached_adapters_have_their_ranks_and_change_no_output() {
        let (plain, before) = (net(), output(&net()));
        assert_eq!(before.len(), output(&plain).len());
        let before = output(&plain);
        let adapted = adapters().attach(plain).unwrap();
        assert_eq!(output(&adapted), before);
        let layers = ["words", "conv", "body", "head"];
        let expected = layers.map(|l| [format!("{l}.weight.lora.a"), format!("{l}.weight.lora.b")]);
        assert_eq!(paths(&adapted), expected.concat());

        let factors = adapters().factors(&adapted).unwrap();
        let found: Vec<_> = factors
            .iter()
            .map(|f| (f.path.as_str(), f.shape.as_slice(), f.a.dims(), f.b.dims(), f.scale))
            .collect();
        assert_eq!(found[0], ("words.weight", &[9, 6][..], [9, 2], [2, 6], 2.0));
        assert_eq!(found[1], ("conv.weight", &[4, 2, 2, 2][..], [4, 2], [2, 8], 2.0));
        assert_eq!(found[2], ("body.weight", &[6, 5][..], [6, 3], [3, 5], 1.0 / 3.0));
        assert!(LowRankAdapters::new().factors(&adapted).is_err());
    }

    #[test]
    fn merged_weights_give_the_output_and_detached_weights_are_restored() {
        let plain = net();
        let before = output(&plain);
        let adapted = filled(adapters().attach(plain).unwrap());
        let expected = output(&adapted);
        assert_ne!(expected, before);
        let merged = output(&adapted.clone().materialize());
        for (merged, expected) in merged.into_iter().zip(&expected) {
            assert!((merged - expected).abs() < 1e-5, "{merged} {expected}");
        }
        assert_eq!(output(&LowRankAdapters::detach(adapted)), before);
    }

    #[test]
    fn record_of_the_factors_restores_the_adapters() {
        let plain = net();
        let adapted = filled(adapters().attach(plain.clone()).unwrap());
        let record = adapted.clone().into_record_group(LowRankAdapters::group());
        let fresh = adapters().attach(plain).unwrap();
        assert_ne!(output(&fresh), output(&adapted));
        let restored = fresh.load_record(record.allow_partial(true));
        assert_eq!(output(&restored), output(&adapted));
    }

    #[test]
    fn other_parameters_can_be_trained_as_well() {
        let adapters = LowRankAdapters::new()
            .with_layers(ParamGroup::from_predicate("body"), 2, 4.0)
            .with_trained(ParamGroup::from_predicate("head"))
            .with_trained(ParamGroup::from_predicate("body"));
        let expected =
            ["body.weight.lora.a", "body.weight.lora.b", "body.bias", "head.weight", "head.bias"];
        assert_eq!(paths(&adapters.attach(net()).unwrap()), expected);
    }

    #[test]
    fn impossible_adapters_are_refused_with_the_reason() {
        let group = ParamGroup::from_predicate;
        let one = |group, rank, alpha| LowRankAdapters::new().with_layers(group, rank, alpha);
        for (adapters, reason) in [
            (one(ParamGroup::all(), 0, 1.0), "rank must be at least 1, got 0"),
            (one(ParamGroup::all(), 1, f64::NAN), "alpha must be positive and finite, got NaN"),
            (one(group("attention"), 1, 1.0), "no weight that can be adapted"),
            (one(group("bias"), 1, 1.0), "no weight that can be adapted"),
            (
                one(group("body"), 1, 1.0).with_trained(group("body.weight")),
                "no parameter without an adapter",
            ),
        ] {
            let error = adapters.attach(net()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let twice = adapters().attach(adapters().attach(net()).unwrap()).unwrap_err().to_string();
        assert!(twice.contains("`words.weight`") && twice.contains("detach"), "{twice}");

        let mut tied = net();
        let ids = Tensor::<2, Int>::zeros([1, 1], &Device::flex().autodiff());
        let _ = tied.words.forward(ids);
        let _ = tied.body.forward(Tensor::<2>::ones([1, 6], &Device::flex().autodiff()));
        tied.head = tied.body.clone();
        let error = adapters().attach(tied).unwrap_err().to_string();
        assert!(error.contains("one parameter with `body.weight`"), "{error}");
    }

    #[test]
    fn packed_bases_are_the_adapted_linear_weights() {
        let device = Device::flex();
        let scheme = device.settings().quantization.scheme;
        let packed = adapters().with_packed_base(scheme).attach(net()).unwrap();
        let mut found = Vec::new();
        crate::model::for_each_parameter(&packed, |path, parameter| {
            if matches!(parameter.value.dtype(), DType::QFloat(_)) {
                found.push(path.to_string());
            }
        });
        assert_eq!(found, ["body.weight", "head.weight"]);
        assert_eq!(output(&packed).len(), output(&net()).len());
    }
}
