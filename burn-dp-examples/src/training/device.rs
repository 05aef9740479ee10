//! From the name of a backend to a device.

use burn::tensor::Device;

use super::TrainError;
use super::options::{BackendName, typed};

/// The default device of a backend, without automatic differentiation.
///
/// # Errors
///
/// When this program was built without the backend.
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
                "{name} is not in this build; `cargo xtask train --backend {name}` builds it, or \
                 add `--features {name}`"
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
    fn the_default_backend_is_there_and_differentiates_only_on_request() {
        assert!(!device(BackendName::Flex).unwrap().is_autodiff());
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_backend_that_was_not_built_is_refused_with_the_command_that_builds_it() {
        let text = device(BackendName::Cuda).unwrap_err().to_string();
        assert!(text.contains("cargo xtask train --backend cuda"), "{text}");
    }
}
