//! Bounds on the rounding error of squared norms.

use burn::backend::DispatchDevice;
use burn::tensor::Device;

/// Bounds the relative error of a product of two factors that were truncated to the eleven
/// significant bits of TF32.
const TENSOR_FLOAT_32: f64 = 1.0 / (1 << 9) as f64;

/// Covers the rounding of the magnitudes themselves, which are sums of rounded-up norms.
const MAGNITUDES: f64 = 1.0 + 1.0 / (1 << 10) as f64;

/// The precision of a device, from which the margins of norms follow.
///
/// A sum of products in single precision is exact for terms that are changed a little: each
/// operation that a term passes through changes it by at most a relative u. A term passes through n
/// operations, so it is off by at most (1 + u)ⁿ - 1. In any order, with or without fused
/// multiplication and addition, n is at most the number of terms. Kernels that add in blocks have a
/// smaller n. No order is assumed of kernels that this crate does not contain.
///
/// With N the norm of a gradient, and M = `Σ_t ‖a_t‖‖g_t‖` the magnitude of its terms:
///
/// - A squared norm from Gram matrices is off by at most `((1 + u)ⁿ - 1) M²`, where n is the sum of
///   the roundings in both matrices and in the sum of their products.
/// - A gradient that is summed, instantiated or in the weighted sum, is off by at most
///   `((1 + u)ⁿ - 1) M`, where n grows with the number of positions.
///
/// Devices with TF32 compute single-precision matrix products in TF32 if this is faster. Norms of
/// factors are not affected, but instantiated gradients, Gram matrices, and the weighted sum are:
/// each product is off by a relative 2^-9 more.
///
/// # Privacy
///
/// The margins bound the norm of what each example adds to an otherwise empty weighted sum,
/// regardless of the order in which a device adds, and whether the terms of the example are equal,
/// cancel or are rounded away. They bound neither the rounding where terms of several examples are
/// added, nor the effect of one example on the rounding of other examples: a device that chooses
/// its kernels by the shape of a batch can compute all others in another precision if one more
/// example changes the shape. The statement says so, and padding fixes the shapes.
///
/// # References
///
/// N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Precision {
    /// Bounds the relative error of an operation in single precision.
    operation: f64,
    /// Bounds the relative error of the factors of a product.
    factors: f64,
}

/// The margin of the squared norms of one parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margin {
    /// Error of a squared norm, relative to the squared magnitude.
    of_square: f64,
    /// Error of the norms of the gradients that are summed, relative to the magnitude.
    of_sums: f64,
}

impl Precision {
    /// Single precision that rounds to the nearest number.
    #[cfg(any(feature = "flex", feature = "ndarray", test))]
    const NEAREST: Self = Self { operation: f32::EPSILON as f64 / 2.0, factors: 0.0 };

    /// Single precision that rounds up or down: WGSL does not say which.
    const SINGLE: Self = Self { operation: f32::EPSILON as f64, factors: 0.0 };

    /// Tensor cores truncate the sums.
    const TENSOR_FLOAT_32: Self = Self { factors: TENSOR_FLOAT_32, ..Self::SINGLE };

    /// Returns the precision of matrix products on `device`; the coarser one if it is unknown.
    pub(super) fn of(device: &Device) -> Self {
        match device.clone().without_autodiff().as_dispatch() {
            #[cfg(feature = "flex")]
            DispatchDevice::Flex(_) => Self::NEAREST,
            #[cfg(feature = "ndarray")]
            DispatchDevice::NdArray(_) => Self::NEAREST,
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
        self.factors > 0.0
    }

    /// Returns the relative rounding of a matrix product.
    pub(super) fn epsilon(self) -> f64 {
        self.factors.max(f64::from(f32::EPSILON))
    }

    /// Rounds up a squared norm of a gradient that the weighted sum adds in the measured order. In
    /// single precision, every clipping coefficient leaves more room than that.
    pub(super) fn relative(self, squared_norm: f64) -> f64 {
        squared_norm * (1.0 + self.factors).powi(2)
    }

    /// Returns the margin of a squared norm that is a sum of products of two Gram matrices, and of
    /// a gradient that the weighted sum adds.
    ///
    /// - of_products: upper bound on the roundings of a product of two terms in the squared norm
    /// - of_terms: upper bound on the roundings of a term in the weighted sum
    pub(super) fn gram(self, of_products: usize, of_terms: usize) -> Margin {
        Margin { of_square: self.growth(2, of_products), of_sums: self.growth(1, of_terms) }
    }

    /// Returns the margin of a gradient that the weighted sum adds in another order: one product to
    /// instantiate it, and two in the weighted sum, for the terms and the coefficient.
    ///
    /// - of_terms: upper bound on the roundings of a term in either sum
    pub(super) fn reordered(self, of_terms: usize) -> Margin {
        Margin { of_square: 0.0, of_sums: self.growth(3, 2 * of_terms) }
    }

    /// Bounds the relative error of a term after this many products of factors, and operations in
    /// single precision.
    fn growth(self, products: usize, roundings: usize) -> f64 {
        let error = products as f64 * self.factors + roundings as f64 * self.operation;
        error.exp_m1() * MAGNITUDES
    }
}

impl Margin {
    #[cfg(test)]
    pub(super) fn new(of_square: f64, of_sums: f64) -> Self {
        Self { of_square, of_sums }
    }

