//! The Gaussian mechanism on a grid.

use burn::tensor::{Device, Tensor};

use super::ahead::NoiseAhead;
use super::correlated_step::CorrelatedParameter;
use super::grid::Grid;
use super::integer_normal::TABLE;
use super::release::release;
use super::standard_normal::standard_normal;
use crate::DpError;
use crate::ops::{InParts, KeyedNoise, Part, has_release, native_release};
use crate::random::Stream;

/// Minimum and maximum scale, far beyond any practical value.
const SCALES: std::ops::RangeInclusive<f64> = 1e-40..=1e40;

/// The sums of one parameter, with the source of their noise and what correlates it.
pub(crate) type ParameterSums<'a> =
    (GaussianMechanism, Stream, &'a mut [f32], Option<CorrelatedParameter<'a>>);

/// Adds Gaussian noise to sums of bounded sensitivity.
///
/// `release = (round(sum / g) + Z) · g · scale`, where Z is a normal integer with standard
/// deviation 2^40 and the [`grid`](Self::grid) g is 2^-40 times the standard deviation of the
/// noise. All arithmetic before the last product is in integers, so every backend releases the same
/// bits; the result is rounded to the 24 bits of `f32`, and once more by the product.
///
/// # Privacy
///
/// Sensitivity: `noise_std` is the noise multiplier times the L2 sensitivity of the *rounded* sums.
/// Rounding moves each of d coordinates by at most g/2, so the distance of two rounded sums is
/// larger than the distance of the sums by at most [`snapping_overhead`](Self::snapping_overhead) =
/// g √d. With d = 10^8 this is less than 10^-8 standard deviations. A step of a
/// [`DpOptimizer`](crate::optim::DpOptimizer) adds it to the sensitivity: see
/// [`snapping_factor`](Self::snapping_factor). A sum beyond 2^75 standard deviations saturates,
/// which moves no two sums further apart.
///
/// Proven, for any sum:
///
/// - The output is a function of the integers round(sum/g) + Z: the division is exact until it is
///   rounded once, the sum is exact, and the rest is post-processing; zero has one sign. So the
///   low-order bits reveal nothing about the sum beyond the integers, which prevents the attack of
///   Mironov (2012).
/// - If Z were an exactly normal value, rounded, the integers would be the result of the Gaussian
///   mechanism on the rounded sum, rounded: rounding commutes with the addition of an integer. So
///   its guarantee holds.
/// - Z is the normal quantile of a uniform word, with an error of at most 0.76 units of the grid,
///   2^-40.3 standard deviations, for every word: `normal_table.py` computes the bound of each
///   polynomial, and its rounding is part of it. Z is symmetric, so its mean is exactly zero. g is
///   rounded upwards, so the noise has at least the declared deviation, up to that error.
///
/// Correlated noise is `round(h) + Z` in place of Z, where h follows from the Z of earlier steps,
/// and g is 2^-40 times the standard deviation of this step's Z. A data set and the earlier results
/// determine the earlier Z, and with them h, so a step is a Gaussian mechanism on the integer
/// `round(sum/g) + round(h)`, chosen adaptively. Rounding moves these integers by at most
/// `4 √(d T) ‖M‖` over a run of T steps, where M is the strategy with its diagonal divided out of
/// its columns; the noise of a `DpOptimizer` grows by this factor too. Not proven: that the doubles
/// which h is computed in add less than one unit to its error, whatever the number of terms. In the
/// steps of a run, factors and values add up to at most 2^12, so that each operation rounds by at
/// most half a unit, and h is never cut off, which begins at 2^22.
///
/// Not proven: that this distribution of integers, which differs from the rounded normal one, costs
/// no privacy. 2^64 words cannot give every integer its exact probability. Near the center each
/// integer has about 2^22 words, so its probability is off by a relative 2^-22. Beyond 5.6 standard
/// deviations (2·10^-8) words are fewer than integers. There the words of a pair extend each other,
/// so that every integer out to 9.15 (7·10^-20) is reached, but not independently of the other
/// value of its pair: given that one, near the center, integers beyond 7.9 (3·10^-15) are not all
/// reached. A result in single precision shows a single integer only if sum and noise cancel to
/// 2^-16 standard deviations. A sampler of the discrete Gaussian (Canonne, Kamath and Steinke,
/// 2020) would be exact in distribution.
///
/// Not covered: the rounding of the sums themselves before the release, and the time that the
/// release takes.
///
/// # References
///
/// - M. J. Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", 1988.
/// - I. Mironov, "On Significance of the Least Significant Bits For Differential Privacy", 2012.
/// - C. L. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy", 2020.
/// - C. Dwork, A. Roth, "The Algorithmic Foundations of Differential Privacy", 2014, section 3.5.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaussianMechanism {
    noise_std: f64,
    scale: f64,
    grid: Grid,
}

