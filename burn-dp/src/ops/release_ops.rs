use burn::backend::{
    Backend, Dispatch, backend_extension,
    tensor::{FloatTensor, IntTensor},
};
use burn::tensor::{Device, Int, Shape, Tensor};
use zeroize::Zeroize;

use crate::random::CONTENT_BLOCK;

/// The noise of one parameter in one step, for a device.
#[derive(Clone)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct KeyedNoise {
    /// The key of the step and the number of the stream.
    pub(crate) stream: [u32; 10],
    /// The grid, as `noise::Grid` has it.
    pub(crate) reciprocal: u32,
    pub(crate) exponent: i32,
    pub(crate) factor: f32,
    /// Coefficients of the normal quantile.
    pub(crate) table: &'static [u8],
}

impl KeyedNoise {
    /// Returns everything but the table.
    #[cfg(feature = "cube")]
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

impl Drop for KeyedNoise {
    fn drop(&mut self) {
        self.stream.zeroize();
    }
}

/// The keys of the hash of one parameter's sums; see `random::content`.
#[derive(Clone)]
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub struct ContentHash {
    pub(crate) words: Vec<u32>,
}

impl Drop for ContentHash {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

/// The release of sums where they are.
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
    #[fusion(dtype = sums, shape = sums)]
    #[allow(unused_variables)]
    fn native_release(sums: FloatTensor<Self>, noise: KeyedNoise) -> FloatTensor<Self> {
        no_kernel()
    }

    /// Returns the hashes of parts of `values`: `[parts, 9]`. The first eight words of a part are
    /// four integers of 64 bits; the ninth is one if a value of the part is not finite. Only for
    /// backends that `has_release` names.
    #[fusion(dtype = burn::tensor::DType::I32, shape = hash_shape(values))]
    #[allow(unused_variables)]
    fn native_content_hash(values: FloatTensor<Self>, hash: ContentHash) -> IntTensor<Self> {
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
    /// More would have more to read.
    const MAX_UNITS: usize = 1024;
    Shape::new([values.num_elements().div_ceil(CONTENT_BLOCK).min(MAX_UNITS), 9])
}

/// Returns whether a device has kernels for the release of sums of single precision.
pub(crate) fn has_release(device: &Device) -> bool {
    match device.clone().inner().as_dispatch() {
        #[cfg(feature = "cube")]
        burn::backend::DispatchDevice::Cube(_) => true,
        #[allow(unreachable_patterns)] // without the feature
        _ => false,
    }
}

/// Returns sums with noise as [`ReleaseOps::native_release`], `[values]`.
pub(crate) fn native_release(sums: Tensor<1>, noise: KeyedNoise) -> Tensor<1> {
    Tensor::from_dispatch(Dispatch::native_release(sums.into_dispatch(), noise))
}

/// Returns hashes as [`ReleaseOps::native_content_hash`], `[parts, 9]`.
pub(crate) fn native_content_hash(values: Tensor<1>, hash: ContentHash) -> Tensor<2, Int> {
    Tensor::from_dispatch(Dispatch::native_content_hash(values.into_dispatch(), hash))
}
