//! The scattering transform: features of an image from fixed wavelets.
//!
//! # References
//!
//! - J. Bruna, S. Mallat: Invariant scattering convolution networks, 2013.
//! - E. Oyallon, S. Mallat: Deep roto-translation scattering for object classification, 2015.
//! - F. Tramèr, D. Boneh: Differentially private learning needs better features (or much more
//!   data), 2021, section 3.

mod lines;
mod wavelets;

use std::f64::consts::PI;
use std::fmt;

use burn::tensor::{DType, Device, Tensor};

use lines::{Lines, SIGMA, Side, constant};
use wavelets::{cropped, morlet};

/// Frequency of the finest wavelet, in radians for each pixel.
const FREQUENCY: f64 = 0.75 * PI;

/// Scattering coefficients of the orders 0, 1 and 2 with Morlet wavelets, without parameters.
///
/// The modulus of the wavelet coefficients is taken, again of their wavelet coefficients at coarser
/// scales, and each of them is averaged over 2^scales pixels. The image is reflected at its
/// borders.
///
/// Sides are short, so the Fourier transforms are products with matrices, on every device.
///
/// # Privacy
///
/// The coefficients of an image depend on no other image and on no data, so computing them once for
/// each image before private training costs nothing.
#[derive(Clone)]
pub struct Scattering2d {
    shape: [usize; 2],
    output: [usize; 2],
    orientations: usize,
    /// The lines of the images, which are reflected: columns, then rows.
    pixels: [Lines; 2],
    /// The lines of the moduli of each scale.
    moduli: Vec<[Lines; 2]>,
    wavelets: Vec<Wavelet>,
}

/// The wavelet of a scale and an orientation, in frequencies.
#[derive(Clone)]
struct Wavelet {
    scale: usize,
    /// For values of each scale up to its own: `[frequencies of a row, 1, 2 * frequencies of a
    /// column]`, twice, for real and imaginary parts.
    levels: Vec<Tensor<3>>,
}

impl Scattering2d {
    /// Returns the transform of images of `[height, width]` on a device; `None` if a side is too
    /// short to be reflected, or there is no scale or no orientation.
    ///
    /// # Arguments
    ///
    /// - `scales`: octaves of the wavelets; the output is smaller by 2^scales
    /// - `orientations`: directions of the wavelets in half a turn
    pub fn new(
        scales: usize,
        orientations: usize,
        shape: [usize; 2],
        device: &Device,
    ) -> Option<Self> {
        if scales == 0 || orientations == 0 || scales >= usize::BITS as usize {
            return None;
        }
        let sides = shape.map(|side| Side::new(side, scales));
        if sides.iter().any(|side| side.padded - side.length - side.margin >= side.length) {
            return None;
        }
        let of_scale = |level| sides.map(|side| side.lines(level, scales, device));
        let padded = sides.map(|side| side.padded);
        let wavelets = (0..scales).flat_map(|scale| (0..orientations).map(move |t| (scale, t)));
        let wavelets = wavelets.map(|(scale, orientation)| {
            let octave = 2f64.powi(scale as i32);
            let turn = (orientations / 2).saturating_sub(1) as f64 - orientation as f64;
            let angle = turn * PI / orientations as f64;
            let slant = 4.0 / orientations as f64;
            let values = morlet(padded, SIGMA * octave, angle, FREQUENCY / octave, slant);
            let level = |level| {
                let [height, width] = padded.map(|side| side >> level);
                constant(cropped(&values, padded, level), [width, 1, 2 * height], device)
            };
            Wavelet { scale, levels: (0..=scale).map(level).collect() }
        });
        Some(Self {
            shape,
            output: sides.map(|side| side.places(scales)),
            orientations,
            pixels: sides.map(|side| side.reflected(scales, device)),
            moduli: (0..scales).map(of_scale).collect(),
            wavelets: wavelets.collect(),
        })
    }

    /// Returns the number of coefficients at each place: 1 + scales · orientations, and a pair for
    /// each wavelet and each coarser one.
    pub fn channels(&self) -> usize {
        let (scales, orientations) = (self.moduli.len(), self.orientations);
        1 + scales * orientations + scales * (scales - 1) / 2 * orientations * orientations
    }

    /// Returns the number of places, `[height, width]`.
    pub fn output_shape(&self) -> [usize; 2] {
        self.output
    }

    /// Returns the coefficients of each channel of a batch: order 0, then order 1, then order 2,
    /// each from fine to coarse wavelets.
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
        let planes = batch * channels;
        let images = images.detach().cast(DType::F32).reshape([planes, height, width]);
        let images = images.permute([2, 0, 1]);
        let filters: Vec<Vec<Tensor<3>>> = {
            let repeated = |filter: &Tensor<3>| filter.clone().repeat_dim(1, planes);
            let of = |wavelet: &Wavelet| wavelet.levels.iter().map(repeated).collect();
            self.wavelets.iter().map(of).collect()
        };
        let mut output = vec![averages(images.clone(), &self.pixels)];
        let mut of_order_2 = Vec::new();
        let frequencies = spectrum(images, &self.pixels);
        for (first, filter) in self.wavelets.iter().zip(&filters) {
            let lines = &self.moduli[first.scale];
            let values = modulus(&frequencies, &filter[0], &self.moduli[0], first.scale);
            output.push(averages(values.clone(), lines));
            let mut coarser =
                self.wavelets.iter().zip(&filters).filter(|(second, _)| second.scale > first.scale);
            let Some(next) = coarser.next() else { continue };
            let frequencies = spectrum(values, lines);
            for (second, filter) in std::iter::once(next).chain(coarser) {
                let octaves = second.scale - first.scale;
                let values = modulus(&frequencies, &filter[first.scale], lines, octaves);
                of_order_2.push(averages(values, &self.moduli[second.scale]));
            }
        }
        output.append(&mut of_order_2);
        let [rows, columns] = self.output;
        Tensor::stack::<4>(output, 0).permute([2, 0, 3, 1]).reshape([
            batch,
            channels * self.channels(),
            rows,
            columns,
        ])
    }
}