impl GaussianMechanism {
    /// Returns a mechanism with noise of standard deviation `noise_std` on the sums.
    ///
    /// The results are multiplied by `scale`, which must be public: 1 / expected batch size, or 1.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `noise_std` is not between 1e-25 and 1e25, or its
    /// product with `scale` not between 1e-25 and 1e15: far beyond any practical value, and within
    /// what every device computes without subnormal numbers. Zero is rejected, because clipped sums
    /// without noise are not private.
    pub fn new(noise_std: f64, scale: f64) -> Result<Self, DpError> {
        if !Grid::DEVIATIONS.contains(&noise_std) {
            return Err(DpError::invalid(
                "noise_std",
                format!(
                    "must be positive (1e-25 to 1e25), got {noise_std}; a clipped sum without \
                     noise is not private, so train without privacy instead if that is intended"
                ),
            ));
        }
        let product = noise_std * scale;
        if !SCALES.contains(&scale) || !Grid::FACTORS.contains(&product) {
            return Err(DpError::invalid(
                "scale",
                format!(
                    "must be positive, and the noise in the result between 1e-25 and 1e15, got \
                     {scale} times {noise_std}; the scale is 1 / expected batch"
                ),
            ));
        }
        Ok(Self { noise_std, scale, grid: Grid::new(noise_std, scale) })
    }

    /// Returns the standard deviation of the noise on the sums, before scaling.
    pub fn noise_std(&self) -> f64 {
        self.noise_std
    }

    /// Returns the public factor of the results.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns the grid, 2^-40 times the standard deviation of the noise, which is between
    /// [`noise_std`](Self::noise_std) and (1 + 2^-31) times that.
    pub fn grid(&self) -> f64 {
        self.grid.spacing()
    }

    /// Returns an upper bound on the increase of the L2 sensitivity by snapping, g √dimension, for
    /// `dimension` sums that are released together.
    pub fn snapping_overhead(&self, dimension: u64) -> f64 {
        // The conversion and the root each err by half a unit in the last place at most, and so do
        // the grid and the product.
        let root = (dimension as f64).sqrt().next_up().next_up();
        (self.grid() * root).next_up().next_up()
    }

    /// Returns the factor by which all standard deviations of a release grow so that snapping is
    /// part of the sensitivity that the noise is scaled to, rounded up.
    ///
    /// In units of the standard deviations σ_h, the sums of neighbors differ by at most 1/z, where
    /// z is the noise multiplier that the accountant uses, and snapping adds at most 2^-40 √d,
    /// because the grid is 2^-40 σ_h in every coordinate. With the factor f they differ by at most
    /// 1/(z f) + 2^-40 √d, which is 1/z for f = 1/(1 − z 2^-40 √d).
    ///
    /// # Arguments
    ///
    /// - `noise_multiplier`: z, for all `dimension` sums that are released together
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if snapping needs more than half of the sensitivity:
    /// with a million values, if z is over 5·10^8.
    pub fn snapping_factor(noise_multiplier: f64, dimension: u64) -> Result<f64, DpError> {
        Self::snapping_factor_with(1.0, noise_multiplier, dimension)
    }

    /// Returns [`snapping_factor`](Self::snapping_factor) for a run whose rounding costs `gain`
    /// times as much: [`CorrelatedNoise::rounding_gain`](super::CorrelatedNoise::rounding_gain).
    pub(crate) fn snapping_factor_with(
        gain: f64,
        noise_multiplier: f64,
        dimension: u64,
    ) -> Result<f64, DpError> {
        // The factor before the root covers the rounding of z and of all operations here.
        let overhead = (1.0 + 1e-9) * gain * (dimension as f64).sqrt() * Grid::FINENESS;
        let part = overhead * noise_multiplier;
        if part <= 0.5 {
            return Ok((1.0 / (1.0 - part)).next_up());
        }
        let largest = 0.5 / overhead;
        Err(DpError::invalid(
            "noise_multiplier",
            format!(
                "must be at most {largest:.1e} for {dimension} released values, got \
                 {noise_multiplier:e}: the grid of the noise would be as coarse as the sums"
            ),
        ))
    }

