//! Clipped sums before their release, on the host or on a device.

use burn::tensor::{DType, DataError, Device, Int, Tensor, TensorData};

use crate::DpError;
use crate::device_read::read;
use crate::ops::{ContentHash, has_release, native_content_hash};
use crate::random::{ContentKey, ContentMark};

/// The largest number of values of one parameter that kernels release. They count in 32 bits, and
/// units are launched in whole grids: those after the last value must not wrap around to the first.
const MAX_DEVICE_VALUES: usize = 1 << 31;

/// The sum of one parameter.
pub(super) enum Sum {
    Host(TensorData),
    /// On a device that has kernels for the release.
    Device(Tensor<1>),
}

impl Sum {
    /// Returns the sum of a parameter, after reading it if its device has no kernels for the
    /// release, or if the kernels cannot count its values.
    ///
    /// # Arguments
    ///
    /// - `sum`: `None` if no example contributed
    pub(super) async fn new(
        sum: Option<Tensor<1>>,
        values: usize,
        device: &Device,
        on_host: bool,
    ) -> Result<Self, DpError> {
        let dtype = sum.as_ref().map_or(DType::F32, Tensor::dtype);
        if !on_host && is_released_on(device, values, dtype) {
            let zeros = || Tensor::zeros([values], (device, DType::F32));
            return Ok(Self::Device(sum.unwrap_or_else(zeros)));
        }
        Ok(Self::Host(match sum {
            Some(sum) => read(sum, "a clipped sum").await?.convert_dtype(DType::F32),
            None => TensorData::zeros::<f32, _>([values]),
        }))
    }

    /// Returns the number of values, and the device where they are released; `None` for the host.
    pub(super) fn place(&self) -> (usize, Option<Device>) {
        match self {
            Self::Host(sum) => (sum.num_elements(), None),
            Self::Device(sum) => (sum.dims()[0], Some(sum.device().inner())),
        }
    }
}

/// Returns whether a device has kernels for the release of a sum of this many values.
fn is_released_on(device: &Device, values: usize, dtype: DType) -> bool {
    has_release(device) && dtype == DType::F32 && values <= MAX_DEVICE_VALUES
}

/// Hashes of the sums that are on a device, which the device computes until they are read.
pub(super) struct Hashing {
    /// `[parts, 9]`, of all sums that are not empty.
    words: Option<Tensor<2, Int>>,
    /// The number of values and of parts of each sum.
    lengths: Vec<(usize, usize)>,
}

impl Hashing {
    /// Starts to hash the sums that are on a device. Without a key nothing is bound to the sums,
    /// and only the sums on devices are checked for values that are not finite.
    pub(super) fn start(sums: &[Sum], key: Option<&ContentKey>) -> Self {
        let (mut parts, mut values) = (Vec::new(), Vec::new());
        if sums.iter().any(|sum| matches!(sum, Sum::Device(_))) {
            let public = ContentKey::public();
            let key = key.unwrap_or(&public);
            for (position, sum) in (0u32..).zip(sums) {
                let Sum::Device(sum) = sum else { continue };
                values.push(sum.dims()[0]);
                if sum.dims()[0] > 0 {
                    parts.push((sum.clone(), ContentHash { words: key.words(position) }));
                }
            }
        }
        let hashes = native_content_hash(parts);
        let mut numbers = hashes.iter().map(|hash| hash.dims()[0]);
        let mut number = |values| if values > 0 { numbers.next().unwrap_or(0) } else { 0 };
        let lengths = values.into_iter().map(|values| (values, number(values))).collect();
        let words = hashes.first().map(Tensor::device).map(|device| {
            Tensor::cat(hashes.into_iter().map(|hash| hash.to_device(&device)).collect(), 0)
        });
        Self { words, lengths }
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
        let (rows, _) = words.as_chunks::<9>();
        let is_finite = rows.iter().all(|row| row[8] == 0);
        let Some(key) = key else { return Ok((Vec::new(), is_finite)) };
        let mut rows = rows.iter().map(|row| std::array::from_fn(|word| row[word].cast_unsigned()));
        let mut on_device = self
            .lengths
            .into_iter()
            .map(|(length, parts)| ContentKey::combine(length, rows.by_ref().take(parts)));
        let marks: Result<_, DpError> = (0u32..)
            .zip(sums)
            .map(|(position, sum)| match sum {
                Sum::Host(sum) => {
                    Ok(key.mark(position, sum.as_slice::<f32>().map_err(unreadable)?))
                }
                Sum::Device(_) => {
                    on_device.next().ok_or_else(|| DpError::device("a hash is missing"))
                }
            })
            .collect();
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
