//! Statistical tests of the noise. Seeds are fixed, so a run is repeatable. Each test states its
//! error rate: the probability that correct noise from another seed would fail.

#![allow(clippy::unwrap_used)]

use super::GaussianMechanism;
use super::grid::to_double;
use super::integer_normal::NormalValues;
use super::standard_normal::standard_normal;
use crate::random::statistics::{assert_chi_squared, chi_squared};
use crate::random::{Domain, GROUP_WORDS, Group, InsecureSeed, NoiseSource, Purpose, Stream};

/// Two-sided quantile of the normal distribution for an error rate of 1e-6.
const Z_1E_6: f64 = 4.8916;
/// The same for 1e-8, where up to a hundred bounds are tested together.
const Z_1E_8: f64 = 5.7307;

fn normal(seed: u64, purpose: Purpose, step: u64, parameter: u32, number: usize) -> Vec<f64> {
    let mut source = NoiseSource::insecure(InsecureSeed(seed));
    let stream = source.begin_step(purpose, step).unwrap().stream(parameter).unwrap();
    let mut values = vec![0; number];
    standard_normal(&stream.into_keystream(), 0, &mut values);
    values.into_iter().map(to_double).collect()
}

/// Returns P(Z <= z).
fn cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2)
}

/// Returns P(|Z| > z).
fn two_sided_tail(z: f64) -> f64 {
    libm::erfc(z * std::f64::consts::FRAC_1_SQRT_2)
}

/// Returns the largest distance between the empirical and the normal distribution.
fn kolmogorov_distance(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    values.iter().enumerate().fold(0.0, |worst: f64, (i, &value)| {
        let p = cdf(value);
        worst.max((p - i as f64 / n).abs()).max(((i + 1) as f64 / n - p).abs())
    })
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / a.len() as f64
}

#[test]
fn noise_passes_the_kolmogorov_smirnov_test() {
    // Error rate 1e-6 each: √(ln(2/1e-6)/2) = 2.6935.
    for (seed, number) in [(1, 1 << 21), (2, 10_007), (3, 100)] {
        let distance = kolmogorov_distance(normal(seed, Purpose::Gradient, 0, 0, number));
        assert!(distance < 2.6935 / (number as f64).sqrt(), "{number}: {distance}");
    }
}

#[test]
fn noise_passes_the_chi_squared_test() {
    // 1024 equally likely cells. Error rate 1e-6.
    let mut counts = vec![0.0; 1024];
    for value in normal(4, Purpose::Gradient, 0, 0, 1 << 22) {
        counts[((cdf(value) * 1024.0) as usize).min(1023)] += 1.0;
    }
    let expected = vec![counts.iter().sum::<f64>() / 1024.0; 1024];
    assert_chi_squared(chi_squared(&counts, &expected), 1023);
}

#[test]
fn the_first_six_moments_are_normal() {
    // Variances of z^k: (2k-1)!! - ((k-1)!!)² for even k. Error rate 6e-8.
    let values = normal(5, Purpose::Gradient, 1, 2, 1 << 22);
    let n = values.len() as f64;
    let moments = [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)];
    for (k, mean, variance) in moments.into_iter().chain([(5, 0.0, 945.0), (6, 15.0, 10_170.0)]) {
        let moment = values.iter().map(|z: &f64| z.powi(k)).sum::<f64>() / n;
        let bound = Z_1E_8 * (variance / n).sqrt();
        assert!((moment - mean).abs() < bound, "moment {k}: {moment}");
    }
}

#[test]
fn values_beyond_four_and_five_deviations_have_the_right_frequency() {
    // Of 2^24 values 1062.7 are expected beyond 4 (error rate 1e-6) and 9.62 beyond 5, where none
    // at all would have probability 6.6e-5 and more than 29 has 1.1e-7: only the upper side is
    // tested. The sharp test beyond 5 is the next one.
    let values = normal(6, Purpose::Gradient, 0, 0, 1 << 24);
    let count = |bound: f64| values.iter().filter(|z| z.abs() > bound).count() as f64;
    let expected = values.len() as f64 * two_sided_tail(4.0);
    assert!((count(4.0) - expected).abs() < Z_1E_6 * expected.sqrt(), "{}", count(4.0));
    assert!(count(5.0) <= 29.0, "{}", count(5.0));
}

