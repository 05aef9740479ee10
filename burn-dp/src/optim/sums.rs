//! Clipped sums before their release, on the host or on a device.

use burn::tensor::{DType, DataError, Device, Int, Tensor, TensorData};

use crate::DpError;
use crate::device_read::read;
use crate::ops::{ContentHash, Part, has_release, hash_units, native_content_hash};
use crate::random::{ContentKey, ContentMark};

/// The largest number of values of one parameter that kernels release. They count in 32 bits, and
/// units are launched in whole grids: those after the last value must not wrap around to the first.
const MAX_DEVICE_VALUES: usize = 1 << 31;

/// Sums of at most this many values share memory, up to `SHARED_VALUES` in total: a launch for each
/// costs more than the copy.
const SMALL_VALUES: usize = 1 << 15;
const SHARED_VALUES: usize = 1 << 20;

/// Where the sums of a step are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// On the host, even where a device has kernels for it.
    Host,
    /// Where a device has kernels for it, there, each in memory of its own.
    Apart,
    /// Where a device has kernels for it, there, with one launch for many small ones.
    Together,
}

/// The sum of one parameter.
pub(super) enum Sum {
    Host(TensorData),
    /// A part of the memory with this index, on a device that has kernels for the release.
    Device(usize, Part),
}

/// Sums that share memory on a device, or one alone.
struct Memory {
    device: Device,
    is_shared: bool,
    sums: Vec<Tensor<1>>,
    /// Number of values of all sums.
    values: usize,
}

impl Memory {
    /// Returns whether a small sum of this many values on `device` may share the memory.
    fn has_room(&self, device: &Device, values: usize) -> bool {
        self.is_shared && self.device == *device && self.values + values <= SHARED_VALUES
    }

    /// Returns the sums one after another, `[values]`.
    fn joined(mut self) -> Tensor<1> {
        match self.sums.len() {
            1 => self.sums.remove(0),
            _ => Tensor::cat(self.sums, 0),
        }
    }
}

/// The sums of a step.
pub(super) struct Sums {
    /// In the order in which the model visits the parameters.
    pub(super) parameters: Vec<Sum>,
    /// `[values]` each.
    pub(super) memories: Vec<Tensor<1>>,
}

impl Sums {
    /// Returns the sums of parameters, after reading those whose device has no kernels for the
    /// release, or whose values the kernels cannot count.
    ///
    /// # Arguments
    ///
    /// - `sums`: for each parameter its sum, `None` if no example contributed, its number of values
    ///   and its device
    pub(super) async fn new(
        sums: Vec<(Option<Tensor<1>>, usize, Device)>,
        placement: Placement,
    ) -> Result<Self, DpError> {
        let mut parameters = Vec::with_capacity(sums.len());
        let mut memories: Vec<Memory> = Vec::new();
        for (sum, values, device) in sums {
            let dtype = sum.as_ref().map_or(DType::F32, Tensor::dtype);
            if placement == Placement::Host || !is_released_on(&device, values, dtype) {
                parameters.push(Sum::Host(match sum {
                    Some(sum) => read(sum, "a clipped sum").await?.convert_dtype(DType::F32),
                    None => TensorData::zeros::<f32, _>([values]),
                }));
                continue;
            }
            let sum = sum.unwrap_or_else(|| Tensor::zeros([values], (&device, DType::F32)));
            let is_small = (1..=SMALL_VALUES).contains(&values);
            let is_shared = placement == Placement::Together && is_small;
            let has_room = |memory: &Memory| is_shared && memory.has_room(&device, values);
            let index = memories.iter().position(has_room).unwrap_or(memories.len());
            if index == memories.len() {
                memories.push(Memory { device, is_shared, sums: Vec::new(), values: 0 });
            }
            let part = Part { first: memories[index].values, values };
            memories[index].sums.push(sum);
            memories[index].values += values;
            parameters.push(Sum::Device(index, part));
        }
        Ok(Self { parameters, memories: memories.into_iter().map(Memory::joined).collect() })
    }

    /// Returns the number of values of each parameter, and the device where they are released;
    /// `None` for the host.
    pub(super) fn places(&self) -> Vec<(usize, Option<Device>)> {
        let place = |sum: &Sum| match sum {
            Sum::Host(sum) => (sum.num_elements(), None),
            Sum::Device(memory, part) => {
                (part.values, Some(self.memories[*memory].device().inner()))
            }
        };
        self.parameters.iter().map(place).collect()
    }
}

/// Returns whether a device has kernels for the release of a sum of this many values.
fn is_released_on(device: &Device, values: usize, dtype: DType) -> bool {
    has_release(device) && dtype == DType::F32 && values <= MAX_DEVICE_VALUES
}

