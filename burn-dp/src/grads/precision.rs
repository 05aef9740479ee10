//! Bounds on the rounding error of squared norms.

use burn::backend::DispatchDevice;
use burn::tensor::Device;

/// Half of 256 roundings of f32, relative to the magnitude of the terms of a sum: the native
/// kernels add at most 256 terms in one register. Roundings that all have the same sign, as for
/// equal terms, add up to less.
const SINGLE: f64 = 128.0 * (f32::EPSILON as f64) / 2.0;

/// Bounds the relative error of a product of two factors that were truncated to the eleven
/// significant bits of TF32.
const TENSOR_FLOAT_32: f64 = 1.0 / (1 << 9) as f64;

/// The margins that are added to squared norms for the precision of a device.
///
/// Devices with TF32 compute single-precision matrix products in TF32 if this is faster. Norms of
/// factors are not affected, but instantiated gradients, Gram matrices, and the weighted sum are.
/// The contribution of an example to the sum can therefore exceed the measured norm by the rounding
/// of all of them.
///
/// # Privacy
///
/// The margins bound the contribution of each example, regardless of the kernels that computed it.
/// They do not bound the effect of one example on the rounding of other examples: a device that
/// chooses its kernels by the shape of a batch can compute all others in another precision if one
/// more example changes the shape. The statement says so, and padding fixes the shapes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Precision {
    /// Margin of a norm, relative to it.
    relative: f64,
    /// Margin of a squared norm that is a sum of products of Gram matrices, relative to the squared
    /// magnitude.
    gram: f64,
    /// Margin of the norm of a gradient that the weighted sum adds in another order, relative to
    /// the magnitude.
    reordered: f64,
}

impl Precision {
    /// The relative margin is zero, because every clipping coefficient leaves more room than that.
    const SINGLE: Self = Self { relative: 0.0, gram: SINGLE, reordered: SINGLE };

    /// One product in the weighted sum; two Gram matrices, and the same again for the weighted sum;
    /// one product to instantiate the gradient, and two roundings in the weighted sum.
    const TENSOR_FLOAT_32: Self = Self {
        relative: TENSOR_FLOAT_32,
        gram: 4.0 * TENSOR_FLOAT_32,
        reordered: 3.0 * TENSOR_FLOAT_32,
    };

    /// Returns the precision of matrix products on `device`; the coarser one if it is unknown.
    pub(super) fn of(device: &Device) -> Self {
        match device.clone().without_autodiff().as_dispatch() {
            #[cfg(feature = "flex")]
            DispatchDevice::Flex(_) => Self::SINGLE,
            #[cfg(feature = "ndarray")]
            DispatchDevice::NdArray(_) => Self::SINGLE,
            #[cfg(feature = "cube")]
            DispatchDevice::Cube(device) => {
                use burn_cubecl::cubecl::ir::{ElemType, FloatKind};

                let tensor_float_32 = ElemType::Float(FloatKind::TF32);
                match device.client().properties().supports_type(tensor_float_32) {
                    true => Self::TENSOR_FLOAT_32,
                    false => Self::SINGLE,
                }
            }
            _ => Self::TENSOR_FLOAT_32,
        }
    }

    /// Returns whether products may be in less than single precision.
    fn coarse(self) -> bool {
        self.relative > 0.0
    }

    /// Returns the relative rounding of a matrix product in single precision.
    pub(super) fn epsilon(self) -> f64 {
        match self == Self::SINGLE {
            true => f64::from(f32::EPSILON),
            false => TENSOR_FLOAT_32,
        }
    }

    /// Rounds up a squared norm of a gradient that the weighted sum adds in the measured order.
    pub(super) fn relative(self, squared_norm: f64) -> f64 {
        squared_norm * (1.0 + self.relative).powi(2)
    }

    /// Rounds up a squared norm that is a sum of products of Gram matrices.
    pub(super) fn gram(self, squared_norm: f64, squared_magnitude: f64) -> f64 {
        squared_norm + self.gram * squared_magnitude
    }

    /// Rounds up a squared norm of a gradient that the weighted sum adds in another order.
    pub(super) fn reordered(self, squared_norm: f64, squared_magnitude: f64) -> f64 {
        (squared_norm.sqrt() + self.reordered * squared_magnitude.sqrt()).powi(2)
    }
}

