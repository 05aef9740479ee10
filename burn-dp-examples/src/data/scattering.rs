//! The scattering transform: features of an image from fixed wavelets.
//!
//! # References
//!
//! - J. Bruna, S. Mallat: Invariant scattering convolution networks, 2013.
//! - E. Oyallon, S. Mallat: Deep roto-translation scattering for object classification, 2015.
//! - F. Tramèr, D. Boneh: Differentially private learning needs better features (or much more
//!   data), 2021, section 3.

use std::f64::consts::PI;
use std::fmt;

use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;
use rustfft::num_complex::Complex;
use rustfft::{FftPlanner, FftPlannerScalar};

use super::fft2d::Fft2d;

/// Bandwidth of the finest wavelet, in pixels.
const SIGMA: f64 = 0.8;
/// Frequency of the finest wavelet, in radians for each pixel.
const FREQUENCY: f64 = 0.75 * PI;
/// Copies of a wavelet on each side of the image: the transform is periodic.
const PERIODS: i32 = 2;

/// Scattering coefficients of the orders 0, 1 and 2 with Morlet wavelets, without parameters.
///
/// The modulus of the wavelet coefficients is taken, again of their wavelet coefficients at coarser
/// scales, and each of them is averaged over 2^scales pixels. The image is reflected at its
/// borders.
///
/// # Privacy
///
/// The coefficients of an image depend on no other image and on no data, so computing them once for
/// each image before private training costs nothing.
#[derive(Clone)]
pub struct Scattering2d {
    shape: [usize; 2],
    /// Pixels added before rows and columns, and the resulting sides.
    margin: [usize; 2],
    padded: [usize; 2],
    scales: usize,
    /// The low pass at each resolution.
    low: Vec<Vec<f32>>,
    wavelets: Vec<Wavelet>,
    /// The transforms at each resolution.
    fft: Vec<Fft2d>,
}

/// The wavelet of a scale and an orientation, in frequencies.
#[derive(Clone)]
struct Wavelet {
    scale: usize,
    /// At each resolution down to the one of the scale.
    levels: Vec<Vec<f32>>,
}

impl Scattering2d {
    /// Returns the transform of images of `[height, width]`; `None` if a side is too short to be
    /// reflected, or there is no scale or no orientation.
    ///
    /// # Arguments
    ///
    /// - `scales`: octaves of the wavelets; the output is smaller by 2^scales
    /// - `orientations`: directions of the wavelets in half a turn
    pub fn new(scales: usize, orientations: usize, shape: [usize; 2]) -> Option<Self> {
        if scales == 0 || orientations == 0 || scales >= usize::BITS as usize {
            return None;
        }
        let block = 1_usize << scales;
        let padded = shape.map(|side| (side / block + 2) * block);
        let margin = [0, 1].map(|axis: usize| (padded[axis] - shape[axis]) / 2);
        if [0, 1]
            .iter()
            .any(|&axis: &usize| padded[axis] - shape[axis] - margin[axis] >= shape[axis])
        {
            return None;
        }
        let mut planner = FftPlanner::new();
        let levels = (0..=scales).map(|level| padded.map(|side| side >> level));
        let fft: Vec<_> =
            levels.map(|size| Fft2d::new(size, |side, to| planner.plan_fft(side, to))).collect();
        // The wavelets are created once, and `FftPlanner` takes long to compile.
        let mut planner = FftPlannerScalar::new();
        let double = Fft2d::new(padded, |side, to| planner.plan_fft(side, to));
        let in_frequencies = |mut values: Vec<Complex<f64>>| -> Vec<f64> {
            double.forward(&mut values);
            values.iter().map(|value| value.re).collect()
        };
        let widest = SIGMA * 2f64.powi(scales as i32 - 1);
        let low = in_frequencies(gabor(padded, widest, 0.0, 0.0, 1.0));
        let wavelets = (0..scales).flat_map(|scale| (0..orientations).map(move |t| (scale, t)));
        let wavelets = wavelets.map(|(scale, orientation)| {
            let turn = (orientations / 2).saturating_sub(1) as f64 - orientation as f64;
            let octave = 2f64.powi(scale as i32);
            let slant = 4.0 / orientations as f64;
            let angle = turn * PI / orientations as f64;
            let values =
                in_frequencies(morlet(padded, SIGMA * octave, angle, FREQUENCY / octave, slant));
            let levels = (0..=scale).map(|level| cropped(&values, padded, level)).collect();
            Wavelet { scale, levels }
        });
        Some(Self {
            shape,
            margin,
            padded,
            scales,
            wavelets: wavelets.collect(),
            low: (0..=scales).map(|level| cropped(&low, padded, level)).collect(),
            fft,
        })
    }

