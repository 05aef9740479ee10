//! Devices that servers host, over WebSocket: on the loopback interface, and in network namespaces.
#![allow(clippy::unwrap_used)]

// The expected values are computed on the CPU, which the servers host.
mod chosen_device {
    pub(crate) fn chosen_device() -> burn::tensor::Device {
        burn::tensor::Device::flex()
    }
}
#[allow(dead_code)]
#[path = "../support/comparison.rs"]
mod comparison;
mod failures;
// The model and the data of the learner's tests.
#[allow(dead_code)]
#[path = "../learner/fixture.rs"]
mod fixture;
mod namespace;
mod servers;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{
    Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig,
};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn::train::{ExecutionStrategy, MultiDeviceOptim};
use burn_dp::clipping::FlatClipping;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig};
use burn_dp::random::InsecureSeed;
use burn_dp::train::PrivateTrainingConfig;
use burn_dp::updates::UnitUpdate;

use fixture::{STEPS, STEPS_PER_EPOCH, custom_loop, launch, plan_config, values};
use namespace::Network;
use servers::{Server, device_at};

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

// With a GPU backend, Burn also fuses the operations of remote devices.
#[test]
#[cfg_attr(feature = "fusion", ignore = "Burn cannot fuse these operations of a remote device")]
fn a_run_on_a_server_is_the_run_on_its_device() {
    let local = Device::flex().autodiff();
    local.seed(5);
    let model = Layers::new(&local);
    let server = Server::start();
    let remote = device_at(server.address).autodiff();
    let before = values(&model).concat();
    let distance = |a: &[f32], b: &[f32]| -> f32 {
        a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt()
    };
    // Clipped gradients are a little shorter, because the rounding of a server is unknown.
    for (max_grad_norm, tolerance) in [(1e3, 1e-4), (0.7, 0.05)] {
        let expected = model.clone().trained(max_grad_norm, &local).concat();
        let found = model.clone().fork(&remote).trained(max_grad_norm, &remote).concat();
        let change = distance(&expected, &before);
        let difference = distance(&found, &expected);
        assert!(change > 0.1 && difference <= tolerance * change, "{difference} of {change}");
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

/// The values of a run of the learner on these servers, which are nearly the values of one device.
fn trained(servers: &[Server], optim: MultiDeviceOptim) -> Vec<Vec<f32>> {
    let config = PrivateTrainingConfig::new(4).with_steps_per_epoch(STEPS_PER_EPOCH);
    let private = config.init(unclipped()).unwrap();
    let devices = servers.iter().map(|server| device_at(server.address)).collect();
    // ANCHOR: strategy
    let strategy = ExecutionStrategy::multi(devices, optim);
    let result = launch(&private, |training| training.with_training_strategy(strategy.into()));
    // ANCHOR_END: strategy
    assert_eq!(private.error().map(|error| error.to_string()), None);
    assert!(result.error.is_none());
    let (model, optimizer) = custom_loop(unclipped(), 4);
    assert_eq!(private.ledger().entries(), optimizer.ledger().entries());
    assert_eq!(private.ledger().releases(), STEPS);
    let found = values(result.model.inner());
    for (found, expected) in found.iter().zip(values(&model)) {
        close(found, &expected, 1e-4);
    }
    found
}

#[test]
fn two_and_four_servers_train_what_one_server_trains_bit_for_bit() {
    let servers: Vec<Server> = (0..4).map(|_| Server::start()).collect();
    let main = MultiDeviceOptim::OptimMainDevice;
    let expected = trained(&servers[..1], main);
    for number in [2, 4] {
        assert_eq!(trained(&servers[..number], main), expected, "{number}");
    }
    trained(&servers[..2], MultiDeviceOptim::OptimSharded);
}

#[test]
fn hosts_of_their_own_train_what_one_server_trains_bit_for_bit() {
    let Some(network) = Network::new(4) else { return };
    let servers = network.servers();
    let main = MultiDeviceOptim::OptimMainDevice;
    let expected = trained(&[Server::start()], main);
    for number in [2, 4] {
        assert_eq!(trained(&servers[..number], main), expected, "{number}");
    }
}

#[test]
fn the_statement_names_the_machines_that_see_the_data() {
    let server = Server::start();
    let config = PrivateTrainingConfig::new(4).with_steps_per_epoch(STEPS_PER_EPOCH);
    let statement = |devices: Vec<Device>| {
        let private = config.clone().init(unclipped()).unwrap();
        let strategy = ExecutionStrategy::multi(devices, MultiDeviceOptim::OptimMainDevice);
        launch(&private, |training| training.with_training_strategy(strategy.into()));
        private.statement(&[1e-3]).unwrap()
    };
    let found = statement(vec![device_at(server.address)]);
    assert_eq!(found.facts["remote_devices"], "they receive examples, parameters and gradients");
    assert!(found.not_covered.iter().any(|sentence| sentence.contains("machines that host")));
    assert!(!statement(vec![Device::flex()]).facts.contains_key("remote_devices"));
}

// A step without rows, whose units compute their updates by themselves.
#[test]
fn the_statement_names_the_machines_that_compute_updates() {
    let server = Server::start();
    let noted = |device: Device| {
        let plan = PrivacyPlanConfig::new(8, 4.0).with_steps(1).with_noise_multiplier(1.0);
        let mut optim = plan.init().unwrap().optimizer(SgdConfig::new().init());
        let model = LinearConfig::new(1, 1).init(&device);
        let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
        let zero = |_: Linear, _: usize| Ok(UnitUpdate::zero());
        optim.unit_updates(&model, &draw, zero).unwrap();
        optim.step(0.1, model, draw).unwrap();
        optim.statement(&[1e-3]).unwrap().facts.contains_key("remote_devices")
    };
    assert!(noted(device_at(server.address).autodiff()));
    assert!(!noted(Device::flex().autodiff()));
}
