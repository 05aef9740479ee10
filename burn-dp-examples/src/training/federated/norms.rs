//! Norms of the updates of users, parameter by parameter.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use burn_dp::clipping::PublicNorms;
use burn_dp::model::ParameterGroups;
use burn_dp::optim::FederatedTraining;
use burn_dp::updates::public_update_norms;
use burn_dp::{DpError, PublicData};

use super::policy::MEDIAN;
use super::settings::FederatedSettings;
use crate::data::shakespeare::Window;
use crate::models::{NextToken, WindowBatch};
use crate::plot;
use crate::training::TrainError;
use crate::training::output::{NORMS_PLOT, PRIVATE_MEANS_PLOT, PRIVATE_MEDIANS_PLOT};

/// Number of public users whose updates are computed.
const USERS: usize = 50;

/// Returns the norm in each group of parameters of the updates of public users.
///
/// It is public: the model is released, and these users are public.
pub(super) fn of_public_users(
    settings: &FederatedSettings,
    model: &NextToken,
    groups: ParameterGroups,
    users: &PublicData<Vec<Window>>,
    device: &Device,
) -> Result<PublicNorms, TrainError> {
    let update = settings.update()?;
    let some = users.clone().truncated(USERS);
    Ok(public_update_norms(groups, &some, model, |copy, user| {
        let losses = |model: &NextToken, windows: Vec<Window>| -> Result<Tensor<1>, DpError> {
            Ok(model.loss(WindowBatch::new(&windows, device)).0)
        };
        update.of_public_user(&copy, user.clone(), losses)
    })?)
}

/// Returns the names of the parameters and their norms, averaged over the users.
pub(super) fn named(norms: &PublicNorms) -> Vec<(String, f64)> {
    norms.groups().names().iter().cloned().zip(norms.means()).collect()
}

/// Returns the estimates of a tracker of norms, if there is one: parameter, mean and median.
pub(super) fn of_private_users(training: &FederatedTraining) -> Vec<(String, f64, f64)> {
    let adapted = training.optimizer().plan().clipping().adapted();
    let median = |path: &str| {
        let name = format!("{path} {MEDIAN}");
        adapted.iter().find(|(known, _)| *known == name).map_or(f64::NAN, |(_, value)| *value)
    };
    let means = adapted.iter().filter_map(|(name, mean)| Some((name.strip_suffix(" mean")?, mean)));
    means.map(|(path, &mean)| (path.to_string(), mean, median(path))).collect()
}

/// Draws both kinds of norms.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if a file cannot be written.
pub(super) fn draw(
    folder: &Path,
    public: &[(String, f64)],
    private: &[(String, f64, f64)],
) -> Result<(), TrainError> {
    let titles = ["Updates of public users", "mean L2 norm"];
    plot::bars(&folder.join(NORMS_PLOT), titles, public)?;
    if private.is_empty() {
        return Ok(());
    }
    let title = "Updates of private users, estimated with noise";
    let of = |value: fn(&(String, f64, f64)) -> f64| -> Vec<(String, f64)> {
        private.iter().map(|norms| (norms.0.clone(), value(norms))).collect()
    };
    let (means, medians) = (of(|norms| norms.1), of(|norms| norms.2));
    plot::bars(&folder.join(PRIVATE_MEANS_PLOT), [title, "mean L2 norm"], &means)?;
    plot::bars(&folder.join(PRIVATE_MEDIANS_PLOT), [title, "median L2 norm"], &medians)?;
    Ok(())
}
