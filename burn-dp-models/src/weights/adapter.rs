//! Low-rank adapters in the format of the Python library `peft`.

use std::collections::{BTreeMap, BTreeSet};

use burn::module::{Module, ParamGroup};
use burn::tensor::TensorData;
use burn::tensor::quantization::QuantScheme;
use burn_dp::DpError;
use burn_dp::model::LowRankAdapters;
use serde_json::{Value, json};

use super::names::{AnyParameter, LayerKind, Mapper, Name, is_in, parameters};
use super::read::transposed;
use super::write::Tensors;
use super::{Weights, write};
use crate::ModelError;

/// The layers with adapters, and their ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraTargets {
    /// Rank by the path of the weight.
    ranks: BTreeMap<String, usize>,
    alpha: f64,
    packing: Option<QuantScheme>,
}

impl LoraTargets {
    /// Selects linear layers, embeddings and convolutions of a model by the ends of their paths, as
    /// `peft` does: `c_attn`, or `attn.c_proj`.
    ///
    /// # Arguments
    ///
    /// - `layers`: names, and their ranks
    /// - `alpha`: the product of the factors is multiplied by `alpha / rank`
    /// - `heads`: paths of the parts that have no adapters because they are fully trained
    ///
    /// # Errors
    ///
    /// Returns a message with the first name that matches no such layer and the available names, or
    /// with the first rank that is 0 or above the smaller side of a weight.
    pub fn new<'a, M: Module>(
        model: &M,
        layers: &[(String, usize)],
        alpha: f64,
        heads: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, String> {
        let heads: Vec<&str> = heads.into_iter().collect();
        let mut known = Vec::new();
        parameters(model, |name, parameter| {
            let is_head = heads.iter().any(|head| is_in(head, &name.path));
            let is_weight = name.layer != LayerKind::Other && name.stored.ends_with(".weight");
            if is_weight && !is_head {
                let dims = parameter.dims();
                // A kernel counts as a matrix.
                known.push((name, dims[0].min(dims[1..].iter().product())));
            }
        });
        let mut ranks = BTreeMap::new();
        for (layer, rank) in layers {
            if *rank == 0 {
                return Err(format!("must give {layer} a rank of at least 1, got 0"));
            }
            let ends = |(name, _): &&(Name, usize)| {
                let module = name.stored.trim_end_matches(".weight");
                module == layer || module.ends_with(&format!(".{layer}"))
            };
            let found = known.iter().filter(ends).collect::<Vec<_>>();
            if found.is_empty() {
                let module = |(name, _): &(Name, usize)| {
                    let module = name.stored.trim_end_matches(".weight").rsplit('.').next();
                    module.unwrap_or_default().to_string()
                };
                let mut names = known.iter().map(module).collect::<Vec<_>>();
                names.sort();
                names.dedup();
                return Err(format!(
                    "names `{layer}`, which is no layer of this model; it has {}",
                    names.join(", ")
                ));
            }
            if let Some((name, most)) = found.iter().find(|(_, most)| rank > most) {
                return Err(format!(
                    "must give {} a rank of at most {most}, the smaller side of its weight, got \
                     {rank}",
                    name.stored.trim_end_matches(".weight")
                ));
            }
            ranks.extend(found.into_iter().map(|(name, _)| (name.path.clone(), *rank)));
        }
        Ok(Self { ranks, alpha, packing: None })
    }

    /// Packs the weights of linear layers with adapters; see
    /// [`LowRankAdapters::with_packed_base`]. Adapters in files of `peft` do not contain the packed
    /// weights.
    pub fn with_packed_base(self, scheme: QuantScheme) -> Self {
        Self { packing: Some(scheme), ..self }
    }

