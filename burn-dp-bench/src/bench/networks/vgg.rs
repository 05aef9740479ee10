use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_dp_examples::models::Classifier;

use super::layer::{Forward, Layer};

/// Number of convolutions and channels of the five stages.
const STAGES: [(usize, usize); 5] = [(1, 64), (1, 128), (2, 256), (2, 512), (2, 512)];

/// Width of the two hidden layers, which is usual for images of 32 pixels.
const HIDDEN: usize = 512;

/// Largest side that reaches the hidden layers.
const LARGEST: usize = 7;

/// VGG-11 without normalization, as in burn-dp-examples, with hidden layers for small images.
///
/// A stage ends with a pooling that halves the sides, unless they are 1. More than 7 × 7 pixels are
/// averaged to that size before the hidden layers.
#[derive(Module, Debug)]
pub(super) struct Vgg11<C: Module, L: Module, P: Module> {
    stages: Vec<Vec<C>>,
    pool: P,
    average: Option<AdaptiveAvgPool2d>,
    layers: Vec<L>,
}

impl<C: Layer<Conv2d>, L: Layer<Linear>, P: Layer<MaxPool2d>> Vgg11<C, L, P> {
    /// Creates the network for square images with this number of pixels per side.
    pub(super) fn new(mut side: usize, classes: usize, device: &Device) -> Self {
        let mut channels = 3;
        let mut conv = |output| {
            let config =
                Conv2dConfig::new([std::mem::replace(&mut channels, output), output], [3, 3]);
            C::of(config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device))
        };
        let stage = |(count, output)| (0..count).map(|_| conv(output)).collect();
        let stages = STAGES.into_iter().map(stage).collect();
        for _ in STAGES {
            side = (side / 2).max(1);
        }
        let average = (side > LARGEST).then(|| {
            side = LARGEST;
            AdaptiveAvgPool2dConfig::new([side, side]).init()
        });
        let widths = [512 * side * side, HIDDEN, HIDDEN, classes];
        let layer = |pair: &[usize]| L::of(LinearConfig::new(pair[0], pair[1]).init(device));
        let pool = P::of(MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init());
        Self { stages, pool, average, layers: widths.windows(2).map(layer).collect() }
    }
}

impl<C, L, P> Classifier for Vgg11<C, L, P>
where
    C: Layer<Conv2d> + Forward<4>,
    L: Layer<Linear> + Forward<2>,
    P: Layer<MaxPool2d> + Forward<4>,
{
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut features = images;
        for stage in &self.stages {
            for conv in stage {
                features = relu(conv.apply(features));
            }
            let [.., side] = features.dims();
            if side >= 2 {
                features = self.pool.apply(features);
            }
        }
        if let Some(average) = &self.average {
            features = average.forward(features);
        }
        let mut scores: Tensor<2> = features.flatten(1, 3);
        for (index, layer) in self.layers.iter().enumerate() {
            scores = layer.apply(if index == 0 { scores } else { relu(scores) });
        }
        scores
    }
}
