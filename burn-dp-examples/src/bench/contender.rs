//! A model that is trained by one algorithm.

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Tensor;
use burn_dp::DpError;
use burn_dp::baselines::{microbatch, reweight};
use burn_dp::clipping::FlatClipping;
use burn_dp::grads::PrivateBackward;
use burn_dp::losses;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;

use super::Algorithm;
use crate::data::Batch;
use crate::models::Classifier;

/// Clipping threshold of the paper.
const MAX_GRAD_NORM: f64 = 1.0;

/// Steps that a plan allows; more than any benchmark makes.
const STEPS: u64 = 1 << 32;

/// A model, its optimizer, and the algorithm that trains it.
pub(super) struct Contender<M> {
    algorithm: Algorithm,
    /// Only absent during a step.
    model: Option<M>,
    optimizer: Optimizer,
    lr: f64,
}

enum Optimizer {
    Ordinary(ModuleOptimizer),
    Private { optim: Box<DpOptimizer>, sampler: Box<dyn Sampler>, clipping: FlatClipping },
}

impl<M: Classifier> Contender<M> {
    /// A contender that takes the whole batch in every step, with noise of this multiplier, from the
    /// operating system or from a seed.
    ///
    /// # Errors
    ///
    /// When the numbers give no plan.
    pub(super) fn new(
        algorithm: Algorithm,
        model: M,
        inner: ModuleOptimizer,
        lr: f64,
        batch_size: usize,
        noise_multiplier: f64,
        seed: Option<InsecureSeed>,
    ) -> Result<Self, DpError> {
        let optimizer = if algorithm == Algorithm::NonPrivate {
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
            let backward =
                PrivateBackward::new().with_materialize(algorithm == Algorithm::Materialize);
            let optim = Box::new(plan.optimizer(inner).with_backward(backward));
            Optimizer::Private { optim, sampler, clipping: FlatClipping::new(MAX_GRAD_NORM)? }
        };
        Ok(Self { algorithm, model: Some(model), optimizer, lr })
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The trained model.
    pub(super) fn into_model(self) -> Option<M> {
        self.model
    }

    /// One step on the batch.
    ///
    /// # Errors
    ///
    /// When the step is refused; the contender is then of no further use.
    pub(super) fn step(&mut self, batch: &Batch<M::Inputs>) -> Result<(), DpError> {
        let Some(model) = self.model.take() else { return Ok(()) };
        let model = match &mut self.optimizer {
            Optimizer::Ordinary(optimizer) => {
                let scores = model.forward(batch.inputs.clone());
                let loss = CrossEntropyLossConfig::new().init(&scores.device());
                let grads = loss.forward(scores, batch.targets.clone()).backward();
                let grads = GradientsParams::from_grads(grads, &model);
                optimizer.step(self.lr, model, grads)
            }
            Optimizer::Private { optim, sampler, clipping } => {
                let draw = sampler.draw(optim.next_step())?;
                match self.algorithm {
                    Algorithm::Reweight => {
                        let sum = reweight(clipping, &model, |model| losses_of(model, batch))?;
                        optim.accumulate(sum)?;
                    }
                    Algorithm::Nxbp => {
                        let [examples] = batch.targets.dims();
                        let loss = |model: &M, index| losses_of(model, &batch.one(index));
                        optim.accumulate(microbatch(clipping, &model, examples, loss)?)?;
                    }
                    _ => optim.backward(losses_of(&model, batch), &model)?,
                }
                optim.step(self.lr, model, draw)?
            }
        };
        self.model = Some(model);
        Ok(())
    }
}

fn losses_of<M: Classifier>(model: &M, batch: &Batch<M::Inputs>) -> Tensor<1> {
    let loss = losses::CrossEntropyLossConfig::new().init();
    loss.forward(model.forward(batch.inputs.clone()), batch.targets.clone())
}
