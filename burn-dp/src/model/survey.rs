//! One walk through a model: what is trained, and what stands in the way.

use std::collections::{BTreeMap, HashMap};

use burn::module::{Flag, Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Tensor};

use crate::model::{Fault, FaultKind, Faults};
use crate::nn::LAYERS;
use crate::nn::scope::PrivateScope;

/// A trained parameter, at the first place in which the model holds it.
#[derive(Clone, Debug)]
pub(crate) struct Trained {
    pub(crate) id: ParamId,
    pub(crate) path: String,
    pub(crate) shape: Vec<usize>,
}

/// What a walk through a model found.
#[derive(Default)]
pub(crate) struct Survey {
    path: Vec<String>,
    containers: Vec<String>,
    trained: Vec<Trained>,
    index: HashMap<ParamId, usize>,
    /// Float parameters that are not trained, by identity.
    frozen: HashMap<ParamId, String>,
    faults: Vec<Fault>,
    /// Layers to replace, by path: the name of each.
    replace: BTreeMap<String, String>,
}

impl Survey {
    pub(crate) fn of<M: Module>(model: &M) -> Self {
        let mut survey = Self::default();
        model.visit(&mut survey);
        survey.finish();
        survey
    }

    /// The trained parameters, each once, in the order of their first visit.
    pub(crate) fn trained(&self) -> &[Trained] {
        &self.trained
    }

    /// The faults that stand in the way however the model is used.
    pub(crate) fn certain_faults(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(|fault| fault.certain)
    }

    /// Why the parameter at `path` cannot be trained, if the walk knows.
    pub(crate) fn fault_of(&self, path: &str) -> Option<&Fault> {
        self.faults.iter().find(|fault| fault.covers(path))
    }

    pub(crate) fn into_faults(self) -> Faults {
        Faults::new(self.faults)
    }

    fn finish(&mut self) {
        for (path, name) in std::mem::take(&mut self.replace) {
            let twin = match name.as_str() {
                "CrossAttention" => "`PrivateCrossAttention`".to_string(),
                _ => format!("`Private<{name}>`: `Private::from(layer)` or `layer.private()`"),
            };
            let reason =
                format!("a {name} of Burn sums the gradients of a batch; use {twin}, or freeze it");
            self.faults.push(Fault::new(FaultKind::Replace, path, reason));
        }
        if self.trained.is_empty() {
            let reason = "no parameter requires a gradient; put the model on an autodiff device \
                          (`device.autodiff()`) or unfreeze a layer";
            self.faults.push(Fault::new(FaultKind::Misconfigured, "", reason));
        }
        for trained in &self.trained {
            if let Some(frozen) = self.frozen.get(&trained.id) {
                let reason = format!(
                    "it shares its parameter with `{frozen}`, and one of the two is frozen: Burn's \
                     optimizers would update the first of them, frozen or not; freeze both or none"
                );
                let path = trained.path.clone();
                self.faults.push(Fault::new(FaultKind::Misconfigured, path, reason));
            }
        }
    }

    fn path(&self) -> String {
        self.path.join(".")
    }

    /// The outermost layer around the current parameter that has a private twin: path and name.
    fn replaceable(&self) -> Option<(String, String)> {
        self.containers.iter().enumerate().find_map(|(depth, container)| {
            let (_, name) = container.split_once(':')?;
            LAYERS
                .iter()
                .any(|row| row.layer == name)
                .then(|| (self.path[..depth].join("."), name.to_string()))
        })
    }

    /// The transformation of a parameter that the current parameter belongs to: path and name.
    fn reparameterization(&self) -> Option<(String, &str)> {
        let depth = self.containers.iter().position(|name| name == "Reparameterization")?;
        Some((self.path[..depth].join("."), &self.path[depth]))
    }

    /// Whether the adapted parameter is the weight of a linear layer that is applied as one; recurrent
    /// layers apply those of their gates together.
    fn is_weight_of_linear(&self) -> bool {
        let depth = self.containers.iter().position(|name| name == "Reparameterization");
        depth.and_then(|depth| depth.checked_sub(1)).is_some_and(|holder| {
            self.containers[holder] == "Struct:Linear"
                && self.path[holder] == "weight"
                && !self.containers.iter().any(|name| name == "Struct:GateController")
        })
    }

    fn check_place(&mut self) {
        match (PrivateScope::is_open(), self.reparameterization()) {
            (false, _) => match self.replaceable() {
                Some((path, name)) => {
                    self.replace.insert(path, name);
                }
                None => {
                    let reason = "it is trained outside of every private layer, so its gradient is \
                                  summed over the batch; make it a `Private<Param<_>>` (also if it is \
                                  read through `nn::parameter`, which this walk cannot see: \
                                  `param.private()`, and `.forward(batch_size)` to read it), build \
                                  the layer of private ones, freeze it, or use \
                                  `DpOptimizer::backward_each`";
                    self.faults.push(Fault::new(FaultKind::NotYet, self.path(), reason));
                }
            },
            (true, None) => {}
            (true, Some((path, name))) => {
                if name == "lora" && self.is_weight_of_linear() {
                    return;
                }
                let reason = format!(
                    "the adapter `{name}` has no rule here: LoRA has one on the weight of a linear \
                     layer outside of recurrent ones; leave this parameter out of the adapter's \
                     `ParamGroup`, or fold the adapter with `Module::materialize`"
                );
                let mut fault = Fault::new(FaultKind::NotYet, path, reason);
                // The gradient of the value would be taken for that of what it is made of.
                fault.certain = true;
                if !self.faults.contains(&fault) {
                    self.faults.push(fault);
                }
            }
        }
    }
}

impl ModuleVisitor for Survey {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_string());
        self.containers.push(container_type.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
        self.containers.pop();
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        let in_batch_norm = self.containers.last().is_some_and(|name| name == "Struct:BatchNorm");
        if in_batch_norm && flag.val().is_enabled() {
            let parent = self.path[..self.path.len().saturating_sub(1)].join(".");
            let reason = "a BatchNorm in training mode mixes the examples of a batch and stores \
                          statistics of them; use GroupNorm, LayerNorm or InstanceNorm, freeze it \
                          with `Module::freeze_group` to use its stored statistics, or train with \
                          mini-sets as units (`burn_dp::updates`)";
            self.faults.push(Fault::new(FaultKind::Never, parent, reason));
        }
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.base();
        let path = self.path();
        if !tensor.is_require_grad() {
            self.frozen.entry(param.id).or_insert(path);
            return;
        }
        let shape = tensor.dims().to_vec();
        if matches!(tensor.dtype(), DType::QFloat(_)) {
            let reason = "it is packed and cannot be trained; freeze it, or dequantize it";
            self.faults.push(Fault::new(FaultKind::Misconfigured, path.clone(), reason));
        }
        self.check_place();
        match self.index.get(&param.id) {
            None => {
                self.index.insert(param.id, self.trained.len());
                self.trained.push(Trained { id: param.id, path, shape });
            }
            Some(&first) => {
                let first = &self.trained[first];
                if first.shape != shape {
                    let reason = format!(
                        "it has the identity of `{}` and another shape, {shape:?} instead of {:?}; \
                         give one of them a new `ParamId`",
                        first.path, first.shape
                    );
                    self.faults.push(Fault::new(FaultKind::Misconfigured, path, reason));
                }
            }
        }
    }
}
