use burn::module::Module;
use burn::nn::activation::{ActivationConfig, SwiGlu, SwiGluConfig};
use burn::nn::attention::{self, CrossAttention, CrossAttentionConfig, MultiHeadAttentionConfig};
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{Linear, LinearLayout};
use burn::tensor::{Bool, Device, Tensor};

use crate::grads::oracle::{
    assert_equal, check, check_layer, check_twins, losses, numbered, numbers,
};
use crate::nn::{
    CrossAttentionCache, IntoPrivate, MhaCache, MhaInput, Private, PrivateCrossAttention,
};
use crate::test_devices::{devices, training_devices};

type Attention = attention::MultiHeadAttention;

/// Masks some positions of every example, but never the first: `[batch_size, positions]`.
fn padding(x: &Tensor<3>) -> Tensor<2, Bool> {
    let [batch_size, positions, _] = x.dims();
    let noise = x.clone().narrow(2, 0, 1).reshape([batch_size, positions]).inner();
    let rest = noise.clone().narrow(1, 1, positions - 1).greater_elem(0.2);
    let first = noise.narrow(1, 0, 1).greater_elem(1e9);
    same_device(Tensor::cat(vec![first, rest], 1), x)
}

/// Masks later positions: `[batch_size, positions_1, positions_2]`.
fn causal(batch_size: usize, positions: [usize; 2], device: &Device) -> Tensor<3, Bool> {
    let [rows, columns] = positions;
    let hidden: Vec<bool> =
        (0..batch_size * rows * columns).map(|i| i % columns > i / columns % rows).collect();
    Tensor::<1, Bool>::from_data(hidden.as_slice(), device).reshape([batch_size, rows, columns])
}

fn same_device<const D: usize>(mask: Tensor<D, Bool>, like: &Tensor<3>) -> Tensor<D, Bool> {
    Tensor::from_data(mask.into_data(), &like.device())
}

#[derive(Clone, Copy)]
enum Masks {
    None,
    Padding,
    Both,
}

macro_rules! self_attention {
    ($input:ident, $masks:expr) => {
        move |model, x: Tensor<3>| {
            let input = $input::self_attn(x.clone());
            let [batch_size, positions, _] = x.dims();
            let input = match $masks {
                Masks::None => input,
                Masks::Padding => input.mask_pad(padding(&x)),
                Masks::Both => input.mask_pad(padding(&x)).mask_attn(causal(
                    batch_size,
                    [positions; 2],
                    &x.device(),
                )),
            };
            let output = model.forward(input);
            losses(output.context) + losses(output.weights)
        }
    };
}

use attention::MhaInput as BurnInput;

fn check_attention(config: &MultiHeadAttentionConfig, masks: Masks, x: Tensor<3>) {
    let layer: Attention = numbered(config.init(&x.device()), 4);
    let twin = layer.clone().private();
    let private = twin.forward(MhaInput::self_attn(x.clone()));
    let plain = layer.forward(BurnInput::self_attn(x.clone()));
    assert_equal(private.context, plain.context, 1e-5);
    assert_equal(private.weights, plain.weights, 1e-5);
    fn private_losses(masks: Masks) -> impl Fn(&Private<Attention>, Tensor<3>) -> Tensor<1> {
        self_attention!(MhaInput, masks)
    }
    fn plain_losses(masks: Masks) -> impl Fn(&Attention, Tensor<3>) -> Tensor<1> {
        self_attention!(BurnInput, masks)
    }
    check(&twin, &layer, x, private_losses(masks), plain_losses(masks));
}

