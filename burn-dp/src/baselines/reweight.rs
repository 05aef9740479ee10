use burn::module::Module;
use burn::tensor::Tensor;

use super::repeated_losses::{check_repeated, rounding};
use crate::DpError;
use crate::clipping::{ClippedSum, Clipping, FlatClipping};
use crate::device_read::blocking;
use crate::grads::PrivateBackward;
use crate::model::tie;
use crate::updates::UnitUpdate;

/// Returns the clipped sum, computed in two passes: one for the norms, and an ordinary one over the
/// losses weighted by the clipping coefficients.
///
/// It needs a second forward and backward pass and keeps no per-example gradients. `losses` is
/// called twice and must compute the same values both times. With dropout, the second pass would
/// have different norms than the first, and the sensitivity would not be bounded.
///
/// # Shapes
///
/// - losses: `[batch_size]`
///
/// # Errors
///
/// Returns the errors of [`PrivateBackward::run`], and [`DpError::NotPerExample`] if the two calls
/// return different losses. On the CPU backends, every bit must agree. On other devices, a kernel
/// may be replaced with a faster one between the calls, so the losses may differ by the rounding of
/// sums in another order.
///
/// # References
///
/// Lee and Kifer, Scaling up differentially private deep learning with fast per-example gradient
/// clipping, 2021, section 4 (ReweightGP).
pub fn reweight<M: Module>(
    clipping: &FlatClipping,
    model: &M,
    losses: impl Fn(&M) -> Tensor<1>,
) -> Result<ClippedSum, DpError> {
    // All copies of a tied parameter are one leaf, whose gradient is the sum over them.
    let model = &tie(model.clone());
    let first = losses(model);
    let grads = PrivateBackward::new().run(first.clone(), model)?;
    let thresholds = clipping.thresholds(0)?;
    let squared_norms = grads.squared_norms(thresholds.groups());
    let squared_norms = blocking(squared_norms, "DpOptimizer::backward_async")?;
    let coefficients = thresholds.coefficients(&squared_norms, |_| true);
    if coefficients.keep.contains(&false) {
        // A weight of zero does not stop NaN in an ordinary backward pass.
        return ClippedSum::weighted(grads, thresholds, coefficients);
    }
    drop(grads);

    let second = losses(model);
    let rounding = rounding(model, &second.device());
    check_repeated(first.inner(), second.clone().inner(), rounding)?;
    let weights = Tensor::<1>::from_data(coefficients.of_group(0), &second.device());
    let grads = (second * weights).sum().backward();
    let sums = UnitUpdate::from_gradients(model, &grads).into_values().into_iter();
    // Flat clipping has one group.
    let sums = sums.map(|(id, sum)| (id, (0, sum)));
    Ok(ClippedSum::new(sums, thresholds, coefficients))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::LinearConfig;
    use burn::tensor::{Device, Distribution};

    use super::*;
    use crate::nn::IntoPrivate;
    use crate::test_devices::devices;

    /// The losses have random factors from a range of this size.
    fn clip(range: f64, device: &Device) -> Result<ClippedSum, DpError> {
        let device = device.clone().autodiff();
        let layer = LinearConfig::new(16, 8).init(&device).private();
        let x = Tensor::<2>::from_data([[0.5f32; 16], [0.25; 16]], &device);
        reweight(&FlatClipping::new(1.0).unwrap(), &layer, |layer| {
            let losses = layer.forward(x.clone()).powi_scalar(2).sum_dim(1).reshape([-1]);
            let factors = losses.random_like(Distribution::Uniform(0.0, 1.0)) * range + 1.0;
            losses * factors
        })
    }

    #[test]
    fn losses_that_differ_between_the_passes_are_refused() {
        for device in devices() {
            let _ = clip(0.0, &device).unwrap();
            let refused = clip(0.5, &device).unwrap_err();
            assert!(matches!(refused, DpError::NotPerExample { .. }), "{refused}");
        }
    }
}
