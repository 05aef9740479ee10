use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Gradients, Tensor};

use crate::grads::single;
use crate::model::{FirstCopies, TrainableParameters};
use crate::{DpError, NonPrivate};

/// What one unit contributes to a step: a direction for every trained parameter, downhill being
/// negative, as in a gradient. Parameters that it does not name count as zero. Its values are in single
/// precision, whatever the precision of the model.
///
/// # Privacy
///
/// Not private. The only way onward is to be clipped.
#[must_use = "an update reaches the model through a clipping policy and noise"]
pub struct UnitUpdate {
    pub(crate) values: HashMap<ParamId, Tensor<1>>,
}

impl std::fmt::Debug for UnitUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnitUpdate").finish_non_exhaustive()
    }
}

impl UnitUpdate {
    /// The update of a unit that has no data. It is drawn, clipped and counted like any other.
    pub fn zero() -> Self {
        Self { values: HashMap::new() }
    }

    /// The gradient of the mean of `losses`, by an ordinary backward pass.
    ///
    /// # Shapes
    ///
    /// - losses: `[examples]`, or `[1]` if they were averaged before
    ///
    /// # Arguments
    ///
    /// - `model`: the model that computed the losses
    ///
    /// # Errors
    ///
    /// [`DpError::NotPerExample`] if the losses do not depend on a trained parameter.
    pub fn gradient<M: Module>(model: &M, losses: Tensor<1>) -> Result<Self, DpError> {
        let [examples] = losses.dims();
        if examples == 0 {
            return Ok(Self::zero());
        }
        if !losses.is_tracked() {
            return Err(DpError::NotPerExample {
                reason: "they do not depend on any trained parameter; compute them with the model \
                         that the closure was given, on its autodiff device"
                    .into(),
            });
        }
        Ok(Self::from_gradients(model, &losses.mean().backward()))
    }

    /// The gradients that an ordinary backward pass left for the trained parameters of `model`.
    pub fn from_gradients<M: Module>(model: &M, grads: &Gradients) -> Self {
        let mut flatten = Flatten { grads, values: HashMap::new() };
        model.visit(&mut flatten);
        Self { values: flatten.values }
    }

    /// `before - after`: the total change of a local training, as a direction to go down by.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] if the two do not train the same parameters.
    pub fn change<M: Module>(before: &M, after: &M) -> Result<Self, DpError> {
        let mut read = Read { first: FirstCopies::default(), values: HashMap::new() };
        after.visit(&mut read);
        let mut subtract = Subtract {
            after: read.values,
            first: FirstCopies::default(),
            values: HashMap::new(),
            fault: None,
        };
        before.visit(&mut subtract);
        let fault = subtract.fault.or_else(|| {
            (subtract.after.keys().next()).map(|id| format!("parameter {id} is trained only after"))
        });
        match fault {
            Some(fault) => Err(DpError::invalid(
                "after",
                format!("is not the model `before` after local training: {fault}"),
            )),
            None => Ok(Self { values: subtract.values }),
        }
    }

    /// The values, flattened.
    pub(crate) fn into_values(self) -> HashMap<ParamId, Tensor<1>> {
        self.values
    }

    /// The L2 norm of the update in each trained parameter of `model`, by path.
    ///
    /// # Errors
    ///
    /// If a value cannot be read from the device.
    pub fn norms<M: Module>(&self, model: &M) -> Result<NonPrivate<Vec<(String, f64)>>, DpError> {
        let parameters = TrainableParameters::of_units(model)?;
        let norms = parameters.iter().map(|info| {
            let square = self.values.get(&info.id).map_or(Ok(0.0), squared_norm)?;
            Ok((info.path.clone(), square.sqrt()))
        });
        Ok(NonPrivate::new(norms.collect::<Result<_, DpError>>()?))
    }

    /// Refuses values for parameters that `parameters` does not have, or of another size.
    pub(crate) fn check(&self, parameters: &TrainableParameters) -> Result<(), DpError> {
        for (id, values) in &self.values {
            let found = values.dims()[0];
            match parameters.iter().find(|info| info.id == *id) {
                Some(info) if info.num_values() == found => {}
                Some(info) => {
                    return Err(DpError::UnsupportedModel {
                        path: info.path.clone(),
                        reason: format!(
                            "an update has {found} values for its {}; compute it with the model that \
                             the closure was given",
                            info.num_values()
                        ),
                    });
                }
                None => {
                    return Err(DpError::UnsupportedModel {
                        path: format!("parameter {id}"),
                        reason: "an update names it, but the model does not list it as trained; \
                                 compute updates with the model that the closure was given"
                            .into(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// `Σ values²`, added up in double precision on the host: not underestimated by more than the last
/// places of an `f64`, however many values there are.
pub(crate) fn squared_norm(values: &Tensor<1>) -> Result<f64, DpError> {
    let data = values.to_data().convert_dtype(DType::F32);
    let values = data.as_slice::<f32>().map_err(|error| {
        DpError::state(format!("an update cannot be read from the device: {error:?}"))
    })?;
    Ok(values.iter().map(|&value| f64::from(value).powi(2)).sum())
}

struct Flatten<'a> {
    grads: &'a Gradients,
    values: HashMap<ParamId, Tensor<1>>,
}

impl ModuleVisitor for Flatten<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = param.base().grad(self.grads) {
            self.values.insert(param.id, flat(grad));
        }
    }
}

/// The trained parameters.
struct Read {
    first: FirstCopies,
    values: HashMap<ParamId, Tensor<1>>,
}

impl ModuleVisitor for Read {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.first.is_new(param) {
            self.values.insert(param.id, flat(param.base().inner()));
        }
    }
}

/// Takes the parameters `after` from those that are visited.
struct Subtract {
    after: HashMap<ParamId, Tensor<1>>,
    first: FirstCopies,
    values: HashMap<ParamId, Tensor<1>>,
    fault: Option<String>,
}

impl ModuleVisitor for Subtract {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.fault.is_some() || !self.first.is_new(param) {
            return;
        }
        let before = flat(param.base().inner());
        match self.after.remove(&param.id) {
            Some(after) if after.dims() == before.dims() => {
                self.values.insert(param.id, before - after);
            }
            Some(after) => {
                let sizes = (before.dims()[0], after.dims()[0]);
                self.fault = Some(format!("a parameter of {} values has {}", sizes.0, sizes.1));
            }
            None => self.fault = Some(format!("parameter {} is trained only before", param.id)),
        }
    }
}

/// The values, in single precision: in half precision a product with a coefficient can exceed the
/// threshold, and a sum of many units swallows the next one.
fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let values = tensor.shape().num_elements();
    single(tensor.reshape([values]))
}
