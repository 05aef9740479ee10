//! Returns the device for the name of a backend.

use burn::tensor::Device;

use super::TrainError;
use super::options::{BackendName, typed};

/// Returns the default device of a backend, without automatic differentiation.
///
/// Prints to standard error that the first steps are slow if the backend compiles kernels in them.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if this program was built without the feature of the backend, or
/// finds no device for it.
pub fn device(backend: BackendName) -> Result<Device, TrainError> {
    match backend {
        #[cfg(feature = "flex")]
        BackendName::Flex => Ok(Device::flex()),
        // Burn deprecates NdArray; here it is the second implementation to compare with.
        #[cfg(feature = "ndarray")]
        #[allow(deprecated)]
        BackendName::Ndarray => Ok(Device::ndarray()),
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => {
            let found = !Device::enumerate(burn::tensor::DeviceType::Wgpu).is_empty();
            present(backend, found, "a driver of Vulkan, Metal or DirectX")?;
            Ok(Device::wgpu(burn::tensor::DeviceKind::DefaultDevice))
        }
        #[cfg(feature = "cuda")]
        BackendName::Cuda => {
            let found = !Device::enumerate(burn::tensor::DeviceType::Cuda).is_empty();
            present(backend, found, "an NVIDIA GPU, its driver and the CUDA toolkit")?;
            Ok(Device::cuda(0))
        }
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

/// Returns [`TrainError::Option`] if no device was found; otherwise prints the note.
#[cfg(any(test, feature = "wgpu", feature = "cuda"))]
fn present(backend: BackendName, found: bool, needed: &str) -> Result<(), TrainError> {
    let name = typed(backend);
    let reason = format!(
        "{name} finds no device on this machine: it needs {needed}; `--backend flex` runs on \
         the CPU"
    );
    if !found {
        return Err(TrainError::option("--backend", reason));
    }
    print_note!(
        "note: {name} compiles and tunes kernels in the first steps, which can take minutes"
    );
    Ok(())
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
    fn a_backend_without_a_device_is_refused_with_what_it_needs() {
        let text = present(BackendName::Wgpu, false, "a driver").unwrap_err().to_string();
        assert!(text.contains("needs a driver") && text.contains("`--backend flex`"), "{text}");
        assert!(present(BackendName::Wgpu, true, "a driver").is_ok());
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn an_absent_backend_is_refused_with_the_command_that_builds_it() {
        let text = device(BackendName::Cuda).unwrap_err().to_string();
        assert!(text.contains("`cargo xtask`") && text.contains("`--features cuda`"), "{text}");
    }
}
