use burn::module::Module;
use burn::nn::activation::{ActivationConfig, LeakyReluConfig, SwiGluConfig};
use burn::nn::{
    BiGru, BiGruConfig, BiLstm, BiLstmConfig, BiRnn, BiRnnConfig, Gru, GruConfig, Linear,
    LinearConfig, Lstm, LstmConfig, LstmState, RnnConfig, RnnState,
};
use burn::tensor::{Device, Tensor};
use proptest::prelude::*;

use crate::grads::independence::OutputGrads;
use crate::grads::oracle::{
    assert_equal, cases, check, check_layer, check_twins, losses, numbered, numbers,
};
use crate::nn::{IntoPrivate, Private, PrivateLayer};
use crate::ops::recording::Recording;
use crate::test_devices::training_devices;

const D_INPUT: usize = 5;
const D_HIDDEN: usize = 4;

/// Whether the initial state is given. If so, it is computed from the example's own input.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    Zeros,
    Given,
}

/// Returns a state, `[batch_size, D_HIDDEN]`, from the input, `[batch_size, positions, D_INPUT]`.
fn some_state(x: &Tensor<3>, index: usize) -> Tensor<2> {
    x.clone().narrow(1, index, 1).squeeze_dim::<2>(1).narrow(1, 0, D_HIDDEN)
}

fn both_states(x: &Tensor<3>, index: usize) -> Tensor<3> {
    Tensor::stack(vec![some_state(x, index), some_state(x, index + 1)], 0)
}

/// Moves the batch back to axis 0, for the losses.
fn first<const D: usize>(x: Tensor<D>, batch_axis: usize) -> Tensor<D> {
    x.swap_dims(0, batch_axis)
}

/// All outputs of a layer, with the batch on axis 0.
type Outputs = Vec<Tensor<3>>;

fn sum(outputs: Outputs) -> Tensor<1> {
    outputs.into_iter().map(losses).reduce(|sum, one| sum + one).unwrap()
}

/// Checks the private layer against the plain one on `input`, `[batch_size, positions, d_input]`.
fn check_recurrent<M: PrivateLayer>(
    layer: M,
    input: Tensor<3>,
    private: impl Fn(&Private<M>, Tensor<3>) -> Outputs,
    plain: impl Fn(&M, Tensor<3>) -> Outputs,
) {
    let layer = numbered(layer, 7);
    let twin = layer.clone().private();
    for (found, expected) in
        private(&twin, input.clone()).into_iter().zip(plain(&layer, input.clone()))
    {
        assert_equal(found, expected, 1e-5);
    }
    check(&twin, &layer, input, |model, x| sum(private(model, x)), |model, x| sum(plain(model, x)));
}

fn input(batch_size: usize, positions: usize, device: &Device) -> Tensor<3> {
    numbers([batch_size, positions, D_INPUT], 23, device)
}

/// Returns the input in the layout of the layer.
fn laid_out(x: Tensor<3>, batch_first: bool) -> Tensor<3> {
    if batch_first { x } else { x.swap_dims(0, 1) }
}

macro_rules! outputs_of_rnn {
    ($start:expr, $batch_first:expr) => {
        |model, x: Tensor<3>| {
            let state = ($start == Start::Given).then(|| RnnState::new(some_state(&x, 1)));
            let (output, state) = model.forward(laid_out(x, $batch_first), state);
            vec![laid_out(output, $batch_first), state.hidden.unsqueeze_dim(1)]
        }
    };
}

fn check_rnn(config: &RnnConfig, start: Start, x: Tensor<3>) {
    check_recurrent(
        config.init(&x.device()),
        x,
        outputs_of_rnn!(start, config.batch_first),
        outputs_of_rnn!(start, config.batch_first),
    );
}

