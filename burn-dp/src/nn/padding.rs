//! The padding of Burn's convolutions and poolings.

use burn::nn::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};

/// Returns the padding of the length as a (begin, end) pair.
pub(super) fn pairs_1d(
    padding: &PaddingConfig1d,
    size: usize,
    kernel_size: usize,
    stride: usize,
) -> (usize, usize) {
    match padding {
        PaddingConfig1d::Valid => (0, 0),
        PaddingConfig1d::Explicit(left, right) => (*left, *right),
        PaddingConfig1d::Same => same(size, kernel_size, stride),
    }
}

/// Returns the padding of `[depth, height, width]`, which is the same on both sides.
pub(super) fn symmetric_3d(
    padding: &PaddingConfig3d,
    size: [usize; 3],
    kernel_size: [usize; 3],
    stride: [usize; 3],
) -> [usize; 3] {
    match padding {
        PaddingConfig3d::Valid => [0; 3],
        PaddingConfig3d::Explicit(depth, height, width) => [*depth, *height, *width],
        PaddingConfig3d::Same => std::array::from_fn(|axis| {
            both_sides(same(size[axis], kernel_size[axis], stride[axis]))
        }),
    }
}

/// Returns the padding of one side.
///
/// # Panics
///
/// Panics if the sides differ.
pub(super) fn both_sides((begin, end): (usize, usize)) -> usize {
    assert_eq!(begin, end, "the padding must be the same on both sides, got {begin} and {end}");
    begin
}

/// Returns the padding of `[height, width]` as (begin, end) pairs.
///
/// "Same" keeps `ceil(size / stride)` outputs. The end gets the larger part of an odd total.
pub(super) fn pairs_2d(
    padding: &PaddingConfig2d,
    size: [usize; 2],
    kernel_size: [usize; 2],
    stride: [usize; 2],
) -> [(usize, usize); 2] {
    match padding {
        PaddingConfig2d::Valid => [(0, 0); 2],
        PaddingConfig2d::Explicit(top, left, bottom, right) => [(*top, *bottom), (*left, *right)],
        PaddingConfig2d::Same => {
            std::array::from_fn(|axis| same(size[axis], kernel_size[axis], stride[axis]))
        }
    }
}

fn same(size: usize, kernel_size: usize, stride: usize) -> (usize, usize) {
    let outputs = size.div_ceil(stride);
    let covered = outputs.saturating_sub(1) * stride + kernel_size;
    let total = if outputs == 0 { 0 } else { covered.saturating_sub(size) };
    (total / 2, total - total / 2)
}

/// Panics if the input of a convolution does not have the channels of the layer.
pub(super) fn check_channels(found: usize, expected: usize) {
    assert_eq!(found, expected, "the convolution expects {expected} input channels, got {found}");
}
