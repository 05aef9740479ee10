//! The sizes and words that kernels and their callers share.

use burn::tensor::Shape;

use crate::ops::Patches;

/// Number of values of a row whose squares one group of units adds.
pub(crate) const PART: usize = 1 << 16;

/// Number of units in a group. Each adds every n-th square of a part, where n is this number, and
/// the first one adds their sums.
pub(crate) const UNITS: usize = 64;

/// Number of units in a group on a processor.
pub(crate) const PROCESSOR_UNITS: usize = 8;

/// Number of squares that a unit adds one after another.
pub(crate) const RUN: usize = 32;

/// What a kernel does to a sum of squares to round it up.
#[derive(Clone, Copy, Debug)]
pub struct RoundedUp {
    /// The factor of the sum.
    pub factor: f32,
    /// What is added to the product.
    pub added: f32,
}

/// Returns a number of single precision above `value`.
pub(crate) fn single_above(value: f64) -> f32 {
    (value as f32).next_up()
}

/// Returns the shape of the sums of the parts of rows.
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub(in crate::ops) fn parts_shape(rows: &Shape) -> Shape {
    Shape::new([rows[0], rows[1].div_ceil(PART).max(1)])
}

/// Returns the shape of the gradients of a convolution for each example.
pub(in crate::ops) fn gradients_shape(image: &Shape, pixels: &Shape, patches: &Patches) -> Shape {
    let groups = patches.options.groups;
    let places: usize = patches.kernel_size.iter().product();
    Shape::new([image[0], groups, image[1] / groups * places, pixels[1] / groups])
}

/// How coefficients follow from the norms of the parameters.
pub(crate) struct DeviceClipping {
    /// Whether each group has its own threshold. Otherwise there is one for all.
    pub(crate) per_group: bool,
    /// The constant that is added to the norm, if gradients are normalized instead of clipped.
    pub(crate) stability: Option<f32>,
    /// The factor of a norm that covers the rounding of the device.
    pub(crate) rounding: f32,
    pub(crate) groups: Vec<DeviceGroup>,
    /// `false` for units that only pad the batch.
    pub(crate) real: Option<Vec<bool>>,
}

/// A clipping group. Its squared norm is the sum of the squared norms of its parameters, times
/// `slack`, plus `added`.
pub(crate) struct DeviceGroup {
    pub(crate) slack: f32,
    pub(crate) added: f32,
    /// The factor of its squared norm in the norm for all groups.
    pub(crate) squared_multiplier: f32,
    /// The threshold of the group, or the one threshold for all groups.
    pub(crate) threshold: f32,
    pub(crate) parameters: Vec<DeviceParameter>,
}

/// The squared norm of a parameter, from rows of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DeviceParameter {
    /// A row times a factor.
    Scaled { row: usize, factor: f32 },
    /// `(√(row + of_square · next row) + of_sums · √(next row))²`.
    WithMagnitude { row: usize, of_square: f32, of_sums: f32 },
}

/// Places of the words of a [`DeviceClipping`].
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub(in crate::ops) mod words {
    pub(in crate::ops) const PER_GROUP: usize = 0;
    pub(in crate::ops) const NORMALIZE: usize = 1;
    pub(in crate::ops) const STABILITY: usize = 2;
    pub(in crate::ops) const ROUNDING: usize = 3;
    /// The place of a word for each unit, or zero if none is padding.
    pub(in crate::ops) const REAL: usize = 4;
    pub(in crate::ops) const FIRST_GROUP: usize = 5;

    /// Places in a group, after the number of its parameters.
    pub(in crate::ops) const SLACK: usize = 1;
    pub(in crate::ops) const ADDED: usize = 2;
    pub(in crate::ops) const SQUARED_MULTIPLIER: usize = 3;
    pub(in crate::ops) const GROUP_THRESHOLD: usize = 4;
    pub(in crate::ops) const FIRST_PARAMETER: usize = 5;

    /// A parameter has its row, whether the next row has its magnitudes, and two numbers.
    pub(in crate::ops) const PARAMETER_WORDS: usize = 4;
}

/// What a kernel reads to clip: sizes, rounding and the threshold of every group and parameter.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct ClippingWords {
    pub(in crate::ops) words: Vec<u32>,
    /// Number of clipping groups.
    pub(in crate::ops) groups: usize,
    /// Number of coefficients of each unit.
    pub(in crate::ops) rows: usize,
    /// Whether the words follow from shapes and thresholds alone: which units are padding reveals
    /// how many were drawn.
    pub(in crate::ops) is_public: bool,
}

impl From<&DeviceClipping> for ClippingWords {
    fn from(clipping: &DeviceClipping) -> Self {
        let DeviceClipping { per_group, stability, rounding, groups, real } = clipping;
        let mut words = vec![0; words::FIRST_GROUP];
        words[words::PER_GROUP] = u32::from(*per_group);
        words[words::NORMALIZE] = u32::from(stability.is_some());
        words[words::STABILITY] = stability.unwrap_or(0.0).to_bits();
        words[words::ROUNDING] = rounding.to_bits();
        for group in groups {
            let DeviceGroup { slack, added, squared_multiplier, threshold, parameters } = group;
            words.push(parameters.len() as u32);
            words.extend([slack, added, squared_multiplier, threshold].map(|word| word.to_bits()));
            words.extend(parameters.iter().flat_map(|parameter| match *parameter {
                DeviceParameter::Scaled { row, factor } => [row as u32, 0, factor.to_bits(), 0],
                DeviceParameter::WithMagnitude { row, of_square, of_sums } => {
                    [row as u32, 1, of_square.to_bits(), of_sums.to_bits()]
                }
            }));
        }
        if let Some(real) = real {
            words[words::REAL] = words.len() as u32;
            words.extend(real.iter().map(|&real| u32::from(real)));
        }
        let (groups, is_public) = (groups.len(), real.is_none());
        Self { words, groups, rows: if *per_group { groups } else { 1 }, is_public }
    }
}
