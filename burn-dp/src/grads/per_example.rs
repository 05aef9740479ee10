//! The per-example gradients of one backward pass.

use burn::module::ParamId;
use burn::tensor::{DType, Device, Tensor};

use super::directions::Directions;
use super::explanation::{ExplainedParameter, Explanation};
use super::parameter_gradients::ParameterGradients;
use super::planner::{MemoryBound, NormMethod};
use super::precision::{Margin, Precision};
use super::rules::{Factors, Keep, Rounding, SquaredNorms};
use crate::DpError;
use crate::device_read::read_f32;
use crate::model::{ParameterGroups, ParameterInfo};
use crate::ops::{DeviceParameter, has_kernels, single_above};

/// The gradients of the examples of one physical batch, in the form that is cheapest to clip.
///
/// # Privacy
///
/// Not private. Only a [clipping policy](crate::clipping) can use it, which consumes it.
#[must_use = "gradients reach the model through a clipping policy and noise"]
pub struct PerExampleGradients {
    batch_size: usize,
    device: Device,
    parameters: Vec<ParameterGradients>,
    /// `false` for rows that pad the batch to a fixed size.
    real: Option<Vec<bool>>,
}

opaque_debug!(PerExampleGradients);

/// The clipping group of a parameter when its gradients were clipped, and their sum.
pub(crate) type GroupSum = (usize, Tensor<1>);

/// Squared norms for each group of parameters and each example, `[groups][batch_size]`.
pub(in crate::grads) struct SquaredNormBounds {
    /// As computed: which way is the cheapest depends on the batch, and so does their rounding.
    pub(in crate::grads) computed: Vec<Vec<f64>>,
    /// Rounded up by the proven bound of the way that computed them.
    pub(in crate::grads) upper: Vec<Vec<f64>>,
}

/// Squared norms of the gradients of each parameter and each example, on their device.
pub(crate) struct NormTable {
    /// `[rows, batch_size]`.
    pub(crate) table: Tensor<2>,
    pub(crate) parameters: Vec<NormRow>,
}

/// The row of a parameter in a [`NormTable`], and what rounds it up.
pub(crate) struct NormRow {
    pub(crate) group: usize,
    row: usize,
    /// The margin, relative to the squared magnitudes in the next row.
    margin: Option<Margin>,
    /// The factor that rounds up a norm without a margin.
    factor: f64,
    /// What the squares can lose to underflow.
    pub(crate) underflow: f64,
}

impl NormRow {
    /// Creates a row that is rounded up by a factor or, if it has magnitudes, by a margin.
    #[cfg(test)]
    pub(crate) fn new(group: usize, row: usize, factor: f64, margin: Option<[f64; 2]>) -> Self {
        let margin = margin.map(|[of_square, of_sums]| Margin::new(of_square, of_sums));
        Self { group, row, margin, factor, underflow: 1e-30 }
    }

    /// Returns the squared norm of an example, rounded up in double precision.
    #[cfg(test)]
    pub(crate) fn exact(&self, table: &[Vec<f32>], example: usize) -> f64 {
        let value = f64::from(table[self.row][example]).max(0.0);
        let found = match self.margin {
            None => value * self.factor,
            Some(margin) => margin.round_up(value, table[self.row + 1][example].into()),
        };
        found + self.underflow
    }

    /// Returns what rounds up the norm on its device, where numbers have single precision.
    pub(crate) fn on_device(&self) -> DeviceParameter {
        match self.margin.map(Margin::parts) {
            None if self.factor == 1.0 => DeviceParameter::Scaled { row: self.row, factor: 1.0 },
            None => DeviceParameter::Scaled { row: self.row, factor: single_above(self.factor) },
            Some([of_square, of_sums]) => DeviceParameter::WithMagnitude {
                row: self.row,
                of_square: single_above(of_square),
                of_sums: single_above(of_sums),
            },
        }
    }
}

impl PerExampleGradients {
    /// Creates the gradients of an empty batch.
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

    /// Marks the units that only pad the batch: units that are `false` in `real` get coefficient
    /// zero and are not counted.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotPerExample`] if `real` does not have one entry for each unit.
    pub fn with_padding(mut self, real: Vec<bool>) -> Result<Self, DpError> {
        if real.len() != self.batch_size {
            return Err(DpError::NotPerExample {
                reason: format!(
                    "there are {} losses, or groups of losses, for {} rows",
                    self.batch_size,
                    real.len()
                ),
            });
        }
        self.real = Some(real);
        Ok(self)
    }

    /// Returns whether unit `index` is an example, not padding.
    pub(crate) fn is_real(&self, index: usize) -> bool {
        self.real.as_ref().is_none_or(|real| real[index])
    }

    /// Returns the path of each parameter and the method chosen for it.
    pub fn norm_methods(&self) -> impl Iterator<Item = (&str, NormMethod)> {
        self.parameters
            .iter()
            .map(|parameter| (parameter.info.path.as_str(), parameter.plan.method))
    }