#[test]
fn every_option_of_self_attention_equals_the_loop_over_examples() {
    let config = || MultiHeadAttentionConfig::new(6, 2).with_dropout(0.0);
    for device in training_devices() {
        for (config, masks) in [
            (config(), Masks::None),
            (config(), Masks::Padding),
            (config().with_quiet_softmax(true), Masks::Both),
            (config().with_key_bias(false).with_output_bias(false), Masks::Both),
            (config().with_query_bias(false).with_value_bias(false), Masks::None),
            (config().with_min_float(-5.0), Masks::Padding),
        ] {
            check_attention(&config, masks, numbers([3, 4, 6], 9, &device));
            check_attention(&config, masks, numbers([1, 2, 6], 9, &device));
        }
    }
}

#[test]
fn attention_over_other_positions_equals_the_loop_over_examples() {
    for device in training_devices() {
        let config = MultiHeadAttentionConfig::new(6, 3).with_dropout(0.0);
        let layer: Attention = numbered(config.init(&device), 4);
        // The query has two positions, key and value have three each.
        let part = |x: &Tensor<3>, start| x.clone().narrow(1, start, 3);
        check(
            &layer.clone().private(),
            &layer,
            numbers([3, 8, 6], 2, &device),
            |model: &Private<Attention>, x| {
                let query = x.clone().narrow(1, 0, 2);
                losses(model.forward(MhaInput::new(query, part(&x, 2), part(&x, 5))).context)
            },
            |model: &Attention, x| {
                let query = x.clone().narrow(1, 0, 2);
                losses(model.forward(BurnInput::new(query, part(&x, 2), part(&x, 5))).context)
            },
        );
    }
}

#[test]
fn attention_with_a_cache_equals_burns() {
    for device in devices() {
        let config = MultiHeadAttentionConfig::new(6, 2);
        let layer: Attention = numbered(config.init(&device), 4);
        let twin = layer.clone().private();
        let x = numbers([2, 5, 6], 3, &device);
        let memory = numbers([2, 3, 6], 4, &device);
        for cross in [false, true] {
            let (mut cache, mut burns) = match cross {
                true => (
                    MhaCache::autoregressive_cross_attention(),
                    attention::MhaCache::autoregressive_cross_attention(),
                ),
                false => (MhaCache::autoregressive(), attention::MhaCache::autoregressive()),
            };
            for known in 1..=5 {
                let seen = x.clone().narrow(1, 0, known);
                let (input, expected) = match cross {
                    true => (
                        MhaInput::new(seen.clone(), memory.clone(), memory.clone()),
                        BurnInput::new(seen, memory.clone(), memory.clone()),
                    ),
                    false => (MhaInput::self_attn(seen.clone()), BurnInput::self_attn(seen)),
                };
                let found = twin.forward_cache(input, &mut cache);
                let expected = layer.forward_cache(expected, &mut burns);
                assert_equal(found.context, expected.context, 1e-5);
                assert_equal(found.weights, expected.weights, 1e-5);
            }
        }
    }
}

#[test]
fn every_option_of_cross_attention_equals_the_loop_over_examples() {
    let config = |heads_kv| CrossAttentionConfig::new(6, 5, 4, heads_kv, 3).with_dropout(0.0);
    for device in training_devices() {
        for (config, masked) in [
            (config(4), false),
            (config(2), true),
            (config(1).with_quiet_softmax(true), true),
            (config(4).with_min_float(-3.0), true),
        ] {
            let layer: CrossAttention = numbered(config.init(&device), 6);
            let twin = PrivateCrossAttention::from_layer(&config, layer.clone(), &device);
            // Query and context side by side.
            let parts = |x: Tensor<3>| {
                let query = x.clone().narrow(1, 0, 2);
                let context = x.narrow(1, 2, 3).narrow(2, 0, 5);
                let mask = masked.then(|| padding(&context));
                (query, context, mask)
            };
            let x = numbers([3, 5, 6], 8, &device);
            let (query, context, mask) = parts(x.clone());
            assert_equal(
                twin.forward(query.clone(), context.clone(), mask.clone()),
                layer.forward(query.clone(), context.clone(), mask.clone()),
                1e-5,
            );
            let mut cache = CrossAttentionCache::new();
            let mut burns = attention::CrossAttentionCache::new();
            for known in 1..=2 {
                let seen = query.clone().narrow(1, 0, known);
                assert_equal(
                    twin.forward_cache(seen.clone(), context.clone(), mask.clone(), &mut cache),
                    layer.forward_cache(seen, context.clone(), mask.clone(), &mut burns),
                    1e-5,
                );
            }
            check_twins!(&twin, &layer, x, |model, x| {
                let (query, context, mask) = parts(x);
                losses(model.forward(query, context, mask))
            });
        }
    }
}

