//! Trains a new head on a frozen backbone: `cargo run -p burn-dp-examples --example fine-tuning`.

pub mod model;
pub mod training;

fn main() -> Result<(), burn_dp::DpError> {
    let (_, optim) = training::run(3.0)?;
    println!("{}", optim.statement(&[training::DELTA])?);
    Ok(())
}
