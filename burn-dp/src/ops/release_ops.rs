use burn::backend::{
    Backend, Dispatch, backend_extension,
    tensor::{FloatTensor, IntTensor},
};
use burn::tensor::{DType, Device, Int, Shape, Tensor};
use zeroize::{Zeroize, Zeroizing};

use crate::random::CONTENT_BLOCK;

/// The noise of one parameter in one step, for a device.
#[derive(Clone)]
pub struct KeyedNoise {
    /// The key of the step and the number of the stream.
    pub(crate) stream: [u32; 10],
    /// The grid, as in `noise::Grid`.
    pub(crate) reciprocal: u32,
    pub(crate) exponent: i32,
    pub(crate) factor: f32,
    /// Coefficients of the normal quantile.
    pub(crate) table: &'static [u8],
}

impl KeyedNoise {
    /// Returns everything except the table.
    pub(super) fn words(&self) -> [u32; 13] {
        let mut words = [0; 13];
        words[..10].copy_from_slice(&self.stream);
        words[10..].copy_from_slice(&[
            self.reciprocal,
            self.exponent.cast_unsigned(),
            self.factor.to_bits(),
        ]);
        words
    }
}

/// The noise of one parameter, whose words were uploaded.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct PlacedNoise {
    /// Place of its first word.
    pub(super) place: usize,
    /// Coefficients of the normal quantile.
    pub(super) table: &'static [u8],
}

impl Drop for KeyedNoise {
    fn drop(&mut self) {
        self.stream.zeroize();
    }
}

/// The noise of one part of a parameter in one step, correlated with the noise of earlier steps;
/// see `noise::recurrence`.
#[derive(Clone)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct CorrelatedKeyedNoise {
    pub(crate) noise: KeyedNoise,
    /// Number of the first block of the part.
    pub(crate) first_block: u32,
    /// Number of slots that are kept for each value.
    pub(crate) slots: u32,
    pub(crate) earlier: Earlier,
}

/// The values of earlier steps that a step adds, each with its factor.
#[derive(Clone)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub(crate) enum Earlier {
    /// In slots of the memory. Then the slots that change, with the factors of their own value, the
    /// correlated and the independent one.
    Kept(Vec<(f64, u32)>, Vec<(u32, [f64; 3])>),
    /// Drawn again from these keys.
    Drawn(Vec<(f64, [u32; 8])>),
}

impl Earlier {
    #[cfg(feature = "cube")]
    pub(super) fn are_drawn_again(&self) -> bool {
        matches!(self, Self::Drawn(_))
    }
}

impl Drop for Earlier {
    fn drop(&mut self) {
        if let Self::Drawn(read) = self {
            read.iter_mut().for_each(|(_, key)| key.zeroize());
        }
    }
}

impl CorrelatedKeyedNoise {
    /// Returns everything except the table, for a part of `blocks` blocks: the words of the
    /// independent noise, five numbers, what is read, and what is written.
    #[cfg(feature = "cube")]
    pub(super) fn words(&self, blocks: u32) -> zeroize::Zeroizing<Vec<u32>> {
        let double = |value: f64| {
            let bits = value.to_bits();
            [bits as u32, (bits >> 32) as u32]
        };
        let (reads, writes) = match &self.earlier {
            Earlier::Kept(read, write) => (read.len(), write.len()),
            Earlier::Drawn(read) => (read.len(), 0),
        };
        let mut words = zeroize::Zeroizing::new(Vec::with_capacity(18 + 10 * (reads + writes)));
        words.extend(self.noise.words());
        words.extend([blocks, self.first_block, self.slots, reads as u32, writes as u32]);
        match &self.earlier {
            Earlier::Kept(read, write) => {
                for &(factor, slot) in read {
                    words.extend(double(factor));
                    words.push(slot);
                }
                for &(slot, factors) in write {
                    words.push(slot);
                    words.extend(factors.map(double).as_flattened());
                }
            }
            Earlier::Drawn(read) => {
                for (factor, key) in read {
                    words.extend(double(*factor));
                    words.extend(key);
                }
            }
        }
        words
    }
}

/// The keys of the hash of one parameter's sums; see `random::content`.
#[derive(Clone)]
pub struct ContentHash {
    pub(crate) words: Vec<u32>,
}

impl Drop for ContentHash {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

/// The release of sums on their device.
///
/// An implementation detail that is public because Burn's dispatch needs it to be.
#[doc(hidden)]
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Autodiff,
    Fusion: cfg(feature = "fusion"),
    Remote: cfg(feature = "remote"),
)]
pub trait ReleaseOps: Backend {
    /// Returns sums with noise, scaled: the same bits as the release on the host. Only for backends
    /// that `has_release` names.
    ///
    /// - words: of all sums
    #[fusion(dtype = sums, shape = sums)]
    #[allow(unused_variables)]
    fn native_release(
        sums: FloatTensor<Self>,
        words: IntTensor<Self>,
        noise: PlacedNoise,
    ) -> FloatTensor<Self> {
        no_kernel()
    }

