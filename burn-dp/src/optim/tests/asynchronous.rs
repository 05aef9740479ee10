//! Asynchronous calls against blocking ones.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::optim::momentum::MomentumConfig;
use burn::tensor::{Device, Tensor, TensorData};

use super::{config, values};
use crate::clipping::QuantileClipping;
use crate::device_read::wait;
use crate::nn::{IntoPrivate, Private};
use crate::optim::{DpOptimizer, Sparsifier, WeightAverage};
use crate::sampling::LogicalBatch;
use crate::test_devices::devices;

#[derive(Module, Debug)]
struct Net {
    first: Private<Linear>,
    second: Private<Linear>,
}

struct Rows;

impl Batcher<[f32; 2], Tensor<2>> for Rows {
    fn batch(&self, items: Vec<[f32; 2]>, device: &Device) -> Tensor<2> {
        let count = items.len();
        Tensor::from_data(TensorData::new(items.concat(), [count, 2]), device)
    }
}

fn net(device: &Device) -> Net {
    let net = Net {
        first: LinearConfig::new(2, 3).init(device).private(),
        second: LinearConfig::new(3, 1).init(device).private(),
    };
    let mut next = 0.0f32;
    crate::model::map_parameters(net, |_, parameter| {
        let count = parameter.value.shape().num_elements();
        let values: Vec<f32> = (0..count)
            .map(|_| {
                next += 1.0;
                next.sin()
            })
            .collect();
        Some(Tensor::from_data(values.as_slice(), device).inner())
    })
}

fn losses(net: &Net, x: Tensor<2>) -> Tensor<1> {
    net.second.forward(net.first.forward(x).tanh()).powi_scalar(2).reshape([-1])
}

/// How the steps are run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Calls {
    Blocking,
    Asynchronous,
}

fn clip(optim: &mut DpOptimizer, net: &Net, batch: &LogicalBatch<Tensor<2>>, calls: Calls) {
    let by_parts = optim.next_step() % 2 == 1;
    match (calls, by_parts) {
        (Calls::Blocking, false) => optim.backward_batch(net, batch, 4, losses).unwrap(),
        (Calls::Asynchronous, false) => {
            wait(optim.backward_batch_async(net, batch, 4, losses)).unwrap();
        }
        (_, true) => {
            for part in batch.physical_batches(4).unwrap() {
                match calls {
                    Calls::Blocking => optim.backward(net, part.unwrap(), losses).unwrap(),
                    Calls::Asynchronous => {
                        wait(optim.backward_async(net, part.unwrap(), losses)).unwrap();
                    }
                }
            }
        }
    }
}

/// The parameters, averaged parameters, and statement after all steps.
fn run(device: &Device, calls: Calls) -> (Vec<Vec<f32>>, Vec<u8>, String) {
    let device = device.clone().autodiff();
    let mut net = net(&device);
    let policy = QuantileClipping::new(0.5).unwrap();
    let plan = config().with_clipping(policy).init().unwrap();
    let items = (0..12).map(|i| [(i as f32).sin(), (i as f32).cos()]).collect();
    let batches = plan.batches(InMemDataset::new(items), Rows, &device).unwrap();
    let momentum = MomentumConfig::new().with_momentum(0.9);
    let mut optim = plan
        .optimizer(SgdConfig::new().with_momentum(Some(momentum)).init())
        .with_sparsifier(Sparsifier::new(2, 1e6).unwrap())
        .unwrap()
        .with_weight_average(WeightAverage::new(0.9).unwrap())
        .unwrap();
    for batch in batches {
        let batch = batch.unwrap();
        clip(&mut optim, &net, &batch, calls);
        net = match calls {
            Calls::Blocking => optim.step(0.1, net, batch).unwrap(),
            Calls::Asynchronous => wait(optim.step_async(0.1, net, batch)).unwrap(),
        };
    }
    let average = optim.weight_average().unwrap().to_bytes().unwrap().to_vec();
    (values(&net), average, optim.statement(&[1e-3]).unwrap().to_string())
}

#[test]
fn asynchronous_and_blocking_runs_are_equal_bit_for_bit() {
    for device in devices() {
        let (blocking, asynchronous) =
            (run(&device, Calls::Blocking), run(&device, Calls::Asynchronous));
        assert!(blocking.0.iter().flatten().all(|value| value.is_finite()));
        assert_eq!(blocking, asynchronous);
    }
}
