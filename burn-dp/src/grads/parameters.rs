//! The parameters that one step trains.

use std::collections::HashMap;

use burn::module::{Flag, Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor};

use crate::DpError;

/// One trained parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Identity of the parameter.
    pub id: ParamId,
    /// Path in the module tree, for example `encoder.fc.weight`.
    pub path: String,
    /// Shape of the parameter.
    pub shape: Vec<usize>,
}

impl ParameterInfo {
    /// Number of values.
    pub fn num_values(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The parameters of a model that require gradients, in the order in which the model visits them.
///
/// These are the parameters that are clipped, noised and updated: the three sets are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainableParameters {
    parameters: Vec<ParameterInfo>,
}

impl TrainableParameters {
    /// Collects the parameters of `model`.
    ///
    /// # Errors
    ///
    /// Refuses a model that cannot be trained privately whatever its layers are: one with a
    /// BatchNorm in training mode (it mixes the examples of a batch and stores statistics of them),
    /// with the same trained parameter in two places of the tree (Burn's optimizer would update the
    /// first copy only), or with nothing to train.
    pub fn of<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::collect(model, Collector::default())
    }

    /// The same for a model whose units see it one at a time: the examples of a unit may mix, so a
    /// BatchNorm may train.
    pub(crate) fn of_units<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::collect(model, Collector { may_mix: true, ..Collector::default() })
    }

    fn collect<M: Module>(model: &M, mut collector: Collector) -> Result<Self, DpError> {
        model.visit(&mut collector);
        if let Some(error) = collector.error {
            return Err(error);
        }
        if collector.parameters.is_empty() {
            return Err(DpError::UnsupportedModel {
                path: String::new(),
                reason: "no parameter requires a gradient; put the model on an autodiff device \
                         (`device.autodiff()`) or unfreeze a layer"
                    .into(),
            });
        }
        Ok(Self { parameters: collector.parameters })
    }

    /// The parameters.
    pub fn iter(&self) -> impl Iterator<Item = &ParameterInfo> {
        self.parameters.iter()
    }

    /// Total number of trained values.
    pub fn num_values(&self) -> usize {
        self.parameters.iter().map(ParameterInfo::num_values).sum()
    }

    /// Refuses if a parameter of `model` received an ordinary, summed gradient.
    pub(crate) fn refuse_ordinary_gradients<M: Module>(
        &self,
        model: &M,
        grads: &Gradients,
    ) -> Result<(), DpError> {
        let mut check = OrdinaryGradient { grads, path: Vec::new(), found: None };
        model.visit(&mut check);
        match check.found {
            None => Ok(()),
            Some(path) => Err(DpError::UnsupportedModel {
                path,
                reason: "its gradient is summed over the batch, because it is used outside of a \
                         private layer; wrap the layer with `Private::from(layer)`, pass a bare \
                         parameter through `nn::parameter`, or freeze it"
                    .into(),
            }),
        }
    }
}

#[derive(Default)]
struct Collector {
    path: Vec<String>,
    containers: Vec<String>,
    seen: HashMap<ParamId, String>,
    parameters: Vec<ParameterInfo>,
    /// Whether layers may mix the rows of a batch.
    may_mix: bool,
    error: Option<DpError>,
}

impl ModuleVisitor for Collector {
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
        let refused = in_batch_norm && !self.may_mix && flag.val().is_enabled();
        if refused && self.error.is_none() {
            let parent = &self.path[..self.path.len().saturating_sub(1)];
            self.error = Some(DpError::UnsupportedModel {
                path: parent.join("."),
                reason: "a BatchNorm in training mode mixes the examples of a batch and stores \
                         statistics of them; use GroupNorm, LayerNorm or InstanceNorm, freeze it \
                         with `Module::freeze_group` to use its stored statistics, or train with \
                         mini-sets as units (`burn_dp::units`)"
                    .into(),
            });
        }
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.base().is_require_grad() || self.error.is_some() {
            return;
        }
        let path = self.path.join(".");
        if let Some(first) = self.seen.insert(param.id, path.clone()) {
            self.error = Some(DpError::UnsupportedModel {
                path,
                reason: format!(
                    "it shares its parameter with `{first}`, of which Burn's optimizers update one \
                     copy only; keep the parameter in one layer and use that layer twice (an \
                     output layer that is tied to an embedding is `Private<Embedding>::attend`)"
                ),
            });
            return;
        }
        let shape = param.base().dims().to_vec();
        self.parameters.push(ParameterInfo { id: param.id, path, shape });
    }
}

struct OrdinaryGradient<'a> {
    grads: &'a Gradients,
    path: Vec<String>,
    found: Option<String>,
}

impl ModuleVisitor for OrdinaryGradient<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.found.is_none() && param.base().grad(self.grads).is_some() {
            self.found = Some(self.path.join("."));
        }
    }
}