#[test]
fn every_option_of_an_rnn_equals_the_loop_over_examples() {
    let config = || RnnConfig::new(D_INPUT, D_HIDDEN, true);
    for device in training_devices() {
        for config in [
            config(),
            RnnConfig::new(D_INPUT, D_HIDDEN, false),
            config().with_reverse(true),
            config().with_batch_first(false),
            config().with_batch_first(false).with_reverse(true).with_clip(Some(0.4)),
            config().with_clip(Some(0.4)),
            config().with_hidden_activation(ActivationConfig::Relu),
            config().with_hidden_activation(ActivationConfig::Identity).with_clip(Some(0.5)),
            config().with_hidden_activation(ActivationConfig::Sigmoid),
            // Step by step.
            config().with_hidden_activation(LeakyReluConfig::new().into()).with_clip(Some(0.4)),
            config()
                .with_hidden_activation(SwiGluConfig::new(D_HIDDEN, D_HIDDEN).into())
                .with_reverse(true),
        ] {
            check_rnn(&config, Start::Given, input(3, 4, &device));
            check_rnn(&config, Start::Zeros, input(1, 2, &device));
        }
    }
}

macro_rules! outputs_of_lstm {
    ($start:expr, $batch_first:expr) => {
        |model, x: Tensor<3>| {
            let state = ($start == Start::Given)
                .then(|| LstmState::new(some_state(&x, 0), some_state(&x, 1)));
            let (output, state) = model.forward(laid_out(x, $batch_first), state);
            let LstmState { cell, hidden } = state;
            vec![laid_out(output, $batch_first), cell.unsqueeze_dim(1), hidden.unsqueeze_dim(1)]
        }
    };
}

fn check_lstm(config: &LstmConfig, start: Start, x: Tensor<3>) {
    check_recurrent(
        config.init(&x.device()),
        x,
        outputs_of_lstm!(start, config.batch_first),
        outputs_of_lstm!(start, config.batch_first),
    );
}

#[test]
fn every_option_of_an_lstm_equals_the_loop_over_examples() {
    let config = || LstmConfig::new(D_INPUT, D_HIDDEN, true);
    for device in training_devices() {
        for config in [
            config(),
            LstmConfig::new(D_INPUT, D_HIDDEN, false),
            config().with_reverse(true),
            config().with_batch_first(false),
            config().with_batch_first(false).with_reverse(true).with_clip(Some(0.2)),
            config().with_clip(Some(0.2)),
            config().with_input_forget(true),
            config().with_input_forget(true).with_reverse(true).with_clip(Some(0.2)),
            config()
                .with_gate_activation(ActivationConfig::Relu)
                .with_cell_activation(ActivationConfig::Identity)
                .with_hidden_activation(ActivationConfig::Sigmoid),
            // Step by step.
            config().with_gate_activation(ActivationConfig::HardSigmoid(
                burn::nn::activation::HardSigmoidConfig::new(),
            )),
            config()
                .with_input_forget(true)
                .with_clip(Some(0.2))
                .with_reverse(true)
                .with_hidden_activation(LeakyReluConfig::new().into()),
        ] {
            check_lstm(&config, Start::Given, input(3, 4, &device));
            check_lstm(&config, Start::Zeros, input(1, 2, &device));
        }
    }
}

macro_rules! outputs_of_gru {
    ($start:expr) => {
        |model, x: Tensor<3>| {
            let state = ($start == Start::Given).then(|| some_state(&x, 1));
            vec![model.forward(x, state)]
        }
    };
}

fn check_gru(config: &GruConfig, start: Start, x: Tensor<3>) {
    check_recurrent(config.init(&x.device()), x, outputs_of_gru!(start), outputs_of_gru!(start));
}

#[test]
fn every_option_of_a_gru_equals_the_loop_over_examples() {
    let config = || GruConfig::new(D_INPUT, D_HIDDEN, true);
    for device in training_devices() {
        for reset_after in [true, false] {
            for config in [
                config(),
                GruConfig::new(D_INPUT, D_HIDDEN, false),
                config().with_clip(Some(0.3)),
                config().with_gate_activation(ActivationConfig::Relu),
                config().with_hidden_activation(ActivationConfig::Sigmoid),
                // Step by step.
                config().with_hidden_activation(LeakyReluConfig::new().into()).with_clip(Some(0.3)),
            ] {
                let config = config.with_reset_after(reset_after);
                check_gru(&config, Start::Given, input(3, 4, &device));
                check_gru(&config, Start::Zeros, input(1, 2, &device));
            }
        }
    }
}

