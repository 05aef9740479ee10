//! The costs by which training chooses between ghost norms and instantiated gradients.

use std::path::PathBuf;

use burn_dp::grads::DeviceCosts;
use burn_dp_examples::training::{BackendName, TrainError, checks, device, files, typed};
use clap::Args;

/// Options of `bench device-costs`.
#[derive(Args, Debug, Clone)]
pub struct DeviceCostsOptions {
    /// Backend to measure.
    #[arg(long, value_enum, default_value = "flex")]
    pub backend: BackendName,
    /// File for the costs, which `cargo xtask train --device-costs FILE` reads.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Measures, prints the costs, and writes them.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option, [`TrainError::Privacy`] if the device
/// fails, and [`TrainError::Io`] if the file cannot be written.
pub(super) fn run(options: &DeviceCostsOptions) -> Result<(), TrainError> {
    if let Some(path) = &options.json {
        checks::file("--json", path, None)?;
    }
    let costs = measured(options.backend)?;
    options.json.as_ref().map_or(Ok(()), |path| files::write_json(path, &costs))
}

/// Measures the costs of a backend, and prints them.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if there is no such backend here, and [`TrainError::Privacy`] if
/// the device fails.
pub(super) fn measured(backend: BackendName) -> Result<DeviceCosts, TrainError> {
    let costs = DeviceCosts::measure(&device(backend)?)?;
    println!(
        "{}: {:.1e} s an operation, {:.1e} s a byte, {:.1e} s a launch",
        typed(backend),
        costs.seconds_per_operation(),
        costs.seconds_per_byte(),
        costs.seconds_per_launch()
    );
    Ok(costs)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn measured_costs_can_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs.json");
        run(&DeviceCostsOptions { backend: BackendName::Flex, json: Some(path.clone()) }).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let costs: DeviceCosts = serde_json::from_str(&text).unwrap();
        assert!(costs.seconds_per_operation() < costs.seconds_per_launch());
    }
}
