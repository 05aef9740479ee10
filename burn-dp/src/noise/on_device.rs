//! Tests of the kernels of a device: the same bits as on the host.

#![allow(clippy::unwrap_used)]

use burn::tensor::{Device, Tensor, TensorData};

use super::GaussianMechanism;
use super::integer_normal::tests::GOLDEN;
use super::integer_normal::{NormalValues, TABLE};
use super::standard_normal::standard_normal;
use crate::ops::{ContentHash, Part, has_release, hash_units, native_content_hash, normal_values};
use crate::random::{
    ContentKey, ContentMark, Domain, GROUP_WORDS, Group, InsecureSeed, NoiseSource, Purpose, Stream,
};
use crate::test_devices::devices;

fn on_device() -> impl Iterator<Item = Device> {
    let mut devices = devices().into_iter().filter(has_release).peekable();
    assert!(devices.peek().is_some(), "no device has kernels");
    devices
}

fn stream(position: u32) -> Stream {
    let mut source = NoiseSource::insecure(InsecureSeed(21));
    source.begin_step(Purpose::Gradient, 3).unwrap().stream(position).unwrap()
}

fn words() -> impl Iterator<Item = u64> {
    Stream::new(&InsecureSeed(5).into(), Domain::Sampling, 0, 0).into_words()
}

