//! The walk that collects the trained parameters of a model and its faults.

use std::collections::{BTreeMap, HashMap};

use burn::module::{Flag, Module, Param, ParamId};

use super::parameter_info::ParameterInfo;
use crate::error::{Fault, FaultKind, Faults};
use crate::nn::scope::PrivateScope;
use crate::nn::{ADAPTED_LAYERS, LAYERS, RANDOM_LAYERS};
use crate::walk::{ParameterRef, Place, Value, for_each_value};

/// The trained parameters and the faults of a model.
#[derive(Default)]
pub(crate) struct ModelScan {
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
        for_each_value(model, |place, value| match value {
            Value::Flag(flag) => scan.add_flag(place, flag),
            Value::Float(parameter) => scan.add_parameter(place, &parameter),
            Value::Int(_) | Value::Bool(_) => {}
        });
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

    /// Checks that the parameter at `place`, which is trained, has a per-example rule there.
    fn check_place(&mut self, place: &Place) {
        if !PrivateScope::is_open() {
            if let Some((path, name)) = replaceable(place) {
                self.replace.insert(path, name);
                return;
            }
            let reason = "it is trained outside of every private layer, so its gradient is summed \
                          over the batch; make it a `Private<Param<_>>` (`param.private()`, and \
                          `.forward(batch_size)` to read it), build the layer of private layers, \
                          freeze it, or use `DpOptimizer::backward_each`. If it is read only \
                          through `nn::parameter`, it trains anyway: validation checks fields, not \
                          the forward pass";
            self.fault(FaultKind::NotYet, place.path(), reason);
        } else if let Some(depth) = adapted(place) {
            let (path, name) = (&place.names()[..depth], &place.names()[depth]);
            if name == "lora" && may_be_adapted(path, &place.containers()[..depth]) {
                return;
            }
            let reason = format!(
                "the adapter `{name}` has no rule here: LoRA has one on the weight of a linear \
                 layer outside of recurrent layers, an embedding or a convolution; leave this \
                 parameter out of the adapter's `ParamGroup`, or merge the adapter with \
                 `Module::materialize`"
            );
            let mut fault = Fault::new(FaultKind::NotYet, path.join("."), reason);
            // The recorded gradient is the gradient of the effective value, not of its parts.
            fault.certain = true;
            if !self.faults.contains(&fault) {
                self.faults.push(fault);
            }
        }
    }

    fn add_flag(&mut self, place: &Place, flag: &Param<Flag>) {
        let holder = place.holder().filter(|_| flag.val().is_enabled());
        let (Some(holder), [layer @ .., _]) = (holder, place.names()) else { return };
        let layer = layer.join(".");
        if RANDOM_LAYERS.contains(&holder) && !PrivateScope::is_open() {
            let instead = match replaceable(place) {
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

    fn add_parameter(&mut self, place: &Place, parameter: &ParameterRef<'_>) {
        let (id, path) = (parameter.id, place.path().to_string());
        if !parameter.is_trained {
            self.frozen.entry(id).or_insert(path);
            return;
        }
        let shape = parameter.value.shape().to_vec();
        if parameter.value.is_packed() {
            let reason = "it is packed and cannot be trained; freeze it, or dequantize it";
            self.fault(FaultKind::Misconfigured, path.as_str(), reason);
        }
        self.check_place(place);
        let Some(&first) = self.index.get(&id) else {
            self.index.insert(id, self.trained.len());
            self.trained.push(ParameterInfo { id, path, shape });
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

/// Returns path and type of the outermost layer around `place` that has a private counterpart.
fn replaceable(place: &Place) -> Option<(String, String)> {
    place.containers().iter().enumerate().find_map(|(depth, container)| {
        let (_, name) = container.split_once(':')?;
        LAYERS
            .iter()
            .any(|row| row.layer == name)
            .then(|| (place.names()[..depth].join("."), name.to_string()))
    })
}

/// Returns the number of path parts up to the adapted parameter, if `place` belongs to an adapter.
fn adapted(place: &Place) -> Option<usize> {
    place.containers().iter().position(|name| name == "Reparameterization")
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