    /// Returns whether the weight at this path has an adapter.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.ranks.contains_key(path)
    }

    /// Returns whether the embedding of a language model, which is also its output layer, has an
    /// adapter. It changes both uses, but only one in `peft`.
    pub(crate) fn has_tied(&self) -> bool {
        self.ranks.keys().any(|path| is_tied(path, &[]))
    }

    /// Returns the model with adapters; everything else is frozen.
    ///
    /// One factor of each is zero, so the outputs of the model do not change, except that packed
    /// weights are rounded.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LowRankAdapters::attach`].
    pub fn attach<M: Module>(&self, model: M) -> Result<M, DpError> {
        let adapters = self.ranks.iter().fold(LowRankAdapters::new(), |adapters, (path, rank)| {
            adapters.with_layers(ParamGroup::from_path(path), *rank, self.alpha)
        });
        let adapters = match self.packing {
            Some(scheme) => adapters.with_packed_base(scheme),
            None => adapters,
        };
        adapters.attach(model)
    }
}

/// The trained parameters of a model with adapters, as `peft` stores them.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    tensors: Tensors,
    config: Value,
}

impl Adapter {
    /// Name of the file with the parameters.
    pub const WEIGHTS_FILE: &'static str = "adapter_model.safetensors";
    /// Name of the file with the configuration.
    pub const CONFIG_FILE: &'static str = "adapter_config.json";

    /// Collects the factors, and the parts that were fully trained.
    ///
    /// # Arguments
    ///
    /// - `base`: name or folder of the model that the adapter belongs to
    /// - `heads`: paths of the parts that were fully trained: the head, and other new parts
    /// - `task`: the type of the task in `peft`, if it has one
    ///
    /// # Errors
    ///
    /// Returns a message with the first layer whose adapter `peft` cannot express: a tied
    /// embedding.
    pub fn of<'a, M: Module>(
        model: &M,
        targets: &LoraTargets,
        base: &str,
        heads: impl IntoIterator<Item = &'a str>,
        task: Option<&str>,
    ) -> Result<Self, String> {
        let heads: Vec<&str> = heads.into_iter().collect();
        if let Some(path) = targets.ranks.keys().find(|path| is_tied(path, &heads)) {
            return Err(format!("the adapter of {path}, which is tied, can only be merged"));
        }
        let kernels = kernels(model);
        let mut tensors = Tensors::new();
        let (mut modules, mut transposed) = (Vec::new(), true);
        parameters(model, |name, parameter| {
            let is_head = heads.iter().any(|head| is_in(head, &name.path));
            if name.factor().is_some() {
                let value = to_peft(&name, parameter, &kernels);
                let stored = name.versions().into_iter().filter_map(|name| peft_name(&name));
                tensors.extend(stored.map(|stored| (stored, value.clone())));
            } else if is_head {
                let stored = format!("{PREFIX}{}", name.stored);
                tensors.insert(stored, parameter.value(name.is_transposed));
            } else if targets.ranks.contains_key(&name.path) {
                transposed &= name.is_transposed || name.layer != LayerKind::Linear;
                let module = |name: Name| name.stored.trim_end_matches(".weight").to_string();
                let versions = name.versions().into_iter().map(module).collect::<Vec<_>>();
                modules.push((versions, name.path));
            }
        });
        let rank = targets.ranks.values().copied().max().unwrap_or(1);
        let patterns = modules.iter().filter(|(_, path)| targets.ranks[path] != rank);
        let pattern = |versions: &[String]| match versions {
            // Otherwise the ends of longer names match too.
            [module] if !module.contains('.') => format!("^{module}"),
            [module] => module.clone(),
            versions => format!("({})", versions.join("|")),
        };
        let patterns: BTreeMap<_, _> =
            patterns.map(|(versions, path)| (pattern(versions), targets.ranks[path])).collect();
        let config = json!({
            "peft_type": "LORA",
            "task_type": task,
            "base_model_name_or_path": base,
            "r": rank,
            "rank_pattern": patterns,
            "lora_alpha": targets.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": !transposed,
            "inference_mode": true,
            "modules_to_save": Some(heads).filter(|heads| !heads.is_empty()),
            "target_modules": modules.iter().flat_map(|(versions, _)| versions).collect::<Vec<_>>(),
        });
        Ok(Self { tensors, config })
    }

    /// Returns the content of [`CONFIG_FILE`](Self::CONFIG_FILE).
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// Returns the content of [`WEIGHTS_FILE`](Self::WEIGHTS_FILE).
    ///
    /// # Errors
    ///
    /// Returns the message of the format.
    pub fn weights(&self) -> Result<Vec<u8>, String> {
        write::to_safetensors(&self.tensors)
    }

    /// Returns the model, which has adapters at the same layers, with the values of a file that
    /// `peft` or [`weights`](Self::weights) wrote.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] with the first factor that is missing or has another shape, or the
    /// first value of the file that the model lacks.
    pub fn load_into<M: Module>(weights: &Weights, model: M) -> Result<M, ModelError> {
        let mut fault = None;
        let mut used = BTreeSet::new();
        let model = model.map(&mut Mapper::new(|name: Name, shape: &[usize]| {
            let factor = peft_name(&name);
            let stored = factor.clone().unwrap_or_else(|| format!("{PREFIX}{}", name.stored));
            let is_transposed = factor.is_some() || name.is_transposed;
            let versions = name.versions().into_iter().filter_map(|name| peft_name(&name));
            let mut versions = std::iter::once(stored.clone()).chain(versions);
            used.extend(versions.clone());
            match versions.find_map(|stored| weights.tensors().get(&stored)) {
                Some(found) => {
                    let found = found.clone().convert::<f32>();
                    let is_kernel = factor.is_some() && name.layer == LayerKind::Convolution;
                    let found = match is_kernel
                        && found.num_elements() == shape.iter().product::<usize>()
                    {
                        // Two axes, without the axes of the kernel.
                        true => TensorData::new(values(&found), shape.to_vec()),
                        false if is_transposed && found.shape().num_dims() == 2 => {
                            transposed(found)
                        }
                        false => found,
                    };
                    if **found.shape() == *shape {
                        return Some(found);
                    }
                    let found = found.shape().to_vec();
                    fault.get_or_insert(format!(
                        "`{stored}` has the shape {found:?}, but the model needs {shape:?}"
                    ));
                }
                None if factor.is_some() => {
                    fault.get_or_insert(format!("has no factor `{stored}`"));
                }
                None => {}
            }
            None
        }));
        let left = weights.tensors().keys().find(|name| !used.contains(*name));
        match fault.or_else(|| left.map(|name| format!("`{name}` is not in the model"))) {
            None => Ok(model),
            Some(fault) => Err(ModelError::new(weights.path(), fault)),
        }
    }
}

