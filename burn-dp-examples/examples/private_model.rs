//! Makes a Burn model private: `cargo run -p burn-dp-examples --example private_model`.

use burn::nn::{Linear, LinearConfig};
use burn::{module::Module, optim::SgdConfig, tensor::Device};
use burn_dp::prelude::*;
use burn_dp_examples::data::{ImageBatcher, digits};

#[derive(Module, Debug)]
struct Net {
    hidden: Private<Linear>, // was `Linear`; records of the old model still load
    output: Private<Linear>,
}

fn main() -> Result<(), DpError> {
    let device = Device::flex().autodiff();
    let mut model = Net {
        hidden: LinearConfig::new(784, 64).init(&device).private(),
        output: LinearConfig::new(64, 10).init(&device).private(),
    };
    let loss = CrossEntropyLossConfig::new().init(); // one value for each example
    let images = digits::splits(0, 2_000, 0).train;

    let budget = Budget::new(3.0, 1e-5)?;
    let plan = PrivacyPlanConfig::new(2_000, 100.0).with_epochs(5.0).with_budget(budget).init()?;
    let batches = plan.batches(images, ImageBatcher::MNIST, &device)?; // drawn by Poisson sampling
    let mut optim = plan.optimizer(SgdConfig::new().init());
    for batch in batches {
        let batch = batch?;
        // One loss for each example; 64 examples at a time fit into memory.
        optim.backward_batch(&model, &batch, 64, |model, examples| {
            let hidden = model.hidden.forward(examples.inputs.flatten::<2>(1, 3)).tanh();
            loss.forward(model.output.forward(hidden), examples.targets)
        })?;
        model = optim.step(0.5, model, batch)?; // noise, ledger, and the step of the optimizer
    }
    println!("{}", optim.statement(&[1e-5])?.summary()); // the statement also lists its limits
    Ok(())
}