    /// Explains the planner's choice for each of `parameters`, and measures it where there is a
    /// clock.
    pub(super) fn explanation(
        self,
        parameters: Vec<ParameterInfo>,
        bound: MemoryBound,
    ) -> Result<Explanation, DpError> {
        let (units, device) = (self.batch_size, self.device);
        let mut found = self.parameters;
        let explained = |info: &ParameterInfo| match found
            .iter()
            .position(|parameter| parameter.info.id == info.id)
        {
            Some(index) => found.swap_remove(index).measured(units, &device),
            None => Ok(ExplainedParameter::unreached(info)),
        };
        let parameters = parameters.iter().map(explained).collect::<Result<_, _>>()?;
        Ok(Explanation { parameters, units, bound })
    }

    /// Returns the squared norms of the gradients for each group of parameters and each example,
    /// rounded up: `[groups][batch_size]`, on the host.
    ///
    /// They are added up in f64 over the parameters of a group. If one is NaN or infinite, the norm
    /// of that example is unknown.
    ///
    /// # Errors
    ///
    /// Returns an error of [`ParameterGroups::index_of`] if a parameter belongs to no group, and
    /// [`DpError::Device`] if the norms cannot be read.
    pub(crate) async fn squared_norms(
        &self,
        groups: &ParameterGroups,
    ) -> Result<Vec<Vec<f64>>, DpError> {
        Ok(self.squared_norm_bounds(groups).await?.upper)
    }

    /// Returns the same norms as they were computed, and rounded up.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::squared_norms`].
    pub(in crate::grads) async fn squared_norm_bounds(
        &self,
        groups: &ParameterGroups,
    ) -> Result<SquaredNormBounds, DpError> {
        let zeros = vec![vec![0.0f64; self.batch_size]; groups.len()];
        let mut bounds = SquaredNormBounds { computed: zeros.clone(), upper: zeros };
        let Some(NormTable { table, parameters }) = self.norm_table(groups)? else {
            return Ok(bounds);
        };
        let table = read_f32(table, "the norms of the gradients").await?;
        let rows: Vec<&[f32]> = table.chunks_exact(self.batch_size).collect();
        for NormRow { group, row, margin, factor, .. } in &parameters {
            // Rounding can make a ghost norm negative. NaN is kept.
            let values = rows[*row].iter();
            let values: Vec<f64> =
                values.map(|&value| if value < 0.0 { 0.0 } else { f64::from(value) }).collect();
            let add = |totals: &mut [f64], values: &mut dyn Iterator<Item = f64>| {
                totals.iter_mut().zip(values).for_each(|(total, value)| *total += value);
            };
            add(&mut bounds.computed[*group], &mut values.iter().copied());
            let upper = &mut bounds.upper[*group];
            match margin {
                None => add(upper, &mut values.iter().map(|&value| value * factor)),
                Some(margin) => {
                    let rounded = values.iter().zip(rows[row + 1]);
                    let mut rounded = rounded
                        .map(|(&value, &magnitude)| margin.round_up(value, magnitude.into()));
                    add(upper, &mut rounded);
                }
            }
        }
        for NormRow { group, underflow, .. } in &parameters {
            bounds.upper[*group].iter_mut().for_each(|total| *total += underflow);
        }
        Ok(bounds)
    }

    /// Returns the squared norms of the gradients of each parameter and each example, and what
    /// rounds them up; `None` if there are no gradients.
    ///
    /// # Errors
    ///
    /// Returns an error of [`ParameterGroups::index_of`] if a parameter belongs to no group.
    pub(crate) fn norm_table(
        &self,
        groups: &ParameterGroups,
    ) -> Result<Option<NormTable>, DpError> {
        if self.parameters.is_empty() {
            return Ok(None);
        }
        let precision = Precision::of(&self.device);
        let mut factors = Factors::default();
        let (mut rows, mut parameters) = (Vec::new(), Vec::new());
        for parameter in &self.parameters {
            let group = groups.index_of(&parameter.info.path)?;
            let SquaredNorms { values, rounding } = parameter.squared_norms(&mut factors);
            let row = rows.len();
            rows.push(values);
            let margin = match rounding {
                Rounding::Relative => None,
                Rounding::Gram { magnitudes, roundings } => {
                    rows.push(magnitudes.squared);
                    Some(precision.gram(roundings, magnitudes.roundings))
                }
                Rounding::Reordered(magnitudes) => {
                    rows.push(magnitudes.squared);
                    Some(precision.reordered(magnitudes.roundings))
                }
            };
            // A bound on the loss of its squares to underflow.
            let underflow = parameter.info.num_values() as f64 * f64::from(f32::MIN_POSITIVE);
            let factor = precision.relative(1.0);
            parameters.push(NormRow { group, row, margin, factor, underflow });
        }
        Ok(Some(NormTable { table: Tensor::<1>::stack::<2>(rows, 0), parameters }))
    }