/// Returns whether the device may choose, based on the shape of a batch, kernels with products in
/// less than single precision.
///
/// Public for tests and benchmarks, whose tolerances follow from it.
pub fn has_coarse_products(device: &Device) -> bool {
    Precision::of(device).coarse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_devices::cpu_devices;

    #[test]
    fn cpu_backends_multiply_in_single_precision() {
        for device in cpu_devices() {
            assert_eq!(Precision::of(&device), Precision::SINGLE);
            assert_eq!(Precision::of(&device.clone().autodiff()), Precision::SINGLE);
            assert!(!has_coarse_products(&device));
        }
    }

    /// Truncates to the eleven leading significant bits.
    fn truncate(value: f32) -> f64 {
        f64::from(f32::from_bits(value.to_bits() & !((1 << 13) - 1)))
    }

    /// Returns positions of an example whose products with the right factor nearly cancel.
    fn positions(count: usize, salt: f32) -> Vec<[f32; 2]> {
        let value = |t: usize, part: f32| ((t as f32 + salt) * 1.37 + part).sin() + 1.5;
        (0..count)
            .map(|t| [value(t, 0.0), if t % 2 == 0 { 1.0 } else { -1.0 } * value(t, 0.9)])
            .collect()
    }

    /// Rounds to the nearest number with eleven significant bits.
    fn nearest(value: f32) -> f64 {
        truncate(f32::from_bits(value.to_bits() + (1 << 12)))
    }

    /// Counts the contributions that exceed the bound that was computed from factors in TF32: of
    /// Gram matrices, of gradients that are added in another order, and of single positions.
    fn exceeded(precision: Precision) -> [usize; 3] {
        let mut exceeded = [0; 3];
        let samples = (1..40).flat_map(|count| (0..25).map(move |salt| (count, salt as f32)));
        let casts: [fn(f32) -> f64; 2] = [truncate, nearest];
        for ((count, salt), cast) in samples.flat_map(|sample| casts.map(|cast| (sample, cast))) {
            let (left, right) = (positions(count, salt), positions(count, salt + 0.3));
            let dot = |a: [f32; 2], b: [f32; 2], cast: fn(f32) -> f64| -> f64 {
                a.iter().zip(b).map(|(&a, b)| cast(a) * cast(b)).sum()
            };
            let length = |a: [f32; 2]| dot(a, a, f64::from).sqrt();
            let magnitude: f64 =
                left.iter().zip(&right).map(|(&a, &g)| length(a) * length(g)).sum();
            let squared_magnitude = magnitude.powi(2);
            // The squared norm of a gradient that is instantiated from cast factors.
            let formed = |cast: fn(f32) -> f64| -> f64 {
                let entry = |i: usize, j: usize| -> f64 {
                    left.iter().zip(&right).map(|(a, g)| cast(a[i]) * cast(g[j])).sum()
                };
                (0..4).map(|index| entry(index / 2, index % 2).powi(2)).sum()
            };
            let gram: f64 = (0..count)
                .flat_map(|t| (0..count).map(move |s| (t, s)))
                .map(|(t, s)| dot(left[t], left[s], cast) * dot(right[t], right[s], cast))
                .sum();
            for released in [formed(cast), formed(f64::from)] {
                let bound = precision.gram(gram.max(0.0), squared_magnitude);
                exceeded[0] += usize::from(bound < released);
                for measured in [formed(cast), formed(f64::from)] {
                    let bound = precision.reordered(measured, squared_magnitude);
                    exceeded[1] += usize::from(bound < released);
                }
            }
            if count == 1 {
                // Norms of factors are in single precision.
                let norms = dot(left[0], left[0], f64::from) * dot(right[0], right[0], f64::from);
                let bound = precision.relative(norms);
                exceeded[2] += usize::from(bound < formed(cast));
            }
        }
        exceeded
    }

    #[test]
    fn margins_of_tf32_cover_truncated_factors() {
        assert_eq!(exceeded(Precision::TENSOR_FLOAT_32), [0; 3]);
    }

    #[test]
    fn without_its_margin_each_norm_in_tf32_is_underestimated() {
        let [gram, reordered, relative] = exceeded(Precision::SINGLE);
        assert!(gram > 0 && reordered > 0 && relative > 0, "{gram} {reordered} {relative}");
    }
}