/// Returns whether a weight is the embedding of a language model, which is also its output layer.
fn is_tied(path: &str, heads: &[&str]) -> bool {
    heads.is_empty() && path.ends_with("wte.weight")
}

/// Returns the shapes of the weights of convolutions without their first axis, by their names.
fn kernels<M: Module>(model: &M) -> BTreeMap<String, Vec<usize>> {
    let mut kernels = BTreeMap::new();
    parameters(model, |name, parameter| {
        if name.layer == LayerKind::Convolution && name.factor().is_none() {
            let shape = parameter.value(false).shape()[1..].to_vec();
            kernels.insert(name.stored, shape);
        }
    });
    kernels
}

/// Returns a factor in the shape in which `peft` stores it.
fn to_peft(
    name: &Name,
    parameter: AnyParameter<'_>,
    kernels: &BTreeMap<String, Vec<usize>>,
) -> TensorData {
    let Some((module, factor)) = name.factor().filter(|_| name.layer == LayerKind::Convolution)
    else {
        // PyTorch stores the transposed factors.
        return parameter.value(true);
    };
    let value = parameter.value(false);
    let rows = value.shape()[0];
    let shape = match (factor, kernels.get(&format!("{module}.weight"))) {
        // A convolution to `rank` channels, and one of single pixels.
        ('B', Some(kernel)) => [vec![rows], kernel.clone()].concat(),
        _ => vec![rows, value.shape()[1], 1, 1],
    };
    TensorData::new(values(&value), shape)
}

