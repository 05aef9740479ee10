//! The one Gaussian release that several releases on one draw of units are equivalent to.

use crate::error::AccountantError;
use crate::event::DpEvent;

/// Returns the noise multiplier of the one Gaussian release that is equivalent to several on one
/// draw of units: `(Σ z_i^-2)^(-1/2)` (McMahan et al. 2018, Andrew et al. 2021).
pub(super) fn gaussian_multiplier(
    event: &DpEvent,
    whole: &DpEvent,
) -> Result<f64, AccountantError> {
    Ok(1.0 / gaussian_precision(event, whole)?.sqrt())
}

fn gaussian_precision(event: &DpEvent, whole: &DpEvent) -> Result<f64, AccountantError> {
    match event {
        DpEvent::Gaussian { noise_multiplier } => Ok(noise_multiplier.powi(-2)),
        DpEvent::JointGaussian { noise_multipliers } => {
            Ok(noise_multipliers.iter().map(|z| z.powi(-2)).sum())
        }
        DpEvent::Composed { events } if !events.is_empty() => {
            events.iter().map(|part| gaussian_precision(part, whole)).sum()
        }
        DpEvent::SelfComposed { event, count } if *count > 0 => {
            Ok(gaussian_precision(event, whole)? * *count as f64)
        }
        _ => Err(AccountantError::unsupported(
            whole.to_string(),
            "amplification by sampling is known for Gaussian releases and, under Poisson sampling, \
             for one Laplace release",
        )),
    }
}
