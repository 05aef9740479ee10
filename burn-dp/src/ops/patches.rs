use burn::tensor::ops::{ConvOptions, PadMode};
use burn::tensor::{Slice, Tensor};

/// What im2col needs to know of a two-dimensional convolution.
#[derive(Clone, Debug)]
pub struct Patches {
    pub(crate) kernel_size: [usize; 2],
    /// Height and width of the output of the convolution.
    pub(crate) output_size: [usize; 2],
    pub(crate) options: ConvOptions<2>,
}

impl Patches {
    /// im2col by zero-copy views and one copy, on every backend.
    pub(super) fn by_views(&self, input: Tensor<4>) -> Tensor<3> {
        let Self { kernel_size, output_size, options } = self;
        let ConvOptions { stride, padding, dilation, groups } = options;
        let [batch_size, channels, ..] = input.dims();
        let [(top, bottom), (left, right)] = *padding;

        let mut input = input;
        if [top, bottom, left, right] != [0; 4] {
            input = input.pad([(top, bottom), (left, right)], PadMode::Constant(0.0));
        }
        let rows: Tensor<5> = input.unfold(2, dilation[0] * (kernel_size[0] - 1) + 1, stride[0]);
        let rows = every_nth(rows, dilation[0]);
        let windows: Tensor<6> = rows.unfold(3, dilation[1] * (kernel_size[1] - 1) + 1, stride[1]);
        // [batch_size, channels, height_out, width_out, kernel_height, kernel_width]
        every_nth(windows, dilation[1]).permute([0, 1, 4, 5, 2, 3]).reshape([
            batch_size * groups,
            channels / groups * kernel_size[0] * kernel_size[1],
            output_size[0] * output_size[1],
        ])
    }
}

/// Every n-th element of the last axis.
fn every_nth<const D: usize>(tensor: Tensor<D>, n: usize) -> Tensor<D> {
    if n == 1 {
        return tensor;
    }
    let mut slices = [Slice::full(); D];
    slices[D - 1] = Slice::new(0, None, n as isize);
    tensor.slice(slices)
}
