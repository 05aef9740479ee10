use burn::module::{Module, Param};
use burn::nn::conv::Conv2d;
use burn::nn::{Initializer, PaddingConfig2d};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Tensor, module};

use super::padding;
use crate::DpError;
use crate::error::positive;

/// Minimum sum of squares that a kernel is divided by, as in the reference implementation.
const EPSILON: f64 = 1e-4;

/// A convolution whose weight is standardized before its use: the kernel of each output channel has
/// mean zero and norm one. A trained gain and bias of each channel follow.
///
/// With `w` the kernel of a channel, the convolution uses `(w - mean(w)) / √max(‖w - mean(w)‖²,
/// epsilon)`, so that inputs of variance one result in outputs of variance one (scaled weight
/// standardization).
///
/// This is an ordinary layer. [`Private<StandardizedConv2d>`](super::Private) has the same
/// parameters, and per-example gradients with respect to the stored weight rather than the
/// standardized one, because a step changes the stored weight.
///
/// # Example
///
/// ```
/// use burn::nn::conv::Conv2dConfig;
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::nn::{IntoPrivate, StandardizedConv2d};
///
/// let device = Device::flex().autodiff();
/// let conv = Conv2dConfig::new([3, 8], [3, 3]).init(&device);
/// let layer = StandardizedConv2d::new(conv).private();
/// assert_eq!(layer.forward(Tensor::ones([2, 3, 9, 9], &device)).dims(), [2, 8, 7, 7]);
/// ```
///
/// # References
///
/// - Qiao, Wang, Liu, Shen, Yuille, Micro-batch training with batch-channel normalization and
///   weight standardization, 2019.
/// - Brock, De, Smith, Characterizing signal propagation to close the performance gap in
///   unnormalized ResNets, 2021, section 4 (scaled, with a gain).
/// - De, Berrada, Hayes, Smith, Balle, Unlocking high-accuracy differentially private image
///   classification through scale, 2022 (in private training).
#[derive(Module, Debug)]
pub struct StandardizedConv2d {
    /// The weight before it is standardized,
    /// `[channels_out, channels_in / groups, kernel_height, kernel_width]`.
    pub weight: Param<Tensor<4>>,
    /// Factor of each output channel, `[channels_out]`.
    pub gain: Option<Param<Tensor<1>>>,
    /// Bias of each output channel, `[channels_out]`.
    pub bias: Option<Param<Tensor<1>>>,
    /// Stride of the convolution.
    pub stride: [usize; 2],
    /// Distance between the values of the kernel.
    pub dilation: [usize; 2],
    /// Groups of channels that are not connected.
    pub groups: usize,
    /// The padding.
    #[module(skip)]
    pub padding: PaddingConfig2d,
    /// Minimum sum of squares that a kernel is divided by.
    pub epsilon: f64,
}

impl StandardizedConv2d {
    /// Standardizes the weight of a convolution. The gain of each channel is one.
    pub fn new(layer: Conv2d) -> Self {
        let [channels, ..] = layer.weight.dims();
        let gain = Initializer::Ones.init([channels], &layer.weight.lazy_device());
        Self {
            weight: layer.weight,
            gain: Some(gain),
            bias: layer.bias,
            stride: layer.stride,
            dilation: layer.dilation,
            groups: layer.groups,
            padding: layer.padding,
            epsilon: EPSILON,
        }
    }

    /// Removes the gain.
    pub fn without_gain(self) -> Self {
        Self { gain: None, ..self }
    }

    /// Sets the minimum sum of squares that a kernel is divided by; 1e-4 by default.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `epsilon` is not positive and finite.
    pub fn with_epsilon(self, epsilon: f64) -> Result<Self, DpError> {
        positive("epsilon", epsilon)?;
        Ok(Self { epsilon, ..self })
    }

    /// Applies the convolution with its standardized weight.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, channels_in, height_in, width_in]`
    /// - output: `[batch_size, channels_out, height_out, width_out]`
    ///
    /// # Panics
    ///
    /// Panics if `input` does not have the channels of the layer.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let options = self.options(&input);
        let weight = standardized(self.weight.val(), self.epsilon);
        let by_channel =
            |values: &Param<Tensor<1>>| values.val().reshape([1, self.weight.dims()[0], 1, 1]);
        let mut output = module::conv2d(input, weight, None, options);
        if let Some(gain) = &self.gain {
            output = output * by_channel(gain);
        }
        match &self.bias {
            Some(bias) => output + by_channel(bias),
            None => output,
        }
    }

    pub(super) fn options(&self, input: &Tensor<4>) -> ConvOptions<2> {
        let [_, channels_in, height, width] = input.dims();
        let [_, of_group, kernel_height, kernel_width] = self.weight.dims();
        padding::check_channels(channels_in, of_group * self.groups);
        let kernel = [kernel_height, kernel_width];
        let padding = padding::pairs_2d(&self.padding, [height, width], kernel, self.stride);
        ConvOptions::new_with_padding(self.stride, padding, self.dilation, self.groups)
    }
}

/// Returns the kernels with mean zero and norm one.
pub(super) fn standardized(weight: Tensor<4>, epsilon: f64) -> Tensor<4> {
    let shape = weight.dims();
    let kernels: Tensor<2> = weight.flatten(1, 3);
    let centered = kernels.clone() - kernels.mean_dim(1);
    let squares = centered.clone().square().sum_dim(1);
    (centered / squares.clamp_min(epsilon).sqrt()).reshape(shape)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::conv::Conv2dConfig;
    use burn::tensor::{Device, Tolerance};

    use super::*;

    #[test]
    fn kernels_have_mean_zero_and_norm_one() {
        let device = Device::flex();
        let conv = Conv2dConfig::new([4, 6], [3, 2]).with_groups(2).init(&device);
        let kernels: Tensor<2> = standardized(conv.weight.val() * 7.0 + 2.0, EPSILON).flatten(1, 3);
        let ones = Tensor::<2>::ones([6, 1], &device);
        let means = kernels.clone().mean_dim(1);
        let tolerance = Tolerance::<f32>::absolute(1e-5);
        means.into_data().assert_approx_eq(&ones.zeros_like().into_data(), tolerance);
        let norms = kernels.square().sum_dim(1);
        norms.into_data().assert_approx_eq(&ones.into_data(), tolerance);
    }

    #[test]
    fn a_constant_kernel_is_zero() {
        let zero = standardized(Tensor::ones([1, 2, 3, 3], &Device::flex()) * 0.5, EPSILON);
        assert_eq!(zero.abs().sum().into_scalar::<f32>(), 0.0);
    }

    #[test]
    fn epsilon_of_zero_is_refused() {
        let conv = Conv2dConfig::new([1, 1], [1, 1]).init(&Device::flex());
        let error = StandardizedConv2d::new(conv).with_epsilon(0.0).unwrap_err().to_string();
        assert!(error.contains("epsilon must be positive"), "{error}");
    }
}
