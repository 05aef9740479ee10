//! Linear layers.
//!
//! For `output = input @ weight + bias` the gradient of the weight of example i is `Σ_t input[i,
//! t]ᵀ output_grad[i, t]`, a sum of outer products over positions. The transposed layer, `output =
//! input @ weightᵀ`, swaps the factors. The sum, its ghost norm and its weighted sum are computed
//! by [`OuterProducts`]. The gradient of the bias is the sum of the output gradient over the
//! positions: see [`shift`].
//!
//! # References
//!
//! - Goodfellow, Efficient per-example gradient computations, 2015 (the norm for one position).
//! - Lee and Kifer, Scaling up differentially private deep learning with fast per-example gradient
//!   clipping, 2021, section 5.
//! - Li, Tramèr, Liang, Hashimoto, Large language models can be strong differentially private
//!   learners, 2022 (the norm for several positions).
//! - Bu, Wang, Zha, Karypis, Differentially private optimization on large model at small cost, 2023
//!   (the weighted sum in the same pass).

use burn::tensor::Tensor;

use super::outer::OuterProducts;
use super::record::Record;
use super::shift;

/// Lifts the record of `input @ weight + bias`.
pub(super) fn lift(record: &mut Record) {
    let output_grad = record.output_grad::<3>();
    if output_grad.dims()[1] != 1 {
        shift::lift(record, &output_grad, 2);
        if let Some(input) = record.kept() {
            record.push_outer(OuterProducts::dense(input, output_grad));
        }
        return;
    }
    let rows: Tensor<2> = output_grad.clone().squeeze_dim(1);
    shift::lift_rows(record, &rows);
    if let Some(input) = record.kept() {
        record.push_outer(OuterProducts::with_rows(input, output_grad, rows));
    }
}

/// Lifts the record of `input @ weightᵀ + bias`.
pub(super) fn lift_transposed(record: &mut Record) {
    let output_grad = record.output_grad::<3>();
    shift::lift(record, &output_grad, 2);
    if let Some(input) = record.kept() {
        record.push_outer(OuterProducts::dense(output_grad, input));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::module::Module;
    use burn::nn::{Linear, LinearConfig, LinearLayout};
    use burn::tensor::{Device, Tensor};
    use proptest::prelude::*;

    use crate::grads::oracle::{TwoLayers, cases, check_layer, check_twins, losses, numbers, set};
    use crate::test_devices::training_devices;

    fn linear(d_input: usize, d_output: usize, bias: bool, seed: u64, device: &Device) -> Linear {
        let mut layer = LinearConfig::new(d_input, d_output).with_bias(bias).init(device);
        layer.weight = set(layer.weight, seed);
        layer.bias = layer.bias.map(|bias| set(bias, seed + 1));
        layer
    }

    fn mlp(sizes: [usize; 3], bias: bool, seed: u64, device: &Device) -> TwoLayers<Linear> {
        TwoLayers {
            first: linear(sizes[0], sizes[1], bias, seed, device),
            second: linear(sizes[1], sizes[2], bias, seed + 2, device),
        }
    }

    fn check_mlp<const D: usize>(plain: &TwoLayers<Linear>, x: Tensor<D>) {
        check_twins!(&plain.private(), plain, x, |model, x| losses(
            model.second.forward(model.first.forward(x).tanh())
        ));
    }

    #[test]
    fn a_linear_network_equals_the_loop_over_examples() {
        for device in training_devices() {
            for batch_size in [1, 2, 9] {
                for bias in [true, false] {
                    let plain = mlp([7, 5, 3], bias, 3, &device);
                    let x = numbers([batch_size, 7], 5, &device);
                    check_mlp::<2>(&plain, x);
                }
            }
        }
    }

    #[test]
    fn positions_are_summed_before_the_norm() {
        for device in training_devices() {
            for positions in [1, 2, 17] {
                let plain = mlp([4, 6, 3], true, 4, &device);
                let x = numbers([5, positions, 4], 6, &device);
                check_mlp::<3>(&plain, x);
            }
            let plain = mlp([4, 6, 3], true, 4, &device);
            let x = numbers([3, 2, 3, 4], 6, &device);
            check_mlp::<4>(&plain, x);
        }
    }

    #[test]
    fn two_uses_of_a_linear_layer_are_summed_before_the_norm() {
        for device in training_devices() {
            let layer = linear(4, 4, true, 8, &device);
            // The inputs of the two uses have different numbers of positions.
            fn twice(first: impl Fn(Tensor<3>) -> Tensor<3>, x: Tensor<3>) -> Tensor<1> {
                let y = first(x.clone()).tanh();
                let z = first(y.narrow(1, 0, 2) + x.narrow(1, 1, 2));
                losses(z)
            }
            let x = numbers([4, 3, 4], 2, &device);
            check_layer!(layer, x, |model, x| twice(|x| model.forward(x), x));
        }
    }

    #[test]
    fn frozen_parameters_stay_out_of_the_norm() {
        for device in training_devices() {
            for frozen in 0..4 {
                let mut plain = mlp([5, 4, 3], true, 12, &device);
                let layer = plain.first;
                plain.first = match frozen {
                    0 => layer.set_require_grad(false),
                    1 => Linear { weight: layer.weight.set_require_grad(false), ..layer },
                    2 => Linear {
                        bias: layer.bias.map(|bias| bias.set_require_grad(false)),
                        ..layer
                    },
                    _ => layer,
                };
                let x = numbers([4, 5], 1, &device);
                check_mlp::<2>(&plain, x);
            }
        }
    }

    #[test]
    fn column_layout_equals_the_loop_over_examples() {
        for device in training_devices() {
            let layer = LinearConfig::new(6, 3).with_layout(LinearLayout::Col).init(&device);
            let x: Tensor<2> = numbers([4, 6], 1, &device);
            check_layer!(layer, x, |model, x| losses(model.forward(x)));
        }
    }

    #[test]
    fn backward_passes_on_several_threads_are_independent() {
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                std::thread::spawn(move || {
                    for device in training_devices() {
                        let plain = mlp([7, 5, 3], true, seed, &device);
                        let x = numbers([6, 7], seed, &device);
                        check_mlp::<2>(&plain, x);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    proptest! {
        #![proptest_config(cases(12))]

        #[test]
        fn random_networks_equal_the_loop_over_examples(
            batch_size in 1usize..8,
            positions in 1usize..6,
            sizes in [1usize..20, 1usize..20, 1usize..20],
            bias: bool,
            seed in 0u64..1000,
        ) {
            for device in training_devices() {
                let plain = mlp(sizes, bias, seed, &device);
                let x = numbers([batch_size, positions, sizes[0]], seed + 7, &device);
                check_mlp::<3>(&plain, x);
            }
        }
    }
}