    /// Returns the number of coefficients at each place: 1 + scales · orientations, and a pair for
    /// each wavelet and each coarser one.
    pub fn channels(&self) -> usize {
        let coarser = |wavelet: &Wavelet| {
            self.wavelets.iter().filter(|other| other.scale > wavelet.scale).count()
        };
        1 + self.wavelets.iter().map(|wavelet| 1 + coarser(wavelet)).sum::<usize>()
    }

    /// Returns the number of places, `[height, width]`.
    pub fn output_shape(&self) -> [usize; 2] {
        self.padded.map(|side| (side >> self.scales) - 2)
    }

    /// Returns the coefficients of each channel of a batch.
    ///
    /// They have no gradient: the transform has no parameters, and belongs before the first layer.
    ///
    /// # Shapes
    ///
    /// - `images`: `[batch_size, channels, height, width]`
    /// - output: `[batch_size, channels · self.channels(), height', width']`
    ///
    /// # Panics
    ///
    /// Panics if the images have another height or width than the transform.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let [batch, channels, height, width] = images.dims();
        assert_eq!([height, width], self.shape, "height and width of the transform");
        let device = images.device();
        let values: Vec<f32> = images.into_data().iter().collect();
        let planes: Vec<&[f32]> = values.chunks_exact(height * width).collect();
        let planes = planes.into_par_iter().flat_map_iter(|plane| self.transform(plane));
        let [rows, columns] = self.output_shape();
        let shape = [batch, channels * self.channels(), rows, columns];
        Tensor::from_data(TensorData::new(planes.collect::<Vec<f32>>(), shape), &device)
    }

    /// Returns the coefficients of one image of one channel: order 0, then order 1, then order 2,
    /// each from fine to coarse wavelets.
    pub fn transform(&self, image: &[f32]) -> Vec<f32> {
        let [height, width] = self.output_shape();
        let mut output = Vec::with_capacity(self.channels() * height * width);
        let mut of_order_2 = Vec::with_capacity(output.capacity());
        let mut image = self.reflected(image);
        self.fft[0].forward(&mut image);
        self.averaged(&image, 0, &mut output);
        for first in &self.wavelets {
            let modulus = self.modulus(&image, 0, first);
            self.averaged(&modulus, first.scale, &mut output);
            for second in self.wavelets.iter().filter(|second| second.scale > first.scale) {
                let modulus = self.modulus(&modulus, first.scale, second);
                self.averaged(&modulus, second.scale, &mut of_order_2);
            }
        }
        output.append(&mut of_order_2);
        output
    }

    /// Returns the padded image: reflected, the border pixels not repeated.
    fn reflected(&self, image: &[f32]) -> Vec<Complex<f32>> {
        let [height, width] = self.shape;
        let source = |at: usize, axis: usize| {
            let last = self.shape[axis] as isize - 1;
            let at = at as isize - self.margin[axis] as isize;
            (last - (last - at.abs()).abs()) as usize
        };
        debug_assert_eq!(image.len(), height * width);
        let rows = (0..self.padded[0]).map(|row| source(row, 0) * width);
        let pixels = rows.flat_map(|row| (0..self.padded[1]).map(move |x| row + source(x, 1)));
        pixels.map(|at| image[at].into()).collect()
    }

    /// Returns the transform of the modulus of the coefficients of a wavelet, at its resolution.
    ///
    /// # Arguments
    ///
    /// - `values`: frequencies at the resolution `level`
    fn modulus(
        &self,
        values: &[Complex<f32>],
        level: usize,
        wavelet: &Wavelet,
    ) -> Vec<Complex<f32>> {
        let mut filtered = self.filtered(values, level, &wavelet.levels[level], wavelet.scale);
        self.fft[wavelet.scale].inverse(&mut filtered);
        // Coefficients of pixels between 0 and 1 neither over- nor underflow.
        filtered.iter_mut().for_each(|value| *value = value.norm_sqr().sqrt().into());
        self.fft[wavelet.scale].forward(&mut filtered);
        filtered
    }

    /// Appends the averages, without the margins.
    fn averaged(&self, values: &[Complex<f32>], level: usize, output: &mut Vec<f32>) {
        let mut low = self.filtered(values, level, &self.low[level], self.scales);
        self.fft[self.scales].inverse(&mut low);
        let [height, width] = self.output_shape();
        let rows = low.chunks_exact(width + 2).skip(1).take(height);
        output.extend(rows.flat_map(|row| row[1..=width].iter().map(|value| value.re)));
    }

    /// Filters frequencies, and takes every 2^(`to` - `level`)-th value: frequencies that coincide
    /// are averaged.
    fn filtered(
        &self,
        values: &[Complex<f32>],
        level: usize,
        filter: &[f32],
        to: usize,
    ) -> Vec<Complex<f32>> {
        let [height, width] = self.padded.map(|side| side >> to);
        let from = self.padded[1] >> level;
        let mut output = vec![Complex::default(); height * width];
        let rows = values.chunks_exact(from).zip(filter.chunks_exact(from));
        for (row, (values, filter)) in rows.enumerate() {
            let output = &mut output[row % height * width..][..width];
            for (values, filter) in values.chunks_exact(width).zip(filter.chunks_exact(width)) {
                for ((output, value), filter) in output.iter_mut().zip(values).zip(filter) {
                    *output += value * filter;
                }
            }
        }
        let share = 1.0 / (1_u64 << (2 * (to - level))) as f32;
        output.iter_mut().for_each(|value| *value *= share);
        output
    }
}

