//! Kernels of the CubeCL backends (CUDA, Vulkan, Metal, WebGPU): per-example norms, gradients and
//! coefficients, and the release of a private sum.
//!
//! The release computes in 32-bit integers what the host computes in 64-bit integers, with the same
//! bits.

// The macros of CubeCL create their own modules, and have neither rotations nor enumerations.
#![allow(unreachable_pub, missing_docs, clippy::manual_rotate, clippy::needless_range_loop)]

mod coefficients;
mod content;
mod convolution;
mod correlated;
mod double;
mod keystream;
mod normal;
mod norms;
mod outer_products;
mod per_example;
mod release;
mod wide;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape};
use burn_cubecl::cubecl::prelude::{CubeCount, CubeDim};
use burn_cubecl::cubecl::{calculate_cube_count_elemwise, client::Client};
use burn_cubecl::kernel::{into_contiguous, slice};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};

use crate::ops::release_ops::{GROUP_BLOCKS, GROUP_VALUES};
use crate::ops::{CorrelatedKeyedNoise, PlacedHashes, PlacedNoise, ReleaseOps};
use crate::random::CONTENT_BLOCK;

/// Returns the grid and the size of its groups for this number of units.
fn grid(client: &Client, units: usize) -> (CubeCount, CubeDim) {
    let cube = CubeDim::new(client, units);
    (calculate_cube_count_elemwise(client, units, cube), cube)
}

/// Returns whether a device is a processor: its planes are as short as a vector of one. There,
/// loads cost more than registers, and a barrier costs more than the work of many units.
fn is_processor(client: &Client) -> bool {
    client.properties().hardware.plane_size_max <= 8
}

impl ReleaseOps for CubeBackend {
    fn native_release(
        sums: FloatTensor<Self>,
        words: IntTensor<Self>,
        noise: PlacedNoise,
    ) -> FloatTensor<Self> {
        let sums = bits_of(sums);
        let (client, device) = (sums.client.clone(), sums.device.clone());
        let shape = Shape::new([noise.values]);
        let released =
            empty_device_contiguous_dtype(client.clone(), device.clone(), shape, DType::F32);
        let table = table(&client, &device, noise.table);
        let (cubes, cube) = grid(&client, noise.blocks);
        release::release_values::launch(
            &client,
            cubes,
            cube,
            sums.into_buffer_arg(),
            words_of(words).into_buffer_arg(),
            table.into_buffer_arg(),
            released.clone().into_buffer_arg(),
            noise.blocks,
            noise.parts,
            noise.place,
        );
        released
    }

    fn native_part(values: FloatTensor<Self>, first: usize, count: usize) -> FloatTensor<Self> {
        let values = into_contiguous(values);
        let (size, length) = (values.dtype.size(), values.meta.shape()[0]);
        let offset = (first * size) as u64;
        if !offset.is_multiple_of(values.client.properties().memory.alignment) {
            return slice(values, std::slice::from_ref(&(first..first + count)));
        }
        let rest = ((length - first - count) * size) as u64;
        let handle = values.handle.offset_start(offset).offset_end(rest);
        let shape = Shape::new([count]);
        CubeTensor::new_contiguous(values.client, values.device, shape, handle, values.dtype)
    }

    fn native_correlated_release(
        sums: FloatTensor<Self>,
        memory: IntTensor<Self>,
        noise: CorrelatedKeyedNoise,
    ) -> (FloatTensor<Self>, IntTensor<Self>) {
        let sums = bits_of(sums);
        let (client, device) = (sums.client.clone(), sums.device.clone());
        let shape = sums.meta.shape().clone();
        let count = shape.num_elements();
        let blocks = count.div_ceil(GROUP_VALUES) * GROUP_BLOCKS;
        let released =
            empty_device_contiguous_dtype(client.clone(), device.clone(), shape, DType::F32);
        if blocks == 0 {
            return (released, memory);
        }
        let memory = own(memory);
        let words = upload(&client, &device, &noise.words(blocks as u32));
        let table = table(&client, &device, noise.noise.table);
        let (cubes, cube) = grid(&client, blocks);
        correlated::release_correlated::launch(
            &client,
            cubes,
            cube,
            sums.into_buffer_arg(),
            words.into_buffer_arg(),
            table.into_buffer_arg(),
            memory.clone().into_buffer_arg(),
            released.clone().into_buffer_arg(),
            count,
            noise.earlier.are_drawn_again(),
        );
        (released, integers(memory))
    }

    fn native_erase(memory: IntTensor<Self>) -> IntTensor<Self> {
        #[cfg(test)]
        ERASURES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let memory = own(memory);
        let (client, words) = (memory.client.clone(), memory.meta.shape().num_elements());
        let (cubes, cube) = grid(&client, words);
        correlated::erase::launch(&client, cubes, cube, memory.clone().into_buffer_arg());
        integers(memory)
    }

    fn native_content_hash(
        values: FloatTensor<Self>,
        words: IntTensor<Self>,
        hashes: PlacedHashes,
    ) -> IntTensor<Self> {
        let values = bits_of(values);
        let (client, device) = (values.client.clone(), values.device.clone());
        let shape = Shape::new([hashes.units, 9]);
        let results =
            empty_device_contiguous_dtype(client.clone(), device.clone(), shape, DType::I32);
        let mut found = results.clone();
        found.dtype = DType::U32;
        let (cubes, cube) = grid(&client, hashes.units);
        content::content_hash::launch(
            &client,
            cubes,
            cube,
            values.into_buffer_arg(),
            words_of(words).into_buffer_arg(),
            found.into_buffer_arg(),
            CONTENT_BLOCK / 2,
            hashes.units,
            hashes.parts,
            hashes.place,
            hashes.words,
        );
        results
    }
}