#[test]
fn the_tails_beyond_five_to_eight_deviations_are_exact() {
    // |z| > b needs a probability below P(Z > b). With 2^-k above that, draw below 2^-k only, by a
    // shift of the words under their sign: then z > b has probability P(Z > b) 2^k, large enough to
    // count. Error rate 1e-8 for each of the eight bounds.
    let number = 1 << 20;
    for (b, k) in [(5.0f64, 20u64), (6.0, 28), (7.0, 38), (8.0, 49)] {
        assert!(two_sided_tail(b) < 2f64.powi(-(k as i32)));
        let mut words = Stream::new(&InsecureSeed(7).into(), Domain::Sampling, k, 0).into_words();
        let (mut above, mut below) = (0.0, 0.0);
        let (mut group, mut normal) = (Group::new(), NormalValues::new());
        for _ in 0..number / GROUP_WORDS {
            group.set_words(|| {
                let word = words.next().unwrap();
                // The sign, zeros, and the other bits from above.
                (word & (1 << 63)) | ((word << 1 >> 1) >> k)
            });
            for value in normal.of(pulp::Scalar::new(), &group).map(to_double) {
                above += f64::from(value > b);
                below += f64::from(value < -b);
            }
        }
        let p = two_sided_tail(b) / 2.0 * 2f64.powi(k as i32);
        let mean = number as f64 * p;
        let bound = Z_1E_8 * (mean * (1.0 - p)).sqrt();
        for count in [above, below] {
            assert!((count - mean).abs() < bound, "{b}: {count} of {mean}");
        }
    }
}

#[test]
fn the_octaves_of_the_tail_have_their_probabilities() {
    // Every second octave has half of the values of the one before. Error rate 1e-6.
    let values = normal(12, Purpose::Gradient, 0, 0, 1 << 22);
    let mut counts = vec![0.0; 32];
    for value in values {
        // -log2 of the tail, minus one; the last cell has all the rest of its sign.
        let octave = -(two_sided_tail(value.abs())).log2();
        let cell = (octave as usize).min(15);
        counts[cell + if value < 0.0 { 16 } else { 0 }] += 1.0;
    }
    let total: f64 = counts.iter().sum();
    let expected: Vec<f64> =
        (0..32).map(|cell| total * 2f64.powi(-((cell % 16).min(14) + 2))).collect();
    assert_chi_squared(chi_squared(&counts, &expected), 31);
}

#[test]
fn segments_of_an_octave_are_equally_likely() {
    // 64 parts of the first octave: |z| below the upper quartile. Error rate 1e-6.
    let mut counts = vec![0.0; 64];
    for value in normal(13, Purpose::Gradient, 0, 0, 1 << 22) {
        let part = (1.0 - two_sided_tail(value.abs())) * 128.0;
        if part < 64.0 {
            counts[part as usize] += 1.0;
        }
    }
    let expected = vec![counts.iter().sum::<f64>() / 64.0; 64];
    assert_chi_squared(chi_squared(&counts, &expected), 63);
}

#[test]
fn nearby_values_are_uncorrelated() {
    // Correlations of values and of squares at the distances of the layout: lanes, pairs, words,
    // groups, tasks. Error rate 1e-8 each, 26 bounds.
    let values = normal(8, Purpose::Gradient, 0, 0, 1 << 21);
    let squares: Vec<f64> = values.iter().map(|z| (z * z - 1.0) / 2f64.sqrt()).collect();
    for lag in [1, 2, 3, 8, 15, 16, 17, 32, 64, 127, 128, 4096, 1 << 16] {
        for (name, series) in [("values", &values), ("squares", &squares)] {
            let n = series.len() - lag;
            let r = correlation(&series[..n], &series[lag..]);
            assert!(r.abs() < Z_1E_8 / (n as f64).sqrt(), "{name} at {lag}: {r}");
        }
    }
}

