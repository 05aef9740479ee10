//! The time of one step of recurrent layers: Burn's layers, and private layers with and without
//! clipping, alternating.

use std::hint::black_box;
use std::time::Instant;

use burn::module::{Module, ModuleDisplay};
use burn::nn::{Gru, GruConfig, Linear, LinearConfig, Lstm, LstmConfig, Rnn, RnnConfig};
use burn::tensor::{Device, Distribution, Tensor};
use burn_dp::clipping::{Clipping, FlatClipping};
use burn_dp::grads::PrivateBackward;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::{DpError, losses::CrossEntropyLossConfig};
use burn_dp_examples::training::{TrainError, checks, device};

use super::RecurrentOptions;

const POSITIONS: usize = 28;
const D_INPUT: usize = 28;
const D_HIDDEN: usize = 128;
const CLASSES: usize = 10;

/// A recurrent layer whose last hidden state is classified.
#[derive(Module, Debug)]
struct Model<R: Module, L: Module> {
    recurrent: R,
    head: L,
}

/// The hidden states of all positions.
trait Hidden {
    fn hidden(&self, x: Tensor<3>) -> Tensor<3>;
}

macro_rules! hidden {
    ($layer:ty, $x:ident, $layer_name:ident => $output:expr) => {
        impl Hidden for $layer {
            fn hidden(&self, $x: Tensor<3>) -> Tensor<3> {
                let $layer_name = self;
                $output
            }
        }
    };
}

hidden!(Lstm, x, layer => layer.forward(x, None).0);
hidden!(Private<Lstm>, x, layer => layer.forward(x, None).0);
hidden!(Gru, x, layer => layer.forward(x, None));
hidden!(Private<Gru>, x, layer => layer.forward(x, None));
hidden!(Rnn, x, layer => layer.forward(x, None).0);
hidden!(Private<Rnn>, x, layer => layer.forward(x, None).0);

fn last(hidden: Tensor<3>) -> Tensor<2> {
    hidden.narrow(1, POSITIONS - 1, 1).squeeze_dim(1)
}

/// Returns the milliseconds of `step`.
fn time(step: impl FnOnce()) -> f64 {
    let start = Instant::now();
    step();
    start.elapsed().as_secs_f64() * 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure<R>(
    name: &str,
    layer: R,
    options: &RecurrentOptions,
    device: &Device,
) -> Result<(), DpError>
where
    R: Hidden + IntoPrivate + ModuleDisplay,
    Private<R>: Hidden,
{
    let head: Linear = LinearConfig::new(D_HIDDEN, CLASSES).init(device);
    let plain = Model { recurrent: layer.clone(), head: head.clone() };
    let private = Model { recurrent: layer.private(), head: head.private() };
    let x = Tensor::random([options.batch, POSITIONS, D_INPUT], Distribution::Default, device);
    let classes: Vec<i32> = (0..options.batch).map(|row| (row % CLASSES) as i32).collect();
    let classes = Tensor::from_ints(classes.as_slice(), device);
    let loss = CrossEntropyLossConfig::new().init();
    let clipping = FlatClipping::new(1.0)?;

    let plain_loss = || {
        let output = plain.head.forward(last(plain.recurrent.hidden(x.clone())));
        loss.forward(output, classes.clone())
    };
    let private_loss = || {
        let output = private.head.forward(last(private.recurrent.hidden(x.clone())));
        loss.forward(output, classes.clone())
    };
    let mut times: [Vec<f64>; 3] = Default::default();
    for repetition in 0..options.repetitions + 2 {
        let mut clipped = Ok(());
        let round = [
            time(|| drop(black_box(plain_loss().mean().backward()))),
            time(|| drop(black_box(private_loss().mean().backward()))),
            time(|| {
                clipped = PrivateBackward::new()
                    .run(private_loss(), &private)
                    .and_then(|grads| clipping.clip(grads))
                    .map(|sum| drop(black_box(sum)));
            }),
        ];
        clipped?;
        // The first two warm up.
        if repetition > 1 {
            times.iter_mut().zip(round).for_each(|(times, one)| times.push(one));
        }
    }
    let [plain, ordinary, private] = times.map(median);
    println!(
        "{name:5} {plain:9.2} {ordinary:9.2} {private:9.2} {:8.3} {:8.3}",
        private / plain,
        private / ordinary
    );
    Ok(())
}

/// Measures the recurrent layers and prints a table.
///
/// # Errors
///
/// Returns [`TrainError::Option`] for an impossible option or an absent backend, and the error of a
/// backward pass.
pub(super) fn run(options: &RecurrentOptions) -> Result<(), TrainError> {
    checks::at_least_one([("--batch", options.batch), ("--repetitions", options.repetitions)])?;
    let device = device(options.backend)?.autodiff();
    println!(
        "batch {}, {POSITIONS} positions of {D_INPUT}, {D_HIDDEN} hidden; medians, ms",
        options.batch
    );
    println!("layer      Burn  ordinary   private  /Burn  /ordinary");
    measure("RNN", RnnConfig::new(D_INPUT, D_HIDDEN, true).init(&device), options, &device)?;
    measure("GRU", GruConfig::new(D_INPUT, D_HIDDEN, true).init(&device), options, &device)?;
    measure("LSTM", LstmConfig::new(D_INPUT, D_HIDDEN, true).init(&device), options, &device)?;
    Ok(())
}