impl fmt::Debug for Scattering2d {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scattering2d")
            .field("scales", &self.scales)
            .field("orientations", &(self.wavelets.len() / self.scales))
            .field("shape", &self.shape)
            .finish()
    }
}

/// Returns a Gaussian window times a wave, repeated with the period of the image.
fn gabor(
    size: [usize; 2],
    sigma: f64,
    angle: f64,
    frequency: f64,
    slant: f64,
) -> Vec<Complex<f64>> {
    let (sin, cos) = angle.sin_cos();
    let window = |x: f64, y: f64| {
        let (along, across) = (x * cos + y * sin, y * cos - x * sin);
        let squared = along * along + slant * slant * across * across;
        Complex::from_polar((-squared / (2.0 * sigma * sigma)).exp(), frequency * along)
    };
    let value = |row: usize, column: usize| {
        let periods = (-PERIODS..=PERIODS).flat_map(|i| (-PERIODS..=PERIODS).map(move |j| (i, j)));
        let sum: Complex<f64> = periods
            .map(|(i, j)| {
                let at = |at: usize, period: i32, side| at as f64 + f64::from(period) * side as f64;
                window(at(row, i, size[0]), at(column, j, size[1]))
            })
            .sum();
        sum * slant / (2.0 * PI * sigma * sigma)
    };
    (0..size[0]).flat_map(|row| (0..size[1]).map(move |column| value(row, column))).collect()
}

/// Returns a wave in a Gaussian window, with mean zero.
fn morlet(
    size: [usize; 2],
    sigma: f64,
    angle: f64,
    frequency: f64,
    slant: f64,
) -> Vec<Complex<f64>> {
    let mut wave = gabor(size, sigma, angle, frequency, slant);
    let window = gabor(size, sigma, angle, 0.0, slant);
    let ratio = wave.iter().sum::<Complex<f64>>() / window.iter().sum::<Complex<f64>>();
    wave.iter_mut().zip(&window).for_each(|(wave, window)| *wave -= ratio * window);
    wave
}

/// Returns the low frequencies of a filter: the filter of images that are smaller by 2^`level`.
fn cropped(values: &[f64], size: [usize; 2], level: usize) -> Vec<f32> {
    let kept = |side: usize| {
        let positive = side >> (level + 1);
        let negative = side - (side >> level);
        (0..side >> level).map(move |at| if at < positive { at } else { negative + at })
    };
    let rows = kept(size[0]).map(|row| row * size[1]);
    rows.flat_map(|row| kept(size[1]).map(move |column| values[row + column] as f32)).collect()
}

#[cfg(test)]
mod tests {
    // 3.1415 is Kymatio's constant.
    #![allow(clippy::unwrap_used, clippy::approx_constant)]

    use burn::tensor::Device;

    use super::*;

    fn image([height, width]: [usize; 2]) -> Vec<f32> {
        let pixel = |i: usize, j: usize| ((7 * i * i + 13 * j + i * j) % 32) as f32 / 31.0;
        (0..height).flat_map(|i| (0..width).map(move |j| pixel(i, j))).collect()
    }

