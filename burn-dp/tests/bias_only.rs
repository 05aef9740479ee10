//! Memory of training only the biases. The test measures its process, so it has its own file.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use burn::module::{Module, ParamGroup};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_dp::grads::PrivateBackward;
use burn_dp::model::TrainableParameters;
use burn_dp::prelude::*;

const LAYERS: usize = 5;
const FEATURES: usize = 64;
const EXAMPLES: usize = 16;
/// Number of positions of one example. An activation of the batch has 48 MiB, which the system's
/// allocator returns as soon as it is dropped.
const POSITIONS: usize = 12_288;
const ACTIVATION_MIB: f64 = (EXAMPLES * POSITIONS * FEATURES * 4) as f64 / (1 << 20) as f64;

/// Linear layers on `[batch_size, positions, features]`, or convolutions of one pixel on the same
/// number of pixels and channels.
#[derive(Module, Debug)]
struct Chain {
    linear: Vec<Private<Linear>>,
    convolutions: Vec<Private<Conv2d>>,
}

impl Chain {
    fn losses(&self, device: &Device) -> Tensor<1> {
        if self.convolutions.is_empty() {
            let x = Tensor::<3>::ones([EXAMPLES, POSITIONS, FEATURES], device) * 0.01;
            let output = self.linear.iter().fold(x, |x, layer| layer.forward(x));
            return output.sum_dim(2).sum_dim(1).reshape([-1]);
        }
        let x = Tensor::<4>::ones([EXAMPLES, FEATURES, POSITIONS / 64, 64], device) * 0.01;
        let output = self.convolutions.iter().fold(x, |x, layer| layer.forward(x));
        output.flatten::<2>(1, 3).sum_dim(1).reshape([-1])
    }
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Returns the memory that the forward pass keeps, in MiB, and the number of clipped values.
fn kept(model: &Chain, device: &Device) -> (f64, usize) {
    let before = resident_mib();
    let losses = model.losses(device);
    let _ = losses.clone().inner().into_data();
    let kept = resident_mib() - before;

    let grads = PrivateBackward::new().run(losses, model).unwrap();
    let sum = FlatClipping::new(1.0).unwrap().clip(grads).unwrap();
    assert_eq!(sum.statistics().unwrap().reveal().examples, EXAMPLES);
    (kept, TrainableParameters::of(model).unwrap().num_values())
}

#[test]
fn training_the_biases_alone_keeps_no_input() {
    let device = Device::flex().autodiff();
    let linear = |_| LinearConfig::new(FEATURES, FEATURES).init(&device).private();
    let convolution = |_| Conv2dConfig::new([FEATURES; 2], [1, 1]).init(&device).private();
    for convolutional in [false, true] {
        let chain = || match convolutional {
            false => Chain { linear: (0..LAYERS).map(linear).collect(), convolutions: vec![] },
            true => Chain { linear: vec![], convolutions: (0..LAYERS).map(convolution).collect() },
        };
        let biases = ParamGroup::from_regex(r"(^|\.)bias$").unwrap();
        let (all, bias_only) = (chain(), chain().no_grad().set_require_grad_group(biases, true));

        let (kept_all, values_all) = kept(&all, &device);
        let (kept_biases, values_biases) = kept(&bias_only, &device);
        assert_eq!(values_all, LAYERS * (FEATURES * FEATURES + FEATURES));
        assert_eq!(values_biases, LAYERS * FEATURES);
        // All inputs compared with none. Memory that is freed lazily may count as one input.
        assert!(kept_all > (LAYERS as f64 - 0.5) * ACTIVATION_MIB, "{kept_all}");
        assert!(kept_biases < 1.5 * ACTIVATION_MIB, "{kept_biases}");
    }
}
