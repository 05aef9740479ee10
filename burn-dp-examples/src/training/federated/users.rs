//! The users of a run: private ones, and public ones who measure the model.

use burn::module::Module;
use burn::tensor::Device;
use burn_dp::{PublicData, PublicSource};

use super::{FederatedOptions, RoundOptions};
use crate::data::DataError;
use crate::data::shakespeare::{self, Role, Tokens, UserWindows, Window};
use crate::models::{NextToken, WindowBatch};
use crate::training::options::DataOptions;
use crate::training::{Evaluation, TrainError};

/// One of this many users is public: measured on, never trained on.
const PUBLIC_EVERY: usize = 10;

/// Windows in a batch of a measurement.
const MEASURED: usize = 64;

/// Most windows of a public user that are measured.
const MEASURED_OF_USER: usize = 16;

/// Private users, and public ones, who measure the model.
#[derive(Debug)]
pub struct Users {
    /// Name of the data set.
    pub(super) name: String,
    /// Number of different tokens.
    pub(super) tokens: usize,
    pub(super) train: UserWindows,
    pub(super) test: PublicData<Vec<Window>>,
}

impl Users {
    /// Takes every tenth role as public, and cuts the text of all into windows.
    ///
    /// # Arguments
    ///
    /// - `name`: name of the data set
    /// - `length`: predictions in a window
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if there are too few roles.
    pub fn new(
        name: &str,
        roles: Vec<Role>,
        tokens: &Tokens,
        length: usize,
    ) -> Result<Self, TrainError> {
        let number = roles.len();
        let is_public = |index: usize| index % PUBLIC_EVERY == PUBLIC_EVERY - 1;
        let (test, train): (Vec<_>, Vec<_>) =
            roles.into_iter().enumerate().partition(|(index, _)| is_public(*index));
        if test.is_empty() {
            let reason = format!(
                "(or the roles of --data-dir) must be at least {PUBLIC_EVERY}, one of which is \
                 public, got {number}"
            );
            return Err(TrainError::option("--users", reason));
        }
        let windows = |roles: Vec<(usize, Role)>| {
            let roles: Vec<_> = roles.into_iter().map(|(_, role)| role).collect();
            UserWindows::new(&roles, tokens, length)
        };
        // The texts are published; nothing is trained on these roles.
        let source = PublicSource::published(format!("{name}, every tenth speaking role"));
        let spoken =
            windows(test).users().iter().filter(|user| !user.is_empty()).cloned().collect();
        let (name, tokens) = (name.into(), tokens.len());
        Ok(Self { name, tokens, train: windows(train), test: source.data(spoken)? })
    }

    /// Returns the number of private users.
    pub fn private(&self) -> usize {
        self.train.users().len()
    }
}

/// Reads the users.
///
/// # Errors
///
/// Returns [`TrainError::Data`] if the file is missing or damaged, and [`TrainError::Option`] if
/// there are too few users.
pub(super) fn load(options: &FederatedOptions, tokens: &Tokens) -> Result<Users, TrainError> {
    let RoundOptions { users, length, .. } = options.training;
    let Some(folder) = options.data_dir.clone().or_else(DataOptions::environment) else {
        return Err(DataError::NoRoles { folder: None }.into());
    };
    let mut roles = shakespeare::from_folder(&folder)?;
    roles.truncate(users.unwrap_or(usize::MAX));
    Users::new("shakespeare", roles, tokens, length)
}

/// Returns loss and accuracy on the tokens of the public users.
pub(super) fn measure(
    model: &NextToken,
    users: &PublicData<Vec<Window>>,
    device: &Device,
) -> Evaluation {
    let model = model.valid();
    let few = users.items().iter().flat_map(|user| user.iter().take(MEASURED_OF_USER));
    let windows: Vec<Window> = few.cloned().collect();
    let (mut loss, mut right, mut tokens) = (0.0, 0.0, 0.0);
    for windows in windows.chunks(MEASURED) {
        let batch = WindowBatch::new(windows, device);
        let targets = batch.targets.clone();
        let known = targets.clone().not_equal_elem(i64::from(shakespeare::PADDING));
        let (mean, scores) = model.loss(batch);
        let matches = scores.argmax(1).flatten::<1>(0, 1).equal(targets).bool_and(known.clone());
        let number = known.int().sum().into_scalar::<i64>() as f64;
        loss += mean.into_scalar::<f64>() * number;
        right += matches.int().sum().into_scalar::<i64>() as f64;
        tokens += number;
    }
    Evaluation { loss: loss / tokens, accuracy: right / tokens }
}