macro_rules! outputs_of_bidirectional {
    ($start:expr, $batch_first:expr, $pack:expr, $unpack:expr) => {
        |model, x: Tensor<3>| {
            let state = ($start == Start::Given).then(|| $pack(&x));
            let (output, state) = model.forward(laid_out(x, $batch_first), state);
            let mut outputs = vec![laid_out(output, $batch_first)];
            outputs.extend($unpack(state));
            outputs
        }
    };
}

#[test]
fn every_option_of_a_bidirectional_layer_equals_the_loop_over_examples() {
    let rnn_in = |x: &Tensor<3>| RnnState::new(both_states(x, 0));
    let rnn_out = |state: RnnState<3>| vec![first(state.hidden, 1)];
    let lstm_in = |x: &Tensor<3>| LstmState::new(both_states(x, 0), both_states(x, 1));
    let lstm_out = |state: LstmState<3>| vec![first(state.cell, 1), first(state.hidden, 1)];
    let gru_in = |x: &Tensor<3>| both_states(x, 0);
    let gru_out = |state: Tensor<3>| vec![first(state, 1)];
    for device in training_devices() {
        for (start, batch_first, clip) in
            [(Start::Zeros, true, None), (Start::Given, false, Some(0.3))]
        {
            let x = input(3, 4, &device);
            let layer: BiRnn = BiRnnConfig::new(D_INPUT, D_HIDDEN, true)
                .with_batch_first(batch_first)
                .with_clip(clip)
                .init(&device);
            check_recurrent(
                layer,
                x.clone(),
                outputs_of_bidirectional!(start, batch_first, rnn_in, rnn_out),
                outputs_of_bidirectional!(start, batch_first, rnn_in, rnn_out),
            );
            let layer: BiLstm = BiLstmConfig::new(D_INPUT, D_HIDDEN, true)
                .with_batch_first(batch_first)
                .with_clip(clip)
                .with_input_forget(clip.is_some())
                .init(&device);
            check_recurrent(
                layer,
                x.clone(),
                outputs_of_bidirectional!(start, batch_first, lstm_in, lstm_out),
                outputs_of_bidirectional!(start, batch_first, lstm_in, lstm_out),
            );
            let layer: BiGru = BiGruConfig::new(D_INPUT, D_HIDDEN, true)
                .with_batch_first(batch_first)
                .with_clip(clip)
                .with_reset_after(clip.is_some())
                .init(&device);
            check_recurrent(
                layer,
                x,
                outputs_of_bidirectional!(start, batch_first, gru_in, gru_out),
                outputs_of_bidirectional!(start, batch_first, gru_in, gru_out),
            );
        }
    }
}

#[test]
fn frozen_parts_of_a_recurrent_layer_stay_out_of_the_norm() {
    fn freeze(layer: Linear) -> Linear {
        layer.set_require_grad(false)
    }
    for device in training_devices() {
        for part in 0..5 {
            let mut layer: Lstm = LstmConfig::new(D_INPUT, D_HIDDEN, true).init(&device);
            let gate = &mut layer.output_gate;
            match part {
                0 => layer = layer.set_require_grad(false),
                1 => gate.hidden_transform = freeze(gate.hidden_transform.clone()),
                2 => gate.input_transform = freeze(gate.input_transform.clone()),
                3 => {
                    let weight = gate.hidden_transform.weight.clone();
                    gate.hidden_transform.weight = weight.set_require_grad(false);
                }
                _ => {
                    let bias = gate.hidden_transform.bias.clone();
                    gate.hidden_transform.bias = bias.map(|bias| bias.set_require_grad(false));
                }
            }
            let layer = numbered(layer, 3);
            let head = numbered(LinearConfig::new(D_HIDDEN, 3).init(&device), 5);
            let plain = Tagger { lstm: layer.clone(), head: head.clone() };
            let private = Tagger { lstm: layer.private(), head: head.private() };
            check_twins!(&private, &plain, input(3, 3, &device), |model, x| {
                losses(model.head.forward(model.lstm.forward(x, None).0))
            });
        }
    }
}