    /// Replaces the sums of one parameter with their noisy, scaled values.
    ///
    /// The sums are overwritten, so that they cannot be read after their release. A parameter
    /// without any contribution is a sum of zeros and is released as noise alone. A result beyond
    /// the range of `f32` becomes the largest finite value.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotFinite`] if a sum is not finite; then all of them are set to
    /// zero and nothing is released. Whether the error occurs depends on the data, so clipping has
    /// to exclude it.
    pub fn release(&self, stream: Stream, sums: &mut [f32]) -> Result<(), DpError> {
        Self::release_all(vec![(*self, stream, sums)])
    }

    /// Replaces the sums of several parameters, each with its own mechanism. This is faster than
    /// one [`release`](Self::release) after another.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotFinite`] if any sum is not finite; then the sums of all
    /// parameters are set to zero and nothing is released.
    pub fn release_all(parameters: Vec<(Self, Stream, &mut [f32])>) -> Result<(), DpError> {
        let independent = |(mechanism, stream, sums)| (mechanism, stream, sums, None);
        Self::release_parameters(parameters.into_iter().map(independent).collect(), None)
    }

    /// Releases as [`release_all`](Self::release_all), with noise that may have been drawn ahead,
    /// given what correlates the noise of each parameter with the noise of earlier steps. The
    /// result does not depend on whether the noise was drawn ahead.
    pub(crate) fn release_parameters(
        mut parameters: Vec<ParameterSums<'_>>,
        ahead: Option<&NoiseAhead>,
    ) -> Result<(), DpError> {
        for (_, _, _, correlated) in &mut parameters {
            correlated.as_mut().map_or(Ok(()), CorrelatedParameter::check_host)?;
        }
        let parameters = parameters
            .into_iter()
            .map(|(mechanism, stream, sums, correlated)| (mechanism.grid, stream, sums, correlated))
            .collect();
        if release(parameters, ahead) { Ok(()) } else { Err(not_finite()) }
    }

    /// Returns sums with noise, scaled, on a device that [`has_release`](crate::ops::has_release):
    /// the same bits as [`release`](Self::release) of the same sums, which have to be finite.
    ///
    /// Public for benchmarks: the optimizer checks the sums first.
    #[doc(hidden)]
    pub fn release_on_device(&self, stream: Stream, sums: Tensor<1>) -> Tensor<1> {
        let whole = Part { first: 0, values: sums.dims()[0] };
        if whole.values == 0 {
            return sums;
        }
        let parts = vec![(whole, (*self, stream))];
        Self::release_all_on_device(vec![(sums, parts)]).remove(0).remove(0)
    }

    /// Returns the parts of tensors of sums with noise, scaled, each like
    /// [`release_on_device`](Self::release_on_device).
    pub(crate) fn release_all_on_device(sums: Vec<InParts<(Self, Stream)>>) -> Vec<Vec<Tensor<1>>> {
        let keyed = |(part, (mechanism, stream)): (Part, (Self, Stream))| {
            (part, mechanism.keyed_noise(stream))
        };
        let keyed = |(sums, parts): InParts<_>| (sums, parts.into_iter().map(keyed).collect());
        native_release(sums.into_iter().map(keyed).collect())
    }

    /// Returns sums with correlated noise like [`release_on_device`](Self::release_on_device): the
    /// same bits as on the host.
    pub(crate) fn release_correlated_on_device(
        &self,
        stream: Stream,
        sums: Tensor<1>,
        correlated: &mut CorrelatedParameter<'_>,
    ) -> Result<Tensor<1>, DpError> {
        correlated.release_on_device(&self.keyed_noise(stream), sums)
    }

    fn keyed_noise(&self, stream: Stream) -> KeyedNoise {
        KeyedNoise {
            stream: stream.into_keystream().words(),
            reciprocal: self.grid.reciprocal,
            exponent: self.grid.exponent,
            factor: self.grid.factor,
            table: TABLE,
        }
    }

    /// Returns whether kernels of this device, rather than the host, release sums.
    pub fn releases_on(device: &Device) -> bool {
        has_release(device)
    }

