//! Devices that servers host, over WebSocket on the loopback interface.
#![allow(clippy::unwrap_used)]

// The model and the data of the learner's tests.
#[allow(dead_code)]
#[path = "../learner/fixture.rs"]
mod fixture;

use std::net::TcpListener;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{
    Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig,
};
use burn::optim::SgdConfig;
use burn::remote::RemoteHost;
use burn::server::{RemoteServer, WebSocketTransport};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn::train::{ExecutionStrategy, MultiDeviceOptim};
use burn_dp::clipping::FlatClipping;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig};
use burn_dp::random::InsecureSeed;
use burn_dp::train::PrivateTrainingConfig;

use fixture::{STEPS, STEPS_PER_EPOCH, custom_loop, launch, plan_config, values};

/// A server that hosts a device of the CPU, from a thread of its own, and the device as a client
/// sees it.
fn served() -> Device {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = RemoteHost::websocket(&format!("ws://{}", listener.local_addr().unwrap()));
    std::thread::spawn(move || {
        RemoteServer::new([Device::flex()]).serve(WebSocketTransport::from_listener(listener))
    });
    Device::remote_options(&host).init().unwrap()
}

/// Layers whose rules use every kind of primitive.
#[derive(Module, Debug)]
struct Layers {
    convolution: Private<Conv2d>,
    lstm: Private<Lstm>,
    norm: Private<LayerNorm>,
    words: Private<Embedding>,
    linear: Private<Linear>,
}

impl Layers {
    fn new(device: &Device) -> Self {
        Self {
            convolution: Conv2dConfig::new([1, 2], [3, 3]).init(device).private(),
            lstm: LstmConfig::new(4, 3, true).init(device).private(),
            norm: LayerNormConfig::new(3).init(device).private(),
            words: EmbeddingConfig::new(7, 3).init(device).private(),
            linear: LinearConfig::new(3, 1).init(device).private(),
        }
    }

    fn losses(&self, (images, ids): (Tensor<4>, Tensor<2, Int>)) -> Tensor<1> {
        let [units, ..] = images.dims();
        // Two channels of 2 x 2 pixels are two steps of four values.
        let rows = self.convolution.forward(images).reshape([units, 2, 4]);
        let rows = self.norm.forward(self.lstm.forward(rows, None).0);
        let rows = (rows + self.words.forward(ids)).tanh();
        self.linear.forward(rows).powi_scalar(2).reshape([units, 2]).sum_dim(1).reshape([-1])
    }

    /// Two private steps, with noise of standard deviation 0.01.
    fn trained(mut self, max_grad_norm: f64, device: &Device) -> Vec<Vec<f32>> {
        let plan = PrivacyPlanConfig::new(40, 12.0)
            .with_steps(2)
            .with_noise_multiplier(0.01 / max_grad_norm)
            .with_clipping(FlatClipping::new(max_grad_norm).unwrap())
            .with_insecure_seed(InsecureSeed(3))
            .init()
            .unwrap();
        let batches = plan.batches(InMemDataset::new((0..40).collect()), Units, device).unwrap();
        let mut optim = plan.optimizer(SgdConfig::new().init());
        for batch in batches {
            let batch = batch.unwrap();
            for physical_batch in batch.physical_batches(5).unwrap() {
                optim.backward(&self, physical_batch.unwrap(), Self::losses).unwrap();
            }
            self = optim.step(0.5, self, batch).unwrap();
        }
        assert_eq!(optim.ledger().releases(), 2);
        values(&self)
    }
}

struct Units;

impl Batcher<usize, (Tensor<4>, Tensor<2, Int>)> for Units {
    fn batch(&self, units: Vec<usize>, device: &Device) -> (Tensor<4>, Tensor<2, Int>) {
        let count = units.len();
        let pixel = |unit: usize, i: usize| ((unit * 16 + i) as f32 * 0.37).sin();
        let pixels: Vec<f32> =
            units.iter().flat_map(|&unit| (0..16).map(move |i| pixel(unit, i))).collect();
        let ids: Vec<i64> =
            units.iter().flat_map(|&unit| [unit % 7, unit % 5]).map(to_id).collect();
        (
            Tensor::from_data(TensorData::new(pixels, [count, 1, 4, 4]), device),
            Tensor::from_data(TensorData::new(ids, [count, 2]), device),
        )
    }
}

fn to_id(word: usize) -> i64 {
    word as i64
}

#[test]
fn a_run_on_a_server_is_the_run_on_its_device() {
    let local = Device::flex().autodiff();
    let model = Layers::new(&local);
    let remote = served().autodiff();
    let before = values(&model);
    // Where gradients are clipped, they are a little shorter: of a server it is not known how it
    // rounds.
    for (max_grad_norm, tolerance) in [(1e3, 1e-4), (0.7, 1e-2)] {
        let expected = model.clone().trained(max_grad_norm, &local);
        let found = model.clone().fork(&remote).trained(max_grad_norm, &remote);
        for ((found, expected), before) in found.iter().zip(&expected).zip(&before) {
            close(found, expected, tolerance);
            assert_ne!(expected, before);
        }
    }
}

fn close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance * scale, "{found} {expected}");
    }
}

/// A plan under which nothing is clipped.
fn unclipped() -> PrivacyPlan {
    let clipping = FlatClipping::new(1e3).unwrap();
    plan_config().with_clipping(clipping).with_noise_multiplier(1e-3).init().unwrap()
}

#[test]
fn two_servers_train_what_one_device_trains() {
    let expected = custom_loop(unclipped(), 4);
    for optim in [MultiDeviceOptim::OptimMainDevice, MultiDeviceOptim::OptimSharded] {
        let config = PrivateTrainingConfig::new(4).with_steps_per_epoch(STEPS_PER_EPOCH);
        let private = config.init(unclipped()).unwrap();
        let strategy = ExecutionStrategy::multi(vec![served(), served()], optim);
        let result = launch(&private, |training| training.with_training_strategy(strategy.into()));
        assert!(private.error().is_none() && result.error.is_none());
        for (found, expected) in values(result.model.inner()).iter().zip(values(&expected.0)) {
            close(found, &expected, 1e-4);
        }
        assert_eq!(private.ledger(), *expected.1.ledger());
        assert_eq!(private.ledger().releases(), STEPS);
    }
}
