//! The parameters that one step trains.

use burn::module::Module;
use burn::tensor::Gradients;

use super::parameter_info::ParameterInfo;
use super::scan::ModelScan;
use crate::DpError;
use crate::error::{Fault, FaultKind};
use crate::walk::for_each_parameter;

/// The parameters of a model that require gradients, in the order in which Burn visits them.
///
/// A tied parameter is listed once. The same set of parameters is clipped, noised, and updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainableParameters {
    parameters: Vec<ParameterInfo>,
}

impl TrainableParameters {
    /// Collects the trained parameters of `model`.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if [`validate`](super::validate) finds a fault that
    /// prevents private training in every use of the model: a BatchNorm in training mode (it mixes
    /// the examples of a batch and stores statistics of them), a random layer in training mode that
    /// is not private, a parameter that is trained in one place and frozen in another, an adapter
    /// without a rule, or no trained parameter.
    pub fn of<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::collect(model, |_| true)
    }

    /// Collects the trained parameters of a model that processes one unit at a time. The examples
    /// of a unit may mix, so a BatchNorm may train.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if the model is misconfigured, or has a random layer
    /// outside a private layer.
    pub(crate) fn of_units<M: Module>(model: &M) -> Result<Self, DpError> {
        Self::collect(model, |fault| {
            matches!(fault.kind, FaultKind::Misconfigured | FaultKind::Random)
        })
    }

    fn collect<M: Module>(model: &M, matters: impl Fn(&Fault) -> bool) -> Result<Self, DpError> {
        let scan = ModelScan::of(model);
        if let Some(fault) = scan.certain_faults().find(|fault| matters(fault)) {
            return Err(fault.clone().into());
        }
        Ok(Self { parameters: scan.into_trained() })
    }

    /// Returns the parameters.
    pub fn iter(&self) -> impl Iterator<Item = &ParameterInfo> {
        self.parameters.iter()
    }

    /// Returns the total number of trained values.
    pub fn num_values(&self) -> usize {
        self.parameters.iter().map(ParameterInfo::num_values).sum()
    }

    /// Checks that no parameter of `model` received an ordinary gradient, which is summed over the
    /// batch.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] with the path of the first such parameter.
    pub(crate) fn refuse_ordinary_gradients<M: Module>(
        &self,
        model: &M,
        grads: &Gradients,
    ) -> Result<(), DpError> {
        let mut found = None;
        for_each_parameter(model, |path, parameter| {
            if found.is_none() && parameter.value.gradient(grads).is_some() {
                found = Some(path.to_string());
            }
        });
        let Some(path) = found else { return Ok(()) };
        let reason = match ModelScan::of(model).fault_of(&path) {
            Some(fault) => fault.reason.clone(),
            None => {
                "its gradient is summed over the batch, because it is also used outside of its \
                     private layer; use it through the layer alone"
                    .into()
            }
        };
        Err(DpError::UnsupportedModel { path, reason })
    }
}
