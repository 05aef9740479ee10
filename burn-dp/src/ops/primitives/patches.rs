use burn::tensor::ops::{ConvOptions, PadMode};
use burn::tensor::{Slice, Tensor};

/// The geometry of im2col. Convolutions of one and two dimensions have leading axes of length one.
#[derive(Clone, Debug)]
pub struct Patches {
    pub(crate) kernel_size: [usize; 3],
    /// Depth, height and width of the output of the convolution: the positions of the kernel.
    pub(crate) output_size: [usize; 3],
    pub(crate) options: ConvOptions<3>,
}

impl Patches {
    /// Returns the geometry of a convolution of N dimensions.
    pub(crate) fn new<const N: usize>(
        kernel_size: [usize; N],
        output_size: [usize; N],
        options: &ConvOptions<N>,
    ) -> Self {
        Self {
            kernel_size: three_axes(kernel_size, 1),
            output_size: three_axes(output_size, 1),
            options: ConvOptions::new_with_padding(
                three_axes(options.stride, 1),
                three_axes(options.padding, (0, 0)),
                three_axes(options.dilation, 1),
                options.groups,
            ),
        }
    }

    /// Computes im2col with zero-copy views and one copy (two for three dimensions), on every
    /// backend.
    ///
    /// - input: `[batch_size, channels, depth, height, width]`
    /// - output: `[batch_size · groups, channels / groups · kernel values, positions]`
    pub(in crate::ops) fn by_views(&self, input: Tensor<5>) -> Tensor<3> {
        let Self { kernel_size, output_size, options } = self;
        let [batch_size, channels, depth, height, width] = input.dims();
        let shape = [
            batch_size * options.groups,
            channels / options.groups * kernel_size.iter().product::<usize>(),
            output_size.iter().product(),
        ];

        if depth == 1 && kernel_size[0] == 1 && output_size[0] == 1 && options.padding[0] == (0, 0)
        {
            let planes = self.planes(input.reshape([batch_size, channels, height, width]));
            return planes.permute([0, 1, 4, 5, 2, 3]).reshape(shape);
        }

        let (front, back) = options.padding[0];
        let input = input.pad([(front, back), (0, 0), (0, 0)], PadMode::Constant(0.0));
        // [batch_size, channels, depth_out, height, width, kernel_depth]
        let slices = windows::<5, 6>(self, input, 2, 0);
        let [kernel_depth, plane_kernel @ ..] = *kernel_size;
        let [depth_out, plane_out @ ..] = *output_size;
        let slices = slices.permute([0, 1, 5, 2, 3, 4]).reshape([
            batch_size,
            channels * kernel_depth * depth_out,
            height,
            width,
        ]);
        // Move the depth of the output after the kernel.
        self.planes(slices)
            .permute([0, 1, 4, 5, 2, 3])
            .reshape([
                batch_size * channels * kernel_depth,
                depth_out,
                plane_kernel.iter().product(),
                plane_out.iter().product(),
            ])
            .swap_dims(1, 2)
            .reshape(shape)
    }

    /// Returns the windows of planes:
    /// `[batch_size, channels, height_out, width_out, kernel_height, kernel_width]`.
    fn planes(&self, input: Tensor<4>) -> Tensor<6> {
        let [_, (top, bottom), (left, right)] = self.options.padding;
        let mut input = input;
        if [top, bottom, left, right] != [0; 4] {
            input = input.pad([(top, bottom), (left, right)], PadMode::Constant(0.0));
        }
        let rows = windows::<4, 5>(self, input, 2, 1);
        windows::<5, 6>(self, rows, 3, 2)
    }
}

/// Returns the windows along `axis` as a new last axis; `spatial` is the index of that axis among
/// depth, height and width.
fn windows<const D: usize, const E: usize>(
    patches: &Patches,
    tensor: Tensor<D>,
    axis: usize,
    spatial: usize,
) -> Tensor<E> {
    let dilation = patches.options.dilation[spatial];
    let extent = dilation * (patches.kernel_size[spatial] - 1) + 1;
    let windows: Tensor<E> = tensor.unfold(axis, extent, patches.options.stride[spatial]);
    let count = patches.output_size[spatial];
    // The output padding of a transposed convolution creates unused windows.
    let windows =
        if windows.dims()[axis] > count { windows.narrow(axis, 0, count) } else { windows };
    if dilation == 1 {
        return windows;
    }
    let mut slices = [Slice::full(); E];
    slices[E - 1] = Slice::new(0, None, dilation as isize);
    windows.slice(slices)
}

/// Returns depth, height and width from the last N of them.
fn three_axes<T: Copy, const N: usize>(values: [T; N], missing: T) -> [T; 3] {
    std::array::from_fn(|axis| if axis + N < 3 { missing } else { values[axis + N - 3] })
}
