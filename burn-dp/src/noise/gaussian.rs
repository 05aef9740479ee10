//! The Gaussian mechanism on a grid.

use std::sync::atomic::{AtomicBool, Ordering};

use pulp::{Arch, Simd, WithSimd};
use zeroize::Zeroize;

use super::ahead::{NoiseAhead, PIECE_VALUES, Piece};
use super::normal::box_muller;
use crate::DpError;
use crate::random::NoiseStream;
use crate::random::keystream::{GROUP_BLOCKS, GROUP_WORDS, Group, Keystream};
use crate::random::share::share;

/// Groups that one task computes.
const TASK_GROUPS: usize = 32;
/// Values that one task computes.
const TASK_VALUES: usize = TASK_GROUPS * GROUP_WORDS;
/// Releases of so many values whose noise is there are made on the calling thread: waking another one
/// takes longer.
const ALONE: usize = 1 << 19;
/// The grid is this many binary places below the standard deviation.
const GRID_PLACES: i32 = 40;
/// Smallest and largest standard deviation and scale: far beyond all use, far from where doubles
/// lose precision.
const USABLE: std::ops::RangeInclusive<f64> = 1e-60..=1e60;

/// Adds Gaussian noise to sums of bounded sensitivity.
///
/// `release = (snap(sum) + snap(noise)) · scale`, where `snap` rounds to the nearest multiple of
/// the [`grid`](Self::grid) g, the power of two that is 2^40 to 2^41 times smaller than the
/// standard deviation. All arithmetic is in doubles whatever the precision of the parameter; the
/// result is converted to `f32` once.
///
/// # Privacy
///
/// Sensitivity: `noise_std` is the noise multiplier times the L2 sensitivity of the sums. Snapping
/// moves each of d coordinates by at most g/2, so two snapped sums differ by at most
/// [`snapping_overhead`](Self::snapping_overhead) = g √d more than the sums did: with d = 10^8,
/// less than 10^-8 standard deviations. Add it to the sensitivity for a bound without a gap.
///
/// Proven, for any sum:
///
/// - The output is a function of the integers (snap(sum) + snap(noise))/g. Both terms are integers
///   that doubles hold exactly, an IEEE 754 sum is a function of the exact sum, and the rest is
///   post-processing; zero has one sign. So nothing about the sum is left in the low-order bits
///   but what the integers say, which is the attack of Mironov (2012).
/// - Were the noise exactly normal, the integers would be those of the Gaussian mechanism on the
///   snapped sum, rounded: snapping commutes with adding a multiple of g. So its guarantee holds.
///
/// Not proven: that the noise is normal to the last place. The radius has 64 bits and the angle 54,
/// the kernels err by a few units in the last place, 2^-53 relative, against a grid of 2^-40
/// standard deviations: the probability of a single integer is off by a small relative amount that
/// averages out over all words that lead to it, and beyond 9.49 standard deviations (probability
/// 2.3·10^-21 a value) there is nothing. A sampler of the discrete Gaussian (Canonne, Kamath and
/// Steinke, 2020) would be exact in distribution. Nor does the mechanism cover the rounding
/// of the sums themselves before they get here, or the time it takes.
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
    grid: f64,
}

impl GaussianMechanism {
    /// A mechanism with noise of standard deviation `noise_std` on the sums, whose results are
    /// multiplied by `scale`, which must be public: 1 / expected batch size, or 1.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] when one of them is not a number between 1e-60 and 1e60. Zero
    /// is refused: clipped sums without noise are not private.
    pub fn new(noise_std: f64, scale: f64) -> Result<Self, DpError> {
        if !USABLE.contains(&noise_std) {
            return Err(DpError::invalid(
                "noise_std",
                format!(
                    "must be positive (1e-60 to 1e60), got {noise_std}; a clipped sum without \
                     noise is not private, so train without privacy instead if that is meant"
                ),
            ));
        }
        if !USABLE.contains(&scale) {
            return Err(DpError::invalid(
                "scale",
                format!("must be positive (1e-60 to 1e60), got {scale}; it is 1 / expected batch"),
            ));
        }
        Ok(Self { noise_std, scale, grid: power_of_two_below(noise_std) * 2f64.powi(-GRID_PLACES) })
    }

    /// Standard deviation of the noise on the sums, before scaling.
    pub fn noise_std(&self) -> f64 {
        self.noise_std
    }

    /// The public factor of the results.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The grid, a power of two: before scaling every result is a multiple of it.
    pub fn grid(&self) -> f64 {
        self.grid
    }

