//! One private step whose result has the same bits on every machine.
//!
//! All sums are of small integers, so they are exact in any order and with any CPU instruction, and
//! every gradient is below the clipping threshold. Only the release remains: noise, grid, and
//! division.

use burn::module::Param;
use burn::nn::LinearConfig;
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};
use burn_dp::DpError;
use burn_dp::nn::IntoPrivate;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::random::InsecureSeed;

use crate::data::{CLASSES, PIXELS};

/// Number of examples, all of which are drawn with probability one half.
const EXAMPLES: usize = 64;

/// Returns the weights of a linear classifier after one private step from zero, with learning rate
/// 1 on Flex: the bits of each, in hexadecimal digits.
///
/// # Errors
///
/// Returns the errors of [`DpOptimizer::step`](burn_dp::optim::DpOptimizer::step).
pub fn released_bits() -> Result<String, DpError> {
    let device = Device::flex().autodiff();
    let mut layer = LinearConfig::new(PIXELS, CLASSES).with_bias(false).init(&device);
    layer.weight = Param::from_tensor(Tensor::zeros([PIXELS, CLASSES], &device));
    let mut model = layer.private();

    let plan = PrivacyPlanConfig::new(EXAMPLES, EXAMPLES as f64 / 2.0)
        .with_steps(1)
        .with_noise_multiplier(1.0)
        .with_max_grad_norm(4096.0)
        .with_insecure_seed(InsecureSeed(7))
        .init()?;
    let draw = plan.sampler()?.draw(0)?;
    let mut optim = plan.optimizer(SgdConfig::new().init());
    optim.backward(&model, &draw, |model, units| {
        let pixel = |unit: usize, place: usize| ((unit * 7 + place * 5) % 3) as f32;
        let pixels: Vec<f32> =
            units.iter().flat_map(|&unit| (0..PIXELS).map(move |at| pixel(unit, at))).collect();
        let targets = units.iter().flat_map(|unit| {
            (0..CLASSES).map(move |class| f32::from(u8::from(unit % CLASSES == class)))
        });
        let targets = TensorData::new(targets.collect::<Vec<f32>>(), [units.len(), CLASSES]);
        let x = Tensor::<2>::from_data(TensorData::new(pixels, [units.len(), PIXELS]), &device);
        let errors = model.forward(x) - Tensor::from_data(targets, &device);
        errors.powi_scalar(2).sum_dim(1).reshape([-1])
    })?;
    model = optim.step(1.0, model, draw)?;
    let weights = model.into_inner().weight.val().into_data();
    Ok(weights.iter::<f32>().map(|weight| format!("{:08x}", weight.to_bits())).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_step_repeats_and_releases_every_weight() {
        let bits = released_bits().unwrap();
        assert_eq!(bits.len(), 8 * PIXELS * CLASSES);
        assert_eq!(bits, released_bits().unwrap());
        let values: Vec<f32> = (0..PIXELS * CLASSES)
            .map(|at| u32::from_str_radix(&bits[8 * at..8 * (at + 1)], 16).unwrap())
            .map(f32::from_bits)
            .collect();
        assert!(values.iter().all(|value| value.is_finite()));
        let different: std::collections::BTreeSet<u32> =
            values.iter().map(|value| value.to_bits()).collect();
        assert!(different.len() > PIXELS, "{} values", different.len());
    }
}
