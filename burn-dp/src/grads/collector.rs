//! Turns records into per-example gradients, parameter by parameter.

use std::collections::HashMap;

use burn::module::ParamId;
use burn::tensor::Tensor;

use super::parameter_gradients::ParameterGradients;
use super::per_example::PerExampleGradients;
use super::planner::Planner;
use super::rows::{Rows, check_batch_size};
use super::rules::{Contribution, combine, lift};
use crate::DpError;
use crate::model::{ParameterInfo, TrainableParameters};
use crate::nn::unkeyed_randomness;
use crate::ops::Primitive;
use crate::ops::recording::{RawRecord, Recorder};

/// Takes the records of a private backward pass while it runs.
///
/// If the per-example gradients of a parameter are much smaller than their record, they are
/// instantiated immediately and the record is freed. The pass therefore frees activations like an
/// ordinary pass.
pub(super) struct Collector {
    /// A plain tensor of the backend that records.
    witness: Tensor<1>,
    rows: Rows,
    planner: Planner,
    parameters: Vec<Uses>,
    index: HashMap<ParamId, usize>,
}

/// The uses of one parameter so far.
struct Uses {
    info: ParameterInfo,
    /// The uses whose records are kept.
    kept: Vec<Contribution>,
    /// The sum of the uses whose gradients were instantiated immediately.
    formed: Option<ParameterGradients>,
}

impl Collector {
    pub(super) fn new(
        witness: Tensor<1>,
        parameters: &TrainableParameters,
        rows: Rows,
        planner: Planner,
    ) -> Self {
        let uses = |info: &ParameterInfo| Uses { info: info.clone(), kept: vec![], formed: None };
        let parameters: Vec<Uses> = parameters.iter().map(uses).collect();
        let index = parameters.iter().enumerate().map(|(index, uses)| (uses.info.id, index));
        let index = index.collect();
        Self { witness, rows, planner, parameters, index }
    }

    /// Returns the gradients of all parameters that the pass reached.
    pub(super) fn finish(self) -> PerExampleGradients {
        let Self { witness, rows, mut planner, parameters, .. } = self;
        let parameters =
            parameters.into_iter().filter_map(|uses| uses.finish(rows, &mut planner)).collect();
        PerExampleGradients::new(rows.units(), witness.device(), parameters)
    }
}

impl Recorder for Collector {
    fn record(&mut self, record: RawRecord) -> Result<(), DpError> {
        if matches!(record.primitive, Primitive::Unkeyed) {
            return Err(unkeyed_randomness());
        }
        let layer = lift(record, &self.witness)?;
        check_batch_size(layer.batch_size, self.rows.count)?;
        for (id, contribution) in layer.contributions {
            let index = self.index.get(&id).ok_or_else(|| DpError::UnsupportedModel {
                path: format!("parameter {id}"),
                reason: "a private layer used it, but it is not a trained parameter of the model; \
                         pass the model that computed the losses; fold LoRA adapters on layers \
                         without a rule for them with `Module::materialize`"
                    .into(),
            })?;
            self.parameters[*index].add(contribution, self.rows, &self.planner);
        }
        Ok(())
    }
}

impl Uses {
    /// Adds one use: instantiates its gradients immediately, or keeps its record.
    fn add(&mut self, contribution: Contribution, rows: Rows, planner: &Planner) {
        if planner.forms_at_once(contribution.rule(), rows.units()) {
            self.form(vec![contribution], rows, planner);
        } else {
            self.kept.push(contribution);
        }
    }

    /// Instantiates the gradients of some uses and adds them to earlier gradients.
    fn form(&mut self, uses: Vec<Contribution>, rows: Rows, planner: &Planner) {
        let count = uses.len();
        let rule = combine(uses, rows.group_size);
        self.formed = Some(match self.formed.take() {
            None => ParameterGradients::form(&self.info, count, &*rule, planner),
            Some(others) => others.plus(count, &*rule, planner),
        });
    }

    fn finish(mut self, rows: Rows, planner: &mut Planner) -> Option<ParameterGradients> {
        let kept = std::mem::take(&mut self.kept);
        if self.formed.is_none() {
            let count = kept.len();
            return (count > 0).then(|| {
                let rule = combine(kept, rows.group_size);
                ParameterGradients::planned(&self.info, count, rule, planner)
            });
        }
        if !kept.is_empty() {
            self.form(kept, rows, planner);
        }
        self.formed
    }
}
