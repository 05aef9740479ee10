//! One private step: release, optimizer, ties, sparsifier, average.

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};

use super::pending::Pending;
use super::{LastStep, PrivacyEngine};
use crate::DpError;
use crate::clipping::{ClippedSum, Thresholds};
use crate::model::{for_each_trained, tie};
use crate::noise::{CorrelatedNoise, GaussianMechanism, NoiseAhead};
use crate::optim::buffers::Extent;
use crate::optim::release::{Release, signal_to_noise};
use crate::optim::sums::Placement;
use crate::random::Purpose;
use crate::sampling::Draw;

/// Factor of the noise, because of rounding, above which the statement has it.
const NOTED: f64 = 1.01;

/// The outcome of a step.
pub(crate) struct StepOutcome<M> {
    /// The model: unchanged, or after the step.
    pub(crate) model: M,
    /// Whether the step was released.
    #[cfg_attr(not(feature = "train"), allow(dead_code))]
    pub(crate) released: bool,
    /// Why the step was rejected, or what failed after its release.
    pub(crate) error: Option<DpError>,
}

impl PrivacyEngine {
    /// Runs the step of `draw`: the only place where anything is released.
    pub(crate) async fn step<M: Module>(
        &mut self,
        inner: &mut ModuleOptimizer,
        lr: ModuleLearningRate,
        model: M,
        draw: &Draw,
    ) -> StepOutcome<M> {
        let released = match check_learning_rate(&model, &lr) {
            Ok(()) => self.release(&model, draw).await,
            Err(error) => Err(error),
        };
        let gradients = match released {
            Ok(gradients) => gradients,
            Err(error) => return StepOutcome { model, released: false, error: Some(error) },
        };
        let Some(gradients) = gradients else {
            // Only counts were released.
            return StepOutcome { model, released: true, error: None };
        };
        let model = inner.step(lr.clone(), model, gradients);
        let (model, sparsified) = self.sparsify(model, &lr).await;
        // The optimizers of Burn update the first copy of a tied parameter.
        let model = tie(model);
        let averaged = sparsified.and_then(|()| match &mut self.average {
            Some(average) => average.update(&model),
            None => Ok(()),
        });
        StepOutcome { model, released: true, error: averaged.err() }
    }

    /// Adds the noise and records the release in the ledger. Returns no gradients if only counts
    /// were released.
    async fn release<M: Module>(
        &mut self,
        model: &M,
        draw: &Draw,
    ) -> Result<Option<GradientsParams>, DpError> {
        self.admission().check_draw(draw)?;
        self.note_remote_devices(model);
        let (step, batch) = (self.next_step, self.plan.expected_batch_size);
        let is_last = step + 1 == self.plan.steps();
        let extent = if is_last { Extent::Whole } else { Extent::Step };
        self.buffers.end_of_step(model, extent).await?;
        self.note_packed_values();
        let thresholds = self.thresholds()?;
        // Noise and event follow from the same object that clipped.
        let multiplier = self.plan.noise_multiplier_at(step);
        let noise = thresholds.noise(multiplier, batch)?;
        let dimension = released_values(model, &thresholds);
        let gain = self.correlated.as_ref().map_or(1.0, CorrelatedNoise::rounding_gain);
        let snapping = GaussianMechanism::snapping_factor_with(gain, multiplier, dimension)?;
        let noise = noise.enlarged(snapping);
        if snapping > NOTED {
            let rounding = "times the noise of the plan, so that rounding to a grid is covered";
            self.note("noise_for_rounding", format!("{snapping:.2} {rounding}"));
        }
        let event = self.plan.event_of(step, &noise)?;
        self.admission().check_budget(&event)?;
        if let Some(correlated) = &mut self.correlated {
            correlated.check_next(step, &trained_lengths(model))?;
        }
        let unit = self.correlated.as_ref().map_or(1.0, CorrelatedNoise::unit);
        let deviation = self.correlated.as_mut().map_or(1.0, CorrelatedNoise::deviation);
        let prepared = Release::new(model, &thresholds, &noise, batch, unit)?;
        if let Some(pending) = &self.pending {
            prepared.check_groups(model, &pending.sum)?;
        }
        let gradient_noise = self.plan.source.begin_step(Purpose::Gradient, step)?;
        let count_noise = match noise.count_std {
            Some(_) => Some(self.plan.source.begin_step(Purpose::Count, step)?),
            None => None,
        };
        let sum = match self.pending.take() {
            Some(Pending { records, sum, .. }) => {
                self.note_records(records);
                sum
            }
            None => ClippedSum::empty(thresholds.clone()),
        };
        self.frozen = None;
        let placement = match &self.correlated {
            Some(noise) if noise.stays_on_host(dimension) => Placement::Host,
            Some(_) => Placement::Apart,
            None => Placement::Together,
        };
        let bound = prepared.bind(model, sum, gradient_noise, count_noise, placement).await?;
        // Recorded first, so that an interrupted release is accounted for.
        let releases = self.releases.get_mut().map_err(|_| super::poisoned())?;
        if releases.record(step, &event, bound.mark()).await? {
            self.ledger.record(&event)?;
        }
        self.independence.end_of_step(step);
        self.next_step += 1;
        let (statistics, lengths) = (bound.statistics(), bound.lengths());
        let next_noise = self.next_noise.take();
        let (gradients, fractions) =
            bound.release(model, next_noise.as_ref(), self.correlated.as_mut()).await?;
        self.plan.clipping.update(step, &fractions);
        let noise = noise.correlated(deviation);
        let signal_to_noise = match &gradients {
            Some(gradients) if self.measures_signal => {
                Some(signal_to_noise(model, gradients, &thresholds, &noise, batch).await?)
            }
            _ => None,
        };
        self.last = Some(LastStep { thresholds, noise, statistics, signal_to_noise });
        if self.next_step < self.plan.steps() {
            let (purpose, step) = (Purpose::Gradient, self.next_step);
            self.next_noise =
                NoiseAhead::begin(&self.plan.source, purpose, step, &lengths, next_noise);
        }
        Ok(gradients)
    }

