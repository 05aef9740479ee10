//! A loop that goes on after a crash: `cargo run -p burn-dp-examples --example resume`, then end it with
//! Ctrl-C or `kill -9` and start it again.
//!
//! Every release is on disk before its noise is drawn. Steps after the last checkpoint are made again, bit
//! for bit, and cost nothing a second time.

use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;
use burn::{module::Module, optim::AdamConfig};
use burn_dp::checkpoint::Checkpointer;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::{DpError, losses::CrossEntropyLossConfig};
use burn_dp_accountant::Budget;
use burn_dp_examples::data::{ImageBatcher, digits};

#[derive(Module, Debug)]
struct Net {
    fc: Private<Linear>,
}

fn main() -> Result<(), DpError> {
    let device = Device::flex().autodiff();
    let images = digits::splits(0, 2_000, 0).train;
    let loss = CrossEntropyLossConfig::new().init();
    let checkpointer = Checkpointer::new("out/resume");

    // The same plan, optimizer and model in every process; the key of the run is in the checkpoint.
    let plan = PrivacyPlanConfig::new(2_000, 100.0)
        .with_epochs(20.0)
        .with_budget(Budget::new(3.0, 1e-5)?)
        .init()?;
    let (inner, mut model) =
        (AdamConfig::new().init(), Net { fc: LinearConfig::new(784, 10).init(&device).private() });
    let mut optim = match checkpointer.latest()? {
        Some(checkpoint) => {
            let (optim, restored) = checkpoint.restore(plan, inner, model)?;
            let (next, released) = (optim.next_step(), optim.ledger().releases());
            println!("goes on with step {next}; {released} steps were released");
            model = restored;
            optim
        }
        None => {
            let optim = plan.optimizer(inner);
            checkpointer.save(&model, &optim)?; // from here on nothing is forgotten
            optim
        }
    };

    let batches = optim.plan().batches(images, ImageBatcher::MNIST, &device)?;
    for batch in batches.skip_to(optim.next_step())? {
        let batch = batch?;
        for chunk in batch.chunks(128)? {
            let (chunk, _) = chunk?.into_parts();
            let scores = model.fc.forward(chunk.inputs.flatten::<2>(1, 3));
            optim.backward(loss.forward(scores, chunk.targets), &model)?;
        }
        model = optim.step(0.01, model, batch)?;
        if optim.next_step() % 50 == 0 {
            checkpointer.save(&model, &optim)?;
            println!("step {}", optim.next_step());
        }
    }
    println!("{}", optim.statement(&[1e-5])?);
    Ok(())
}
