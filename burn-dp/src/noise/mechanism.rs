//! The Gaussian mechanism on a grid.

use super::ahead::NoiseAhead;
use super::correlated::CorrelatedNoise;
use super::grid::Grid;
use super::release::release;
use super::standard_normal::standard_normal;
use crate::DpError;
use crate::random::Stream;

/// Smallest and largest standard deviation and scale: far beyond all use, and far from where
/// doubles lose precision.
const USABLE: std::ops::RangeInclusive<f64> = 1e-60..=1e60;

/// Adds Gaussian noise to sums of bounded sensitivity.
///
/// `release = (snap(sum) + snap(noise)) · scale`, where `snap` rounds to the nearest multiple of
/// the [`grid`](Self::grid) g, the power of two that is 2^40 to 2^41 times smaller than the
/// standard deviation. All arithmetic is in doubles, whatever the precision of the parameter; the
/// result is converted to `f32` once.
///
/// # Privacy
///
/// Sensitivity: `noise_std` is the noise multiplier times the L2 sensitivity of the *snapped* sums.
/// Snapping moves each of d coordinates by at most g/2, so the distance of two snapped sums is
/// larger than the distance of the sums by at most [`snapping_overhead`](Self::snapping_overhead) =
/// g √d. With d = 10^8 this is less than 10^-8 standard deviations. A step of a
/// [`DpOptimizer`](crate::optim::DpOptimizer) adds it to the sensitivity: see
/// [`snapping_factor`](Self::snapping_factor).
///
/// Proven, for any sum:
///
/// - The output is a function of the integers (snap(sum) + snap(noise))/g. Both terms are integers
///   that doubles hold exactly, an IEEE 754 sum is a function of the exact sum, and the rest is
///   post-processing; zero has one sign. So the low-order bits reveal nothing about the sum beyond
///   the integers, which prevents the attack of Mironov (2012).
/// - If the noise were exactly normal, the integers would be the result of the Gaussian mechanism
///   on the snapped sum, rounded, because snapping commutes with the addition of a multiple of g.
///   So its guarantee holds.
///
/// Not proven: that the noise is normal to the last place. The radius has 64 bits and the angle 54.
/// The kernels err by a few units in the last place, 2^-53 relative, against a grid of 2^-40
/// standard deviations: the probability of a single integer is off by a small relative amount that
/// averages out over all words that lead to it. Beyond 9.49 standard deviations (probability
/// 2.3·10^-21 for each value) there is no noise. A sampler of the discrete Gaussian (Canonne,
/// Kamath and Steinke, 2020) would be exact in distribution.
///
/// Not covered: the rounding of the sums themselves before the release, and the time that the
/// release takes.
///
/// # References
///
/// - G. E. P. Box, M. E. Muller, "A Note on the Generation of Random Normal Deviates", 1958.
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
    /// Returns [`DpError::InvalidArgument`] if `noise_std` or `scale` is not between 1e-60 and
    /// 1e60. Zero is refused: clipped sums without noise are not private.
    pub fn new(noise_std: f64, scale: f64) -> Result<Self, DpError> {
        if !USABLE.contains(&noise_std) {
            return Err(DpError::invalid(
                "noise_std",
                format!(
                    "must be positive (1e-60 to 1e60), got {noise_std}; a clipped sum without \
                     noise is not private, so train without privacy instead if that is intended"
                ),
            ));
        }
        if !USABLE.contains(&scale) {
            return Err(DpError::invalid(
                "scale",
                format!("must be positive (1e-60 to 1e60), got {scale}; it is 1 / expected batch"),
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

    /// Returns the grid, a power of two. Before scaling, every result is a multiple of it.
    pub fn grid(&self) -> f64 {
        self.grid.spacing()
    }

    /// Returns an upper bound of the increase of the L2 sensitivity by snapping, g √dimension, for
    /// `dimension` sums that are released together.
    pub fn snapping_overhead(&self, dimension: u64) -> f64 {
        // The conversion and the root each err by half a unit in the last place at most, and the
        // product with a power of two is exact.
        self.grid() * (dimension as f64).sqrt().next_up().next_up()
    }

    /// Returns the factor by which all standard deviations of a release grow so that snapping is
    /// part of the sensitivity that the noise is scaled to, rounded up.
    ///
    /// In units of the standard deviations σ_h, the sums of neighbors differ by at most 1/z, where
    /// z is the noise multiplier that the accountant is told, and snapping adds at most 2^-40 √d,
    /// because the grid is at most 2^-40 σ_h in every coordinate. With the factor f they differ by
    /// at most 1/(z f) + 2^-40 √d, which is 1/z for f = 1/(1 − z 2^-40 √d).
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
        // The factor before the root covers the rounding of z and of all operations here.
        let part = (1.0 + 1e-9) * noise_multiplier * (dimension as f64).sqrt() * Grid::FINENESS;
        if part <= 0.5 {
            return Ok((1.0 / (1.0 - part)).next_up());
        }
        let largest = 0.5 / ((dimension as f64).sqrt() * Grid::FINENESS);
        Err(DpError::invalid(
            "noise_multiplier",
            format!(
                "must be at most {largest:.1e} for {dimension} released values, got \
                 {noise_multiplier:e}: the grid of the noise would be as coarse as the sums"
            ),
        ))
    }

    /// Replaces the sums of one parameter by their noisy, scaled values.
    ///
    /// The sums are overwritten, so that they cannot be read after their release. A parameter
    /// without any contribution is a sum of zeros and is released as noise alone. A result beyond
    /// the range of `f32` becomes the largest finite value.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a sum is not finite; then all of them are set to
    /// zero and nothing is released. Whether the error occurs depends on the data: clipping has to
    /// exclude it.
    pub fn release(&self, stream: Stream, sums: &mut [f32]) -> Result<(), DpError> {
        Self::release_all(vec![(*self, stream, sums)])
    }

    /// Replaces the sums of several parameters, each with its mechanism: faster than one
    /// [`release`](Self::release) after another.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if any sum is not finite; then the sums of all
    /// parameters are set to zero and nothing is released.
    pub fn release_all(parameters: Vec<(Self, Stream, &mut [f32])>) -> Result<(), DpError> {
        Self::release_with(parameters, None, None)
    }

    /// Releases as [`release_all`](Self::release_all), with noise that may have been drawn ahead.
    /// The result does not depend on whether it was.
    ///
    /// # Arguments
    ///
    /// - `correlated`: combines the noise with the noise of earlier steps
    pub(crate) fn release_with(
        parameters: Vec<(Self, Stream, &mut [f32])>,
        ahead: Option<&NoiseAhead>,
        correlated: Option<&mut CorrelatedNoise>,
    ) -> Result<(), DpError> {
        let lengths: Vec<usize> = parameters.iter().map(|(_, _, sums)| sums.len()).collect();
        let step = match (correlated, parameters.first()) {
            (Some(correlated), Some((_, stream, _))) => {
                Some(correlated.begin(stream.identity().0, &lengths)?)
            }
            _ => None,
        };
        let parameters = parameters
            .into_iter()
            .map(|(mechanism, stream, sums)| (mechanism.grid, stream, sums))
            .collect();
        if release(parameters, ahead, step) { Ok(()) } else { Err(not_finite()) }
    }

    /// Returns one sum with noise, scaled, in double precision: a count or another statistic.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the sum is not finite.
    pub fn release_scalar(&self, stream: Stream, sum: f64) -> Result<f64, DpError> {
        if !sum.is_finite() {
            return Err(not_finite());
        }
        let mut normal = [0.0];
        standard_normal(&stream.into_keystream(), 0, &mut normal);
        Ok(self.grid.release_scalar(sum, normal[0]))
    }
}

fn not_finite() -> DpError {
    DpError::invalid(
        "sums",
        "must be finite, got an infinity or NaN; nothing was released. Give units whose norm is \
         not finite the weight zero before they are summed",
    )
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
    fn a_release_equals_the_snapped_sum_plus_the_snapped_noise_in_integers() {
        // Oracle: 128-bit integers, one value at a time.
        let number = 2 * TASK_VALUES + 131;
        for (noise_std, scale) in [(1.0, 1.0), (0.7, 1.0 / 256.0), (3e-5, 2.0), (1e6, 1e-3)] {
            let mechanism = GaussianMechanism::new(noise_std, scale).unwrap();
            let sums = sums(number);
            let released = release(&mechanism, &sums);
            let mut normal = vec![0.0; number];
            standard_normal(&stream(1).into_keystream(), 0, &mut normal);
            for i in 0..number {
                let integer = |x: f64| x.round_ties_even() as i128;
                let sum = integer(f64::from(sums[i]) / mechanism.grid());
                let noise = integer(normal[i] * (noise_std / mechanism.grid()));
                let expected = ((sum + noise) as f64 * (mechanism.grid() * scale)) as f32;
                assert_eq!(released[i].to_bits(), expected.to_bits(), "{i}: {}", sums[i]);
            }
        }
    }

    #[test]
    fn before_scaling_every_value_is_a_multiple_of_the_grid() {
        for noise_std in [1e-6, 0.3, 1.0, 7.7, 1e6] {
            let mechanism = GaussianMechanism::new(noise_std, 1.0).unwrap();
            let sums: Vec<f32> = sums(20_000).iter().map(|x| x * noise_std as f32).collect();
            for value in release(&mechanism, &sums) {
                let multiple = f64::from(value) / mechanism.grid();
                assert_eq!(multiple, multiple.round(), "{value} for {noise_std}");
            }
            let value = mechanism.release_scalar(stream(2), 0.1 * noise_std).unwrap();
            let multiple = value / mechanism.grid();
            assert_eq!(multiple, multiple.round());
        }
    }

    #[test]
    fn sums_on_the_same_grid_point_are_indistinguishable() {
        let mechanism = GaussianMechanism::new(1.0, 0.37).unwrap();
        let grid = mechanism.grid() as f32;
        let reference = bits(&release(&mechanism, &[0.0; 3000]));
        for sum in [-0.0, 1e-45, -1e-45, f32::MIN_POSITIVE, -1e-30, 0.49 * grid, -0.5 * grid] {
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
        // Also where the conversion and the root round: in exact integers.
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
        for (z, dimension) in [(1024.0, 1u64 << 16), (3.7e5, 1), (0.9, 1 << 40)] {
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
        assert!(matches!(error, DpError::InvalidArgument { name: "sums", .. }));
        assert_eq!((good, bad), ([0.0; 3], [0.0; 2]));
        for bad in [f64::NAN, f64::INFINITY] {
            assert!(mechanism.release_scalar(stream(1), bad).is_err());
        }
    }

    #[test]
    fn releases_of_the_largest_sums_are_finite() {
        for (noise_std, scale) in [(1e-60, 1e60), (1.0, 1.0), (1e60, 1e60), (1e-60, 1e-60)] {
            let mechanism = GaussianMechanism::new(noise_std, scale).unwrap();
            let values = release(&mechanism, &[f32::MAX, f32::MIN, 0.0, 1e-45]);
            assert!(values.iter().all(|value| value.is_finite()), "{values:?}");
            for sum in [f64::MAX, f64::MIN, f64::MIN_POSITIVE] {
                assert!(mechanism.release_scalar(stream(1), sum).unwrap().is_finite());
            }
        }
    }

    #[test]
    fn unusable_deviations_and_scales_are_refused_by_value() {
        for bad in [0.0, -1.0, -0.0, f64::NAN, f64::INFINITY, 1e-61, 1e61] {
            let error = GaussianMechanism::new(bad, 1.0).unwrap_err();
            assert!(matches!(error, DpError::InvalidArgument { name: "noise_std", .. }));
            assert!(error.to_string().contains(&format!("got {bad}")), "{error}");
            let error = GaussianMechanism::new(1.0, bad).unwrap_err();
            assert!(matches!(error, DpError::InvalidArgument { name: "scale", .. }));
            assert!(error.to_string().contains(&format!("got {bad}")), "{error}");
        }
    }
}