    /// Returns whether the device computes coefficients from a [`NormTable`].
    pub(crate) fn has_device_coefficients(&self) -> bool {
        has_kernels(&self.device)
    }

    /// Returns which units are examples, not padding; `None` if all are.
    pub(crate) fn real(&self) -> Option<&[bool]> {
        self.real.as_deref()
    }

    /// Returns the product of the gradient of each example with the direction of each group:
    /// `[groups][batch_size]`, on the host.
    ///
    /// # Errors
    ///
    /// Returns an error of [`ParameterGroups::index_of`] if a parameter belongs to no group, and
    /// [`DpError::Device`] if the products cannot be read.
    pub(in crate::grads) async fn products(
        &self,
        groups: &ParameterGroups,
        directions: &mut Directions,
    ) -> Result<Vec<Vec<f64>>, DpError> {
        let mut totals = vec![vec![0.0f64; self.batch_size]; groups.len()];
        if self.parameters.is_empty() {
            return Ok(totals);
        }
        let (mut rows, mut of) = (Vec::new(), Vec::new());
        for parameter in &self.parameters {
            let group = groups.index_of(&parameter.info.path)?;
            let direction = directions.of(group, parameter.info.num_values(), &self.device);
            rows.push(parameter.products(direction));
            of.push(group);
        }
        let table = read_f32(Tensor::<1>::stack::<2>(rows, 0), "the gradients").await?;
        for (group, row) in of.into_iter().zip(table.chunks_exact(self.batch_size)) {
            totals[group]
                .iter_mut()
                .zip(row)
                .for_each(|(total, &product)| *total += f64::from(product));
        }
        Ok(totals)
    }

    /// Returns the group and `Σ_i coefficients[i] · gradient_i` of each parameter, with the
    /// coefficients of its group. Examples that are not kept count as zero even if they hold NaN or
    /// infinity.
    ///
    /// # Arguments
    ///
    /// - `coefficients`: one row for all groups, or one row per group; one value per example
    /// - `keep`: `false` for examples to leave out by selection
    ///
    /// # Errors
    ///
    /// Returns an error of [`ParameterGroups::index_of`] if a parameter belongs to no group.
    pub(crate) fn weighted_sum(
        self,
        coefficients: &[Vec<f32>],
        keep: &[bool],
        groups: &ParameterGroups,
    ) -> Result<Vec<(ParamId, GroupSum)>, DpError> {
        let device = self.device.clone();
        let keep = keep.contains(&false).then(|| Keep::new(keep, &device));
        // One upload per row of coefficients.
        let mut uploaded: Vec<Option<Tensor<1>>> = vec![None; coefficients.len()];
        let row = |row: usize| {
            let upload = || Tensor::from_data(coefficients[row].as_slice(), (&device, DType::F32));
            uploaded[row].get_or_insert_with(upload).clone()
        };
        self.sums(coefficients.len(), row, keep.as_ref(), groups)
    }

    /// Returns the group and the weighted sum of each parameter like
    /// [`weighted_sum`](Self::weighted_sum), with coefficients on the device.
    ///
    /// # Arguments
    ///
    /// - `coefficients`: `[1, batch_size]`, or one row per group; zero for examples to leave out
    ///
    /// # Errors
    ///
    /// Returns an error of [`ParameterGroups::index_of`] if a parameter belongs to no group.
    pub(crate) fn weighted_sum_on_device(
        self,
        coefficients: Tensor<2>,
        groups: &ParameterGroups,
    ) -> Result<Vec<(ParamId, GroupSum)>, DpError> {
        let [count, units] = coefficients.dims();
        let rows: Vec<Tensor<1>> = match count {
            1 => vec![coefficients.reshape([units])],
            _ => coefficients.split(1, 0).into_iter().map(|row| row.reshape([units])).collect(),
        };
        // An example that is left out has a coefficient of zero in every row.
        let keep = Keep::Coefficients(rows[0].clone());
        self.sums(count, |row| rows[row].clone(), Some(&keep), groups)
    }

    fn sums(
        self,
        count: usize,
        mut coefficients: impl FnMut(usize) -> Tensor<1>,
        keep: Option<&Keep>,
        groups: &ParameterGroups,
    ) -> Result<Vec<(ParamId, GroupSum)>, DpError> {
        let sum = |parameter: ParameterGradients| {
            let group = groups.index_of(&parameter.info.path)?;
            let coefficients = coefficients(if count == 1 { 0 } else { group });
            let id = parameter.info.id;
            Ok((id, (group, parameter.weighted_sum(coefficients, keep))))
        };
        self.parameters.into_iter().map(sum).collect()
    }
}
