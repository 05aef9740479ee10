//! What a backward pass knows of each example.

use burn::module::ParamId;
use burn::tensor::{DType, Device, Tensor};

use super::parameter_gradients::ParameterGradients;
use super::planner::Strategy;
use super::rounding::Precision;
use super::rules::{Keep, Rounding, SquaredNorms};
use super::{ExplainedParameter, Explanation, MemoryBound};
use crate::DpError;
use crate::clipping::Coefficients;
use crate::model::ParameterGroups;
use crate::model::ParameterInfo;

/// The gradients of the examples of one physical batch, in the form that is cheapest to clip.
///
/// # Privacy
///
/// Not private. The only way onward is a [clipping policy](crate::clipping), which consumes it.
#[must_use = "gradients reach the model through a clipping policy and noise"]
pub struct PerExampleGradients {
    batch_size: usize,
    device: Device,
    parameters: Vec<ParameterGradients>,
    /// `false` for rows that pad the batch to a fixed size.
    real: Option<Vec<bool>>,
}

/// The rows of a backward pass: every `group_size` of them are one unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) count: usize,
    pub(super) group_size: usize,
}

impl Rows {
    pub(super) fn units(self) -> usize {
        self.count / self.group_size
    }
}

impl std::fmt::Debug for PerExampleGradients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerExampleGradients").finish_non_exhaustive()
    }
}

impl PerExampleGradients {
    /// No example at all: the drawn batch was empty.
    pub(crate) fn empty(device: Device) -> Self {
        Self { batch_size: 0, device, parameters: Vec::new(), real: None }
    }

    pub(super) fn new(
        batch_size: usize,
        device: Device,
        parameters: Vec<ParameterGradients>,
    ) -> Self {
        Self { batch_size, device, parameters, real: None }
    }

    /// Marks the rows that only pad the batch: `false` rows get coefficient zero and are not counted.
    ///
    /// # Errors
    ///
    /// Refuses a mask of another length than the number of units.
    pub fn with_padding(mut self, real: Vec<bool>) -> Result<Self, DpError> {
        if real.len() != self.batch_size {
            return Err(DpError::NotPerExample {
                reason: format!(
                    "the padding mask has {} entries for {} losses",
                    real.len(),
                    self.batch_size
                ),
            });
        }
        self.real = Some(real);
        Ok(self)
    }

    /// Whether row `index` is an example, not padding.
    pub(crate) fn is_real(&self, index: usize) -> bool {
        self.real.as_ref().is_none_or(|real| real[index])
    }

    /// The strategy chosen for each parameter, by path.
    pub fn strategies(&self) -> impl Iterator<Item = (&str, Strategy)> {
        self.parameters
            .iter()
            .map(|parameter| (parameter.info.path.as_str(), parameter.plan.strategy))
    }

    /// What was done for each of `parameters`.
    pub(super) fn explanation(
        self,
        parameters: Vec<ParameterInfo>,
        bound: MemoryBound,
    ) -> Explanation {
        let found = |info: &ParameterInfo| {
            self.parameters.iter().find(|parameter| parameter.info.id == info.id)
        };
        let parameters = parameters
            .iter()
            .map(|info| match found(info) {
                Some(parameter) => parameter.explained.clone(),
                None => ExplainedParameter::unreached(info),
            })
            .collect();
        Explanation { parameters, units: self.batch_size, bound }
    }

    /// Squared norms of the gradients for each group of parameters and each example, rounded up:
    /// `[groups][batch_size]`, on the host.
    ///
    /// Added up in f64 over the parameters of a group. NaN and infinity mean what they say: the norm of
    /// that example cannot be known.
    ///
    /// # Errors
    ///
    /// Refuses a parameter that belongs to no group.
    pub(crate) fn squared_norms(&self, groups: &ParameterGroups) -> Result<Vec<Vec<f64>>, DpError> {
        let mut totals = vec![vec![0.0f64; self.batch_size]; groups.len()];
        if self.parameters.is_empty() {
            return Ok(totals);
        }
        let mut rows = Vec::new();
        let mut kinds = Vec::new();
        let mut underflow = vec![0.0f64; groups.len()];
        for parameter in &self.parameters {
            let group = groups.index_of(&parameter.info.path)?;
            let SquaredNorms { values, rounding } = parameter.squared_norms();
            // What its squares can have lost by underflow.
            underflow[group] += parameter.info.num_values() as f64 * f64::from(f32::MIN_POSITIVE);
            rows.push(values);
            let round_up = match rounding {
                Rounding::Relative => None,
                Rounding::Gram(magnitudes) => {
                    rows.push(magnitudes);
                    Some(Precision::gram as fn(Precision, f64, f64) -> f64)
                }
                Rounding::Reordered(magnitudes) => {
                    rows.push(magnitudes);
                    Some(Precision::reordered as fn(Precision, f64, f64) -> f64)
                }
            };
            kinds.push((group, round_up));
        }
        let table = Tensor::<1>::stack::<2>(rows, 0).into_data().convert_dtype(DType::F32);
        let table = table.as_slice::<f32>().map_err(|error| DpError::NotPerExample {
            reason: format!("their norms cannot be read from the device: {error:?}"),
        })?;
        let mut rows = table.chunks_exact(self.batch_size);
        let precision = Precision::of(&self.device);
        for (group, round_up) in kinds {
            let totals = &mut totals[group];
            // A ghost norm may round below zero. NaN stays.
            let values = rows
                .next()
                .unwrap_or_default()
                .iter()
                .map(|&value| if value < 0.0 { 0.0 } else { f64::from(value) });
            match round_up {
                None => {
                    let values = values.map(|value| precision.relative(value));
                    totals.iter_mut().zip(values).for_each(|(total, value)| *total += value);
                }
                Some(round_up) => {
                    let magnitudes = rows.next().unwrap_or_default();
                    for ((total, value), &magnitude) in
                        totals.iter_mut().zip(values).zip(magnitudes)
                    {
                        *total += round_up(precision, value, f64::from(magnitude));
                    }
                }
            }
        }
        for (totals, underflow) in totals.iter_mut().zip(underflow) {
            totals.iter_mut().for_each(|total| *total += underflow);
        }
        Ok(totals)
    }

    /// `Σ_i coefficients[i] · gradient_i` per parameter, with the coefficients of its group. Rows that
    /// are not kept count as zero even where they hold NaN or infinity.
    ///
    /// # Errors
    ///
    /// Refuses a parameter that belongs to no group.
    pub(crate) fn weighted_sum(
        self,
        coefficients: &Coefficients,
        groups: &ParameterGroups,
    ) -> Result<Vec<(ParamId, Tensor<1>)>, DpError> {
        let device = self.device;
        let keep = &coefficients.keep;
        let keep = keep.contains(&false).then(|| Keep::new(keep, &device));
        // One upload for each norm that is bounded: the whole gradient has one.
        let mut uploaded: Vec<Option<Tensor<1>>> = vec![None; groups.len()];
        let sum = |parameter: ParameterGradients| {
            let group = match coefficients.per_group() {
                true => groups.index_of(&parameter.info.path)?,
                false => 0,
            };
            let coefficients = uploaded[group].get_or_insert_with(|| {
                Tensor::from_data(coefficients.of_group(group), (&device, DType::F32))
            });
            Ok((parameter.info.id, parameter.weighted_sum(coefficients.clone(), keep.as_ref())))
        };
        self.parameters.into_iter().map(sum).collect()
    }
}