#[derive(Module, Debug)]
struct Tagger<R, L> {
    lstm: R,
    head: L,
}

#[test]
fn two_uses_of_a_recurrent_layer_are_summed_before_the_norm() {
    for device in training_devices() {
        let layer: Gru = numbered(GruConfig::new(D_INPUT, D_INPUT, true).init(&device), 2);
        fn twice(first: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>) -> Tensor<1> {
            let hidden = first(x);
            losses(first(hidden.narrow(1, 1, 2)))
        }
        check_layer!(layer, input(3, 4, &device), |model, x| {
            twice(|x| model.forward(x, None), x)
        });
    }
}

#[derive(Module, Debug)]
struct Started<L, R> {
    start: L,
    rnn: R,
}

#[test]
fn a_learned_initial_state_gets_its_gradient() {
    for device in training_devices() {
        let start = numbered(LinearConfig::new(D_INPUT, D_HIDDEN).init(&device), 4);
        let rnn = numbered(RnnConfig::new(D_INPUT, D_HIDDEN, true).init(&device), 8);
        let plain = Started { start: start.clone(), rnn: rnn.clone() };
        let private = Started { start: start.private(), rnn: rnn.private() };
        let first = |x: &Tensor<3>| x.clone().narrow(1, 0, 1).squeeze_dim::<2>(1);
        check_twins!(&private, &plain, input(3, 3, &device), |model, x| {
            let state = RnnState::new(model.start.forward(first(&x)));
            losses(model.rnn.forward(x, Some(state)).0)
        });
    }
}

#[test]
fn a_sequence_leaves_one_record_for_each_linear_layer_of_a_gate() {
    for device in training_devices() {
        let layer = LstmConfig::new(D_INPUT, D_HIDDEN, true).init(&device).private();
        let losses = losses(layer.forward(input(3, 9, &device), None).0);
        let recording = Recording::start(OutputGrads::new(losses.clone().inner())).unwrap();
        let _ = losses.sum().backward();
        assert_eq!(recording.finish().unwrap().rows.len(), 2 * 4);
    }
}

#[test]
fn empty_sequences_and_batches_have_burns_shapes() {
    let device = Device::flex();
    let layer: Lstm = LstmConfig::new(D_INPUT, D_HIDDEN, true).init(&device);
    let twin = layer.clone().private();
    let (output, state) = twin.forward(Tensor::zeros([2, 0, D_INPUT], &device), None);
    assert_eq!((output.dims(), state.cell.dims()), ([2, 0, D_HIDDEN], [2, D_HIDDEN]));
    let (output, state) = twin.forward(Tensor::zeros([0, 3, D_INPUT], &device), None);
    assert_eq!((output.dims(), state.cell.dims()), ([0, 3, D_HIDDEN], [0, D_HIDDEN]));
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn random_recurrent_layers_equal_the_loop_over_examples(
        batch_size in 1usize..4,
        positions in 2usize..6,
        bias: bool,
        reverse: bool,
        coupled: bool,
        reset_after: bool,
        clip in prop::option::of(0.1f64..1.0),
    ) {
        for device in training_devices() {
            let x = input(batch_size, positions, &device);
            let config = LstmConfig::new(D_INPUT, D_HIDDEN, bias)
                .with_reverse(reverse)
                .with_input_forget(coupled)
                .with_clip(clip);
            check_lstm(&config, Start::Given, x.clone());
            let config = GruConfig::new(D_INPUT, D_HIDDEN, bias)
                .with_reset_after(reset_after)
                .with_clip(clip);
            check_gru(&config, Start::Given, x);
        }
    }
}
