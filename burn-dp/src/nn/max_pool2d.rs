use burn::nn::pool::MaxPool2d;
use burn::tensor::Tensor;

use super::backend::has_native_kernels;
use super::padding::pairs_2d;
use super::private::Private;
use crate::ops::{self, Windows};

impl Private<MaxPool2d> {
    /// Applies the layer, with a native kernel on Flex.
    ///
    /// The layer has no parameters, so Burn's layer can also be used in a private model; this one
    /// is faster on Flex. Asymmetric padding and `ceil_mode` use Burn's operation.
    ///
    /// # Shapes
    ///
    /// - input: `[batch_size, channels, height_in, width_in]`
    /// - output: `[batch_size, channels, height_out, width_out]`
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        match native(&self.inner, &input) {
            Some(windows) => ops::window_maxima(input, windows),
            None => self.inner.forward(input),
        }
    }
}

/// Returns the windows of a layer that native kernels handle.
fn native(layer: &MaxPool2d, input: &Tensor<4>) -> Option<Windows> {
    let [_, _, height, width] = input.dims();
    let (kernel, stride) = (layer.kernel_size, layer.stride);
    let [rows, columns] = pairs_2d(&layer.padding, [height, width], kernel, stride);
    let is_native = !layer.ceil_mode
        && rows.0 == rows.1
        && columns.0 == columns.1
        && has_native_kernels(&input.device());
    is_native.then_some(Windows {
        kernel,
        stride,
        padding: [rows.0, columns.0],
        dilation: layer.dilation,
    })
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::nn::PaddingConfig2d;
    use burn::nn::pool::MaxPool2dConfig;
    use burn::tensor::{Device, Distribution};

    use super::*;
    use crate::nn::IntoPrivate;

    #[test]
    fn outputs_and_gradients_equal_those_of_burn() {
        let device = Device::flex().autodiff();
        let config = || MaxPool2dConfig::new([2, 3]);
        let cases = [
            (config(), true),
            (config().with_strides([1, 2]), true),
            (config().with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)), true),
            (config().with_dilation([2, 2]), true),
            (config().with_padding(PaddingConfig2d::Explicit(0, 1, 1, 1)), false),
            (config().with_ceil_mode(true), false),
        ];
        for (config, is_native) in cases {
            let layer = config.init();
            let input = Tensor::<4>::random([3, 2, 7, 9], Distribution::Default, &device);
            assert_eq!(native(&layer, &input).is_some(), is_native, "{config:?}");
            let private = layer.clone().private();
            let results = [true, false].map(|is_private| {
                let input = input.clone().require_grad();
                let output = match is_private {
                    true => private.forward(input.clone()),
                    false => layer.forward(input.clone()),
                };
                let grads = output.clone().powi_scalar(2).sum().backward();
                [output.inner(), input.grad(&grads).expect("the input is tracked")]
            });
            let [private, burn] = results.map(|tensors| tensors.map(Tensor::into_data));
            for (private, burn) in private.iter().zip(&burn) {
                private.assert_approx_eq::<f32>(burn, Default::default());
            }
        }
    }
}