/// Hashes of the sums that are on a device, which the device computes until they are read.
pub(super) struct Hashing {
    /// `[rows, 9]`, of all sums that are not empty.
    words: Option<Tensor<2, Int>>,
    /// The positions of the parameters in the order of the rows, each with its number of rows.
    rows: Vec<(usize, usize)>,
}

impl Hashing {
    /// Starts to hash the sums that are on a device. Without a key nothing is bound to the sums,
    /// and only the sums on devices are checked for values that are not finite.
    pub(super) fn start(sums: &Sums, key: Option<&ContentKey>) -> Self {
        if sums.memories.is_empty() {
            return Self { words: None, rows: Vec::new() };
        }
        let public = ContentKey::public();
        let key = key.unwrap_or(&public);
        let mut parts: Vec<Vec<(usize, Part)>> = vec![Vec::new(); sums.memories.len()];
        for (position, sum) in sums.parameters.iter().enumerate() {
            match *sum {
                Sum::Device(memory, part) if part.values > 0 => {
                    parts[memory].push((position, part));
                }
                _ => {}
            }
        }
        let rows = |&(position, part): &(usize, Part)| (position, hash_units(part.values));
        let rows = parts.iter().flatten().map(rows).collect();
        let hashed = |(position, part): (usize, Part)| {
            (part, ContentHash { words: key.words(position as u32) })
        };
        let memories = sums.memories.iter().cloned().zip(parts);
        let memories = memories.filter(|(_, parts)| !parts.is_empty());
        let memories =
            memories.map(|(memory, parts)| (memory, parts.into_iter().map(hashed).collect()));
        let mut hashes = native_content_hash(memories.collect());
        let words = match hashes.len() {
            0 | 1 => hashes.pop(),
            _ => {
                let device = hashes[0].device();
                let hashes = hashes.into_iter().map(|hash| hash.to_device(&device));
                Some(Tensor::cat(hashes.collect(), 0))
            }
        };
        Self { words, rows }
    }

    /// Returns the words to read for the marks, if any sum is on a device.
    pub(super) fn words(&self) -> Option<Tensor<2, Int>> {
        self.words.clone()
    }

    /// Returns the marks of the sums under `key`, and whether all sums on devices are finite; the
    /// host checks its own sums when it adds the noise.
    ///
    /// # Arguments
    ///
    /// - `words`: the values of [`Hashing::words`]
    pub(super) fn marks(
        self,
        words: Option<TensorData>,
        sums: &[Sum],
        key: Option<&ContentKey>,
    ) -> Result<(Vec<ContentMark>, bool), DpError> {
        let words = match words {
            Some(words) => words.try_into_vec::<i32>().map_err(unreadable)?,
            None => Vec::new(),
        };
        let (mut rest, _) = words.as_chunks::<9>();
        if rest.len() != self.rows.iter().map(|(_, rows)| rows).sum::<usize>() {
            return Err(DpError::device("a hash is missing"));
        }
        let is_finite = rest.iter().all(|row| row[8] == 0);
        let Some(key) = key else { return Ok((Vec::new(), is_finite)) };
        let mut rows: Vec<&[[i32; 9]]> = vec![&[]; sums.len()];
        for (position, count) in self.rows {
            (rows[position], rest) = rest.split_at(count);
        }
        let mark = |(position, (sum, rows)): (u32, (&Sum, &[[i32; 9]]))| match sum {
            Sum::Host(sum) => Ok(key.mark(position, sum.as_slice::<f32>().map_err(unreadable)?)),
            Sum::Device(_, part) => {
                let words = |row: &[i32; 9]| std::array::from_fn(|word| row[word].cast_unsigned());
                Ok(ContentKey::combine(part.values, rows.iter().map(words)))
            }
        };
        let marks: Result<_, DpError> = (0u32..).zip(sums.iter().zip(rows)).map(mark).collect();
        Ok((marks?, is_finite))
    }
}

pub(super) fn unreadable(error: DataError) -> DpError {
    DpError::device(format!("a clipped sum is unreadable: {error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_devices::devices;

    #[test]
    fn the_host_releases_sums_that_kernels_cannot_count() {
        for device in devices() {
            let is_released = |values| is_released_on(&device, values, DType::F32);
            assert_eq!(is_released(1), has_release(&device), "{device:?}");
            assert_eq!(is_released(MAX_DEVICE_VALUES), has_release(&device), "{device:?}");
            assert!(!is_released(MAX_DEVICE_VALUES + 1), "{device:?}");
            assert!(!is_released(usize::MAX) && !is_released_on(&device, 1, DType::F64));
        }
    }
}
