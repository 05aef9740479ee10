use burn::module::Module;
use burn::nn::activation::{Activation, ActivationConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use burn_dp_examples::models::Classifier;

use super::layer::{Forward, Layer};

/// A multi-layer perceptron with sigmoids.
#[derive(Module, Debug)]
pub(super) struct Mlp<L: Module, A: Module> {
    layers: Vec<L>,
    sigmoid: A,
}

impl<L: Layer<Linear>, A: Layer<Activation>> Mlp<L, A> {
    /// Creates a network with these widths, from the pixels to the classes.
    pub(super) fn new(widths: &[usize], device: &Device) -> Self {
        let layer = |pair: &[usize]| L::of(LinearConfig::new(pair[0], pair[1]).init(device));
        Self {
            layers: widths.windows(2).map(layer).collect(),
            sigmoid: A::of(ActivationConfig::Sigmoid.init(device)),
        }
    }
}

impl<L: Layer<Linear> + Forward<2>, A: Layer<Activation> + Forward<2>> Classifier for Mlp<L, A> {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut values: Tensor<2> = images.flatten(1, 3);
        for (index, layer) in self.layers.iter().enumerate() {
            values = layer.apply(if index == 0 { values } else { self.sigmoid.apply(values) });
        }
        values
    }
}
