use std::collections::HashMap;

use burn::module::{Module, ParamId};

use super::running_statistics::private_copy;
use super::unit_update::{UnitUpdate, squared_norm};
use crate::DpError;
use crate::clipping::{ClippedSum, Thresholds};
use crate::device_read::blocking;
use crate::model::{TrainableParameters, tie};
use crate::nn::refuse_unkeyed;

/// Returns the sum of the clipped updates of `units`, computed one after another.
///
/// The memory holds one update and the sum.
///
/// # Arguments
///
/// - `thresholds`: the thresholds of the step, from a policy or from
///   [`DpOptimizer::thresholds`](crate::optim::DpOptimizer::thresholds)
/// - `update`: is called once for each unit, with a separate copy of `model`
///
/// # Privacy
///
/// Each update is clipped as a whole. The sum therefore has the sensitivity of the thresholds,
/// whatever `update` computes, if it depends only on its unit and on public values. It must not use
/// other units, `model` itself instead of the copy, or any state from an earlier call. An update
/// that is not finite contributes zero and counts as a unit. Norms are added up in double
/// precision.
///
/// # Errors
///
/// Returns the errors of `update`, and:
///
/// - [`DpError::NotPerExample`] if a random layer drew values that belong to no unit;
/// - [`DpError::OtherModel`] if an update has values for parameters that the model does not train;
/// - [`DpError::UnsupportedModel`] if the model trains nothing, or if a parameter belongs to no
///   group;
/// - [`DpError::Device`] if an update cannot be read from the device.
pub fn clip_updates<M: Module, U>(
    thresholds: &Thresholds,
    model: &M,
    units: impl IntoIterator<Item = U>,
    update: impl FnMut(M, U) -> Result<UnitUpdate, DpError>,
) -> Result<ClippedSum, DpError> {
    blocking(clip_updates_async(thresholds, model, units, update), "clip_updates_async")
}

/// Runs [`clip_updates`] without blocking the thread, as browsers require.
///
/// # Errors
///
/// Returns the errors of [`clip_updates`].
pub async fn clip_updates_async<M: Module, U>(
    thresholds: &Thresholds,
    model: &M,
    units: impl IntoIterator<Item = U>,
    mut update: impl FnMut(M, U) -> Result<UnitUpdate, DpError>,
) -> Result<ClippedSum, DpError> {
    let parameters = TrainableParameters::of_units(model)?;
    let groups: HashMap<ParamId, usize> = parameters
        .iter()
        .map(|info| Ok((info.id, thresholds.groups().index_of(&info.path)?)))
        .collect::<Result<_, DpError>>()?;
    let mut total = ClippedSum::empty(thresholds.clone());
    for unit in units {
        let update = refuse_unkeyed(|| update(tie(private_copy(model)), unit))?;
        update.check(&parameters)?;
        total.accumulate(clip_one(thresholds, &groups, update).await?)?;
    }
    Ok(total)
}

/// Clips one update. `groups` holds the group of every parameter.
async fn clip_one(
    thresholds: &Thresholds,
    groups: &HashMap<ParamId, usize>,
    update: UnitUpdate,
) -> Result<ClippedSum, DpError> {
    let mut squared_norms = vec![vec![0.0]; thresholds.groups().len()];
    for (id, values) in &update.values {
        squared_norms[groups[id]][0] += squared_norm(values).await?;
    }
    let coefficients = thresholds.coefficients(&squared_norms, |_| true);
    let kept = update.values.into_iter().filter(|_| coefficients.keep[0]);
    let scaled = kept.map(|(id, values)| {
        let group = groups[&id];
        let coefficient = coefficients.of_group(group)[0];
        (id, (group, if coefficient == 1.0 { values } else { values * coefficient }))
    });
    let scaled: Vec<_> = scaled.collect();
    Ok(ClippedSum::new(scaled, thresholds.clone(), coefficients))
}
