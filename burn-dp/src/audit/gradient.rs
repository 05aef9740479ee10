//! Canaries that are gradients in one direction.

use burn::module::Module;
use burn::tensor::{DType, Tensor};

use crate::DpError;
use crate::device_read::{blocking, read_f32};
use crate::error::positive;
use crate::model::{TrainableParameters, for_each_trained, map_parameters};
use crate::updates::UnitUpdate;

/// Canaries whose gradient has one nonzero value (Dirac gradients), each at a different position,
/// evenly spread over the trained parameters.
///
/// A canary is a unit of the plan, an example or a user. [`update`](Self::update) returns its
/// contribution for [`DpOptimizer::unit_updates`](crate::optim::DpOptimizer::unit_updates) or
/// [`clip_updates`](crate::updates::clip_updates). It does not pass through `backward` or
/// `backward_batch`, so their gradients are not audited. [`observe`](Self::observe) adds up the
/// released updates. The directions are orthogonal, so the canaries of one run do not influence
/// each other, as long as the other units have no gradient in these directions, or the same one in
/// every run.
///
/// The scores have the distribution of the worst case that the accountant assumes if every unit is
/// in every step, one threshold clips the whole gradient, `norm` is at least that threshold, the
/// noise of the steps is independent, and plain SGD, noise and threshold stay the same. Otherwise
/// the audit is weaker. Its bound is still valid, because the scores follow from what was released:
///
/// - With sampling, the sum contains the noise of steps without the canary. Use
///   [`one_run`](super::Audit::one_run): `gdp` needs the full batch, and in batches of a fixed size
///   one canary displaces another.
/// - With a threshold for each group, a canary reaches the threshold of its own group only.
/// - If neighbors replace a unit, a canary is replaced with zero instead of its opposite.
/// - Other optimizers mix steps or coordinates.
///
/// With adaptive clipping the bound is not valid for adding or removing a unit: a canary that is
/// left out still counts as a unit, and the counts move the thresholds of all canaries. The scores
/// ignore the released counts.
pub struct GradientCanaries {
    norm: f64,
    /// The place of each canary: number of the parameter, and of the value in it. Ascending.
    places: Vec<(usize, usize)>,
    scores: Vec<f64>,
}

impl GradientCanaries {
    /// Creates canaries with gradients of this norm.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `norm` is not positive and finite, or there are more
    /// canaries than trained values, and [`DpError::UnsupportedModel`] if `model` trains nothing.
    pub fn new<M: Module>(model: &M, canaries: usize, norm: f64) -> Result<Self, DpError> {
        positive("norm", norm)?;
        let parameters = TrainableParameters::of_units(model)?;
        let sizes: Vec<usize> = parameters.iter().map(|info| info.num_values()).collect();
        let values: usize = sizes.iter().sum();
        if canaries == 0 || canaries > values {
            return Err(DpError::invalid(
                "canaries",
                format!("must be from 1 to the {values} trained values, got {canaries}"),
            ));
        }
        let (mut parameter, mut start) = (0, 0);
        let places = (0..canaries).map(|canary| {
            let place = (canary as u128 * values as u128 / canaries as u128) as usize;
            while place - start >= sizes[parameter] {
                start += sizes[parameter];
                parameter += 1;
            }
            (parameter, place - start)
        });
        Ok(Self { norm, places: places.collect(), scores: vec![0.0; canaries] })
    }

    /// Returns the contribution of a canary to a step, if it is included.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if this canary does not exist.
    pub fn update<M: Module>(&self, canary: usize, model: &M) -> Result<UnitUpdate, DpError> {
        let Some(&(parameter, value)) = self.places.get(canary) else {
            let reason = format!("must be less than {}, got {canary}", self.places.len());
            return Err(DpError::invalid("canary", reason));
        };
        // The difference of two models in which all values but one are zero.
        let zero = map_parameters(model.clone(), |_, info| {
            let trained = info.is_trained && !info.is_repeated;
            trained.then(|| info.value.flat().cast(DType::F32) * 0.0)
        });
        let mut number = 0;
        let changed = map_parameters(zero.clone(), |_, info| {
            if !info.is_trained || info.is_repeated {
                return None;
            }
            number += 1;
            let values = info.value.flat();
            (number == parameter + 1).then(|| {
                let one = Tensor::full([1], -self.norm as f32, &values.device());
                values.cast(DType::F32).slice_assign(value..value + 1, one)
            })
        });
        UnitUpdate::change(&zero, &changed)
    }

    /// Adds the change of a step in the direction of each canary to its score. Call it after every
    /// step, with the model before and after.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the models are not of the kind that the canaries
    /// were created for, and [`DpError::Device`] if they cannot be read from the device.
    pub fn observe<M: Module>(&mut self, before: &M, after: &M) -> Result<(), DpError> {
        blocking(self.observe_async(before, after), "GradientCanaries::observe_async")
    }

    /// Runs [`observe`](Self::observe) without blocking the thread.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`observe`](Self::observe).
    pub async fn observe_async<M: Module>(&mut self, before: &M, after: &M) -> Result<(), DpError> {
        let (before, after) = (values(before).await?, values(after).await?);
        let change = |&(parameter, value): &(usize, usize)| {
            let at = |model: &[Vec<f32>]| model.get(parameter)?.get(value).copied();
            Some(f64::from(at(&before)?) - f64::from(at(&after)?))
        };
        let changes: Option<Vec<f64>> = self.places.iter().map(change).collect();
        let Some(changes) = changes else {
            let reason = "must be the model that the canaries were made for, as `before` must be";
            return Err(DpError::invalid("after", reason));
        };
        self.scores.iter_mut().zip(changes).for_each(|(score, change)| *score += change);
        Ok(())
    }