    /// Returns one sum with noise, scaled, in double precision: a count or another statistic.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotFinite`] if the sum is not finite.
    pub fn release_scalar(&self, stream: Stream, sum: f64) -> Result<f64, DpError> {
        if !sum.is_finite() {
            return Err(not_finite());
        }
        let mut normal = [0];
        standard_normal(&stream.into_keystream(), 0, &mut normal);
        Ok(self.grid.release_scalar(sum, normal[0]))
    }
}

/// The error for sums that are not finite.
pub(crate) fn not_finite() -> DpError {
    DpError::NotFinite { what: "sums" }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::noise::release::TASK_VALUES;
    use crate::random::{InsecureSeed, NoiseSource, Purpose};

    fn stream(seed: u64) -> Stream {
        let mut source = NoiseSource::insecure(InsecureSeed(seed));
        source.begin_step(Purpose::Gradient, 0).unwrap().stream(0).unwrap()
    }

    fn release(mechanism: &GaussianMechanism, sums: &[f32]) -> Vec<f32> {
        let mut values = sums.to_vec();
        mechanism.release(stream(1), &mut values).unwrap();
        values
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    /// Sums of all magnitudes from 2^-40 to 2^20, both signs, and zeros.
    fn sums(number: usize) -> Vec<f32> {
        let one = |word: u64| {
            let sign = if word & 1 == 0 { 1.0 } else { -1.0 };
            let magnitude = 2f32.powi(((word >> 1) % 60) as i32 - 40);
            if word >> 60 == 0 {
                0.0
            } else {
                sign * magnitude * (1.0 + (word >> 40) as f32 * 6e-8)
            }
        };
        stream(99).into_words().take(number).map(one).collect()
    }

    #[test]
    fn a_release_equals_the_rounded_sum_plus_the_noise_in_integers() {
        // Oracle: 128-bit integers, one value at a time.
        let number = 2 * TASK_VALUES + 131;
        for (noise_std, scale) in [(1.0, 1.0), (0.7, 1.0 / 256.0), (3e-5, 2.0), (1e6, 1e-3)] {
            let mechanism = GaussianMechanism::new(noise_std, scale).unwrap();
            assert_eq!((mechanism.noise_std(), mechanism.scale()), (noise_std, scale));
            let grid = mechanism.grid;
            let sums = sums(number);
            let released = release(&mechanism, &sums);
            let mut normal = vec![0; number];
            standard_normal(&stream(1).into_keystream(), 0, &mut normal);
            for i in 0..number {
                // sum · reciprocal · 2^exponent, as an integer and its rounded binary places.
                let places = 66 - grid.exponent;
                let scaled = (f64::from(sums[i]) * 2f64.powi(66)) as i128;
                assert_eq!(scaled as f64, f64::from(sums[i]) * 2f64.powi(66));
                let product = scaled.unsigned_abs() * u128::from(grid.reciprocal);
                let sum = ((product + (1 << (places - 1))) >> places) as i128 * scaled.signum();
                let total = (sum + i128::from(normal[i])) as f32;
                let expected = total * 2f32.powi(-40) * grid.factor;
                assert_eq!(released[i].to_bits(), expected.to_bits(), "{i}: {}", sums[i]);
                let near =
                    (f64::from(sums[i]) + normal[i] as f64 * 2f64.powi(-40) * noise_std) * scale;
                let error = (f64::from(released[i]) - near).abs();
                assert!(error <= 2e-7 * near.abs() + noise_std * scale * 1e-9, "{i}: {near}");
            }
        }
    }

    #[test]
    fn before_scaling_every_value_is_a_multiple_of_the_grid() {
        for noise_std in [1e-6, 0.3, 1.0, 7.7, 1e6] {
            let mechanism = GaussianMechanism::new(noise_std, 1.0).unwrap();
            for step in 0..100u64 {
                let sum = (0.1 + step as f64 * 1e-3) * noise_std;
                let value = mechanism.release_scalar(stream(step), sum).unwrap();
                let multiple = value / mechanism.grid();
                assert!((multiple - multiple.round()).abs() < 0.01, "{multiple}");
            }
        }
        // In single precision only results next to zero resolve the grid: here the sum cancels the
        // noise except for one unit.
        let mechanism = GaussianMechanism::new(1.0, 1.0).unwrap();
        let mut normal = vec![0; 3000];
        standard_normal(&stream(1).into_keystream(), 0, &mut normal);
        let unit = 2f64.powi(-40);
        let sums: Vec<f32> = normal.iter().map(|&z| -(z as f64 * unit) as f32).collect();
        for value in release(&mechanism, &sums) {
            let multiple = f64::from(value) / unit;
            assert_eq!(multiple, multiple.round());
        }
    }

    #[test]
    fn sums_on_the_same_grid_point_are_indistinguishable() {
        let mechanism = GaussianMechanism::new(1.0, 0.37).unwrap();
        let grid = mechanism.grid() as f32;
        let reference = bits(&release(&mechanism, &[0.0; 3000]));
        for sum in [-0.0, 1e-45, -1e-45, f32::MIN_POSITIVE, -1e-30, 0.49 * grid, -0.49 * grid] {
            assert!(bits(&release(&mechanism, &[sum; 3000])) == reference, "{sum}");
        }
        // In double precision the next grid point differs, and no value between the two.
        let scalar = |sum| mechanism.release_scalar(stream(1), sum).unwrap();
        let grid = mechanism.grid();
        assert_eq!(scalar(0.49 * grid).to_bits(), scalar(-0.0).to_bits());
        assert_eq!(scalar(0.51 * grid).to_bits(), scalar(1.49 * grid).to_bits());
        assert_ne!(scalar(0.51 * grid), scalar(0.49 * grid));
    }

    #[test]
    fn the_snapping_overhead_is_an_upper_bound() {
        let mechanism = GaussianMechanism::new(1.3, 1.0).unwrap();
        for dimension in [1u64, 10, 1000] {
            let overhead = mechanism.snapping_overhead(dimension);
            let exact = mechanism.grid() * (dimension as f64).sqrt();
            assert!(overhead >= exact && exact > 0.999 * overhead);
        }
        // Also where the conversion and the root round: in exact integers, with a grid that is a
        // power of two.
        let mechanism = GaussianMechanism::new(1.0, 1.0).unwrap();
        for dimension in [1, 2, 3, 5, (1 << 53) + 1, u64::MAX - 1, u64::MAX] {
            let units = mechanism.snapping_overhead(dimension) / mechanism.grid();
            let places = 52 - units.log2().floor() as i32;
            let integer = units * 2f64.powi(places);
            assert_eq!(integer, integer.trunc());
            assert!((integer as u128).pow(2) >= u128::from(dimension) << (2 * places));
            assert!(units <= (dimension as f64).sqrt() * (1.0 + 1e-15));
        }
        assert!(mechanism.snapping_overhead(100_000_000) < 1e-8 * mechanism.noise_std());
    }

    /// Returns the distance of two neighboring releases of `dimension` sums, in standard
    /// deviations. Both have the same noise, and each sum moves by almost `sensitivity` /
    /// √dimension: one end is just below half a grid unit and rounded down, the other just above
    /// and rounded up.
    fn released_distance(mechanism: &GaussianMechanism, sensitivity: f64, dimension: u64) -> f64 {
        const EDGE: f64 = 1e-3;
        let (grid, root) = (mechanism.grid(), (dimension as f64).sqrt());
        let whole_units = (sensitivity / root / grid - 2.0 * EDGE).floor();
        let [low, high] = [0.5 - EDGE, whole_units + 0.5 + EDGE].map(|units| units * grid);
        assert!((high - low) * root <= sensitivity, "neighbors");
        let released = |sum| mechanism.release_scalar(stream(1), sum).unwrap();
        (released(high) - released(low)) * root / mechanism.noise_std()
    }

    #[test]
    fn released_sums_of_neighbors_stay_within_the_accounted_sensitivity() {
        // The more noise and dimensions, the coarser the grid compared with the sums.
        for (z, dimension) in [(1000.0, 1u64 << 16), (3.7e5, 1), (0.9, 1 << 40)] {
            let (sensitivity, allowed) = (0.37, 1.0 / z);
            let distance = |factor: f64| {
                let mechanism = GaussianMechanism::new(z * sensitivity * factor, 1.0).unwrap();
                released_distance(&mechanism, sensitivity, dimension)
            };
            assert!(distance(1.0) > allowed * (1.0 + 1e-9), "{z}: there is no gap to close");
            let factor = GaussianMechanism::snapping_factor(z, dimension).unwrap();
            assert!(distance(factor) <= allowed, "{z}");
        }
    }

    #[test]
    fn the_snapping_factor_covers_the_overhead_of_every_deviation() {
        for z in [1e-3, 0.5, 1.0, 1.999, 2.0, 37.0, 1e6] {
            for dimension in [1u64, 1000, 100_000_000] {
                let factor = GaussianMechanism::snapping_factor(z, dimension).unwrap();
                // All positions of the standard deviation between two powers of two.
                for sensitivity in [1.0, 0.51, 0.7, 0.999_999] {
                    let std = z * sensitivity * factor;
                    let mechanism = GaussianMechanism::new(std, 1.0).unwrap();
                    let whole = sensitivity + mechanism.snapping_overhead(dimension);
                    assert!(z * whole <= std * (1.0 + 4.0 * f64::EPSILON), "{z} {dimension}");
                }
                assert!(factor > 1.0 && factor <= 1.0 + 2.0 * z * 1e-12 * 1e4);
            }
        }
        // Correlated noise multiplies the overhead.
        for gain in [0.25, 4.0, 100.0] {
            let factor = GaussianMechanism::snapping_factor_with(gain, 8.0, 1_000_000).unwrap();
            let expected = 8e3 * gain * Grid::FINENESS;
            assert!(((1.0 - 1.0 / factor) / expected - 1.0).abs() < 1e-5, "{gain}: {factor}");
        }
        let error = GaussianMechanism::snapping_factor(1e9, 1_000_000).unwrap_err().to_string();
        assert!(error.contains("at most 5.5e8") && error.contains("got 1e9"), "{error}");
        assert!(GaussianMechanism::snapping_factor(f64::NAN, 1).is_err());
    }

    #[test]
    fn sums_that_are_not_finite_are_refused_and_erased() {
        let mechanism = GaussianMechanism::new(1.0, 1.0).unwrap();
        let (mut good, mut bad) = ([1.0; 3], [1.0, f32::NAN]);
        let parameters = vec![
            (mechanism, stream(1), good.as_mut_slice()),
            (mechanism, stream(2), bad.as_mut_slice()),
        ];
        let error = GaussianMechanism::release_all(parameters).unwrap_err();
        assert!(matches!(error, DpError::NotFinite { what: "sums" }));
        assert_eq!((good, bad), ([0.0; 3], [0.0; 2]));
        for bad in [f64::NAN, f64::INFINITY] {
            assert!(mechanism.release_scalar(stream(1), bad).is_err());
        }
    }

    #[test]
    fn releases_of_the_largest_sums_are_finite() {
        for (noise_std, scale) in [(1e-25, 9e39), (1.0, 1.0), (1e25, 9e-11), (1.0, 1e-25)] {
            let mechanism = GaussianMechanism::new(noise_std, scale).unwrap();
            let values = release(&mechanism, &[f32::MAX, f32::MIN, 0.0, 1e-45]);
            assert!(values.iter().all(|value| value.is_finite()), "{values:?}");
            for sum in [f64::MAX, f64::MIN, f64::MIN_POSITIVE] {
                assert!(mechanism.release_scalar(stream(1), sum).unwrap().is_finite());
            }
        }
    }

    #[test]
    fn deviations_that_leave_the_range_of_a_float_are_refused() {
        for (noise_std, scale) in [(1e-26, 1.0), (1e26, 1e-20), (1e-20, 1e-6), (1e10, 1e6)] {
            assert!(GaussianMechanism::new(noise_std, scale).is_err(), "{noise_std} {scale}");
        }
    }

    #[test]
    fn unusable_deviations_and_scales_are_refused_by_value() {
        for bad in [0.0, -1.0, -0.0, f64::NAN, f64::INFINITY, 1e-41, 1e41] {
            let error = GaussianMechanism::new(bad, 1.0).unwrap_err();
            assert!(matches!(error, DpError::InvalidArgument { name: "noise_std", .. }));
            assert!(error.to_string().contains(&format!("got {bad}")), "{error}");
            let error = GaussianMechanism::new(1.0, bad).unwrap_err();
            assert!(matches!(error, DpError::InvalidArgument { name: "scale", .. }));
            assert!(error.to_string().contains(&format!("got {bad}")), "{error}");
        }
    }
}