    /// Returns the model with converged weights fixed in the first copy of each parameter.
    async fn sparsify<M: Module>(
        &mut self,
        model: M,
        lr: &ModuleLearningRate,
    ) -> (M, Result<(), DpError>) {
        let Some(mut sparsifier) = self.sparsifier.take() else { return (model, Ok(())) };
        let noise_std =
            |id, path: &str| Ok(lr.lr_from_param(id, Some(path)) * self.gradient_noise_std(path)?);
        let fixed = sparsifier.apply(model, noise_std).await;
        self.sparsifier = Some(sparsifier);
        match fixed {
            Ok(model) => (model, Ok(())),
            Err((model, error)) => (model, Err(error)),
        }
    }
}

/// Returns the number of values that a step releases: the trained values of the model and the
/// counts.
fn released_values<M: Module>(model: &M, thresholds: &Thresholds) -> u64 {
    let mut values = thresholds.counts().len();
    if thresholds.releases_sum() {
        values += trained_lengths(model).iter().sum::<usize>();
    }
    values as u64
}

/// Returns the number of values of each trained parameter.
fn trained_lengths<M: Module>(model: &M) -> Vec<usize> {
    let mut lengths = Vec::new();
    for_each_trained(model, |_, parameter| lengths.push(parameter.value.shape().num_elements()));
    lengths
}

/// Returns an error unless the learning rate of every trained parameter is finite in single
/// precision: otherwise the budget of the step would be spent on a model that is not finite.
fn check_learning_rate<M: Module>(model: &M, lr: &ModuleLearningRate) -> Result<(), DpError> {
    let mut unusable = None;
    for_each_trained(model, |path, parameter| {
        let lr = lr.lr_from_param(parameter.id, Some(path));
        if unusable.is_none() && !(lr as f32).is_finite() {
            unusable = Some(format!(
                "must be finite in single precision, got {lr:e} for `{path}`; nothing was released"
            ));
        }
    });
    unusable.map_or(Ok(()), |reason| Err(DpError::invalid("lr", reason)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::LinearConfig;
    use burn::tensor::Device;

    use super::*;
    use crate::clipping::{Clipping, QuantileClipping};

    #[test]
    fn counts_and_trained_values_are_released() {
        let model = LinearConfig::new(3, 4).init(&Device::flex().autodiff());
        assert_eq!(trained_lengths(&model), [12, 4]);
        assert_eq!(released_values(&model, &Thresholds::whole(1.0).unwrap()), 16);
        let adaptive = QuantileClipping::new(0.5).unwrap().thresholds(0).unwrap();
        let counts = adaptive.counts().len() as u64;
        assert!(counts > 0);
        assert_eq!(released_values(&model, &adaptive), 16 + counts);
    }
}
