//! Parts of a model that are not trained.

use burn::module::{Module, ParamGroup};
use burn::nn::LinearConfig;
use burn::nn::conv::Conv2dConfig;
use burn::tensor::Tensor;

use crate::grads::oracle::{check_twins, numbers};
use crate::nn::IntoPrivate;
use crate::test_devices::training_devices;

#[derive(Module, Debug)]
struct Net<C, L> {
    conv: C,
    hidden: L,
    head: L,
}

fn loss(output: Tensor<2>) -> Tensor<1> {
    output.powi_scalar(2).sum_dim(1).reshape([-1])
}

#[test]
fn every_subset_of_trained_parameters_is_clipped_as_by_the_loop() {
    let paths =
        ["conv.weight", "conv.bias", "hidden.weight", "hidden.bias", "head.weight", "head.bias"];
    for device in training_devices() {
        let plain = Net {
            conv: Conv2dConfig::new([1, 2], [3, 3]).init(&device),
            hidden: LinearConfig::new(2 * 16, 3).init(&device),
            head: LinearConfig::new(3, 2).init(&device),
        };
        // All biases (BiTFiT), the head alone, and combinations in which gradients pass through
        // frozen layers.
        for subset in [0b101010u32, 0b110000, 0b000001, 0b010010, 0b001101] {
            let trained = (0..6).filter(|bit| subset >> bit & 1 == 1).map(|bit| paths[bit]);
            let group = ParamGroup::from_paths(trained.collect());
            let plain = plain.clone().no_grad().unfreeze_group(group);
            let private = Net {
                conv: plain.conv.clone().private(),
                hidden: plain.hidden.clone().private(),
                head: plain.head.clone().private(),
            };
            let x = numbers([4, 1, 6, 6], 3, &device);
            check_twins!(&private, &plain, x, |model, x| {
                let hidden = model.conv.forward(x).tanh().flatten::<2>(1, 3);
                loss(model.head.forward(model.hidden.forward(hidden).tanh()))
            });
        }
    }
}