    /// Returns sums with correlated noise, scaled, and the memory of the steps up to this one: the
    /// same bits as on the host. Only for backends that `has_release` names.
    ///
    /// - memory: two words for each value that is kept; one word in total if the values are drawn
    ///   again
    #[fusion(meta = |sums, memory, _noise| (sums.clone(), memory.clone()))]
    #[allow(unused_variables)]
    fn native_correlated_release(
        sums: FloatTensor<Self>,
        memory: IntTensor<Self>,
        noise: CorrelatedKeyedNoise,
    ) -> (FloatTensor<Self>, IntTensor<Self>) {
        no_kernel()
    }

    /// Returns zeros, in the memory of the argument if no other tensor shares it. Only for backends
    /// that `has_release` names.
    #[fusion(dtype = memory, shape = memory)]
    #[allow(unused_variables)]
    fn native_erase(memory: IntTensor<Self>) -> IntTensor<Self> {
        no_kernel()
    }

    /// Returns the hashes of parts of `values`: `[parts, 9]`. The first eight words of a part are
    /// four integers of 64 bits; the ninth is one if a value of the part is not finite. Only for
    /// backends that `has_release` names.
    ///
    /// - words: the keys of all values; the keys of these values begin at `place`
    #[fusion(dtype = DType::I32, shape = hash_shape(values))]
    #[allow(unused_variables)]
    fn native_content_hash(
        values: FloatTensor<Self>,
        words: IntTensor<Self>,
        place: usize,
    ) -> IntTensor<Self> {
        no_kernel()
    }
}

fn no_kernel() -> ! {
    unreachable!("the backend has no kernels for a release; the host releases its sums")
}

/// Returns the shape of the hashes of a tensor: one part for each of the units that share its
/// blocks.
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub(super) fn hash_shape(values: &Shape) -> Shape {
    /// With more, there would be more to read.
    const MAX_UNITS: usize = 1024;
    Shape::new([values.num_elements().div_ceil(CONTENT_BLOCK).min(MAX_UNITS), 9])
}

/// Returns whether a device has kernels for the release of sums of single precision.
pub(crate) fn has_release(device: &Device) -> bool {
    has_kernels(device)
}

/// Returns whether a device computes with kernels that it compiles for shapes.
pub(crate) fn has_kernels(device: &Device) -> bool {
    match device.clone().inner().as_dispatch() {
        #[cfg(feature = "cube")]
        burn::backend::DispatchDevice::Cube(_) => true,
        #[allow(unreachable_patterns)] // without the feature
        _ => false,
    }
}

/// Returns sums with noise like [`ReleaseOps::native_release`], `[values]` each. What the kernels
/// need is uploaded at once, because an upload waits for the kernels before it to start.
pub(crate) fn native_release(parts: Vec<(Tensor<1>, KeyedNoise)>) -> Vec<Tensor<1>> {
    let mut uploads = Uploads::default();
    let places: Vec<_> = parts
        .iter()
        .map(|(sums, noise)| uploads.push(&sums.device(), &*Zeroizing::new(noise.words())))
        .collect();
    let words = uploads.finish();
    let release = |((sums, noise), place): ((Tensor<1>, KeyedNoise), Place)| {
        let words = words[place.device].clone().into_dispatch();
        let noise = PlacedNoise { place: place.first, table: noise.table };
        Tensor::from_dispatch(Dispatch::native_release(sums.into_dispatch(), words, noise))
    };
    parts.into_iter().zip(places).map(release).collect()
}

/// Words for the kernels of some devices.
#[derive(Default)]
struct Uploads(Vec<(Device, Zeroizing<Vec<u32>>)>);

/// The place of some words.
#[derive(Clone, Copy)]
struct Place {
    device: usize,
    first: usize,
}

impl Uploads {
    fn push(&mut self, device: &Device, words: &[u32]) -> Place {
        let index = self.0.iter().position(|(found, _)| found == device).unwrap_or_else(|| {
            self.0.push((device.clone(), Zeroizing::default()));
            self.0.len() - 1
        });
        let of_device = &mut self.0[index].1;
        let first = of_device.len();
        of_device.extend(words);
        Place { device: index, first }
    }

    fn finish(self) -> Vec<Tensor<1, Int>> {
        let upload = |(device, words): &(Device, Zeroizing<Vec<u32>>)| {
            let words = bytemuck::cast_slice::<u32, i32>(words);
            Tensor::from_data(words, (device, DType::I32))
        };
        self.0.iter().map(upload).collect()
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

/// Returns hashes like [`ReleaseOps::native_content_hash`], `[parts, 9]` each. The keys are
/// uploaded at once.
pub(crate) fn native_content_hash(parts: Vec<(Tensor<1>, ContentHash)>) -> Vec<Tensor<2, Int>> {
    let mut uploads = Uploads::default();
    let place = |(values, hash): (Tensor<1>, ContentHash)| {
        let place = uploads.push(&values.device(), &hash.words);
        (values, place)
    };
    let parts: Vec<_> = parts.into_iter().map(place).collect();
    let words = uploads.finish();
    let hash = |(values, place): (Tensor<1>, Place)| {
        let words = words[place.device].clone().into_dispatch();
        let values = values.into_dispatch();
        Tensor::from_dispatch(Dispatch::native_content_hash(values, words, place.first))
    };
    parts.into_iter().map(hash).collect()
}
