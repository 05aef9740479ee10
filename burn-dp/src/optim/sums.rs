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
        let mut memories: Vec<(Device, Vec<Tensor<1>>, usize)> = Vec::new();
        for (sum, values, device) in sums {
            let dtype = sum.as_ref().map_or(DType::F32, Tensor::dtype);
            if placement != Placement::Host && is_released_on(&device, values, dtype) {
                let sum = sum.unwrap_or_else(|| Tensor::zeros([values], (&device, DType::F32)));
                let shares = |(of, sums, total): &(Device, Vec<Tensor<1>>, usize)| {
                    let is_small = |values| (1..=SMALL_VALUES).contains(&values);
                    *of == device
                        && total + values <= SHARED_VALUES
                        && is_small(values)
                        && sums.iter().all(|sum| is_small(sum.dims()[0]))
                };
                let shared = memories
                    .iter()
                    .position(|memory| placement == Placement::Together && shares(memory));
                let memory = shared.unwrap_or_else(|| {
                    memories.push((device, Vec::new(), 0));
                    memories.len() - 1
                });
                let (_, sums, total) = &mut memories[memory];
                parameters.push(Sum::Device(memory, Part { first: *total, values }));
                sums.push(sum);
                *total += values;
                continue;
            }
            parameters.push(Sum::Host(match sum {
                Some(sum) => read(sum, "a clipped sum").await?.convert_dtype(DType::F32),
                None => TensorData::zeros::<f32, _>([values]),
            }));
        }
        let joined = |(_, mut sums, _): (Device, Vec<Tensor<1>>, usize)| match sums.len() {
            1 => sums.remove(0),
            _ => Tensor::cat(sums, 0),
        };
        Ok(Self { parameters, memories: memories.into_iter().map(joined).collect() })
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
        let (mut memories, mut rows) = (Vec::new(), Vec::new());
        for (index, memory) in sums.memories.iter().enumerate() {
            let mut parts = Vec::new();
            for (position, sum) in sums.parameters.iter().enumerate() {
                if let Sum::Device(of, part) = sum
                    && *of == index
                    && part.values > 0
                {
                    parts.push((*part, ContentHash { words: key.words(position as u32) }));
                    rows.push((position, hash_units(part.values)));
                }
            }
            if !parts.is_empty() {
                memories.push((memory.clone(), parts));
            }
        }
        let mut hashes = native_content_hash(memories);
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