    /// First and last value and sum of some channels, by Kymatio 0.3.0 (`kymatio.numpy`,
    /// `Scattering2D(J, shape, L)`) for the image above. It divides its windows by 2 · 3.1415.
    type Channel = (usize, f64, f64, f64);
    const KYMATIO: [(usize, usize, [usize; 2], &[Channel]); 4] = [
        (
            2,
            8,
            [12, 12],
            &[
                (0, 0.4851381291159348, 0.5479678508297706, 4.66311718203448),
                (1, 0.08156301735375068, 0.07440410705761145, 0.5867546751018818),
                (16, 0.013166308556120164, 0.012336134648734854, 0.11999784575351553),
                (17, 0.009676668249337923, 0.013219947569021395, 0.07071060303543251),
                (80, 0.010319808311873603, 0.0098123889787579, 0.079151758198476),
            ],
        ),
        (
            3,
            4,
            [16, 20],
            &[
                (0, 0.5230041971760814, 0.5428115889117565, 2.1139145320185544),
                (1, 0.07745759938063458, 0.10783765434810302, 0.36053419787378693),
                (12, 0.023901165556570007, 0.012521615309301733, 0.07934671307291298),
                (13, 0.005395000225199385, 0.007119055456885362, 0.025588343117692574),
                (60, 0.004212133273770293, 0.007044727896826789, 0.027718948743947563),
            ],
        ),
        (
            2,
            3,
            [9, 14],
            &[
                (0, 0.5034432605938015, 0.5460153990804033, 3.0570836065347597),
                (1, 0.08610790304509068, 0.08957067531923654, 0.5407511841756582),
                (6, 0.02935462406978758, 0.030516770386154933, 0.17844611648009134),
                (7, 0.007734424470730974, 0.005422181640017532, 0.0463769417827073),
                (15, 0.005069395805494913, 0.004053249322706742, 0.02745086279358133),
            ],
        ),
        (
            1,
            2,
            [7, 5],
            &[
                (0, 0.47389628702416486, 0.39704944996094094, 2.878729504868938),
                (1, 0.14508794066151892, 0.13774787799461397, 0.829926316587984),
                (2, 0.19171531746652068, 0.21077639958714622, 1.237997291803694),
            ],
        ),
    ];

    #[test]
    fn coefficients_agree_with_kymatio() {
        for (scales, orientations, shape, channels) in KYMATIO {
            let transform = Scattering2d::new(scales, orientations, shape).unwrap();
            let values = transform.transform(&image(shape));
            let places = transform.output_shape().iter().product::<usize>();
            assert_eq!(values.len(), transform.channels() * places);
            for &(channel, first, last, sum) in channels {
                let filters = match channel {
                    0 => 1,
                    channel if channel <= scales * orientations => 2,
                    _ => 3,
                };
                let scale = (3.1415 / PI).powi(filters);
                let values: Vec<_> =
                    values[channel * places..][..places].iter().map(|&v| f64::from(v)).collect();
                let found = [values[0], values[places - 1], values.iter().sum()];
                for (found, expected) in found.into_iter().zip([first, last, sum]) {
                    let (scaled, text) = (expected * scale, format!("{scales} {channel}"));
                    assert!(
                        (found - scaled).abs() < 2e-6 * sum.max(0.1),
                        "{text}: {found} {scaled}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_batch_has_the_coefficients_of_each_image() {
        let transform = Scattering2d::new(2, 8, [12, 12]).unwrap();
        assert_eq!((transform.channels(), transform.output_shape()), (81, [3, 3]));
        let device = Device::flex();
        let one = image([12, 12]);
        let two: Vec<f32> = one.iter().map(|value| 1.0 - value * value).collect();
        let data = TensorData::new([one.clone(), two.clone()].concat(), [1, 2, 12, 12]);
        let output = transform.forward(Tensor::from_data(data, &device));
        assert_eq!(output.dims(), [1, 162, 3, 3]);
        let expected = [transform.transform(&one), transform.transform(&two)].concat();
        assert_eq!(output.into_data().try_into_vec::<f32>().unwrap(), expected);
    }

    #[test]
    fn images_that_are_too_small_have_no_transform() {
        assert!(Scattering2d::new(2, 8, [5, 5]).is_some());
        for (scales, orientations, shape) in
            [(2, 8, [3, 12]), (0, 8, [12, 12]), (2, 0, [12, 12]), (6, 8, [28, 28]), (64, 1, [9, 9])]
        {
            assert!(Scattering2d::new(scales, orientations, shape).is_none(), "{shape:?}");
        }
    }
}
