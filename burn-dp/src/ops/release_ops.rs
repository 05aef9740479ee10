use burn::backend::{
    Backend, backend_extension,
    tensor::{FloatTensor, IntTensor},
};
use burn::tensor::Device;
use zeroize::Zeroize;

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

/// A part of a tensor, the values of one parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Index of its first value.
    pub(crate) first: usize,
    /// Number of values.
    pub(crate) values: usize,
}

/// The noise of the parts of a tensor, whose words were uploaded.
///
/// The words of a part are its first block, the index of its first value in the sums and in the
/// result, its number of values, and the words of its [`KeyedNoise`].
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct PlacedNoise {
    /// Place of the first word.
    pub(super) place: usize,
    /// Number of parts.
    pub(super) parts: usize,
    /// Number of blocks of all parts.
    pub(super) blocks: usize,
    /// Number of values of the result.
    pub(super) values: usize,
    /// Coefficients of the normal quantile.
    pub(super) table: &'static [u8],
}

/// The keys for the hashes of the parts of a tensor, which were uploaded.
///
/// The words of a part are its first unit, the index of its first value, its number of values, its
/// number of units, and the words of its [`ContentHash`].
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct PlacedHashes {
    /// Place of the first word.
    pub(super) place: usize,
    /// Number of parts.
    pub(super) parts: usize,
    /// Number of words of each part.
    pub(super) words: usize,
    /// Number of units of all parts.
    pub(super) units: usize,
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
    /// Returns the parts of sums with noise, scaled: the same bits as the release on the host. A
    /// part begins at a multiple of [`ALIGNMENT`]; what is between two parts has no meaning. Only
    /// for backends that `has_release` names.
    ///
    /// - words: of all sums
    #[fusion(dtype = sums, shape = burn::tensor::Shape::new([noise.values]))]
    #[allow(unused_variables)]
    fn native_release(
        sums: FloatTensor<Self>,
        words: IntTensor<Self>,
        noise: PlacedNoise,
    ) -> FloatTensor<Self> {
        no_kernel()
    }

    /// Returns `count` values from `first` on, in the same memory if that is possible. Only for
    /// backends that `has_release` names.
    #[fusion(dtype = values, shape = burn::tensor::Shape::new([*count]))]
    #[allow(unused_variables)]
    fn native_part(values: FloatTensor<Self>, first: usize, count: usize) -> FloatTensor<Self> {
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

    /// Returns the hashes of the parts of `values`, one after another: a row of nine words for each
    /// unit. The first eight words are four integers of 64 bits; the ninth is one if a value is not
    /// finite. Only for backends that `has_release` names.
    ///
    /// - words: the keys of all values
    #[fusion(dtype = burn::tensor::DType::I32, shape = burn::tensor::Shape::new([hashes.units, 9]))]
    #[allow(unused_variables)]
    fn native_content_hash(
        values: FloatTensor<Self>,
        words: IntTensor<Self>,
        hashes: PlacedHashes,
    ) -> IntTensor<Self> {
        no_kernel()
    }
}

fn no_kernel() -> ! {
    unreachable!("the backend has no kernels for a release; the host releases its sums")
}

/// Parts of a result begin at a multiple of this number of values, because memory that begins
/// elsewhere has to be copied before a kernel can use it: 512 bytes suffice for WebGPU and CUDA.
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub(super) const ALIGNMENT: usize = 128;

/// Number of values in one group of blocks on the host: value `16 word + block` of a group comes
/// from 64-bit word `word` of block `block`.
pub(crate) const GROUP_VALUES: usize = 128;

/// Number of blocks in a group.
pub(crate) const GROUP_BLOCKS: usize = 16;

/// Number of words before the words of the noise, or of the hash, of a part.
pub(crate) const PART_WORDS: usize = 4;

/// Returns the number of rows of the hashes of a part, one for each of the units that share its
/// blocks.
pub(crate) fn hash_units(values: usize) -> usize {
    /// With more, there would be more to read.
    const MAX_UNITS: usize = 1024;
    values.div_ceil(CONTENT_BLOCK).min(MAX_UNITS)
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
