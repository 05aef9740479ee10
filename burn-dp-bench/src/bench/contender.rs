//! A model that is trained by one algorithm.

use std::time::Instant;

use burn::optim::{GradientsParams, ModuleOptimizer};
use burn_dp::DpError;
use burn_dp::baselines::{microbatch, reweight};
use burn_dp::clipping::FlatClipping;
use burn_dp::grads::PrivateBackward;
use burn_dp::losses::{self, CrossEntropyLoss};
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;

use super::Algorithm;
use burn_dp_examples::data::Batch;
use burn_dp_examples::models::Classifier;
use burn_dp_examples::training::TrainError;

/// Clipping threshold of the paper.
const MAX_GRAD_NORM: f64 = 1.0;

/// Learning rate of the paper.
pub(super) const LEARNING_RATE: f64 = 0.001;

/// The time of a step does not depend on the value.
pub(super) const NOISE_MULTIPLIER: f64 = 1.0;

/// Steps of the plan; more than any benchmark runs.
const STEPS: u64 = 1 << 32;

/// A model, its optimizer, and the algorithm that trains it.
pub(super) struct Contender<M> {
    algorithm: Algorithm,
    /// Absent only during a step.
    model: Option<M>,
    optimizer: Optimizer,
    lr: f64,
    /// Maximum number of examples that book-keeping has in memory at once; `None` for all.
    physical_batch_size: Option<usize>,
}

enum Optimizer {
    Ordinary(ModuleOptimizer),
    Private { optim: Box<DpOptimizer>, sampler: Box<dyn Sampler>, clipping: FlatClipping },
}

impl<M: Classifier> Contender<M> {
    /// Creates a contender that takes the whole batch in every step.
    ///
    /// # Arguments
    ///
    /// - `seed`: insecure seed of the noise; without it the operating system seeds the noise
    ///
    /// # Errors
    ///
    /// Returns the error of the plan if the numbers are impossible.
    pub(super) fn new(
        algorithm: Algorithm,
        model: M,
        inner: ModuleOptimizer,
        lr: f64,
        batch_size: usize,
        noise_multiplier: f64,
        seed: Option<InsecureSeed>,
    ) -> Result<Self, DpError> {
        let optimizer = if !algorithm.is_private() {
            Optimizer::Ordinary(inner)
        } else {
            let config = PrivacyPlanConfig::new(batch_size, batch_size as f64)
                .with_steps(STEPS)
                .with_noise_multiplier(noise_multiplier)
                .with_max_grad_norm(MAX_GRAD_NORM);
            let plan = match seed {
                Some(seed) => config.with_insecure_seed(seed).init()?,
                None => config.init()?,
            };
            let sampler = plan.sampler()?;
            let backward = match algorithm {
                Algorithm::Materialize => PrivateBackward::new().with_materialized_gradients(),
                _ => PrivateBackward::new(),
            };
            let optim = Box::new(plan.optimizer(inner).with_backward(backward));
            Optimizer::Private { optim, sampler, clipping: FlatClipping::new(MAX_GRAD_NORM)? }
        };
        Ok(Self { algorithm, model: Some(model), optimizer, lr, physical_batch_size: None })
    }

    /// Sets the options of the private backward pass.
    pub(super) fn with_backward(mut self, backward: PrivateBackward) -> Self {
        if let Optimizer::Private { optim, sampler, clipping } = self.optimizer {
            let optim = Box::new(optim.with_backward(backward));
            self.optimizer = Optimizer::Private { optim, sampler, clipping };
        }
        self
    }

    /// Lets book-keeping add the sums of physical batches of at most this many examples.
    pub(super) fn with_physical_batches(self, size: usize) -> Self {
        Self { physical_batch_size: Some(size), ..self }
    }

    /// Returns the trained model.
    pub(super) fn into_model(self) -> Option<M> {
        self.model
    }

    /// Runs one step that is not counted and then `steps` steps. Returns the milliseconds of each
    /// counted step.
    ///
    /// # Arguments
    ///
    /// - `synchronize`: waits until the device has finished
    ///
    /// # Errors
    ///
    /// Returns the error of a rejected step, and of `synchronize`.
    pub(super) fn timed_steps(
        &mut self,
        batch: &Batch<M::Inputs>,
        steps: usize,
        synchronize: impl Fn() -> Result<(), TrainError>,
    ) -> Result<Vec<f64>, TrainError> {
        let mut ms = Vec::with_capacity(steps);
        for step in 0..=steps {
            synchronize()?;
            let start = Instant::now();
            self.step(batch)?;
            synchronize()?;
            if step > 0 {
                ms.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(ms)
    }

    /// Runs one step on the batch.
    ///
    /// # Errors
    ///
    /// Returns the error of the optimizer if the step is rejected. The contender cannot be used
    /// afterward.
    pub(super) fn step(&mut self, batch: &Batch<M::Inputs>) -> Result<(), DpError> {
        let Some(model) = self.model.take() else { return Ok(()) };
        let model = match &mut self.optimizer {
            Optimizer::Ordinary(optimizer) => {
                let grads = model.mean_loss(batch.clone()).backward();
                let grads = GradientsParams::from_grads(grads, &model);
                optimizer.step(self.lr, model, grads)
            }
            Optimizer::Private { optim, sampler, clipping } => {
                let draw = sampler.draw(optim.next_step())?;
                match self.algorithm {
                    Algorithm::Reweight => {
                        let sum = reweight(clipping, &model, |model| {
                            model.losses(&loss(), batch.clone())
                        })?;
                        optim.accumulate(&draw, sum)?;
                    }
                    Algorithm::Nxbp => {
                        let [examples] = batch.targets.dims();
                        let losses = |model: &M, index| model.losses(&loss(), batch.one(index));
                        let sum = microbatch(clipping, &model, examples, losses)?;
                        optim.accumulate(&draw, sum)?;
                    }
                    _ => match self.physical_batch_size {
                        Some(size) => {
                            for (part, images) in draw.parts(size)?.zip(batch.parts(size)) {
                                let losses = |model: &M, _| model.losses(&loss(), images.clone());
                                optim.backward(&model, part, losses)?;
                            }
                        }
                        None => optim.backward(&model, &draw, |model, _| {
                            model.losses(&loss(), batch.clone())
                        })?,
                    },
                }
                optim.step(self.lr, model, draw)?
            }
        };
        self.model = Some(model);
        Ok(())
    }
}

fn loss() -> CrossEntropyLoss {
    losses::CrossEntropyLossConfig::new().init()
}