    /// By how much snapping can increase the L2 sensitivity of `dimension` sums that are released
    /// together: an upper bound of g √dimension.
    pub fn snapping_overhead(&self, dimension: u64) -> f64 {
        // The conversion and the root each err by half a unit in the last place at most, and the
        // product with a power of two is exact.
        self.grid * (dimension as f64).sqrt().next_up().next_up()
    }

    /// Replaces the sums of one parameter by their noisy, scaled values.
    ///
    /// The sums are overwritten, so that they cannot be read after their release. A parameter
    /// without any contribution is released as zeros: noise alone. A result beyond the range of
    /// `f32` becomes the largest finite value.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] when a sum is not finite; then all of them are set to zero and
    /// nothing is released. Whether the error occurs depends on the data: clipping has to make
    /// sure that it cannot.
    pub fn release(&self, stream: NoiseStream, sums: &mut [f32]) -> Result<(), DpError> {
        Self::release_all(vec![(*self, stream, sums)])
    }

    /// The same for several parameters at once, each with its mechanism: faster than one by one.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release); one sum that is not finite sets all of them to zero.
    pub fn release_all(
        parameters: Vec<(GaussianMechanism, NoiseStream, &mut [f32])>,
    ) -> Result<(), DpError> {
        Self::release_with(parameters, None)
    }

    /// The same with noise that may have been drawn ahead; the result does not depend on that.
    pub(crate) fn release_with(
        parameters: Vec<(GaussianMechanism, NoiseStream, &mut [f32])>,
        ahead: Option<&NoiseAhead>,
    ) -> Result<(), DpError> {
        let (mut jobs, mut sums) = (Vec::new(), Vec::new());
        let (mut drawn, mut to_draw) = (0, 0);
        for (mechanism, stream, values) in parameters {
            let pieces = ahead.and_then(|ahead| ahead.of(&stream, values.len()));
            *if pieces.is_some() { &mut drawn } else { &mut to_draw } += values.len();
            jobs.push((mechanism, stream.into_keystream(), pieces));
            sums.push(values);
        }
        let mut tasks = Vec::new();
        for ((mechanism, keystream, pieces), sums) in jobs.iter().zip(&mut sums) {
            match pieces {
                Some(pieces) => {
                    let pieces = sums.chunks_mut(PIECE_VALUES).zip(*pieces);
                    tasks.extend(pieces.map(|(values, piece)| Release {
                        mechanism,
                        noise: Noise::Ahead(piece),
                        values,
                    }));
                }
                None => {
                    let pieces = sums.chunks_mut(TASK_VALUES).zip((0..).step_by(TASK_GROUPS));
                    tasks.extend(pieces.map(|(values, first)| Release {
                        mechanism,
                        noise: Noise::Stream { keystream, first },
                        values,
                    }));
                }
            }
        }
        // Who draws ahead begins at the front.
        tasks.reverse();
        let finite = AtomicBool::new(true);
        let run = |task: Release| {
            finite.fetch_and(task.run(), Ordering::Relaxed);
        };
        if to_draw == 0 && drawn <= ALONE {
            tasks.into_iter().for_each(run);
        } else {
            share(tasks, run);
        }
        if finite.into_inner() {
            return Ok(());
        }
        sums.iter_mut().for_each(|sums| sums.zeroize());
        Err(not_finite())
    }

    /// The same for one number, in double precision: a count or another statistic.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] when the sum is not finite.
    pub fn release_scalar(&self, stream: NoiseStream, sum: f64) -> Result<f64, DpError> {
        if !sum.is_finite() {
            return Err(not_finite());
        }
        let mut normal = [0.0];
        stream.standard_normal(&mut normal);
        let unit = (1.0 / self.grid, self.noise_std / self.grid);
        // Limiting the snapped sum does not increase a distance, so neither the sensitivity.
        let sum = snap(sum * unit.0).clamp(-1e200, 1e200);
        Ok((sum + snap(normal[0] * unit.1)) * (self.grid * self.scale))
    }
}

impl NoiseStream {
    /// Fills `out` with independent standard normal values.
    ///
    /// # Privacy
    ///
    /// For noise that is combined before it is added, as in matrix mechanisms, and for tests. The
    /// values are on no grid: to release a sum, use [`GaussianMechanism::release`].
    pub fn standard_normal(self, out: &mut [f64]) {
        let keystream = self.into_keystream();
        share(out.chunks_mut(TASK_VALUES).enumerate().collect(), |(task, out)| {
            standard_normal(&keystream, (task * TASK_GROUPS) as u64, out);
        });
    }
}

