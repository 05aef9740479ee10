//! The devices that the tests run on.

use burn::tensor::Device;

/// Every backend that is compiled in.
pub(crate) fn devices() -> Vec<Device> {
    vec![
        #[cfg(feature = "flex")]
        Device::flex(),
        #[cfg(feature = "ndarray")]
        Device::ndarray(),
        #[cfg(feature = "wgpu")]
        Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
    ]
}

/// The backends of the CPU, which have double precision.
pub(crate) fn cpu_devices() -> Vec<Device> {
    vec![
        #[cfg(feature = "flex")]
        Device::flex(),
        #[cfg(feature = "ndarray")]
        Device::ndarray(),
    ]
}

/// Every backend, with autodiff, without and with gradient checkpointing.
pub(crate) fn training_devices() -> Vec<Device> {
    devices()
        .into_iter()
        .flat_map(|device| [device.clone().autodiff(), device.autodiff().gradient_checkpointing()])
        .collect()
}