/// Returns the bits of single-precision values, contiguous in memory.
fn bits_of(values: CubeTensor) -> CubeTensor {
    let mut values = into_contiguous(values);
    assert_eq!(values.dtype, DType::F32);
    // The same memory as integers, because a device may change values that it loads as floats.
    values.dtype = DType::U32;
    values
}

/// Returns integers as words, contiguous in memory.
fn words_of(integers: CubeTensor) -> CubeTensor {
    let mut words = into_contiguous(integers);
    words.dtype = DType::U32;
    words
}

/// Returns words that a kernel may change: the memory itself, unless another tensor shares it.
fn own(words: CubeTensor) -> CubeTensor {
    let mut words = into_contiguous(words);
    if !words.can_mut() {
        #[cfg(test)]
        COPIES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        words = words.copy();
    }
    words.dtype = DType::U32;
    words
}

#[cfg(test)]
static COPIES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Returns the number of times that memory was copied because another tensor shared it.
#[cfg(test)]
pub(crate) fn copied_memories() -> usize {
    COPIES.load(std::sync::atomic::Ordering::Relaxed)
}

#[cfg(test)]
static ERASURES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Returns the number of times that memory was erased.
#[cfg(test)]
pub(crate) fn erased_memories() -> usize {
    ERASURES.load(std::sync::atomic::Ordering::Relaxed)
}

fn integers(mut words: CubeTensor) -> CubeTensor {
    words.dtype = DType::I32;
    words
}

fn upload(client: &Client, device: &CubeDevice, words: &[u32]) -> CubeTensor {
    let handle = client.create_from_slice(bytemuck::cast_slice(words));
    let shape = Shape::new([words.len()]);
    CubeTensor::new_contiguous(client.clone(), device.clone(), shape, handle, DType::U32)
}

/// Returns public words on a device, where the last ones stay: an upload waits for the kernels
/// before it to start, and these words are often the same in the next step.
fn public(client: &Client, device: &CubeDevice, words: Vec<u32>) -> CubeTensor {
    const KEPT: usize = 64;
    static UPLOADED: Mutex<VecDeque<(CubeDevice, Vec<u32>, CubeTensor)>> =
        Mutex::new(VecDeque::new());
    let mut uploaded = UPLOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = |kept: &&(CubeDevice, Vec<u32>, CubeTensor)| kept.0 == *device && kept.1 == words;
    if let Some((.., tensor)) = uploaded.iter().find(is_same) {
        return tensor.clone();
    }
    let tensor = upload(client, device, &words);
    if uploaded.len() == KEPT {
        uploaded.pop_front();
    }
    uploaded.push_back((device.clone(), words, tensor.clone()));
    tensor
}

/// Returns a table on a device, where it stays.
fn table(client: &Client, device: &CubeDevice, bytes: &'static [u8]) -> CubeTensor {
    static TABLES: Mutex<Vec<(CubeDevice, CubeTensor)>> = Mutex::new(Vec::new());
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, table)) = tables.iter().find(|(found, _)| found == device) {
        return table.clone();
    }
    let words: Vec<u32> =
        bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
    let table = upload(client, device, &words);
    tables.push((device.clone(), table.clone()));
    table
}

/// Returns the normal values of the first words of pairs, on the default device.
#[cfg(test)]
pub(crate) fn normal_values(pairs: &[(u64, u64)], bytes: &'static [u8]) -> Vec<i64> {
    let device = CubeDevice::default();
    let client = device.client();
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let words: Vec<u32> =
        pairs.iter().flat_map(|&(word, other)| [halves(word), halves(other)]).flatten().collect();
    let shape = Shape::new([2 * pairs.len()]);
    let values = empty_device_contiguous_dtype(client.clone(), device.clone(), shape, DType::U32);
    let (cubes, cube) = grid(&client, pairs.len());
    normal::normal_values::launch(
        &client,
        cubes,
        cube,
        upload(&client, &device, &words).into_buffer_arg(),
        table(&client, &device, bytes).into_buffer_arg(),
        values.clone().into_buffer_arg(),
    );
    let bytes = client.read_one_unchecked(values.handle);
    bytes.as_chunks().0.iter().map(|&value| i64::from_le_bytes(value)).collect()
}

/// Returns `[a b, a + b, a as an integer, the integer a as a double]` of pairs of doubles, as bits.
#[cfg(test)]
pub(crate) fn double_operations(pairs: &[(u64, u64)]) -> Vec<[u64; 4]> {
    let device = CubeDevice::default();
    let client = device.client();
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let words: Vec<u32> =
        pairs.iter().flat_map(|&(a, b)| [halves(a), halves(b)]).flatten().collect();
    let shape = Shape::new([8 * pairs.len()]);
    let results = empty_device_contiguous_dtype(client.clone(), device.clone(), shape, DType::U32);
    let (cubes, cube) = grid(&client, pairs.len());
    double::operations::launch(
        &client,
        cubes,
        cube,
        upload(&client, &device, &words).into_buffer_arg(),
        results.clone().into_buffer_arg(),
    );
    let bytes = client.read_one_unchecked(results.handle);
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
    words.as_chunks().0.to_vec()
}
