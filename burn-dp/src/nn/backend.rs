//! Detection of devices whose backend lacks the private primitives.

use burn::backend::DispatchDevice;
use burn::module::Module;
use burn::tensor::Device;

/// Panics if `layer` is on an autodiff device whose backend is not compiled into this crate.
///
/// Inference needs no private primitive, so devices without autodiff are accepted.
pub(super) fn check_devices<M: Module>(layer: &M) {
    for device in layer.collect_devices(Vec::new()) {
        if device.is_autodiff()
            && let Some(message) = missing_feature(&device)
        {
            panic!("{message}");
        }
    }
}

/// Whether the backend of a device has kernels for activations and norms that are faster than
/// Burn's. Other backends fuse Burn's operations.
pub(super) fn has_native_kernels(device: &Device) -> bool {
    match device.clone().inner().as_dispatch() {
        #[cfg(feature = "flex")]
        DispatchDevice::Flex(_) => true,
        #[allow(unreachable_patterns)] // without the feature
        _ => false,
    }
}

/// Returns which feature to enable, or `None` if the device's backend is compiled in.
fn missing_feature(device: &Device) -> Option<String> {
    let device = device.clone().inner();
    let compiled = match device.as_dispatch() {
        #[cfg(feature = "flex")]
        DispatchDevice::Flex(_) => true,
        #[cfg(feature = "ndarray")]
        DispatchDevice::NdArray(_) => true,
        #[cfg(feature = "cube")]
        DispatchDevice::Cube(_) => true,
        #[cfg(feature = "remote")]
        DispatchDevice::Remote(_) => true,
        #[allow(unreachable_patterns)] // a backend that Burn has and this crate has not
        _ => false,
    };
    (!compiled).then(|| message(&format!("{:?}", device.as_dispatch())))
}

/// Returns the message for a device, given as its backend and its name: `NdArray(Cpu)`.
fn message(device: &str) -> String {
    let backend = device.split('(').next().unwrap_or(device);
    let features: &[&str] = match backend {
        "Flex" => &["flex"],
        "NdArray" => &["ndarray"],
        "Cube" => &["wgpu", "vulkan", "metal", "webgpu", "cuda", "rocm"],
        "Remote" => &["remote"],
        _ => &[],
    };
    let remedy = match features {
        [] => "burn-dp does not support this backend; use another device".to_string(),
        [feature] => dependency(feature),
        [first, rest @ ..] => {
            format!("{}, or one of {} for another device", dependency(first), rest.join(", "))
        }
    };
    format!("burn-dp is compiled without the backend of the device {device}: {remedy}")
}

fn dependency(feature: &str) -> String {
    format!("enable its feature, `burn-dp = {{ version = \"…\", features = [\"{feature}\"] }}`")
}

#[cfg(test)]
mod tests {
    use burn::nn::LinearConfig;

    use super::*;
    use crate::test_devices::{devices, training_devices};

    #[test]
    fn compiled_backends_are_accepted() {
        for device in devices() {
            assert_eq!(missing_feature(&device), None);
        }
        for device in training_devices() {
            check_devices(&LinearConfig::new(2, 2).init(&device));
        }
    }

    #[test]
    fn message_names_the_feature_of_the_backend() {
        assert_eq!(
            message("NdArray(Cpu)"),
            "burn-dp is compiled without the backend of the device NdArray(Cpu): enable its \
             feature, `burn-dp = { version = \"…\", features = [\"ndarray\"] }`"
        );
        let cube = message("Cube(Wgpu(DefaultDevice))");
        assert!(cube.contains("features = [\"wgpu\"]") && cube.contains("cuda"), "{cube}");
        assert!(message("LibTorch(Cpu)").contains("use another device"));
    }

    /// The names in [`message`] are the names of the variants.
    #[test]
    fn debug_output_of_a_device_begins_with_its_backend() {
        for device in devices() {
            let text = format!("{:?}", device.as_dispatch());
            assert!(!message(&text).contains("does not support"), "{text}");
        }
    }
}
