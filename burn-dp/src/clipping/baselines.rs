//! Other ways to the same clipped sum, to compare with.

use burn::module::Module;
use burn::tensor::{DType, Tensor};

use super::{ClippedSum, Clipping, FlatClipping};
use crate::DpError;
use crate::grads::PrivateBackward;
use crate::units::{UnitUpdate, clip_updates};

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
        let sums = UnitUpdate::from_gradients(model, &grads).into_values();
        Ok(ClippedSum::new(sums, thresholds, coefficients))
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
    /// As [`clip_updates`].
    pub fn microbatch<M: Module>(
        &self,
        model: &M,
        examples: usize,
        loss: impl Fn(&M, usize) -> Tensor<1>,
    ) -> Result<ClippedSum, DpError> {
        clip_updates(&self.thresholds(0)?, model, 0..examples, |model, example| {
            UnitUpdate::gradient(&model, loss(&model, example).sum().reshape([1]))
        })
    }
}

fn host(tensor: Tensor<1>) -> Result<Vec<f32>, DpError> {
    tensor.into_data().convert_dtype(DType::F32).try_into_vec::<f32>().map_err(|error| {
        DpError::state(format!("gradients cannot be read from the device: {error:?}"))
    })
}
