//! Trains a new head on a frozen backbone: `cargo run -p burn-dp-examples --example frozen_backbone`.
//!
//! Frozen parameters are not clipped and get no noise, and what they compute costs no per-example work.

use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn::{module::Module, optim::AdamConfig};
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::{DpError, losses::CrossEntropyLossConfig, optim::PrivacyPlanConfig};
use burn_dp_accountant::Budget;
use burn_dp_examples::data::{ImageBatcher, digits};

/// Layers whose parameters are public: load those of a pre-trained model here.
#[derive(Module, Debug)]
struct Backbone {
    first: Linear,
    second: Linear,
}

#[derive(Module, Debug)]
struct Net {
    backbone: Backbone,
    head: Private<Linear>,
}

impl Net {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let features = self.backbone.first.forward(images.flatten::<2>(1, 3)).tanh();
        self.head.forward(self.backbone.second.forward(features).tanh())
    }
}

fn main() -> Result<(), DpError> {
    let device = Device::flex().autodiff();
    let backbone = Backbone {
        first: LinearConfig::new(784, 256).init(&device),
        second: LinearConfig::new(256, 128).init(&device),
    };
    let mut model = Net {
        backbone: backbone.no_grad(),
        head: LinearConfig::new(128, 10).init(&device).private(),
    };
    let loss = CrossEntropyLossConfig::new().init();
    let images = digits::splits(0, 2_000, 0).train;

    let budget = Budget::new(1.0, 1e-5)?;
    let plan = PrivacyPlanConfig::new(2_000, 100.0).with_epochs(3.0).with_budget(budget).init()?;
    let batches = plan.batches(images, ImageBatcher::MNIST, &device)?;
    let mut optim = plan.optimizer(AdamConfig::new().init());
    for batch in batches {
        let batch = batch?;
        for physical_batch in batch.physical_batches(128)? {
            let (examples, _) = physical_batch?.into_parts();
            let losses = loss.forward(model.forward(examples.inputs), examples.targets);
            optim.backward(losses, &model)?;
        }
        model = optim.step(0.01, model, batch)?;
    }
    println!("{}", optim.statement(&[1e-5])?);
    Ok(())
}
