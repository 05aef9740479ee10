//! Models in half precision: norms and sums are in single precision all the same.

use burn::module::{Module, Param};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::{DType, Device, Tensor};

use super::{Flat, backwards, clipped_by_loop, flat_sum, norm, numbers};
use crate::clipping::{Clipping, FlatClipping};
use crate::nn::{IntoPrivate, Private};

#[derive(Module, Debug)]
struct Half<E, N, L> {
    embedding: E,
    norm: N,
    fc: L,
}

type PrivateHalf = Half<Private<Embedding>, Private<LayerNorm>, Private<Linear>>;
type PlainHalf = Half<Embedding, LayerNorm, Linear>;

fn halve<const D: usize>(parameter: Param<Tensor<D>>, dtype: DType) -> Param<Tensor<D>> {
    parameter.map(|tensor| {
        numbers(tensor.dims(), 1, &tensor.device()).cast(dtype).detach().require_grad()
    })
}

fn models(dtype: DType, device: &Device) -> (PrivateHalf, PlainHalf) {
    let mut plain = Half {
        embedding: EmbeddingConfig::new(6, 8).init(device),
        norm: LayerNormConfig::new(8).init(device),
        fc: LinearConfig::new(8, 3).init(device),
    };
    plain.embedding.weight = halve(plain.embedding.weight, dtype);
    plain.norm.gamma = halve(plain.norm.gamma, dtype);
    plain.norm.beta = plain.norm.beta.map(|beta| halve(beta, dtype));
    plain.fc.weight = halve(plain.fc.weight, dtype);
    plain.fc.bias = plain.fc.bias.map(|bias| halve(bias, dtype));
    let private = Half {
        embedding: plain.embedding.clone().private(),
        norm: plain.norm.clone().private(),
        fc: plain.fc.clone().private(),
    };
    (private, plain)
}

fn losses(output: Tensor<3>) -> Tensor<1> {
    let [batch_size, positions, features] = output.dims();
    output
        .cast(DType::F32)
        .reshape([batch_size, positions * features])
        .square()
        .mean_dim(1)
        .reshape([batch_size])
}

fn largest_difference(found: &Flat, expected: &Flat) -> f64 {
    let differences = expected.iter().flat_map(|(id, expected)| {
        found[id].iter().zip(expected).map(|(found, expected)| (found - expected).abs())
    });
    differences.fold(0.0, f64::max)
}

#[test]
fn models_in_half_precision_equal_the_loop_over_examples() {
    let device = Device::flex();
    for device in [device.clone().autodiff(), device.autodiff().gradient_checkpointing()] {
        for (dtype, tolerance) in [(DType::F16, 1e-2), (DType::BF16, 5e-2)] {
            let (private, plain) = models(dtype, &device);
            let x = ((numbers([4, 5], 11, &device) + 1.0) * 3.0).floor().int();
            for clipping_norm in [1e-2, 1e3] {
                let expected = clipped_by_loop(&plain, 4, clipping_norm, |model, example| {
                    let x = x.clone().narrow(0, example, 1);
                    losses(model.fc.forward(model.norm.forward(model.embedding.forward(x))))
                });
                for backward in backwards() {
                    let hidden = private.norm.forward(private.embedding.forward(x.clone()));
                    let losses = losses(private.fc.forward(hidden));
                    let grads = backward.run(losses, &private).unwrap();
                    let sum = FlatClipping::new(clipping_norm).unwrap().clip(grads).unwrap();
                    let found = flat_sum(sum);
                    let difference = largest_difference(&found, &expected);
                    assert!(
                        difference <= tolerance * norm(&expected),
                        "{dtype:?}: {difference}, norm {}",
                        norm(&expected)
                    );
                    assert!(norm(&found) <= 4.0 * clipping_norm * (1.0 + 1e-6));
                }
            }
        }
    }
}
