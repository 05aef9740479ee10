use burn::module::{Module, Param};
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn_dp::nn::{IntoPrivate, Private, StandardizedConv2d};

/// A convolution of a deep network.
#[derive(Module, Debug)]
pub enum Convolution {
    /// With its stored weight.
    Plain(Private<Conv2d>),
    /// With a standardized weight, a gain and a bias of each channel.
    Standardized(Private<StandardizedConv2d>),
}

impl Convolution {
    /// Wraps a convolution.
    pub fn plain(layer: Conv2d) -> Self {
        Self::Plain(layer.private())
    }

    /// Standardizes the weight of a convolution, which gets a gain of ones and a bias of zeros.
    pub fn standardized(layer: Conv2d) -> Self {
        Self::Standardized(standardize(layer).private())
    }

    /// Applies the convolution.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, channels_in, height_in, width_in]`
    /// - output: `[batch_size, channels_out, height_out, width_out]`
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Plain(layer) => layer.forward(input),
            Self::Standardized(layer) => layer.forward(input),
        }
    }
}

/// Standardizes the weight of a convolution, with a gain of ones and a bias of zeros.
pub(super) fn standardize(mut layer: Conv2d) -> StandardizedConv2d {
    let [channels, ..] = layer.weight.dims();
    let device = layer.weight.lazy_device();
    layer.bias = Some(Param::from_tensor(Tensor::zeros([channels], &device)));
    StandardizedConv2d::new(layer)
}
