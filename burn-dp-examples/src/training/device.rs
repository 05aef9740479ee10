//! Returns the device for the name of a backend.

use burn::tensor::Device;

use super::TrainError;
use super::options::{BackendName, typed};

/// Returns the default device of a backend, without automatic differentiation.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if this program was built without the feature of the backend.
pub fn device(backend: BackendName) -> Result<Device, TrainError> {
    match backend {
        #[cfg(feature = "flex")]
        BackendName::Flex => Ok(Device::flex()),
        // Burn deprecates NdArray; here it is the second implementation to compare with.
        #[cfg(feature = "ndarray")]
        #[allow(deprecated)]
        BackendName::Ndarray => Ok(Device::ndarray()),
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => Ok(Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "cuda")]
        BackendName::Cuda => Ok(Device::cuda(0)),
        #[allow(unreachable_patterns)]
        absent => {
            let name = typed(absent);
            let reason = format!(
                "{name} needs the feature `{name}`, which is not in this build; run the program by \
                 `cargo xtask`, which adds the feature, or build with `--features {name}`"
            );
            Err(TrainError::option("--backend", reason))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    #[cfg(feature = "flex")]
    fn the_default_backend_differentiates_only_on_request() {
        assert!(!device(BackendName::Flex).unwrap().is_autodiff());
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn an_absent_backend_is_refused_with_the_command_that_builds_it() {
        let text = device(BackendName::Cuda).unwrap_err().to_string();
        assert!(text.contains("`cargo xtask`") && text.contains("`--features cuda`"), "{text}");
    }
}
