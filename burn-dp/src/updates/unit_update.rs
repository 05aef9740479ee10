use std::collections::HashMap;

use burn::module::{Module, ParamId};
use burn::tensor::{Gradients, Tensor};

use crate::device_read::{blocking, read_f32};
use crate::grads::single;
use crate::model::{TrainableParameters, for_each_parameter, for_each_trained};
use crate::{DpError, NonPrivate};

/// The contribution of one unit to a step: a direction for every trained parameter, which the
/// optimizer subtracts like a gradient. Parameters without values count as zero. The values are in
/// single precision, regardless of the precision of the model.
///
/// # Privacy
///
/// It is not private. It can only be clipped.
#[must_use = "an update reaches the model through a clipping policy and noise"]
pub struct UnitUpdate {
    pub(super) values: HashMap<ParamId, Tensor<1>>,
}

opaque_debug!(UnitUpdate);

impl UnitUpdate {
    /// Returns the update of a unit without data. It is drawn, clipped and counted like any other.
    pub fn zero() -> Self {
        Self { values: HashMap::new() }
    }

    /// Returns the gradient of the mean of `losses`, computed by an ordinary backward pass.
    ///
    /// # Shapes
    ///
    /// - losses: `[examples]`, or `[1]` if they are already averaged
    ///
    /// # Arguments
    ///
    /// - `model`: the model that computed the losses
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotPerExample`] if the losses do not depend on a trained parameter.
    pub fn gradient<M: Module>(model: &M, losses: Tensor<1>) -> Result<Self, DpError> {
        let grads = mean_gradients(losses)?;
        Ok(grads.map_or_else(Self::zero, |grads| Self::from_gradients(model, &grads)))
    }

    /// Returns the gradients of an ordinary backward pass for the trained parameters of `model`.
    pub fn from_gradients<M: Module>(model: &M, grads: &Gradients) -> Self {
        let mut values = HashMap::new();
        for_each_parameter(model, |_, parameter| {
            if let Some(gradient) = parameter.value.gradient(grads) {
                values.insert(parameter.id, single(gradient));
            }
        });
        Self { values }
    }

    /// Returns `before - after`: the total change of local training, as a direction to subtract.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the two models do not train the same parameters.
    pub fn change<M: Module>(before: &M, after: &M) -> Result<Self, DpError> {
        let mut trained_after = HashMap::new();
        for_each_trained(after, |path, parameter| {
            trained_after.insert(parameter.id, (path.to_string(), single(parameter.value.flat())));
        });
        let mut values = HashMap::new();
        let mut fault = None;
        for_each_trained(before, |path, parameter| {
            let before = single(parameter.value.flat());
            match trained_after.remove(&parameter.id) {
                Some((_, after)) if after.dims() == before.dims() => {
                    values.insert(parameter.id, before - after);
                }
                Some((_, after)) => {
                    let ([before], [after]) = (before.dims(), after.dims());
                    fault = Some(format!("`{path}` had {before} values and has {after}"));
                }
                None => fault = Some(format!("`{path}` is trained only before")),
            }
        });
        let added = trained_after.into_values().next();
        match fault.or(added.map(|(path, _)| format!("`{path}` is trained only after"))) {
            Some(fault) => Err(DpError::invalid(
                "after",
                format!("is not the model `before` after local training: {fault}"),
            )),
            None => Ok(Self { values }),
        }
    }

    /// Returns the values of each parameter, flattened.
    pub(crate) fn into_values(self) -> HashMap<ParamId, Tensor<1>> {
        self.values
    }

    /// Returns the L2 norm of the update in each trained parameter of `model`, by path.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if `model` trains nothing, and [`DpError::Device`] if
    /// a value cannot be read from the device.
    pub fn norms<M: Module>(&self, model: &M) -> Result<NonPrivate<Vec<(String, f64)>>, DpError> {
        blocking(self.norms_async(model), "UnitUpdate::norms_async")
    }

    /// Runs [`norms`](Self::norms) without blocking the thread.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`norms`](Self::norms).
    pub async fn norms_async<M: Module>(
        &self,
        model: &M,
    ) -> Result<NonPrivate<Vec<(String, f64)>>, DpError> {
        let mut norms = Vec::new();
        for info in TrainableParameters::of_units(model)?.iter() {
            let square = match self.values.get(&info.id) {
                Some(values) => squared_norm(values).await?,
                None => 0.0,
            };
            norms.push((info.path.clone(), square.sqrt()));
        }
        Ok(NonPrivate::new(norms))
    }

    /// Checks that all values belong to one of `parameters` and have its size.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::OtherModel`] if they do not.
    pub(super) fn check(&self, parameters: &TrainableParameters) -> Result<(), DpError> {
        for (id, values) in &self.values {
            let found = values.dims()[0];
            let (path, reason) = match parameters.iter().find(|info| info.id == *id) {
                Some(info) if info.num_values() == found => continue,
                Some(info) => {
                    let expected = info.num_values();
                    (info.path.clone(), format!("an update has {found} values for its {expected}"))
                }
                None => (
                    format!("parameter {id}"),
                    "an update names it, but the model does not train it".into(),
                ),
            };
            let reason = format!("{reason}; compute updates with the model given to the closure");
            return Err(DpError::OtherModel { path, reason });
        }
        Ok(())
    }
}

/// Returns the gradients of the mean of `losses`, or `None` if there are no losses.
///
/// # Errors
///
/// Returns [`DpError::NotPerExample`] if the losses do not depend on a trained parameter.
pub(super) fn mean_gradients(losses: Tensor<1>) -> Result<Option<Gradients>, DpError> {
    if losses.dims() == [0] {
        return Ok(None);
    }
    if !losses.is_tracked() {
        return Err(DpError::NotPerExample {
            reason: "the losses do not depend on any trained parameter; compute them with the \
                     model given to the closure, on its autodiff device"
                .into(),
        });
    }
    Ok(Some(losses.mean().backward()))
}

/// Returns `Σ values²`, added up in double precision on the host. It is underestimated by no more
/// than the last places of an `f64`, regardless of the number of values.
///
/// # Errors
///
/// Returns [`DpError::Device`] if the values cannot be read from the device.
pub(super) async fn squared_norm(values: &Tensor<1>) -> Result<f64, DpError> {
    let values = read_f32(values.clone(), "the update of a unit").await?;
    Ok(values.iter().map(|&value| f64::from(value).powi(2)).sum())
}
