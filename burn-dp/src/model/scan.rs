//! The walk that collects the trained parameters of a model and its faults.

use std::collections::{BTreeMap, HashMap};

use burn::module::{Flag, Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Tensor};

use super::parameter_info::ParameterInfo;
use crate::error::{Fault, FaultKind, Faults};
use crate::nn::scope::PrivateScope;
use crate::nn::{ADAPTED_LAYERS, LAYERS, RANDOM_LAYERS};

/// The trained parameters and the faults of a model.
#[derive(Default)]
pub(crate) struct ModelScan {
    path: Vec<String>,
    /// For each part of the path, the type of the module that holds it.
    containers: Vec<String>,
    trained: Vec<ParameterInfo>,
    index: HashMap<ParamId, usize>,
    /// Paths of the float parameters that are not trained.
    frozen: HashMap<ParamId, String>,
    faults: Vec<Fault>,
    /// Layers to replace: path and type.
    replace: BTreeMap<String, String>,
}

impl ModelScan {
    pub(crate) fn of<M: Module>(model: &M) -> Self {
        let mut scan = Self::default();
        model.visit(&mut scan);
        scan.finish();
        scan
    }

    /// Returns the trained parameters in the order of their first visit, each once.
    pub(crate) fn into_trained(self) -> Vec<ParameterInfo> {
        self.trained
    }

    /// Returns the faults that prevent private training in every use of the model.
    pub(crate) fn certain_faults(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(|fault| fault.certain)
    }

    /// Returns the first fault that concerns the parameter at `path`.
    pub(crate) fn fault_of(&self, path: &str) -> Option<&Fault> {
        self.faults.iter().find(|fault| fault.covers(path))
    }

    /// Returns all faults, without random layers inside a layer that must be replaced.
    pub(crate) fn into_faults(self) -> Faults {
        let replaced: Vec<Fault> =
            self.faults.iter().filter(|fault| fault.kind == FaultKind::Replace).cloned().collect();
        let mut faults = self.faults;
        faults.retain(|fault| {
            let inside = replaced.iter().any(|replaced| replaced.covers(&fault.path));
            fault.kind != FaultKind::Random || !inside
        });
        Faults::new(faults)
    }

    fn fault(&mut self, kind: FaultKind, path: impl Into<String>, reason: impl Into<String>) {
        self.faults.push(Fault::new(kind, path, reason));
    }

    fn finish(&mut self) {
        for (path, name) in std::mem::take(&mut self.replace) {
            let private = counterpart(&name);
            let reason = format!(
                "a {name} of Burn sums the gradients of a batch; use {private}, or freeze it"
            );
            self.fault(FaultKind::Replace, path, reason);
        }
        if self.trained.is_empty() {
            let reason = "no parameter requires a gradient; put the model on an autodiff device \
                          (`device.autodiff()`) or unfreeze a layer";
            self.fault(FaultKind::Misconfigured, "", reason);
        }
        for trained in &self.trained {
            if let Some(frozen) = self.frozen.get(&trained.id) {
                let reason = format!(
                    "it shares its parameter with `{frozen}`, and one of the two is frozen: Burn's \
                     optimizers would update the first of them, frozen or not; freeze both or none"
                );
                self.faults.push(Fault::new(FaultKind::Misconfigured, &trained.path, reason));
            }
        }
    }

    fn path(&self) -> String {
        self.path.join(".")
    }

    /// Returns path and type of the outermost layer around the current parameter that has a private
    /// counterpart.
    fn replaceable(&self) -> Option<(String, String)> {
        self.containers.iter().enumerate().find_map(|(depth, container)| {
            let (_, name) = container.split_once(':')?;
            LAYERS
                .iter()
                .any(|row| row.layer == name)
                .then(|| (self.path[..depth].join("."), name.to_string()))
        })
    }

    /// Returns the number of path parts up to the adapted parameter, if the current parameter
    /// belongs to an adapter.
    fn adapted(&self) -> Option<usize> {
        self.containers.iter().position(|name| name == "Reparameterization")
    }

    /// Returns whether the parameter whose path has `depth` parts may have a low-rank adapter.
    fn may_be_adapted(&self, depth: usize) -> bool {
        may_be_adapted(&self.path[..depth], &self.containers[..depth])
    }