    /// Returns the score of each canary: the sum of the changes in its direction.
    pub fn scores(&self) -> &[f64] {
        &self.scores
    }
}

opaque_debug!(GradientCanaries, |this| canaries: this.places.len(), norm: this.norm);

/// Returns the values of every trained parameter, in order.
async fn values<M: Module>(model: &M) -> Result<Vec<Vec<f32>>, DpError> {
    let mut tensors = Vec::new();
    for_each_trained(model, |_, parameter| tensors.push(parameter.value.flat()));
    let mut values = Vec::new();
    for tensor in tensors {
        values.push(read_f32(tensor, "the model").await?);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn_dp_accountant::UnitOfPrivacy;
    use burn_dp_accountant::audit::Audit;

    use super::*;
    use crate::audit::CanaryCoins;
    use crate::clipping::GroupedClipping;
    use crate::model::ParameterGroups;
    use crate::optim::{DpOptimizer, PrivacyPlanConfig, SamplingScheme};
    use crate::random::InsecureSeed;
    use crate::test_devices::devices;

    #[test]
    fn each_canary_has_its_own_place_and_its_norm() {
        for device in devices() {
            // 3 × 2 weights and 2 biases.
            let model: Linear = LinearConfig::new(3, 2).init(&device.autodiff());
            let canaries = GradientCanaries::new(&model, 8, 0.5).unwrap();
            let mut places = canaries.places.clone();
            places.dedup();
            assert_eq!(places.len(), 8);
            for canary in 0..8 {
                let update = canaries.update(canary, &model).unwrap();
                let norms = update.norms(&model).unwrap().reveal();
                let squares: f64 = norms.iter().map(|(_, norm)| norm * norm).sum();
                assert_eq!(squares, 0.25);
            }
            assert!(canaries.update(8, &model).is_err());
            assert!(GradientCanaries::new(&model, 9, 0.5).is_err());
            assert!(GradientCanaries::new(&model, 1, 0.0).is_err());
        }
    }

    fn model() -> Linear {
        LinearConfig::new(20, 20).init(&devices().remove(0).autodiff())
    }

    /// Trains with canaries of this norm; returns them and the optimizer.
    fn train(
        coins: &CanaryCoins,
        norm: f64,
        config: PrivacyPlanConfig,
    ) -> (GradientCanaries, DpOptimizer) {
        let mut model = model();
        let mut canaries = GradientCanaries::new(&model, coins.len(), norm).unwrap();
        let plan = config.init().unwrap();
        let sampler = plan.sampler().unwrap();
        let mut optim = plan.optimizer(SgdConfig::new().init());
        for step in 0..optim.plan().steps() {
            let draw = sampler.draw(step).unwrap();
            let update = |copy: Linear, unit: usize| {
                if !coins.is_included(unit) {
                    return Ok(UnitUpdate::zero());
                }
                canaries.update(unit, &copy)
            };
            optim.unit_updates(&model, &draw, update).unwrap();
            let before = model.clone();
            model = optim.step(1.0, model, draw).map_err(|error| error.to_string()).unwrap();
            canaries.observe(&before, &model).unwrap();
        }
        (canaries, optim)
    }

    /// Four steps for 200 units.
    fn plan(batch_size: f64, noise_multiplier: f64, seed: u64) -> PrivacyPlanConfig {
        PrivacyPlanConfig::new(200, batch_size)
            .with_steps(4)
            .with_noise_multiplier(noise_multiplier)
            .with_insecure_seed(InsecureSeed(seed))
    }

    #[test]
    fn canaries_show_less_than_the_epsilon_of_any_plan() {
        let groups = ParameterGroups::per_layer(&model()).unwrap();
        let grouped = GroupedClipping::equal(groups, 1.0).unwrap();
        let fixed = |config: PrivacyPlanConfig| config.with_sampling(SamplingScheme::FixedSize);
        for (name, config) in [
            ("sampled", plan(60.0, 0.5, 2)),
            ("a fixed size", fixed(plan(150.0, 0.5, 3))),
            ("groups", plan(200.0, 1.0, 4).with_clipping(grouped)),
            ("users", plan(200.0, 1.0, 5).with_unit(UnitOfPrivacy::User)),
        ] {
            let coins = CanaryCoins::from_seed(200, InsecureSeed(6));
            let (canaries, optim) = train(&coins, 7.0, config);
            let scores = coins.scores(canaries.scores()).unwrap();
            let audit = Audit::new(&scores, 1e-5).unwrap().with_significance(1e-3).unwrap();
            let (lower, epsilon) =
                (audit.one_run().epsilon_lower, optim.plan().epsilon_at_end(1e-5).unwrap());
            assert!(lower <= epsilon && lower > 0.0, "{name}: {lower} {epsilon}");
        }
    }

    #[test]
    fn scores_are_the_noisy_sums_of_the_steps() {
        // The norm is clipped to 1: the mean of an included score is 4 steps / 200 units.
        let coins = CanaryCoins::from_seed(200, InsecureSeed(1));
        let (canaries, optim) = train(&coins, 7.0, plan(200.0, 1.0, 1));
        let scores = coins.scores(canaries.scores()).unwrap();
        let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64 * 200.0;
        // About 100 scores with standard deviation 2: five standard errors.
        assert!((mean(scores.included()) - 4.0).abs() < 1.0, "{}", mean(scores.included()));
        assert!(mean(scores.excluded()).abs() < 1.0, "{}", mean(scores.excluded()));
        // μ = 2.
        let lower = Audit::new(&scores, 1e-5).unwrap().gdp().epsilon_lower;
        let epsilon = optim.plan().epsilon_at_end(1e-5).unwrap();
        assert!(lower <= epsilon && lower > epsilon / 3.0, "{lower} {epsilon}");
    }
}
