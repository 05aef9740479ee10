//! The rounds of user-level training.

use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use burn_dp::DpError;
use burn_dp::clipping::PublicNorms;
use burn_dp::model::ParameterGroups;
use burn_dp::optim::FederatedTraining;

use super::users::{Users, measure};
use super::{FederatedFigures, FederatedSettings, RoundFigures, norms};
use crate::data::shakespeare::Window;
use crate::models::{NextToken, NextTokenConfig, WindowBatch};
use crate::training::budget::within_budget;
use crate::training::checkpoints::Checkpoints;
use crate::training::{Evaluation, TrainError};

/// A training run that has been checked and can start or continue.
pub(super) struct UserTraining<'a> {
    settings: &'a FederatedSettings,
    users: &'a Users,
    device: &'a Device,
    model: NextToken,
    pub(super) training: FederatedTraining,
}

impl<'a> UserTraining<'a> {
    /// Creates model and plan, and reads the last checkpoint if the run is resumed. Writes nothing.
    ///
    /// # Arguments
    ///
    /// - `checkpoints`: the checkpoints, with the step at which the run starts
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] or [`TrainError::Privacy`] if the settings do not fit the
    /// users, or if there is something to resume and the run is not resumed, or vice versa.
    pub(super) fn prepare(
        settings: &'a FederatedSettings,
        users: &'a Users,
        device: &'a Device,
        checkpoints: Option<&Checkpoints>,
    ) -> Result<Self, TrainError> {
        // This only affects the initial weights, because noise and sampling have their own
        // generators.
        device.seed(settings.seed);
        let training = &settings.training;
        let config = NextTokenConfig::new(users.tokens)
            .with_embedding(training.embedding)
            .with_hidden(training.hidden)
            .with_tied(training.tied);
        let model = config.init(&device.clone().autodiff());
        let norms = |groups| public_norms(settings, &model, groups, users, device);
        let plan = settings.plan(users.train.users().len(), &model, norms)?;
        let server = settings.server();
        let (optim, model) = match checkpoints {
            Some(checkpoints) => checkpoints.begin_or_resume(plan, server, model)?,
            None => (plan.optimizer(server), model),
        };
        let mut training = FederatedTraining::new(optim, settings.update()?)?;
        training.name_public_data(&users.test);
        Ok(Self { settings, users, device, model, training })
    }

    /// Trains on the private users, and measures on the public ones every few rounds.
    ///
    /// # Arguments
    ///
    /// - `checkpoints`: where a checkpoint is saved before the first round, with each measurement
    ///   and at the end
    /// - `progress`: called after each round with its number, and again with the figures of a
    ///   measurement
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if a round is rejected or a checkpoint cannot be written.
    pub(super) fn train(
        self,
        checkpoints: Option<&Checkpoints>,
        mut progress: impl FnMut(usize, Option<&RoundFigures>),
    ) -> Result<(NextToken, FederatedTraining, FederatedFigures), TrainError> {
        let Self { settings, users, device, mut model, mut training } = self;
        if let Some(checkpoints) = checkpoints {
            checkpoints.begin(&model, training.optimizer())?;
        }
        let (rounds, delta) = (settings.training.rounds, settings.privacy.delta);
        let trained = device.clone().autodiff();
        let losses = |model: &NextToken, windows: Vec<Window>| -> Result<Tensor<1>, DpError> {
            Ok(model.loss(WindowBatch::new(&windows, &trained)).0)
        };
        let mut measurements: Vec<RoundFigures> = Vec::new();
        let (mut time, mut since) = (Duration::ZERO, Instant::now());
        while (training.rounds() as usize) < rounds {
            let lr = settings.server_lr(threshold(&training)?);
            let stopped;
            (model, stopped) = within_budget(training.round(lr, model, &users.train, losses))?;
            if let Some(reason) = stopped {
                print_line!("stopped: {reason}");
                break;
            }
            let round = training.rounds() as usize;
            progress(round, None);
            if !round.is_multiple_of(settings.training.evaluate_every) && round < rounds {
                continue;
            }
            time += since.elapsed();
            let parameters = ParameterGroups::per_parameter(&model)?;
            let public = public_norms(settings, &model, parameters, users, device)?;
            if settings.clipping.follows_public() {
                let clipping = training.optimizer().plan().clipping();
                let groups = clipping.thresholds(0)?.groups().clone();
                let merged = match settings.layers.layer_groups {
                    None => None,
                    Some(_) => Some(public_norms(settings, &model, groups, users, device)?),
                };
                training.learn_from_public(merged.as_ref().unwrap_or(&public))?;
            }
            if let Some(checkpoints) = checkpoints
                && round < rounds
            {
                // Before the row is printed: from then on every release is on disk.
                checkpoints.save(&model, training.optimizer())?;
            }
            let test = measure(&model, &users.test, device);
            let epsilon = training.optimizer().privacy_spent(delta)?.upper;
            let figures = RoundFigures {
                round,
                test_loss: test.loss,
                test_accuracy: test.accuracy,
                epsilon: epsilon.is_finite().then_some(epsilon),
                threshold: threshold(&training)?,
                update_norms: norms::named(&public),
            };
            progress(round, Some(&figures));
            measurements.push(figures);
            since = Instant::now();
        }
        if let Some(checkpoints) = checkpoints {
            checkpoints.save(&model, training.optimizer())?;
        }
        let last = measurements.last().filter(|last| last.round as u64 == training.rounds());
        let (test, update_norms) = match last {
            Some(last) => {
                let test = Evaluation { loss: last.test_loss, accuracy: last.test_accuracy };
                (test, last.update_norms.clone())
            }
            None => {
                let parameters = ParameterGroups::per_parameter(&model)?;
                let norms = public_norms(settings, &model, parameters, users, device)?;
                (measure(&model, &users.test, device), norms::named(&norms))
            }
        };
        let (optim, plan) = (training.optimizer(), training.optimizer().plan());
        let spent = optim.privacy_spent(delta)?.upper;
        let figures = FederatedFigures {
            dataset: users.name.clone(),
            private: spent.is_finite(),
            unit: plan.unit().to_string(),
            epsilon: spent.is_finite().then_some(spent),
            delta,
            noise_multiplier: plan.noise_multiplier(),
            sampling_probability: plan.sampling_probability(),
            users: [users.train.users().len(), users.test.items().len()],
            rounds: training.rounds() as usize,
            test_accuracy: test.accuracy,
            test_loss: test.loss,
            measurements,
            update_norms,
            private_norms: norms::of_private_users(&training),
            train_seconds: time.as_secs_f64(),
            version: env!("CARGO_PKG_VERSION"),
        };
        Ok((model, training, figures))
    }
}

/// Trains without checkpoints and files, and returns the figures.
///
/// # Errors
///
/// Returns [`TrainError::Option`] or [`TrainError::Privacy`] if the settings do not fit the users
/// or a round is rejected.
pub fn figures(
    settings: &FederatedSettings,
    users: &Users,
    device: &Device,
) -> Result<FederatedFigures, TrainError> {
    Ok(UserTraining::prepare(settings, users, device, None)?.train(None, |_, _| ())?.2)
}

/// Returns the clipping threshold of the next round, all groups together. It depends only on noisy
/// counts and public norms.
fn threshold(training: &FederatedTraining) -> Result<f64, DpError> {
    let clipping = training.optimizer().plan().clipping();
    Ok(clipping.thresholds(training.rounds())?.total_norm())
}

fn public_norms(
    settings: &FederatedSettings,
    model: &NextToken,
    groups: ParameterGroups,
    users: &Users,
    device: &Device,
) -> Result<PublicNorms, TrainError> {
    norms::of_public_users(settings, model, groups, &users.test, &device.clone().autodiff())
}