#[test]
fn words_that_extend_each_other_are_jointly_normal() {
    // 32 by 32 equally likely cells of (value b, value 16 + b) of each half group. Error rate 1e-6.
    let values = normal(9, Purpose::Gradient, 0, 0, 1 << 22);
    let mut counts = vec![0.0; 1024];
    for half in values.chunks_exact(32) {
        for (x, y) in half[..16].iter().zip(&half[16..]) {
            let cell = |z: f64| ((cdf(z) * 32.0) as usize).min(31);
            counts[32 * cell(*x) + cell(*y)] += 1.0;
        }
    }
    let expected = vec![counts.iter().sum::<f64>() / 1024.0; 1024];
    assert_chi_squared(chi_squared(&counts, &expected), 1023);
}

#[test]
fn noise_of_different_streams_is_uncorrelated() {
    // 28 pairs of streams, error rate 1e-8 each. The same words would give a correlation of one.
    let number = 1 << 19;
    let streams = [
        normal(1, Purpose::Gradient, 0, 0, number),
        normal(2, Purpose::Gradient, 0, 0, number),
        normal(1, Purpose::Count, 0, 0, number),
        normal(1, Purpose::Statistic, 0, 0, number),
        normal(1, Purpose::Gradient, 1, 0, number),
        normal(1, Purpose::Gradient, 1 << 32, 0, number),
        normal(1, Purpose::Gradient, 0, 1, number),
        normal(1, Purpose::Gradient, 1, 1, number),
    ];
    for (i, a) in streams.iter().enumerate() {
        for (j, b) in streams.iter().enumerate().skip(i + 1) {
            let r = correlation(a, b);
            assert!(r.abs() < Z_1E_8 / (number as f64).sqrt(), "{i} and {j}: {r}");
        }
    }
}

#[test]
fn released_noise_has_the_declared_deviation_at_every_magnitude() {
    // Error rate 1e-8 each, mean and variance, in units of the deviation.
    let number = 1 << 18;
    for (i, noise_std) in [1e-6, 3.3e-4, 0.77, 1.0, 19.0, 1e3, 1e6].into_iter().enumerate() {
        let mechanism = GaussianMechanism::new(noise_std, 0.25).unwrap();
        let mut source = NoiseSource::insecure(InsecureSeed(10));
        let mut step = source.begin_step(Purpose::Gradient, i as u64).unwrap();
        // The mean of the results has to equal the constant sum.
        let sum = (2.0 * noise_std) as f32;
        let mut values = vec![sum; number];
        mechanism.release(step.stream(0).unwrap(), &mut values).unwrap();
        let standard: Vec<f64> = values
            .iter()
            .map(|&value| (f64::from(value) * 4.0 - f64::from(sum)) / noise_std)
            .collect();
        let n = number as f64;
        let mean = standard.iter().sum::<f64>() / n;
        let variance = standard.iter().map(|z| z * z).sum::<f64>() / n;
        assert!(mean.abs() < Z_1E_8 / n.sqrt(), "{noise_std}: {mean}");
        assert!((variance - 1.0).abs() < Z_1E_8 * (2.0 / n).sqrt(), "{noise_std}: {variance}");
        assert!(kolmogorov_distance(standard) < 3.09 / n.sqrt()); // √(ln(2/1e-8)/2)
    }
}

#[test]
fn scalar_releases_are_normal_around_the_sum() {
    // 20,000 steps of one value each. Error rate 1e-8 each.
    let mechanism = GaussianMechanism::new(5.0, 0.5).unwrap();
    let mut source = NoiseSource::insecure(InsecureSeed(11));
    let values: Vec<f64> = (0..20_000)
        .map(|step| {
            let stream = source.begin_step(Purpose::Count, step).unwrap().stream(0).unwrap();
            (mechanism.release_scalar(stream, 1000.0).unwrap() * 2.0 - 1000.0) / 5.0
        })
        .collect();
    let n = values.len() as f64;
    let variance = values.iter().map(|z| z * z).sum::<f64>() / n;
    assert!((variance - 1.0).abs() < Z_1E_8 * (2.0 / n).sqrt(), "{variance}");
    assert!(kolmogorov_distance(values) < 3.09 / n.sqrt());
}
