//! Other ways to the same clipped sum, to compare with.

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Gradients, Tensor};

use super::{ClippedSum, Clipping, FlatClipping};
use crate::DpError;
use crate::grads::{PrivateBackward, TrainableParameters};

impl FlatClipping {
    /// The clipped sum by two passes: one for the norms, and an ordinary one over the losses weighted
    /// with the clipping coefficients.
    ///
    /// Costs a second forward and backward pass and keeps no per-example gradient. `losses` is called
    /// twice and must compute the same both times: with dropout, the norms of the first pass are not
    /// those of the second, and the sensitivity is not bounded.
    ///
    /// # Shapes
    ///
    /// - losses: `[batch_size]`
    ///
    /// # Errors
    ///
    /// As [`PrivateBackward::run`], and when the two calls return different losses.
    ///
    /// # References
    ///
    /// Lee and Kifer, Scaling up differentially private deep learning with fast per-example gradient
    /// clipping, 2021, section 4 (ReweightGP).
    pub fn reweight<M: Module>(
        &self,
        model: &M,
        losses: impl Fn(&M) -> Tensor<1>,
    ) -> Result<ClippedSum, DpError> {
        let first = losses(model);
        let grads = PrivateBackward::new().run(first.clone(), model)?;
        let thresholds = self.thresholds(0)?;
        let squared_norms = grads.squared_norms(thresholds.groups())?;
        let coefficients = thresholds.coefficients(&squared_norms, |_| true);
        if coefficients.keep.contains(&false) {
            // A weight of zero does not stop NaN in an ordinary backward pass.
            let sums = grads.weighted_sum(&coefficients, thresholds.groups())?;
            return Ok(ClippedSum::new(sums, thresholds, coefficients));
        }
        drop(grads);

        let second = losses(model);
        let difference = (second.clone().inner() - first.inner()).abs().max();
        if host(difference)?.first().is_none_or(|&difference| difference != 0.0) {
            return Err(DpError::NotPerExample {
                reason: "two calls gave different losses; take out what draws random numbers, or \
                         use `PrivateBackward`, which needs one pass"
                    .into(),
            });
        }
        let weights = Tensor::<1>::from_data(coefficients.of_group(0), &second.device());
        let grads = (second * weights).sum().backward();
        Ok(ClippedSum::new(flat_gradients(model, &grads), thresholds, coefficients))
    }

    /// The clipped sum by one ordinary backward pass for each example: slow, and right for every model
    /// whose loss can be computed for one example at a time, with or without private layers.
    ///
    /// # Arguments
    ///
    /// - `loss`: the loss of the example with that index, one value
    ///
    /// # Errors
    ///
    /// As [`TrainableParameters::of`], and if a norm cannot be read from the device.
    pub fn microbatch<M: Module>(
        &self,
        model: &M,
        examples: usize,
        loss: impl Fn(&M, usize) -> Tensor<1>,
    ) -> Result<ClippedSum, DpError> {
        TrainableParameters::of(model)?;
        let thresholds = self.thresholds(0)?;
        let mut total = ClippedSum::empty(thresholds.clone());
        for example in 0..examples {
            let grads = loss(model, example).sum().backward();
            let gradient = flat_gradients(model, &grads);
            let squares = gradient.iter().map(|(_, values)| values.clone().square().sum());
            let squared_norm = match squares.collect::<Vec<_>>() {
                squares if squares.is_empty() => 0.0,
                squares => host(Tensor::cat(squares, 0))?.into_iter().map(f64::from).sum(),
            };
            let coefficients = thresholds.coefficients(&[vec![squared_norm]], |_| true);
            let (keep, coefficient) = (coefficients.keep[0], coefficients.of_group(0)[0]);
            let scaled = gradient.into_iter().filter(|_| keep).map(|(id, values)| {
                (id, if coefficient == 1.0 { values } else { values * coefficient })
            });
            let scaled: Vec<_> = scaled.collect();
            total.accumulate(ClippedSum::new(scaled, thresholds.clone(), coefficients))?;
        }
        Ok(total)
    }
}

fn host(tensor: Tensor<1>) -> Result<Vec<f32>, DpError> {
    tensor.into_data().convert_dtype(DType::F32).try_into_vec::<f32>().map_err(|error| {
        DpError::state(format!("gradients cannot be read from the device: {error:?}"))
    })
}

/// The ordinary gradients of the trained parameters, flattened.
fn flat_gradients<M: Module>(model: &M, grads: &Gradients) -> Vec<(ParamId, Tensor<1>)> {
    let mut flatten = Flatten { grads, flat: Vec::new() };
    model.visit(&mut flatten);
    flatten.flat
}

struct Flatten<'a> {
    grads: &'a Gradients,
    flat: Vec<(ParamId, Tensor<1>)>,
}

impl ModuleVisitor for Flatten<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = param.base().grad(self.grads) {
            let values = grad.shape().num_elements();
            self.flat.push((param.id, grad.reshape([values])));
        }
    }
}