    /// Checks that the current parameter, which is trained, has a per-example rule in its place.
    fn check_place(&mut self) {
        if !PrivateScope::is_open() {
            if let Some((path, name)) = self.replaceable() {
                self.replace.insert(path, name);
                return;
            }
            let reason = "it is trained outside of every private layer, so its gradient is summed \
                          over the batch; make it a `Private<Param<_>>` (`param.private()`, and \
                          `.forward(batch_size)` to read it), build the layer of private layers, \
                          freeze it, or use `DpOptimizer::backward_each`. If it is read only \
                          through `nn::parameter`, it trains anyway: validation checks fields, not \
                          the forward pass";
            self.fault(FaultKind::NotYet, self.path(), reason);
        } else if let Some(depth) = self.adapted() {
            let name = &self.path[depth];
            if name == "lora" && self.may_be_adapted(depth) {
                return;
            }
            let reason = format!(
                "the adapter `{name}` has no rule here: LoRA has one on the weight of a linear \
                 layer outside of recurrent layers, an embedding or a convolution; leave this \
                 parameter out of the adapter's `ParamGroup`, or merge the adapter with \
                 `Module::materialize`"
            );
            let mut fault = Fault::new(FaultKind::NotYet, self.path[..depth].join("."), reason);
            // The recorded gradient is the gradient of the effective value, not of its parts.
            fault.certain = true;
            if !self.faults.contains(&fault) {
                self.faults.push(fault);
            }
        }
    }
}

impl ModuleVisitor for ModelScan {
    track_path!(path, containers);

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        let holder = self.containers.last().and_then(|name| name.strip_prefix("Struct:"));
        let Some(holder) = holder.filter(|_| flag.val().is_enabled()) else { return };
        let layer = self.path[..self.path.len() - 1].join(".");
        if RANDOM_LAYERS.contains(&holder) && !PrivateScope::is_open() {
            let instead = match self.replaceable() {
                Some((_, name)) => format!("use {}", counterpart(&name)),
                None => "remove it".into(),
            };
            let reason = format!(
                "a {holder} of Burn takes the next values of the device's generator for each row, \
                 so that the values of an example depend on which examples came before it; \
                 {instead}, or freeze it with `Module::freeze`"
            );
            self.fault(FaultKind::Random, layer, reason);
        } else if holder == "BatchNorm" {
            let reason = "a BatchNorm in training mode mixes the examples of a batch and stores \
                          statistics of them; use GroupNorm \
                          (`Private::<GroupNorm>::in_place_of`), LayerNorm or InstanceNorm, freeze \
                          it with `Module::freeze_group` to use its stored statistics, or train \
                          with mini-sets as units (`burn_dp::updates`)";
            self.fault(FaultKind::Never, layer, reason);
        }
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (tensor, path) = (param.base(), self.path());
        if !tensor.is_require_grad() {
            self.frozen.entry(param.id).or_insert(path);
            return;
        }
        let shape = tensor.dims().to_vec();
        if matches!(tensor.dtype(), DType::QFloat(_)) {
            let reason = "it is packed and cannot be trained; freeze it, or dequantize it";
            self.fault(FaultKind::Misconfigured, path.as_str(), reason);
        }
        self.check_place();
        let Some(&first) = self.index.get(&param.id) else {
            self.index.insert(param.id, self.trained.len());
            self.trained.push(ParameterInfo { id: param.id, path, shape });
            return;
        };
        let first = &self.trained[first];
        if first.shape != shape {
            let reason = format!(
                "it has the identity of `{}` and another shape, {shape:?} instead of {:?}; give \
                 one of them a new `ParamId`",
                first.path, first.shape
            );
            self.fault(FaultKind::Misconfigured, path, reason);
        }
    }
}

/// Returns whether the parameter at `path` is a weight that private layers apply with a low-rank
/// adapter, by the types of the modules that hold the parts of the path.
///
/// Recurrent layers apply the linear layers of their gates together and have no rule for adapters.
pub(super) fn may_be_adapted(path: &[String], containers: &[String]) -> bool {
    let holder = containers.last().and_then(|name| name.strip_prefix("Struct:"));
    holder.is_some_and(|holder| ADAPTED_LAYERS.contains(&holder))
        && path.last().is_some_and(|name| name == "weight")
        && !containers.iter().any(|name| name == "Struct:GateController")
}

/// Returns the replacement for a layer of Burn.
fn counterpart(layer: &str) -> String {
    match layer {
        "CrossAttention" => "`PrivateCrossAttention`".to_string(),
        _ => format!("`Private<{layer}>`: `Private::from(layer)` or `layer.private()`"),
    }
}

/// Returns whether `model` has a BatchNorm in training mode.
pub(crate) fn has_training_batch_norm<M: Module>(model: &M) -> bool {
    ModelScan::of(model).faults.iter().any(|fault| fault.kind == FaultKind::Never)
}
