//! Training runs of a language model on users, for experiments that compare them.

use burn::tensor::Device;
use burn_dp_examples::data::shakespeare::{FILES, NAME, Tokens, file_of};
use burn_dp_examples::data::{drawn_roles, shakespeare};
use burn_dp_examples::training::federated::{FederatedFigures, FederatedSettings, Users, figures};
use burn_dp_examples::training::{ClippingName, TrainError};

use super::measured::Measured;

/// Number of roles in the quick preset, and the maximum in the other.
const QUICK: usize = 1_200;
const PAPER: usize = 4_000;

/// δ at which ε is stated.
pub(super) const DELTA: f64 = 1e-4;

/// A training run and its users.
#[derive(Clone, Debug)]
pub(super) struct UserSetting {
    pub(super) federated: FederatedSettings,
    /// Name of the data set.
    data: &'static str,
    roles: usize,
}

impl UserSetting {
    /// Returns the settings of the training program, or smaller ones for the quick preset: the
    /// embedding is also the last layer, and the measurement comes at the end.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the settings are impossible.
    pub(super) fn of(measured: &Measured) -> Result<Self, TrainError> {
        let mut federated = FederatedSettings::of_program()?;
        let data = match &measured.data_dir {
            Some(folder) if file_of(folder).is_some() => NAME,
            Some(folder) => {
                let reason = format!(
                    "{} has none of {}; give the folder of the plays, or leave the option out for \
                     synthetic roles",
                    folder.display(),
                    FILES.join(", ")
                );
                return Err(TrainError::option("--data-dir", reason));
            }
            None => drawn_roles::NAME,
        };
        let training = &mut federated.training;
        training.tied = true;
        let roles = if measured.quick() {
            (training.rounds, training.users_per_round) = (40, 80);
            (training.embedding, training.hidden) = (8, 24);
            // Two local steps.
            (training.length, training.max_examples, training.local_batch_size) = (20, 8, 4);
            QUICK
        } else {
            PAPER
        };
        training.evaluate_every = training.rounds;
        federated.privacy.delta = DELTA;
        Ok(Self { federated, data, roles })
    }

    /// Clips the update of a user to a threshold, or to the median if there is none.
    pub(super) fn with_threshold(mut self, threshold: Option<f64>) -> Self {
        self.federated.training.max_update_norm = threshold;
        self.federated.clipping = match threshold {
            Some(_) => ClippingName::Flat,
            None => ClippingName::Quantile,
        };
        self
    }

    /// Divides the learning rate of the server by the threshold of each round: thresholds are
    /// compared, not learning rates.
    pub(super) fn with_lr_over_threshold(mut self) -> Self {
        self.federated.training.server_lr_over_threshold = true;
        self
    }

    /// Calibrates the noise so that the run ends at ε.
    pub(super) fn with_epsilon(mut self, epsilon: f64) -> Self {
        self.federated.privacy.epsilon = Some(epsilon);
        self
    }

    /// Returns the users.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Data`] if the plays cannot be read.
    pub(super) fn users(&self, measured: &Measured, seed: u64) -> Result<Users, TrainError> {
        let mut roles = match &measured.data_dir {
            Some(folder) if self.data != drawn_roles::NAME => shakespeare::from_folder(folder)?,
            _ => drawn_roles::roles(seed, self.roles),
        };
        roles.truncate(self.roles);
        Users::new(self.data, roles, &Tokens::Characters, self.federated.training.length)
    }

    /// Returns each seed with its users.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Data`] if the plays cannot be read.
    pub(super) fn users_of_seeds(
        &self,
        measured: &Measured,
    ) -> Result<Vec<(u64, Users)>, TrainError> {
        measured.seeds.iter().map(|&seed| Ok((seed, self.users(measured, seed)?))).collect()
    }

    /// Trains.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] or [`TrainError::Privacy`] if the settings do not fit.
    pub(super) fn train(
        &self,
        users: &Users,
        seed: u64,
        device: &Device,
    ) -> Result<FederatedFigures, TrainError> {
        let mut federated = self.federated.clone();
        federated.seed = seed;
        figures(&federated, users, device)
    }

    /// Trains, and returns the share of the tokens of public users that are predicted correctly.
    pub(super) fn accuracy(
        &self,
        users: &Users,
        seed: u64,
        device: &Device,
    ) -> Result<f64, TrainError> {
        let figures = self.train(users, seed, device)?;
        Ok(figures.measurements.last().map_or(f64::NAN, |last| last.test_accuracy))
    }

    /// Describes federated averaging in a sentence.
    pub(super) fn sentence(&self) -> String {
        format!("Federated averaging of {}", self.network())
    }

    /// Describes the network, the users and the rounds.
    pub(super) fn network(&self) -> String {
        let training = &self.federated.training;
        format!(
            "a next-character LSTM with tied embedding and output ({} and {} wide) on {}, {} \
             rounds of {} users, local batches of {} of at most {} examples, δ = {DELTA:e}",
            training.embedding,
            training.hidden,
            match self.data {
                drawn_roles::NAME => format!("{} synthetic roles", self.roles),
                data => data.to_string(),
            },
            training.rounds,
            training.users_per_round,
            training.local_batch_size,
            training.max_examples
        )
    }

    /// Returns everything that affects a measurement.
    pub(super) fn label(&self) -> String {
        format!("{:?}, {} of {}", self.federated, self.roles, self.data)
    }
}
