//! Other ways to the same clipped sum, to compare with.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::DpError;
use crate::baselines::repeated_losses::{check_repeated, rounding};
use crate::clipping::{ClippedSum, Clipping, FlatClipping};
use crate::grads::PrivateBackward;
use crate::model::tie;
use crate::updates::{UnitUpdate, clip_updates};

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
    /// As [`PrivateBackward::run`], and when the two calls return different losses: on the CPU backends when
    /// any bit differs, elsewhere when more differs than the rounding of the same sums in another order,
    /// because there a kernel may be exchanged for a faster one between the calls.
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
        // All copies of a tied parameter are one leaf, whose gradient is the sum over them.
        let model = &tie(model.clone());
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
        let rounding = rounding(model, &second.device());
        check_repeated(first.inner(), second.clone().inner(), rounding)?;
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
