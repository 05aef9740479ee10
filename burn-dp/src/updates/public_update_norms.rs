use burn::module::Module;

use super::{UnitUpdate, private_copy};
use crate::clipping::PublicNorms;
use crate::model::ParameterGroups;
use crate::{DpError, PublicData};

/// Measures the updates of public units, computed like the updates of private units: the gradient
/// of a mini-set, or the change of a user's model. An update whose norm is not finite is left out.
///
/// # Arguments
///
/// - `update`: receives a separate copy of `model` and one unit
///
/// # Errors
///
/// Returns the errors of `update`, [`DpError::UnsupportedModel`] if a parameter of `model` belongs
/// to no group, [`DpError::Device`] if a value cannot be read from the device, and
/// [`DpError::InvalidArgument`] if no update is finite.
pub fn public_update_norms<M: Module, U>(
    groups: ParameterGroups,
    data: &PublicData<U>,
    model: &M,
    mut update: impl FnMut(M, &U) -> Result<UnitUpdate, DpError>,
) -> Result<PublicNorms, DpError> {
    PublicNorms::measure_units(groups, data, |unit| {
        Ok(update(private_copy(model), unit)?.norms(model)?.reveal())
    })
}
