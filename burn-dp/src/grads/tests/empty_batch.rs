//! A batch without examples: every layer returns an output without rows, and the pass no gradient.

use burn::module::{Module, Param};
use burn::nn::activation::{ActivationConfig, SwiGluConfig};
use burn::nn::attention::{CrossAttentionConfig, MultiHeadAttentionConfig};
use burn::nn::conv::{
    Conv1dConfig, Conv2dConfig, Conv3dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig,
    ConvTranspose3dConfig, DeformConv2dConfig,
};
use burn::nn::norm::NormalizationConfig;
use burn::nn::transformer::{
    PositionWiseFeedForwardConfig, TransformerDecoderConfig, TransformerEncoderConfig,
};
use burn::nn::{
    BatchNorm, BatchNormConfig, BiGruConfig, BiLstmConfig, BiRnnConfig, EmbeddingConfig,
    GroupNormConfig, GruConfig, InstanceNormConfig, LayerNormConfig, LinearConfig, LinearLayout,
    LstmConfig, PReluConfig, RmsNormConfig, RnnConfig,
};
use burn::tensor::{Bool, Device, Int, Tensor};

use crate::clipping::{Clipping, FlatClipping};
use crate::grads::PrivateBackward;
use crate::nn::{
    IntoPrivate, MhaInput, Private, PrivateCrossAttention, StandardizedConv2d,
    TransformerDecoderInput, TransformerEncoderInput,
};

fn device() -> Device {
    Device::flex().autodiff()
}

fn none<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    assert_eq!(shape[0], 0);
    Tensor::zeros(shape, &device())
}

/// Checks the shape of an output without examples, and that nothing is added to the sum.
#[track_caller]
fn check_empty<M: Module, const D: usize>(model: &M, output: Tensor<D>, shape: [usize; D]) {
    assert_eq!(output.dims(), shape);
    let losses = output.sum_dim(D - 1).reshape([0]);
    let grads = PrivateBackward::new().run(losses, model).unwrap();
    let sum = FlatClipping::new(1.0).unwrap().clip(grads).unwrap();
    assert_eq!(sum.statistics().unwrap().reveal().examples, 0);
}

#[test]
fn linear_layers_take_a_batch_without_examples() {
    for layout in [LinearLayout::Row, LinearLayout::Col] {
        let layer = LinearConfig::new(3, 2).with_layout(layout).init(&device()).private();
        check_empty(&layer, layer.forward(none([0, 3])), [0, 2]);
        check_empty(&layer, layer.forward(none([0, 4, 3])), [0, 4, 2]);
        check_empty(&layer, layer.forward(none([0, 5, 4, 3])), [0, 5, 4, 2]);
    }
    let layer = SwiGluConfig::new(3, 2).init(&device()).private();
    check_empty(&layer, layer.forward(none([0, 4, 3])), [0, 4, 2]);
    let layer = PositionWiseFeedForwardConfig::new(4, 6).init(&device()).private();
    check_empty(&layer, layer.forward(none([0, 3, 4])), [0, 3, 4]);
    let adapted = LinearConfig::new(3, 2).init(&device()).private();
    let adapted = adapted.apply_lora(burn::module::Lora::new(2, 4.0));
    check_empty(&adapted, adapted.forward(none([0, 4, 3])), [0, 4, 2]);
}

#[test]
fn convolutions_take_a_batch_without_examples() {
    let device = &device();
    let layer = Conv1dConfig::new(2, 3, 3).init(device).private();
    check_empty(&layer, layer.forward(none([0, 2, 7])), [0, 3, 5]);
    let layer = Conv2dConfig::new([2, 3], [3, 3]).init(device).private();
    check_empty(&layer, layer.forward(none([0, 2, 7, 6])), [0, 3, 5, 4]);
    let layer = Conv2dConfig::new([2, 4], [1, 1]).with_groups(2).init(device).private();
    check_empty(&layer, layer.forward(none([0, 2, 7, 6])), [0, 4, 7, 6]);
    let layer = Conv2dConfig::new([2, 3], [3, 3]).init(device);
    let layer = StandardizedConv2d::new(layer).private();
    check_empty(&layer, layer.forward(none([0, 2, 7, 6])), [0, 3, 5, 4]);
    let layer = Conv3dConfig::new([2, 3], [2, 2, 2]).init(device).private();
    check_empty(&layer, layer.forward(none([0, 2, 4, 4, 4])), [0, 3, 3, 3, 3]);
    let layer = ConvTranspose1dConfig::new([2, 3], 3).init(device).private();
    check_empty(&layer, layer.forward(none([0, 2, 5])), [0, 3, 7]);
    let layer = ConvTranspose2dConfig::new([2, 3], [3, 3]).init(device).private();
    check_empty(&layer, layer.forward(none([0, 2, 5, 4])), [0, 3, 7, 6]);
    let layer = ConvTranspose3dConfig::new([2, 3], [2, 2, 2]).init(device).private();
    check_empty(&layer, layer.forward(none([0, 2, 3, 3, 3])), [0, 3, 4, 4, 4]);
    let layer = DeformConv2dConfig::new([2, 3], [3, 3]).init(device).private();
    let output = layer.forward(none([0, 2, 6, 6]), none([0, 18, 4, 4]), Some(none([0, 9, 4, 4])));
    check_empty(&layer, output, [0, 3, 4, 4]);
}

