//! The parameters that one step trains.

use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Gradients, Tensor};

use crate::DpError;
use crate::model::{Fault, FaultKind, Survey, Trained};

/// One trained parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Identity of the parameter.
    pub id: ParamId,
    /// Path in the module tree, for example `encoder.fc.weight`; of a tied parameter, its first one.
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

impl From<&Trained> for ParameterInfo {
    fn from(trained: &Trained) -> Self {
        Self { id: trained.id, path: trained.path.clone(), shape: trained.shape.clone() }
    }
}

/// The parameters of a model that require gradients, in the order in which the model visits them, each
/// once: the copies of a tied parameter are one parameter.
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
    /// Refuses a model that cannot be trained privately however it is used, with the first fault that
    /// [`validate`](crate::model::validate) finds of these: a BatchNorm in training mode (it mixes the
    /// examples of a batch and stores statistics of them), a parameter that is trained in one place and
    /// frozen in another, an adapter without a rule, nothing to train.
    pub fn of<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::collect(model, |_| true)
    }

    /// The same for a model whose units see it one at a time: the examples of a unit may mix, so a
    /// BatchNorm may train.
    pub(crate) fn of_units<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::collect(model, |fault| fault.kind == FaultKind::Misconfigured)
    }

    fn collect<M: Module>(model: &M, matters: impl Fn(&Fault) -> bool) -> Result<Self, DpError> {
        let survey = Survey::of(model);
        if let Some(fault) = survey.certain_faults().find(|fault| matters(fault)) {
            return Err(fault.clone().into());
        }
        Ok(Self { parameters: survey.trained().iter().map(ParameterInfo::from).collect() })
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
        let Some(path) = check.found else { return Ok(()) };
        let reason = match Survey::of(model).fault_of(&path) {
            Some(fault) => fault.reason.clone(),
            None => "its gradient is summed over the batch, because it is used outside of its \
                     private layer as well; use it through the layer alone"
                .into(),
        };
        Err(DpError::UnsupportedModel { path, reason })
    }
}

/// Skips what was seen before: the copies of a tied parameter.
#[derive(Debug, Default)]
pub(crate) struct FirstCopies {
    seen: HashSet<ParamId>,
}

impl FirstCopies {
    /// Whether `param` is trained and its identity is met for the first time.
    pub(crate) fn is_new<const D: usize>(&mut self, param: &Param<Tensor<D>>) -> bool {
        param.base().is_require_grad() && self.seen.insert(param.id)
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