fn values(data: &TensorData) -> Vec<f32> {
    data.iter::<f32>().collect()
}

/// Prefix of the names of all parameters in a file of `peft`.
const PREFIX: &str = "base_model.model.";

/// Returns the name of a factor in a file of `peft`.
fn peft_name(name: &Name) -> Option<String> {
    let (module, factor) = name.factor()?;
    Some(match name.layer {
        LayerKind::Embedding => format!("{PREFIX}{module}.lora_embedding_{factor}"),
        // There, A is applied first.
        LayerKind::Convolution => {
            let factor = if factor == 'A' { 'B' } else { 'A' };
            format!("{PREFIX}{module}.lora_{factor}.weight")
        }
        _ => format!("{PREFIX}{module}.lora_{factor}.weight"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use burn::tensor::Device;

    use super::*;
    use crate::weights::fill_trained;
    use crate::{Config, VitClassifier};

    #[test]
    fn an_adapter_of_a_vit_has_and_reads_both_names_of_a_layer() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/vit-classify");
        let Config::Vit(config) = Config::read(&folder).unwrap() else { panic!("not a ViT") };
        let model = VitClassifier::new(&config, 3, &Device::flex());
        let layers = [("query".to_string(), 2), ("output.dense".to_string(), 3)];
        let targets = LoraTargets::new(&model, &layers, 2.0, Some("classifier")).unwrap();
        let empty = targets.attach(model).unwrap();
        let filled = fill_trained(empty.clone(), None, |index| (index as f32).sin());
        let of = |model: &_| {
            Adapter::of::<VitClassifier>(model, &targets, "base", Some("classifier"), None).unwrap()
        };
        let written = of(&filled);
        assert_ne!(of(&empty).tensors, written.tensors);
        let config = written.config();
        let patterns = config["rank_pattern"].as_object().unwrap();
        assert_eq!((config["r"].as_u64(), patterns.len()), (Some(3), 2));
        let first = "(vit.encoder.layer.0.attention.attention.query|vit.layers.0.attention.q_proj)";
        assert_eq!(patterns[first], 2);
        for version in ["vit.encoder.layer.", "vit.layers."] {
            let is_kept = |name: &&String| name.contains(version) || name.contains("classifier");
            let names = written.tensors.keys().filter(is_kept);
            let tensors: Tensors =
                names.map(|name| (name.clone(), written.tensors[name].clone())).collect();
            // Query and two further layers of each of two blocks, and the head.
            assert_eq!(tensors.len(), 2 * 3 * 2 + 2, "{version}");
            let targets = config["target_modules"].as_array().unwrap().iter();
            let targets = targets.filter(|name| name.as_str().unwrap().contains(version));
            assert_eq!(targets.count(), 2 * 3, "{version}");
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("adapter.safetensors");
            std::fs::write(&file, write::to_safetensors(&tensors).unwrap()).unwrap();
            let weights = Weights::read_file(&file).unwrap();
            let read = Adapter::load_into(&weights, empty.clone()).unwrap();
            assert_eq!(of(&read).tensors, written.tensors, "{version}");

            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/vit-classify");
            let Config::Vit(config) = Config::read(&folder).unwrap() else { panic!("not a ViT") };
            let model = VitClassifier::new(&config, 3, &Device::flex());
            let layers = [("query".to_string(), 1), ("output.dense".to_string(), 3)];
            let targets = LoraTargets::new(&model, &layers, 2.0, Some("classifier")).unwrap();
            let model = targets.attach(model).unwrap();
            let error = Adapter::load_into(&weights, model).unwrap_err().to_string();
            assert!(error.contains("has the shape ["), "{error}");
        }
    }
}