/// Compares attention to one position with attention to that position and two of padding, for
/// queries of both signs, so that each head has a very low score.
fn check_padding(
    device: &Device,
    attend: impl Fn(Tensor<3>, Tensor<3>, Tensor<2, Bool>) -> Tensor<3>,
) {
    let key = numbers::<3>([2, 3, 6], 4, device);
    let mask = Tensor::<1, Bool>::from_data([false, true, true].as_slice(), device);
    let mask = mask.reshape([1, 3]).repeat_dim(0, 2);
    for scale in [1e6, -1e6] {
        let query = numbers::<3>([2, 2, 6], 3, device) * scale;
        let of = |positions| {
            let key = key.clone().narrow(1, 0, positions).detach().require_grad();
            let mask = mask.clone().narrow(1, 0, positions);
            let output = attend(query.clone(), key.clone(), mask);
            let gradient = key.grad(&losses(output.clone()).sum().backward()).unwrap();
            (output.inner(), gradient.narrow(1, 0, 1))
        };
        let (alone, padded) = (of(1), of(3));
        assert_equal(padded.0, alone.0, 1e-5);
        assert_equal(padded.1, alone.1, 1e-5);
    }
}

#[test]
fn padding_has_no_weight_next_to_very_low_scores() {
    for device in training_devices() {
        let config = MultiHeadAttentionConfig::new(6, 2).with_dropout(0.0);
        let layer: Attention = numbered(config.init(&device), 4);
        let layer = layer.private();
        for is_causal in [false, true] {
            check_padding(&device, |query, key, mask| {
                let [batch_size, positions, _] = key.dims();
                let input = MhaInput::new(query, key.clone(), key).mask_pad(mask);
                let attn = causal(batch_size, [2, positions], &device);
                let input = if is_causal { input.mask_attn(attn) } else { input };
                layer.forward(input).context
            });
        }
        let config = CrossAttentionConfig::new(6, 6, 4, 2, 3).with_dropout(0.0);
        let layer = numbered(PrivateCrossAttention::new(&config, &device), 6);
        check_padding(&device, |query, key, mask| layer.forward(query, key, Some(mask)));
    }
}

#[test]
fn an_example_whose_positions_are_all_masked_equals_burns() {
    for device in devices() {
        let config = MultiHeadAttentionConfig::new(6, 2).with_dropout(0.0);
        let layer: Attention = numbered(config.init(&device), 4);
        let x = numbers::<3>([2, 3, 6], 3, &device);
        let masked = [false, false, true, true, true, true];
        let pad = Tensor::<1, Bool>::from_data(masked.as_slice(), &device).reshape([2, 3]);
        let attn = causal(2, [3, 3], &device);
        let input = MhaInput::self_attn(x.clone()).mask_pad(pad.clone()).mask_attn(attn.clone());
        let found = layer.clone().private().forward(input);
        let input = BurnInput::self_attn(x.clone()).mask_pad(pad.clone()).mask_attn(attn);
        let expected = layer.forward(input);
        assert_equal(found.context, expected.context, 1e-5);
        assert_equal(found.weights, expected.weights, 1e-5);

        let config = CrossAttentionConfig::new(6, 6, 4, 2, 3).with_dropout(0.0);
        let layer: CrossAttention = numbered(config.init(&device), 6);
        let twin = PrivateCrossAttention::from_layer(&config, layer.clone(), &device);
        let found = twin.forward(x.clone(), x.clone(), Some(pad.clone()));
        assert_equal(found, layer.forward(x.clone(), x, Some(pad)), 1e-5);
    }
}

