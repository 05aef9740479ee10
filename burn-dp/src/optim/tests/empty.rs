use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};

use super::*;
use crate::nn::{IntoPrivate, Private};
use crate::optim::DpOptimizer;
use crate::sampling::Draw;
use crate::test_devices::training_devices;
use crate::updates::UnitUpdate;

#[derive(Module, Debug)]
struct Net {
    lstm: Private<Lstm>,
    fc: Private<Linear>,
}

impl Net {
    fn new(device: &Device) -> Self {
        let lstm = LstmConfig::new(3, 4, true).init(device).private();
        Self { lstm, fc: LinearConfig::new(4, 2).init(device).private() }
    }

    fn losses(&self, x: Tensor<3>) -> Tensor<1> {
        let hidden = self.lstm.forward(x, None).0;
        let scores: Tensor<3> = self.fc.forward(hidden);
        scores.sum_dim(2).sum_dim(1).reshape([-1])
    }
}

/// An optimizer and an empty draw for it.
fn empty_draw() -> (DpOptimizer, Draw) {
    let plan = PrivacyPlanConfig::new(100, 1.0 / 128.0)
        .with_steps(1)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(3))
        .init()
        .unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    assert!(draw.private_indices().is_empty());
    (plan.optimizer(SgdConfig::new().init()), draw)
}

fn moved(before: &Net, after: &Net) -> bool {
    values(before).iter().zip(&values(after)).all(|(before, after)| before != after)
}

#[test]
fn an_empty_draw_is_a_step_of_noise_on_every_backend() {
    for device in training_devices() {
        let model = Net::new(&device);
        let (mut optim, draw) = empty_draw();
        let after = optim.step(0.1, model.clone(), draw).unwrap();
        assert!(moved(&model, &after), "{device:?}");
        assert_eq!(optim.ledger().releases(), 1);
    }
}

#[test]
fn units_of_an_empty_draw_are_a_step_of_noise_on_every_backend() {
    for device in training_devices() {
        let model = Net::new(&device);
        let (mut optim, draw) = empty_draw();
        let never = |_: Net, _: usize| -> Result<UnitUpdate, crate::DpError> { unreachable!() };
        optim.unit_updates(&model, &draw, never).unwrap();
        let after = optim.step(0.1, model.clone(), draw).unwrap();
        assert!(moved(&model, &after), "{device:?}");
    }
}

#[test]
fn a_batch_without_units_adds_nothing_to_an_empty_draw() {
    let device = Device::flex().autodiff();
    let model = Net::new(&device);
    let (mut optim, draw) = empty_draw();
    let losses = |model: &Net, units: Vec<usize>| {
        assert!(!units.is_empty(), "no layer receives a tensor without rows");
        model.losses(Tensor::zeros([units.len(), 5, 3], &device))
    };
    optim.backward(&model, &draw, losses).unwrap();
    let after = optim.step(0.1, model.clone(), draw).unwrap();
    assert!(moved(&model, &after));
    assert_eq!(optim.statistics().reveal().examples, 0);
}
