//! The calls of the kernels for the release, with what they need uploaded at once.

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Int, Tensor};
use zeroize::Zeroizing;

use super::release_ops::{
    ALIGNMENT, ContentHash, CorrelatedKeyedNoise, GROUP_BLOCKS, GROUP_VALUES, KeyedNoise,
    PART_WORDS, Part, PlacedHashes, PlacedNoise, ReleaseOps, hash_units,
};

/// A tensor, `[values]`, and what belongs to each of its parts, which are not empty.
pub(crate) type InParts<T> = (Tensor<1>, Vec<(Part, T)>);

/// Returns the parts of sums with noise like [`ReleaseOps::native_release`], `[values]` each. What
/// the kernels need is uploaded at once, because an upload waits for the kernels before it to
/// start.
pub(crate) fn native_release(sums: Vec<InParts<KeyedNoise>>) -> Vec<Vec<Tensor<1>>> {
    let mut uploads = Uploads::default();
    let place = |(sums, parts): InParts<KeyedNoise>| {
        let table = parts.first()?.1.table;
        let mut words = Zeroizing::new(Vec::with_capacity(parts.len() * (PART_WORDS + 13)));
        let (mut blocks, mut values, mut released) = (0, 0, Vec::with_capacity(parts.len()));
        for (part, noise) in &parts {
            let to = usize::next_multiple_of(values, ALIGNMENT);
            words.extend([blocks, part.first, to, part.values].map(|number| number as u32));
            words.extend(&*Zeroizing::new(noise.words()));
            released.push(Part { first: to, values: part.values });
            blocks += part.values.div_ceil(GROUP_VALUES) * GROUP_BLOCKS;
            values = to + part.values;
        }
        let Place { device, first: place } = uploads.push(sums.device(), words);
        let noise = PlacedNoise { place, parts: parts.len(), blocks, values, table };
        Some((sums, device, noise, released))
    };
    let placed: Vec<_> = sums.into_iter().map(place).collect();
    let words = uploads.finish();
    let release = |(sums, device, noise, parts): (Tensor<1>, usize, PlacedNoise, Vec<Part>)| {
        let words: Tensor<1, Int> = words[device].clone();
        let (sums, words) = (sums.into_dispatch(), words.into_dispatch());
        let released = Tensor::from_dispatch(Dispatch::native_release(sums, words, noise));
        parts.into_iter().map(|part| native_part(&released, part)).collect()
    };
    placed.into_iter().map(|placed| placed.map_or_else(Vec::new, release)).collect()
}

/// Returns a part like [`ReleaseOps::native_part`], `[values]`.
pub(crate) fn native_part(values: &Tensor<1>, part: Part) -> Tensor<1> {
    if values.dims() == [part.values] {
        return values.clone();
    }
    let values = values.clone().into_dispatch();
    Tensor::from_dispatch(Dispatch::native_part(values, part.first, part.values))
}

/// Words for the kernels of some devices, erased on drop.
#[derive(Default)]
struct Uploads(Vec<(Device, Vec<Zeroizing<Vec<u32>>>)>);

/// The place of some words.
struct Place {
    device: usize,
    first: usize,
}

impl Uploads {
    fn push(&mut self, device: Device, words: Zeroizing<Vec<u32>>) -> Place {
        let index = self.0.iter().position(|(found, _)| *found == device).unwrap_or(self.0.len());
        if index == self.0.len() {
            self.0.push((device, Vec::new()));
        }
        let of_device = &mut self.0[index].1;
        let first = of_device.iter().map(|words| words.len()).sum();
        of_device.push(words);
        Place { device: index, first }
    }

    fn finish(self) -> Vec<Tensor<1, Int>> {
        let upload = |(device, words): (Device, Vec<Zeroizing<Vec<u32>>>)| {
            // Joined in memory that does not grow: growing would leave a copy of the keys behind.
            let count = words.iter().map(|words| words.len()).sum();
            let mut joined = Zeroizing::new(Vec::with_capacity(count));
            words.iter().for_each(|words| joined.extend_from_slice(words));
            Tensor::from_data(bytemuck::cast_slice::<u32, i32>(&joined), (&device, DType::I32))
        };
        self.0.into_iter().map(upload).collect()
    }
}

/// Returns sums with noise, and the memory after it, as
/// [`ReleaseOps::native_correlated_release`]: `[values]` and `[words]`.
pub(crate) fn native_correlated_release(
    sums: Tensor<1>,
    memory: Tensor<1, Int>,
    noise: CorrelatedKeyedNoise,
) -> (Tensor<1>, Tensor<1, Int>) {
    let (sums, memory) = (sums.into_dispatch(), memory.into_dispatch());
    let (released, memory) = Dispatch::native_correlated_release(sums, memory, noise);
    (Tensor::from_dispatch(released), Tensor::from_dispatch(memory))
}

/// Returns zeros like [`ReleaseOps::native_erase`], `[words]`.
pub(crate) fn native_erase(memory: Tensor<1, Int>) -> Tensor<1, Int> {
    Tensor::from_dispatch(Dispatch::native_erase(memory.into_dispatch()))
}

/// Returns the hashes of the parts of tensors like [`ReleaseOps::native_content_hash`],
/// `[units, 9]` for each tensor, which has at least one part. The keys are uploaded at once.
pub(crate) fn native_content_hash(values: Vec<InParts<ContentHash>>) -> Vec<Tensor<2, Int>> {
    let mut uploads = Uploads::default();
    let place = |(values, parts): InParts<ContentHash>| {
        let stride = PART_WORDS + parts.first().map_or(0, |(_, hash)| hash.words.len());
        let mut words = Zeroizing::new(Vec::with_capacity(parts.len() * stride));
        let mut units = 0;
        for (part, hash) in &parts {
            let count = hash_units(part.values);
            words.extend([units, part.first, part.values, count].map(|number| number as u32));
            words.extend(&hash.words);
            units += count;
        }
        let Place { device, first: place } = uploads.push(values.device(), words);
        (values, device, PlacedHashes { place, parts: parts.len(), words: stride, units })
    };
    let placed: Vec<_> = values.into_iter().map(place).collect();
    let words = uploads.finish();
    let hash = |(values, device, hashes): (Tensor<1>, usize, PlacedHashes)| {
        let words: Tensor<1, Int> = words[device].clone();
        let (values, words) = (values.into_dispatch(), words.into_dispatch());
        Tensor::from_dispatch(Dispatch::native_content_hash(values, words, hashes))
    };
    placed.into_iter().map(hash).collect()
}