fn tensor(values: &[f32], device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// Checks that a device releases the bits of the host.
fn check(mechanism: GaussianMechanism, sums: &[f32], device: &Device) {
    let mut expected = sums.to_vec();
    mechanism.release(stream(1), &mut expected).unwrap();
    let released = mechanism.release_on_device(stream(1), tensor(sums, device));
    let released: Vec<f32> = released.into_data().try_into_vec().unwrap();
    assert_eq!(released.len(), sums.len());
    for (i, (released, expected)) in released.iter().zip(&expected).enumerate() {
        assert_eq!(
            released.to_bits(),
            expected.to_bits(),
            "{device:?} {i}: {} {released}",
            sums[i]
        );
    }
}

#[test]
fn normal_values_of_a_device_are_those_of_the_host_in_all_octaves() {
    let golden: Vec<_> = GOLDEN.iter().map(|&(word, other, _)| (word, other)).collect();
    for (value, (word, _, exact)) in normal_values(&golden, TABLE).iter().zip(GOLDEN) {
        assert!((*value as f64 - exact).abs() <= 0.765, "{word:#x}: {value}");
    }
    // A fourth of the words in their own octaves, the others shifted to deeper ones.
    let mut pairs = Vec::new();
    let mut words = words();
    for _ in 0..1 << 15 {
        let (word, other) = (words.next().unwrap(), words.next().unwrap());
        let shift = if word & 3 == 0 { 0 } else { other % 64 };
        pairs.push(((word & (1 << 63)) | ((word << 1 >> 1) >> shift), other));
    }
    let (mut group, mut memory) = (Group::new(), NormalValues::new());
    let mut expected = Vec::new();
    for pairs in pairs.chunks(GROUP_WORDS / 2) {
        let mut number = 0;
        group.set_words(|| {
            let (index, block) = (number / 16, number % 16);
            number += 1;
            let (word, other) = pairs[index / 2 * 16 + block];
            if index % 2 == 0 { word } else { other }
        });
        let values = memory.of(pulp::Scalar::new(), &group);
        expected.extend((0..pairs.len()).map(|i| values[i / 16 * 32 + i % 16]));
    }
    assert!(normal_values(&pairs, TABLE) == expected);
}

#[test]
fn a_device_releases_the_bits_of_the_host() {
    for device in on_device() {
        let number = (1 << 20) + 77;
        let sums: Vec<f32> =
            words().take(number).map(|word| (word as i64 as f32) * 1e-18).collect();
        check(GaussianMechanism::new(1.1, 0.01).unwrap(), &sums, &device);
        for number in [1, 15, 16, 17, 127, 128, 129, 1000, 2049] {
            check(GaussianMechanism::new(0.3, 1.0).unwrap(), &sums[..number], &device);
        }
    }
}

#[test]
fn a_device_releases_ten_million_values_of_the_host() {
    for device in on_device() {
        let sums: Vec<f32> =
            words().take(10_000_000).map(|word| (word as i64 as f32) * 1e-19).collect();
        check(GaussianMechanism::new(0.7, 1.0 / 256.0).unwrap(), &sums, &device);
    }
}

#[test]
fn a_device_releases_sums_of_every_magnitude() {
    // All exponents, both signs, subnormal numbers, and zeros.
    let mut sums: Vec<f32> = (words().take(40_000))
        .map(|word| f32::from_bits((word >> 20) as u32))
        .filter(|sum| sum.is_finite())
        .collect();
    sums.extend([0.0, -0.0, 1e-45, -1e-45, f32::MIN_POSITIVE, f32::MAX, f32::MIN]);
    // Sums that cancel their noise except for a few units of the grid.
    let mut normal = vec![0; sums.len() + 20_000];
    standard_normal(&stream(1).into_keystream(), 0, &mut normal);
    let rest = normal[sums.len()..].iter().map(|&z| -(z as f64 * 2f64.powi(-40)) as f32);
    sums.extend(rest.collect::<Vec<_>>());
    for device in on_device() {
        for (noise_std, scale) in [(1.0, 1.0), (1e-25, 1e3), (1e25, 9e-11), (3e-9, 0.3), (1e4, 7.0)]
        {
            check(GaussianMechanism::new(noise_std, scale).unwrap(), &sums, &device);
        }
    }
}

/// Returns the mark and whether all values are finite.
fn mark(key: &ContentKey, values: &[f32], device: &Device) -> (ContentMark, bool) {
    let hash = ContentHash { words: key.words(3) };
    let whole = Part { first: 0, values: values.len() };
    let hash = native_content_hash(vec![(tensor(values, device), vec![(whole, hash)])]).remove(0);
    let words: Vec<i32> = hash.into_data().try_into_vec().unwrap();
    let rows = words.as_chunks::<9>().0;
    let parts = rows.iter().map(|row| std::array::from_fn(|word| row[word].cast_unsigned()));
    (ContentKey::combine(values.len(), parts), rows.iter().all(|row| row[8] == 0))
}

#[test]
fn a_device_hashes_sums_as_the_host() {
    let values: Vec<f32> =
        words().take((1 << 20) + 1025).map(|word| (word as i64 as f32) * 1e-18).collect();
    let mut source = NoiseSource::insecure(InsecureSeed(3));
    source.export_key();
    let step = source.begin_step(Purpose::Gradient, 2).unwrap();
    let key = step.content_key().unwrap();
    for device in on_device() {
        for length in [1, 511, 512, 513, 1023, 1024, 1025, 100_000, values.len()] {
            let values = &values[..length];
            assert_eq!(
                mark(&key, values, &device),
                (key.mark(3, values), true),
                "{device:?} {length}"
            );
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (length, at) in [(1, 0), (1000, 999), (5000, 4000), (5000, 1023)] {
                let mut values = values[..length].to_vec();
                values[at] = bad;
                assert!(!mark(&key, &values, &device).1, "{bad} at {at} of {length}");
            }
        }
    }
}

#[test]
fn parts_are_released_and_hashed_as_if_they_were_alone() {
    let values: Vec<f32> = words().take(14_400).map(|word| (word as i64 as f32) * 1e-18).collect();
    let mut source = NoiseSource::insecure(InsecureSeed(3));
    source.export_key();
    let key = source.begin_step(Purpose::Gradient, 2).unwrap().content_key().unwrap();
    // Not all values belong to a part, and the parts have other units than blocks of values.
    let lengths = [(0, 1), (3, 511), (514, 1), (515, 513), (1_028, 129), (1_200, 7_001)];
    let longer = [(8_201, 1_023), (9_224, 1_025), (10_300, 4_000)];
    let parts = lengths.into_iter().chain(longer);
    let parts: Vec<Part> = parts.map(|(first, values)| Part { first, values }).collect();
    let mechanisms = [0.3, 2.5].map(|std| GaussianMechanism::new(std, 0.5).unwrap());
    for device in on_device() {
        let sums = tensor(&values, &device);
        for count in 1..=parts.len() {
            let noised = (0u32..).zip(&parts[..count]).map(|(position, &part)| {
                (part, (mechanisms[position as usize % 2], stream(position)))
            });
            let released = vec![(sums.clone(), noised.collect())];
            let released = GaussianMechanism::release_all_on_device(released).remove(0);
            assert_eq!(released.len(), count);
            let hashed = (0u32..).zip(&parts[..count]);
            let hashed = hashed.map(|(part, &of)| (of, ContentHash { words: key.words(part) }));
            let rows = native_content_hash(vec![(sums.clone(), hashed.collect())]).remove(0);
            let rows: Vec<i32> = rows.into_data().try_into_vec().unwrap();
            let mut rows = rows.as_chunks::<9>().0.iter();
            for ((position, part), released) in (0u32..).zip(&parts).zip(released) {
                let mut expected = values[part.first..][..part.values].to_vec();
                let found = rows.by_ref().take(hash_units(part.values));
                let found = found.map(|row| std::array::from_fn(|word| row[word].cast_unsigned()));
                let found = ContentKey::combine(part.values, found);
                assert_eq!(found, key.mark(position, &expected), "{part:?} of {count}");
                let mechanism = mechanisms[position as usize % 2];
                mechanism.release(stream(position), &mut expected).unwrap();
                let released: Vec<f32> = released.into_data().try_into_vec().unwrap();
                assert!(released == expected, "{part:?} of {count}");
            }
            assert!(rows.next().is_none());
        }
    }
}
