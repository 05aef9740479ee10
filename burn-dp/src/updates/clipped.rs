use std::collections::HashMap;

use burn::module::{Module, ParamId};

use crate::DpError;
use crate::clipping::{ClippedSum, Thresholds};
use crate::model::{TrainableParameters, tie};
use crate::updates::statistics::private_copy;
use crate::updates::update::{UnitUpdate, squared_norm};

/// The sum of the clipped updates of `units`, computed one after the other.
///
/// Memory: one update and the sum.
///
/// # Arguments
///
/// - `thresholds`: of the step, from a policy or from
///   [`DpOptimizer::thresholds`](crate::optim::DpOptimizer::thresholds)
/// - `update`: gets a copy of `model` of its own and one unit
///
/// # Privacy
///
/// Each update is clipped as a whole, so the sum has the sensitivity of the thresholds, whatever `update`
/// computes, if it depends on its unit and on public values alone. It must not look at other units, at
/// `model` itself instead of its copy, or at anything that an earlier call left behind. An update
/// that is not finite contributes zero and counts as a unit. Norms are added up in double precision.
///
/// # Errors
///
/// Those of `update`, and [`DpError::UnsupportedModel`] if an update names parameters that the model
/// does not train, or if nothing is trained;
/// [`DpError::InvalidArgument`] if a parameter belongs to no group.
pub fn clip_updates<M: Module, U>(
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
        let update = update(tie(private_copy(model)), unit)?;
        update.check(&parameters)?;
        total.accumulate(clip_one(thresholds, &groups, update)?)?;
    }
    Ok(total)
}

/// Clips one update. `groups` has the group of every parameter.
fn clip_one(
    thresholds: &Thresholds,
    groups: &HashMap<ParamId, usize>,
    update: UnitUpdate,
) -> Result<ClippedSum, DpError> {
    let mut squared_norms = vec![vec![0.0]; thresholds.groups().len()];
    for (id, values) in &update.values {
        squared_norms[groups[id]][0] += squared_norm(values)?;
    }
    let coefficients = thresholds.coefficients(&squared_norms, |_| true);
    let kept = update.values.into_iter().filter(|_| coefficients.keep[0]);
    let scaled = kept.map(|(id, values)| {
        let coefficient = coefficients.of_group(groups[&id])[0];
        (id, if coefficient == 1.0 { values } else { values * coefficient })
    });
    let scaled: Vec<_> = scaled.collect();
    Ok(ClippedSum::new(scaled, thresholds.clone(), coefficients))
}
