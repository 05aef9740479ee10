use burn::module::Module;
use burn::nn::activation::{Activation, ActivationConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_dp_examples::data::ImageShape;
use burn_dp_examples::models::Classifier;

use super::layer::{Forward, Layer};

/// Two convolutions of 5 × 5, each followed by a max pooling of stride 2 and `tanh`, and a hidden
/// layer of 128 units.
#[derive(Module, Debug)]
pub(super) struct Cnn<C: Module, L: Module, A: Module, P: Module> {
    conv1: C,
    conv2: C,
    fc1: L,
    fc2: L,
    pool: P,
    tanh: A,
}

impl<C, L, A, P> Cnn<C, L, A, P>
where
    C: Layer<Conv2d>,
    L: Layer<Linear>,
    A: Layer<Activation>,
    P: Layer<MaxPool2d>,
{
    /// Creates the network for square images.
    pub(super) fn new(images: ImageShape, classes: usize, device: &Device) -> Self {
        let side = ((images.width - 4) / 2 - 4) / 2;
        let conv = |channels| C::of(Conv2dConfig::new(channels, [5, 5]).init(device));
        let linear = |input, output| L::of(LinearConfig::new(input, output).init(device));
        Self {
            conv1: conv([images.channels, 20]),
            conv2: conv([20, 50]),
            fc1: linear(50 * side * side, 128),
            fc2: linear(128, classes),
            pool: P::of(MaxPool2dConfig::new([2, 2]).init()),
            tanh: A::of(ActivationConfig::Tanh.init(device)),
        }
    }
}

impl<C, L, A, P> Classifier for Cnn<C, L, A, P>
where
    C: Layer<Conv2d> + Forward<4>,
    L: Layer<Linear> + Forward<2>,
    A: Layer<Activation> + Forward<2> + Forward<4>,
    P: Layer<MaxPool2d> + Forward<4>,
{
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let features = self.tanh.apply(self.pool.apply(self.conv1.apply(images)));
        let features = self.tanh.apply(self.pool.apply(self.conv2.apply(features)));
        let features: Tensor<2> = features.flatten(1, 3);
        let hidden = self.tanh.apply(self.fc1.apply(features));
        self.fc2.apply(hidden)
    }
}