#[test]
fn embeddings_and_parameters_take_a_batch_without_examples() {
    let layer = EmbeddingConfig::new(5, 3).init(&device()).private();
    let ids = Tensor::<2, Int>::zeros([0, 4], &device());
    check_empty(&layer, layer.forward(ids), [0, 4, 3]);
    check_empty(&layer, layer.attend(none([0, 4, 3])), [0, 4, 5]);
    let table = Param::from_tensor(Tensor::<2>::ones([4, 3], &device())).private();
    check_empty(&table, table.forward::<3>(0), [0, 4, 3]);
}

#[test]
fn norms_and_activations_take_a_batch_without_examples() {
    let device = &device();
    let layer = LayerNormConfig::new(3).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 3])), [0, 4, 3]);
    let layer = RmsNormConfig::new(3).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 3])), [0, 4, 3]);
    let layer = GroupNormConfig::new(2, 4).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 5, 5])), [0, 4, 5, 5]);
    let layer = InstanceNormConfig::new(4).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 5, 5])), [0, 4, 5, 5]);
    let layer = Private::<BatchNorm>::with_stored_statistics(BatchNormConfig::new(4).init(device));
    check_empty(&layer, layer.forward(none([0, 4, 5, 5])), [0, 4, 5, 5]);
    let layer = PReluConfig::new().with_num_parameters(4).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 5])), [0, 4, 5]);
    let layer = ActivationConfig::PRelu(PReluConfig::new()).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 5])), [0, 4, 5]);
    let layer = NormalizationConfig::Layer(LayerNormConfig::new(3)).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 3])), [0, 4, 3]);
}

#[test]
fn recurrent_layers_take_a_batch_without_examples() {
    let device = &device();
    let layer = RnnConfig::new(3, 2, true).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 3]), None).0, [0, 4, 2]);
    let layer = BiRnnConfig::new(3, 2, true).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 3]), None).0, [0, 4, 4]);
    for reset_after in [true, false] {
        let config = GruConfig::new(3, 2, true).with_reset_after(reset_after);
        let layer = config.init(device).private();
        check_empty(&layer, layer.forward(none([0, 4, 3]), None), [0, 4, 2]);
    }
    let layer = BiGruConfig::new(3, 2, true).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 3]), None).0, [0, 4, 4]);
    let layer = BiGruConfig::new(3, 2, true).init(device).private();
    let (output, state) = layer.forward(none([0, 4, 3]), Some(Tensor::zeros([2, 0, 2], device)));
    assert_eq!(state.dims(), [2, 0, 2]);
    check_empty(&layer, output, [0, 4, 4]);
    let layer = LstmConfig::new(3, 2, true).init(device).private();
    let (output, state) = layer.forward(none([0, 4, 3]), None);
    assert_eq!((state.cell.dims(), state.hidden.dims()), ([0, 2], [0, 2]));
    check_empty(&layer, output, [0, 4, 2]);
    let layer = BiLstmConfig::new(3, 2, true).init(device).private();
    check_empty(&layer, layer.forward(none([0, 4, 3]), None).0, [0, 4, 4]);
    let gate = LstmConfig::new(3, 2, true).init(device).input_gate.private();
    check_empty(&gate, gate.gate_product(none([0, 3]), none([0, 2])), [0, 2]);
    // Sequences without positions.
    let layer = LstmConfig::new(3, 2, true).init(device).private();
    assert_eq!(layer.forward(none([0, 0, 3]), None).0.dims(), [0, 0, 2]);
}

#[test]
fn attention_takes_a_batch_without_examples() {
    let device = &device();
    let padding = Tensor::<2, Bool>::from_data(none([0, 3]).greater_elem(0.0).into_data(), device);
    for quiet in [false, true] {
        let config = MultiHeadAttentionConfig::new(4, 2).with_quiet_softmax(quiet);
        let layer = config.init(device).private();
        let input = MhaInput::self_attn(none([0, 3, 4])).mask_pad(padding.clone());
        let output = layer.forward(input);
        assert_eq!(output.weights.dims(), [0, 2, 3, 3]);
        check_empty(&layer, output.context, [0, 3, 4]);
    }
    let layer = PrivateCrossAttention::new(&CrossAttentionConfig::new(4, 6, 2, 1, 2), device);
    let output = layer.forward(none([0, 3, 4]), none([0, 5, 6]), None);
    check_empty(&layer, output, [0, 3, 4]);
    let layer = TransformerEncoderConfig::new(4, 6, 2, 2).init(device).private();
    let input = TransformerEncoderInput::new(none([0, 3, 4])).mask_pad(padding.clone());
    check_empty(&layer, layer.forward(input), [0, 3, 4]);
    let layer = TransformerDecoderConfig::new(4, 6, 2, 2).init(device).private();
    let input = TransformerDecoderInput::new(none([0, 3, 4]), none([0, 3, 4]));
    check_empty(&layer, layer.forward(input.memory_mask_pad(padding)), [0, 3, 4]);
}
