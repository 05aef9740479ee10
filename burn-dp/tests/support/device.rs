//! The device for tests of whole steps.

use burn::tensor::Device;

/// Returns a device of the backend that the variable `BURN_DP_TEST_BACKEND` names, or of Flex.
#[allow(deprecated)] // Burn's name for its second CPU backend.
pub(crate) fn chosen_device() -> Device {
    match std::env::var("BURN_DP_TEST_BACKEND").as_deref() {
        #[cfg(feature = "ndarray")]
        Ok("ndarray") => Device::ndarray(),
        #[cfg(feature = "wgpu")]
        Ok("wgpu") => Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
        #[cfg(feature = "cuda")]
        Ok("cuda") => Device::cuda(0),
        Ok("flex") | Err(_) => Device::flex(),
        Ok(other) => panic!("BURN_DP_TEST_BACKEND={other} is not compiled into the tests"),
    }
}
