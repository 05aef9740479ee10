//! The devices of the tests.

use burn::tensor::Device;

/// Returns a device of every compiled backend.
pub(crate) fn devices() -> Vec<Device> {
    vec![
        #[cfg(feature = "flex")]
        Device::flex(),
        #[cfg(feature = "ndarray")]
        Device::ndarray(),
        #[cfg(feature = "wgpu")]
        Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
        #[cfg(feature = "cuda")]
        Device::cuda(0),
    ]
}

/// Returns the devices of the CPU backends, which have double precision.
pub(crate) fn cpu_devices() -> Vec<Device> {
    vec![
        #[cfg(feature = "flex")]
        Device::flex(),
        #[cfg(feature = "ndarray")]
        Device::ndarray(),
    ]
}

/// Returns an autodiff device of every backend, without and with gradient checkpointing.
pub(crate) fn training_devices() -> Vec<Device> {
    devices()
        .into_iter()
        .flat_map(|device| [device.clone().autodiff(), device.autodiff().gradient_checkpointing()])
        .collect()
}