/// Fills `out` with the values of a keystream from group `first` on.
///
/// Not inlined, so that there is one compiled instance whatever surrounds the call.
#[inline(never)]
pub(super) fn standard_normal(keystream: &Keystream, first: u64, out: &mut [f64]) {
    Arch::new().dispatch(StandardNormal { keystream, first, out });
}

/// The values of one task. Returns whether all sums were finite.
struct Release<'a> {
    mechanism: &'a GaussianMechanism,
    noise: Noise<'a>,
    values: &'a mut [f32],
}

/// Where the noise of one task comes from.
enum Noise<'a> {
    /// Drawn here, from group `first` on.
    Stream { keystream: &'a Keystream, first: u64 },
    /// Drawn ahead.
    Ahead(&'a Piece),
}

impl Release<'_> {
    /// Not inlined, so that there is one compiled instance whatever surrounds the call.
    #[inline(never)]
    fn run(self) -> bool {
        Arch::new().dispatch(self)
    }
}

impl WithSimd for Release<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        match self.noise {
            Noise::Ahead(piece) => self.mechanism.add(self.values, piece.normal()),
            Noise::Stream { keystream, first } => {
                let mut draw = Draw::new();
                let mut finite = true;
                for (i, values) in self.values.chunks_mut(GROUP_WORDS).enumerate() {
                    draw.next(simd, keystream, first + i as u64);
                    // The loop is compiled for whole groups, and once more for the rest.
                    finite &= match <&mut [f32; GROUP_WORDS]>::try_from(&mut *values) {
                        Ok(values) => self.mechanism.add(values, &draw.normal),
                        Err(_) => self.mechanism.add(values, &draw.normal),
                    };
                }
                finite
            }
        }
    }
}

impl GaussianMechanism {
    /// Releases sums with as many or more standard normal values. Returns whether they were finite.
    #[inline(always)]
    fn add(&self, sums: &mut [f32], normal: &[f64]) -> bool {
        let Self { noise_std, scale, grid } = *self;
        // Exact: the grid is a power of two.
        let (per_grid, noise_unit) = (1.0 / grid, noise_std / grid);
        let factor = grid * scale;
        let mut finite = true;
        for (sum, normal) in sums.iter_mut().zip(normal) {
            finite &= sum.is_finite();
            *sum = release_one(*sum, *normal, per_grid, noise_unit, factor);
        }
        finite
    }
}

#[inline(always)]
fn release_one(sum: f32, normal: f64, per_grid: f64, noise_unit: f64, factor: f64) -> f32 {
    let released = (snap(f64::from(sum) * per_grid) + snap(normal * noise_unit)) * factor;
    released.clamp(-f64::from(f32::MAX), f64::from(f32::MAX)) as f32
}

/// The nearest integer, without the sign of zero: minus zero would tell that a tiny negative sum
/// met a tiny negative noise.
#[inline(always)]
fn snap(value: f64) -> f64 {
    value.round_ties_even() + 0.0
}

struct StandardNormal<'a> {
    keystream: &'a Keystream,
    first: u64,
    out: &'a mut [f64],
}

impl WithSimd for StandardNormal<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut draw = Draw::new();
        for (i, out) in self.out.chunks_mut(GROUP_WORDS).enumerate() {
            draw.next(simd, self.keystream, self.first + i as u64);
            out.copy_from_slice(&draw.normal[..out.len()]);
        }
    }
}

/// The words of one group and the normal values they give; erased on drop.
///
/// Values 32 j + b and 32 j + 16 + b are the pair that words 2 j (radius) and 2 j + 1 (angle) of
/// block b give.
struct Draw {
    group: Group,
    normal: [f64; GROUP_WORDS],
}

impl Draw {
    #[inline(always)]
    fn new() -> Self {
        Self { group: Group::new(), normal: [0.0; GROUP_WORDS] }
    }

    #[inline(always)]
    fn next<S: Simd>(&mut self, simd: S, keystream: &Keystream, index: u64) {
        keystream.fill(simd, index, &mut self.group);
        for (j, values) in self.normal.chunks_exact_mut(2 * GROUP_BLOCKS).enumerate() {
            let (first, second) = values.split_at_mut(GROUP_BLOCKS);
            for b in 0..GROUP_BLOCKS {
                let (radius, angle) = (self.group.word(2 * j, b), self.group.word(2 * j + 1, b));
                (first[b], second[b]) = box_muller(radius, angle);
            }
        }
    }
}

impl Drop for Draw {
    fn drop(&mut self) {
        self.normal.zeroize();
    }
}