/// Returns the frequencies of real values.
///
/// # Shapes
///
/// - `values`: `[columns, planes, rows]`
/// - output: `[frequencies of a row, planes, 2 * frequencies of a column]`
fn spectrum(values: Tensor<3>, [of_columns, of_rows]: &[Lines; 2]) -> Tensor<3> {
    let [width, planes, height] = values.dims();
    // Real values have no imaginary part.
    let of_rows = of_rows.forward.clone().narrow(0, 0, width).transpose();
    let parts = of_rows.matmul(values.reshape([width, planes * height]));
    let count = parts.dims()[0] / 2;
    let part = |part: usize| {
        let lines = parts.clone().narrow(0, part * count, count);
        let matrix = of_columns.forward.clone().narrow(0, part * height, height);
        lines.reshape([count * planes, height]).matmul(matrix)
    };
    let frequencies = part(0) + part(1);
    let length = frequencies.dims()[1];
    frequencies.reshape([count, planes, length])
}

/// Returns the moduli of the coefficients of a wavelet, at a resolution that is lower by octaves.
///
/// # Shapes
///
/// - `frequencies`, `filter`: `[frequencies of a row, planes, 2 * frequencies of a column]`
/// - output: `[columns, planes, rows]`
fn modulus(
    frequencies: &Tensor<3>,
    filter: &Tensor<3>,
    [of_columns, of_rows]: &[Lines; 2],
    octaves: usize,
) -> Tensor<3> {
    let [count, planes, length] = frequencies.dims();
    let lines = (frequencies.clone() * filter.clone()).reshape([count * planes, length]);
    let matrix = &of_columns.inverse[octaves];
    let height = matrix.dims()[1] / 2;
    let part = |part: usize| {
        let lines = lines.clone().matmul(matrix.clone().narrow(1, part * height, height));
        lines.reshape([count, planes * height])
    };
    let parts = Tensor::cat(vec![part(0), part(1)], 0);
    let values = of_rows.inverse[octaves].clone().transpose().matmul(parts);
    let width = values.dims()[0] / 2;
    let square = |part: usize| {
        let part = values.clone().narrow(0, part * width, width);
        part.clone() * part
    };
    // Coefficients of pixels between 0 and 1 neither over- nor underflow.
    (square(0) + square(1)).sqrt().reshape([width, planes, height])
}

/// Returns the averages of real values.
///
/// # Shapes
///
/// - `values`: `[columns, planes, rows]`
/// - output: `[places of a row, planes, places of a column]`
fn averages(values: Tensor<3>, [of_columns, of_rows]: &[Lines; 2]) -> Tensor<3> {
    let [width, planes, height] = values.dims();
    let of_rows = of_rows.average.clone().transpose();
    let lines = of_rows.matmul(values.reshape([width, planes * height]));
    let places = lines.dims()[0];
    let lines = lines.reshape([places * planes, height]).matmul(of_columns.average.clone());
    let length = lines.dims()[1];
    lines.reshape([places, planes, length])
}

impl fmt::Debug for Scattering2d {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scattering2d")
            .field("scales", &self.moduli.len())
            .field("orientations", &self.orientations)
            .field("shape", &self.shape)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    // 3.1415 is Kymatio's constant.
    #![allow(clippy::unwrap_used, clippy::approx_constant)]

    use burn::tensor::TensorData;

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
            let device = Device::flex();
            let transform = Scattering2d::new(scales, orientations, shape, &device).unwrap();
            let data = TensorData::new(image(shape), [1, 1, shape[0], shape[1]]);
            let output = transform.forward(Tensor::from_data(data, &device));
            let [rows, columns] = transform.output_shape();
            assert_eq!(output.dims(), [1, transform.channels(), rows, columns]);
            let values: Vec<f32> = output.into_data().try_into_vec().unwrap();
            let places = rows * columns;
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
        let device = Device::flex();
        let transform = Scattering2d::new(2, 8, [12, 12], &device).unwrap();
        assert_eq!((transform.channels(), transform.output_shape()), (81, [3, 3]));
        let one = image([12, 12]);
        let two: Vec<f32> = one.iter().map(|value| 1.0 - value * value).collect();
        let forward = |values: &[&[f32]], channels| {
            let shape = [values.len() / channels, channels, 12, 12];
            let images = Tensor::from_data(TensorData::new(values.concat(), shape), &device);
            let output = transform.forward(images);
            assert_eq!(output.dims(), [shape[0], channels * 81, 3, 3]);
            output.into_data().try_into_vec::<f32>().unwrap()
        };
        let expected = [forward(&[&one], 1), forward(&[&two], 1)].concat();
        for channels in [1, 2] {
            let found = forward(&[&one, &two], channels);
            let difference = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            assert!(difference.fold(0.0, f32::max) < 1e-6);
        }
    }

    #[test]
    fn images_that_are_too_small_have_no_transform() {
        let new = |scales, orientations, shape| {
            Scattering2d::new(scales, orientations, shape, &Device::flex())
        };
        assert!(new(2, 8, [5, 5]).is_some());
        for (scales, orientations, shape) in
            [(2, 8, [3, 12]), (0, 8, [12, 12]), (2, 0, [12, 12]), (6, 8, [28, 28]), (64, 1, [9, 9])]
        {
            assert!(new(scales, orientations, shape).is_none(), "{shape:?}");
        }
    }
}