    /// Returns the error of a squared norm, relative to the squared magnitude, and of the norms of
    /// the gradients that are summed, relative to the magnitude.
    pub(super) fn parts(self) -> [f64; 2] {
        [self.of_square, self.of_sums]
    }

    /// Rounds up a squared norm.
    pub(super) fn round_up(self, squared_norm: f64, squared_magnitude: f64) -> f64 {
        let norm = (squared_norm + self.of_square * squared_magnitude).sqrt();
        (norm + self.of_sums * squared_magnitude.sqrt()).powi(2)
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
    use crate::ops::gram_roundings;
    use crate::test_devices::cpu_devices;

    #[test]
    fn cpu_backends_multiply_in_single_precision() {
        for device in cpu_devices() {
            assert_eq!(Precision::of(&device), Precision::NEAREST);
            assert_eq!(Precision::of(&device.clone().autodiff()), Precision::NEAREST);
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
                let bound = precision.gram(0, 0).round_up(gram.max(0.0), squared_magnitude);
                exceeded[0] += usize::from(bound < released);
                for measured in [formed(cast), formed(f64::from)] {
                    let bound = precision.reordered(0).round_up(measured, squared_magnitude);
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

    /// Rounds to the nearest number with five significant bits.
    fn five_bits(value: f64) -> f64 {
        let unit = 2.0f64.powi(if value == 0.0 { 0 } else { value.log2().floor() as i32 - 4 });
        (value / unit).round_ties_even() * unit
    }

    /// Returns the sum of products that are rounded to five bits, in blocks of `block` products.
    fn rounded_sum(products: &[f64], block: usize) -> f64 {
        let add = |sum: f64, value: f64| five_bits(sum + value);
        let blocks = products.chunks(block);
        let sums = blocks.map(|block| block.iter().map(|&value| five_bits(value)).fold(0.0, add));
        sums.fold(0.0, add)
    }

    #[test]
    fn margins_are_the_worst_case_of_all_short_sums() {
        let precision = Precision { operation: 1.0 / 32.0, factors: 0.0 };
        // Products of numbers with five bits, some of which are rounded away next to a large one.
        let values = [0.0, 1.0, 17.0 / 16.0 * 19.0 / 16.0, 1.0 / 32.0, 27.0 / 1024.0, 0.4];
        let (terms, sums) = (6, values.len().pow(6));
        for block in [1, 2, 3, 6] {
            let roundings = block + terms / block - 1;
            let bound = precision.growth(0, roundings);
            let mut largest = 0.0f64;
            for index in 0..sums {
                let products: Vec<f64> = (0..terms as u32)
                    .map(|term| values[index / values.len().pow(term) % values.len()])
                    .collect();
                let (found, exact) = (rounded_sum(&products, block), products.iter().sum::<f64>());
                let error = (found - exact).abs();
                assert!(error <= bound * exact, "{products:?} {block}: {found} {exact}");
                largest = if exact > 0.0 { largest.max(error / exact) } else { largest };
            }
            assert!(largest > 0.5 * bound, "{block}: {largest} {bound}");
        }
    }

    // The squares after the first are half a unit of it, and so are the sums of the blocks after
    // the first: every addition rounds them away.
    #[test]
    fn terms_that_are_rounded_away_reach_the_margin_of_a_sum() {
        for terms in [2, 256, 257, 3_072, 50_257] {
            let error = |block: usize| {
                let value = |term: usize| match term {
                    0 => 1.0,
                    _ if term < block => 2.0f32.powi(-12),
                    _ => 2.0f32.powi(-16),
                };
                let squares: Vec<f32> = (0..terms).map(|term| value(term) * value(term)).collect();
                let sums = squares.chunks(block).map(|block| block.iter().sum::<f32>());
                let exact: f64 = squares.iter().map(|&square| f64::from(square)).sum();
                1.0 - f64::from(sums.fold(0.0, |sum, block| sum + block)) / exact
            };
            for (block, roundings) in [(terms, terms), (256, gram_roundings(terms))] {
                let (error, bound) = (error(block), Precision::NEAREST.growth(0, roundings));
                assert!(error <= bound, "{terms} {block}: {error:e} {bound:e}");
                let reached = bound * (roundings - 2) as f64 / roundings as f64;
                assert!(error >= 0.99 * reached, "{terms} {block}: {error:e} {bound:e}");
            }
        }
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

    #[test]
    fn margins_count_products_and_roundings() {
        let precision = Precision { operation: 1.0 / 1024.0, factors: 1.0 / 64.0 };
        let gram = precision.gram(7, 10);
        assert_eq!(gram.of_square, precision.growth(2, 7));
        assert_eq!(gram.of_sums, precision.growth(1, 10));
        let reordered = precision.reordered(10);
        assert_eq!(reordered.of_square, 0.0);
        assert_eq!(reordered.of_sums, precision.growth(3, 20));
    }

    #[test]
    fn products_in_tf32_are_coarse() {
        let (single, coarse) = (Precision::SINGLE, Precision::TENSOR_FLOAT_32);
        assert!(coarse.coarse() && !single.coarse());
        assert_eq!(coarse.epsilon(), TENSOR_FLOAT_32);
        assert_eq!(single.epsilon(), f64::from(f32::EPSILON));
    }
}