#[test]
fn the_record_of_cross_attention_equals_burns() {
    let device = Device::flex();
    let config = CrossAttentionConfig::new(6, 5, 4, 2, 3);
    let twin = numbered(PrivateCrossAttention::new(&config, &device), 3);
    let layer = config.init(&device).load_record(twin.clone().into_record());
    let (query, context) = (numbers([2, 3, 6], 1, &device), numbers([2, 4, 5], 2, &device));
    assert_equal(
        twin.forward(query.clone(), context.clone(), None),
        layer.forward(query, context, None),
        1e-6,
    );
}

#[test]
fn dropout_of_attention_drops_the_configured_share() {
    let device = Device::flex().autodiff();
    let config = MultiHeadAttentionConfig::new(6, 2).with_dropout(0.5);
    let layer: Attention = numbered(config.init(&device), 4);
    let twin = layer.clone().private();
    let x = numbers([64, 8, 6], 3, &device);
    let zeros = |weights: Tensor<4>| {
        let total = weights.dims().iter().product::<usize>() as f32;
        let zeros: f32 = weights.equal_elem(0.0).int().sum().into_scalar::<i64>() as f32;
        zeros / total
    };
    // 8192 draws of probability one half: 0.03 is more than five standard deviations.
    let share = zeros(twin.forward(MhaInput::self_attn(x.clone())).weights);
    assert!((share - 0.5).abs() < 0.03, "{share}");
    let frozen = layer.freeze().private();
    assert_eq!(zeros(frozen.forward(MhaInput::self_attn(x)).weights), 0.0);
}

#[test]
fn a_feed_forward_layer_equals_the_loop_over_examples() {
    for device in training_devices() {
        for activation in [ActivationConfig::Gelu, ActivationConfig::Relu] {
            let config = PositionWiseFeedForwardConfig::new(5, 7)
                .with_dropout(0.0)
                .with_activation(activation);
            let layer: PositionWiseFeedForward = numbered(config.init(&device), 4);
            let x: Tensor<3> = numbers([3, 4, 5], 2, &device);
            check_layer!(layer, x, |model, x| losses(model.forward(x)));
        }
    }
}

#[test]
fn a_gated_linear_unit_equals_the_loop_over_examples() {
    for device in training_devices() {
        for (bias, layout) in [(true, LinearLayout::Row), (false, LinearLayout::Col)] {
            let config = SwiGluConfig::new(5, 4).with_bias(bias).with_layout(layout);
            let layer: SwiGlu = config.init(&device);
            let x: Tensor<3> = numbers([3, 2, 5], 2, &device);
            check_layer!(layer, x, |model, x| losses(model.forward(x)));
        }
    }
}

#[test]
fn frozen_projections_of_attention_stay_out_of_the_norm() {
    fn freeze(layer: &mut Linear) {
        *layer = layer.clone().set_require_grad(false);
    }
    for device in training_devices() {
        let config = MultiHeadAttentionConfig::new(4, 2).with_dropout(0.0);
        for part in 0..4 {
            let mut layer: Attention = numbered(config.init(&device), 4);
            match part {
                0 => freeze(&mut layer.query),
                1 => freeze(&mut layer.key),
                2 => freeze(&mut layer.value),
                _ => freeze(&mut layer.output),
            }
            check(
                &layer.clone().private(),
                &layer,
                numbers([3, 3, 4], 2, &device),
                |model: &Private<Attention>, x| {
                    losses(model.forward(MhaInput::self_attn(x)).context)
                },
                |model: &Attention, x| losses(model.forward(BurnInput::self_attn(x)).context),
            );
        }
    }
}
