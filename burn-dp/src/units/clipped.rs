use burn::module::Module;

use super::statistics::private_copy;
use super::update::{UnitUpdate, squared_norm};
use crate::DpError;
use crate::clipping::{ClippedSum, ClippingStatistics, FlatClipping};
use crate::grads::{TrainableParameters, tie};

/// The sum of the clipped updates of `units`, computed one after the other.
///
/// Memory: one update and the sum.
///
/// # Arguments
///
/// - `update`: gets a copy of `model` of its own and one unit
///
/// # Privacy
///
/// Each update is clipped as a whole, so the sum has the sensitivity of the policy, whatever `update`
/// computes, if it depends on its unit and on public values alone. It must not look at other units, at
/// `model` itself instead of its copy, or at anything that an earlier call left behind. An update
/// that is not finite contributes zero and counts as a unit. Norms are added up in double precision.
///
/// # Errors
///
/// Those of `update`, and [`DpError::UnsupportedModel`] if an update names parameters that the model
/// does not train, or if nothing is trained.
pub fn clip_updates<M: Module, U>(
    clipping: &FlatClipping,
    model: &M,
    units: impl IntoIterator<Item = U>,
    mut update: impl FnMut(M, U) -> Result<UnitUpdate, DpError>,
) -> Result<ClippedSum, DpError> {
    let parameters = TrainableParameters::of_units(model)?;
    let mut total = ClippedSum::new([], clipping.max_grad_norm(), ClippingStatistics::default());
    for unit in units {
        let update = update(tie(private_copy(model)), unit)?;
        update.check(&parameters)?;
        total.accumulate(clip_one(clipping, update)?)?;
    }
    Ok(total)
}

fn clip_one(clipping: &FlatClipping, update: UnitUpdate) -> Result<ClippedSum, DpError> {
    let squares = update.values.values().map(squared_norm).collect::<Result<Vec<_>, _>>()?;
    let squared_norm: f64 = squares.into_iter().sum();
    let (coefficients, keep, statistics) = clipping.coefficients(&[squared_norm], |_| true);
    let scaled = update.values.into_iter().filter(|_| keep[0]).map(|(id, values)| {
        let coefficient = coefficients[0];
        (id, if coefficient == 1.0 { values } else { values * coefficient })
    });
    Ok(ClippedSum::new(scaled, clipping.max_grad_norm(), statistics))
}