/// The greatest power of two that is at most `value`, which is positive and normal.
fn power_of_two_below(value: f64) -> f64 {
    f64::from_bits(value.to_bits() & 0x7ff0_0000_0000_0000)
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
    use crate::random::{InsecureSeed, NoiseSource, Purpose};

    fn stream(seed: u64, parameter: u32) -> NoiseStream {
        let mut source = NoiseSource::insecure(InsecureSeed(seed));
        source.begin_step(Purpose::Gradient, 0).unwrap().stream(parameter).unwrap()
    }

    fn release(mechanism: &GaussianMechanism, sums: &[f32]) -> Vec<f32> {
        let mut values = sums.to_vec();
        mechanism.release(stream(1, 0), &mut values).unwrap();
        values
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    /// Sums of all magnitudes from 2^-40 to 2^20, both signs, and zeros.
    fn sums(number: usize) -> Vec<f32> {
        let mut words = vec![0; number];
        stream(99, 0).words(&mut words);
        let one = |word: u64| {
            let sign = if word & 1 == 0 { 1.0 } else { -1.0 };
            let magnitude = 2f32.powi(((word >> 1) % 60) as i32 - 40);
            if word >> 60 == 0 {
                0.0
            } else {
                sign * magnitude * (1.0 + (word >> 40) as f32 * 6e-8)
            }
        };
        words.into_iter().map(one).collect()
    }

    #[test]
    fn the_release_is_the_snapped_sum_plus_the_snapped_noise_computed_in_integers() {
        // Oracle: 128-bit integers, one value at a time.
        let number = 2 * TASK_VALUES + 131;
        for (noise_std, scale) in [(1.0, 1.0), (0.7, 1.0 / 256.0), (3e-5, 2.0), (1e6, 1e-3)] {
            let mechanism = GaussianMechanism::new(noise_std, scale).unwrap();
            let sums = sums(number);
            let released = release(&mechanism, &sums);
            let mut normal = vec![0.0; number];
            stream(1, 0).standard_normal(&mut normal);
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
            let value = mechanism.release_scalar(stream(2, 0), 0.1 * noise_std).unwrap();
            let multiple = value / mechanism.grid();
            assert_eq!(multiple, multiple.round());
        }
    }

    #[test]
    fn sums_on_the_same_grid_point_cannot_be_told_apart() {
        let mechanism = GaussianMechanism::new(1.0, 0.37).unwrap();
        let grid = mechanism.grid() as f32;
        let reference = bits(&release(&mechanism, &[0.0; 3000]));
        for sum in [-0.0, 1e-45, -1e-45, f32::MIN_POSITIVE, -1e-30, 0.49 * grid, -0.5 * grid] {
            assert!(bits(&release(&mechanism, &[sum; 3000])) == reference, "{sum}");
        }
        // In double precision the next grid point shows, and nothing between the two.
        let scalar = |sum| mechanism.release_scalar(stream(1, 0), sum).unwrap();
        let grid = mechanism.grid();
        assert_eq!(scalar(0.49 * grid).to_bits(), scalar(-0.0).to_bits());
        assert_eq!(scalar(0.51 * grid).to_bits(), scalar(1.49 * grid).to_bits());
        assert_ne!(scalar(0.51 * grid), scalar(0.49 * grid));
    }

    #[test]
    fn a_result_that_is_small_enough_to_show_the_grid_shows_only_the_integers() {
        // Where sum and noise nearly cancel, f32 resolves far less than a grid unit.
        for integer in -20i32..=20 {
            for noise in -20i32..=20 {
                for (a, b) in [(-0.49f32, 0.3), (0.499, -0.499), (0.25, 1e-30), (0.0, 0.125)] {
                    let sum = integer as f32 + a;
                    let noise = f64::from(noise) + b;
                    let expected = (f64::from(integer) + noise.round()) as f32 * 0.25;
                    assert_eq!(release_one(sum, noise, 1.0, 1.0, 0.25), expected, "{sum} {noise}");
                }
            }
        }
    }

    #[test]
    fn zero_has_one_sign() {
        for (sum, noise) in [(-0.0, -0.0), (-0.0, 0.0), (0.0, -0.0), (-1e-40, -1e-20)] {
            let value = release_one(sum, noise, 1.0, 1.0, 1.0);
            assert_eq!(value.to_bits(), 0, "{sum} {noise}");
        }
        assert_eq!(release_one(-3.0, 3.0, 1.0, 1.0, 1.0).to_bits(), 0);
    }

    #[test]
    fn the_grid_is_a_power_of_two_2_to_the_40_below_the_deviation() {
        for noise_std in [1e-60, 1e-6, 0.1, 1.0, 1.999, 2.0, 1e6, 1e60] {
            let grid = GaussianMechanism::new(noise_std, 1.0).unwrap().grid();
            assert_eq!(grid.to_bits() & ((1 << 52) - 1), 0);
            let ratio = noise_std / grid;
            assert!((2f64.powi(40)..2f64.powi(41)).contains(&ratio), "{noise_std}: {ratio}");
        }
    }

    #[test]
    fn snapping_moves_two_vectors_apart_by_at_most_the_overhead() {
        // Worst case: one rounds up and the other down in every coordinate.
        let mechanism = GaussianMechanism::new(1.3, 1.0).unwrap();
        let grid = mechanism.grid();
        let snapped = |x: f64| snap(x / grid) * grid;
        for dimension in [1u64, 10, 1000] {
            let (a, b) = (0.500_001 * grid, 0.499_999 * grid);
            let root = (dimension as f64).sqrt();
            let growth = (snapped(a) - snapped(b) - (a - b)) * root;
            let overhead = mechanism.snapping_overhead(dimension);
            assert!(growth <= overhead && growth > 0.999 * overhead);
        }
        // An upper bound also where the conversion and the root round: in exact integers.
        for dimension in [1, 2, 3, 5, (1 << 53) + 1, u64::MAX - 1, u64::MAX] {
            let units = mechanism.snapping_overhead(dimension) / grid;
            let places = 52 - units.log2().floor() as i32;
            let integer = units * 2f64.powi(places);
            assert_eq!(integer, integer.trunc());
            assert!((integer as u128).pow(2) >= u128::from(dimension) << (2 * places));
            assert!(units <= (dimension as f64).sqrt() * (1.0 + 1e-15));
        }
        assert!(mechanism.snapping_overhead(100_000_000) < 1e-8 * mechanism.noise_std());
    }

    #[test]
    fn the_release_does_not_depend_on_threads_or_length() {
        let mechanism = GaussianMechanism::new(1.1, 0.01).unwrap();
        let sums = sums(5 * TASK_VALUES + 77);
        let reference = bits(&release(&mechanism, &sums));
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert!(pool.install(|| bits(&release(&mechanism, &sums))) == reference);
        }
        for length in [0, 1, 15, 16, 17, 127, 128, 129, 1000, TASK_VALUES, TASK_VALUES + 1] {
            assert!(bits(&release(&mechanism, &sums[..length])) == reference[..length], "{length}");
        }
    }

    #[test]
    fn the_release_does_not_depend_on_the_vector_unit() {
        let mechanism = GaussianMechanism::new(1.1, 0.01).unwrap();
        let sums = sums(TASK_VALUES - 5);
        let reference = bits(&release(&mechanism, &sums));
        let mut architectures = vec![Arch::Scalar];
        #[cfg(target_arch = "x86_64")]
        architectures.extend(pulp::x86::V3::try_new().map(Arch::V3));
        for arch in architectures {
            let mut values = sums.clone();
            let keystream = stream(1, 0).into_keystream();
            assert!(arch.dispatch(Release {
                mechanism: &mechanism,
                noise: Noise::Stream { keystream: &keystream, first: 0 },
                values: &mut values,
            }));
            assert!(bits(&values) == reference, "{arch:?}");
        }
    }

    #[test]
    fn sums_that_are_not_finite_are_refused_and_erased() {
        let mechanism = GaussianMechanism::new(1.0, 1.0).unwrap();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (length, at) in [(1, 0), (300, 299), (3 * TASK_VALUES, 2 * TASK_VALUES + 5)] {
                let mut values = vec![1.0; length];
                values[at] = bad;
                let error = mechanism.release(stream(1, 0), &mut values).unwrap_err();
                assert!(matches!(error, DpError::InvalidArgument { name: "sums", .. }));
                assert!(values.iter().all(|&value| value == 0.0));
            }
        }
        for bad in [f64::NAN, f64::INFINITY] {
            assert!(mechanism.release_scalar(stream(1, 0), bad).is_err());
        }
    }

    #[test]
    fn the_largest_sums_stay_finite() {
        for (noise_std, scale) in [(1e-60, 1e60), (1.0, 1.0), (1e60, 1e60), (1e-60, 1e-60)] {
            let mechanism = GaussianMechanism::new(noise_std, scale).unwrap();
            let values = release(&mechanism, &[f32::MAX, f32::MIN, 0.0, 1e-45]);
            assert!(values.iter().all(|value| value.is_finite()), "{values:?}");
            for sum in [f64::MAX, f64::MIN, f64::MIN_POSITIVE] {
                assert!(mechanism.release_scalar(stream(1, 0), sum).unwrap().is_finite());
            }
        }
    }

    #[test]
    fn deviations_and_scales_that_cannot_be_used_are_refused_by_value() {
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
