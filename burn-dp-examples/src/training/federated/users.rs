//! The users of a run: private ones, and public ones for evaluation.

use burn::module::Module;
use burn::tensor::Device;
use burn_dp::{PublicData, PublicSource};

use super::RoundOptions;
use crate::data::DataError;
use crate::data::shakespeare::{self, Role, Tokens, UserWindows, Window};
use crate::models::{NextToken, WindowBatch};
use crate::training::{DataOptions, Evaluation, TrainError, TrainOptions};

/// About one of this many users is public: used for evaluation, never trained on. A checksum of the
/// name decides, so adding or removing a user does not move any other.
const PUBLIC_EVERY: usize = 10;

/// Number of windows in a batch of a measurement.
const MEASURED: usize = 64;

/// Maximum number of measured windows of a public user.
const MEASURED_OF_USER: usize = 16;

/// Private users, and public ones for evaluation.
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
    /// Makes about every tenth role public, and splits all texts into windows.
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
        let is_public = |role: &Role| {
            let checksum = crc32fast::hash(role.user.as_bytes());
            checksum.is_multiple_of(PUBLIC_EVERY as u32)
        };
        let (test, train): (Vec<_>, Vec<_>) = roles.into_iter().partition(is_public);
        if test.is_empty() || train.is_empty() {
            let reason = format!(
                "(or the roles of --data-dir) must be enough that one of about {PUBLIC_EVERY} is \
                 public, got {number}"
            );
            return Err(TrainError::option("--users", reason));
        }
        let windows = |roles: Vec<Role>| UserWindows::new(&roles, tokens, length);
        // Any file can be read, so nothing is known of the people but that they are left out.
        let source = PublicSource::not_protected(format!("{name}, one of ten speaking roles"));
        let spoken =
            windows(test).users().iter().filter(|user| !user.is_empty()).cloned().collect();
        let (name, tokens) = (name.into(), tokens.len());
        Ok(Self { name, tokens, train: windows(train), test: source.data(spoken)? })
    }

    /// Returns the number of private users.
    pub fn private(&self) -> usize {
        self.train.users().len()
    }

    /// Returns the share of the most frequent token in the measured text of the public users: the
    /// accuracy of a prediction that depends on no text.
    pub fn most_frequent_share(&self) -> f64 {
        let mut counts = vec![0usize; self.tokens];
        let predicted = measured(&self.test).flat_map(|window| &window[1..]);
        for &token in predicted.filter(|&&token| token != shakespeare::PADDING) {
            counts[usize::from(token)] += 1;
        }
        let most = counts.iter().copied().max().unwrap_or_default();
        most as f64 / counts.iter().sum::<usize>() as f64
    }
}

/// Returns the windows of public users that are measured.
fn measured(users: &PublicData<Vec<Window>>) -> impl Iterator<Item = &Window> {
    users.items().iter().flat_map(|user| user.iter().take(MEASURED_OF_USER))
}

/// Reads the users.
///
/// # Errors
///
/// Returns [`TrainError::Data`] if the file is missing or damaged, and [`TrainError::Option`] if
/// there are too few users.
pub(super) fn load(options: &TrainOptions, tokens: &Tokens) -> Result<Users, TrainError> {
    let RoundOptions { users, length, .. } = options.rounds;
    let Some(folder) = options.data.data_dir.clone().or_else(DataOptions::environment) else {
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
    let windows: Vec<Window> = measured(users).cloned().collect();
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashSet;

    use super::*;

    fn role(number: usize) -> Role {
        serde_json::from_value(serde_json::json!({
            "user": format!("role {number}"), "text": format!("The text of role {number}.")
        }))
        .unwrap()
    }

    #[test]
    fn the_most_frequent_token_is_counted_among_the_predicted_ones() {
        let roles = (0..60).map(|number| {
            let json = serde_json::json!({ "user": format!("role {number}"), "text": "baaab" });
            serde_json::from_value(json).unwrap()
        });
        let users = Users::new("roles", roles.collect(), &Tokens::Characters, 8).unwrap();
        // Three of the four characters after the first one.
        let share = users.most_frequent_share();
        assert!((share - 0.75).abs() < 1e-12, "{share}");
    }

    #[test]
    fn a_user_that_is_removed_moves_no_other() {
        let texts = |removed: Option<usize>| {
            let roles = (0..300).filter(|number| Some(*number) != removed).map(role).collect();
            let users = Users::new("roles", roles, &Tokens::Characters, 8).unwrap();
            let private: HashSet<String> =
                users.train.users().iter().map(|user| format!("{user:?}")).collect();
            let public: HashSet<String> =
                users.test.items().iter().map(|user| format!("{user:?}")).collect();
            [private, public]
        };
        let all = texts(None);
        assert_eq!(all[0].len() + all[1].len(), 300);
        assert!((10..60).contains(&all[1].len()), "{}", all[1].len());
        for removed in [0, 5, 150, 299] {
            let rest = texts(Some(removed));
            let changed: usize = all
                .iter()
                .zip(&rest)
                .map(|(all, rest)| all.symmetric_difference(rest).count())
                .sum();
            assert_eq!(changed, 1, "{removed}");
        }
    }
}
