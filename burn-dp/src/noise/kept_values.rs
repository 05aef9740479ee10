//! Values of earlier steps, in the memory of the host or of a device.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use zeroize::Zeroizing;

use crate::DpError;
use crate::device_read::read;
use crate::ops::native_erase;
use crate::random::GROUP_WORDS;

/// Number of 32-bit words in one part of the memory of a device, 128 MiB, which every WebGPU device
/// can bind. Few in tests, so that a parameter has several parts.
const PART_WORDS: usize = if cfg!(test) { 1 << 14 } else { 1 << 25 };

/// The slots of one parameter: for each group of values, the slots one after another.
pub(super) struct KeptValues {
    /// Number of kept values.
    length: usize,
    /// Number of kept values of a group.
    group: usize,
    place: Place,
}

enum Place {
    /// Nowhere yet: all of them are zero.
    Nowhere,
    Host(Zeroizing<Vec<f64>>),
    Device(DeviceValues),
}

/// Kept values on a device, as the halves of their bits, the lower one first.
///
/// # Privacy
///
/// Overwritten with zeros on drop, by a kernel that the device runs before it uses the memory
/// again. Copies that the driver makes are not overwritten.
pub(super) struct DeviceValues(Vec<Tensor<1, Int>>);

impl Drop for DeviceValues {
    fn drop(&mut self) {
        // A device that failed would end the program here.
        if !std::thread::panicking() {
            self.0.drain(..).for_each(|part| drop(native_erase(part)));
        }
    }
}

impl DeviceValues {
    /// Replaces each part with what `release` returns for it. Returns the results in order.
    ///
    /// # Arguments
    ///
    /// - `release`: receives the number of the part
    pub(super) fn replace<T>(
        &mut self,
        mut release: impl FnMut(usize, Tensor<1, Int>) -> (T, Tensor<1, Int>),
    ) -> Vec<T> {
        // Taken, so that a kernel may write to the memory of the part.
        let parts = std::mem::take(&mut self.0).into_iter().enumerate();
        let (results, parts) = parts.map(|(number, part)| release(number, part)).unzip();
        self.0 = parts;
        results
    }
}

impl KeptValues {
    /// Returns zeros.
    ///
    /// # Arguments
    ///
    /// - `values`: number of values of the parameter
    pub(super) fn new(values: usize, slots: usize) -> Self {
        let group = slots * GROUP_WORDS;
        let length = values.div_ceil(GROUP_WORDS).saturating_mul(group);
        Self { length, group, place: Place::Nowhere }
    }

    /// Returns the number of kept values.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns the number of groups of values of the parameter in a part on a device.
    pub(super) fn groups_of_part(&self) -> usize {
        (PART_WORDS / (2 * self.group).max(1)).max(1)
    }

    /// Moves the values to a device, or to the host.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Device`] if they cannot be read from the device that has them.
    pub(super) async fn place(&mut self, device: Option<&Device>) -> Result<(), DpError> {
        let is_there = match (&self.place, device) {
            (Place::Host(_), None) => true,
            (Place::Device(DeviceValues(parts)), Some(device)) => {
                parts.first().is_none_or(|part| part.device().inner() == *device)
            }
            _ => false,
        };
        if is_there {
            return Ok(());
        }
        if let Place::Device(_) = self.place {
            let mut values = Zeroizing::new(Vec::with_capacity(self.length));
            self.visit(|value| values.push(value)).await?;
            self.place = Place::Host(values);
        }
        match device {
            Some(device) => self.upload(device),
            None => drop(self.on_host()),
        }
        Ok(())
    }

    /// Copies the values of the host, or zeros, to a device.
    fn upload(&mut self, device: &Device) {
        let size = self.groups_of_part() * self.group;
        let parts = (0..self.length).step_by(size.max(1)).map(|first| {
            let length = size.min(self.length - first);
            let Place::Host(values) = &self.place else {
                return Tensor::zeros([2 * length], (device, DType::I32));
            };
            let halves = |value: &f64| [value.to_bits() as i32, (value.to_bits() >> 32) as i32];
            let words: Vec<i32> = values[first..first + length].iter().flat_map(halves).collect();
            Tensor::from_data(TensorData::new(words, [2 * length]), (device, DType::I32))
        });
        let parts: Vec<_> = parts.collect();
        self.place = Place::Device(DeviceValues(parts));
    }

    /// Returns the values on the host; `None` if a device has them.
    pub(super) fn on_host(&mut self) -> Option<&mut [f64]> {
        if let Place::Nowhere = self.place {
            self.place = Place::Host(Zeroizing::new(vec![0.0; self.length]));
        }
        match &mut self.place {
            Place::Host(values) => Some(values),
            _ => None,
        }
    }

    /// Returns the values on a device, if one has them.
    pub(super) fn on_device(&mut self) -> Option<&mut DeviceValues> {
        match &mut self.place {
            Place::Device(values) => Some(values),
            _ => None,
        }
    }

    /// Calls `visit` with every value, in order.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Device`] if a device that has them cannot be read.
    pub(super) async fn visit(&self, mut visit: impl FnMut(f64)) -> Result<(), DpError> {
        match &self.place {
            Place::Nowhere => (0..self.length).for_each(|_| visit(0.0)),
            Place::Host(values) => values.iter().for_each(|&value| visit(value)),
            Place::Device(DeviceValues(parts)) => {
                for part in parts {
                    let words = read(part.clone(), "the memory of the correlated noise").await?;
                    let words = words.try_into_vec::<i32>();
                    let words = Zeroizing::new(words.map_err(|error| {
                        DpError::device(format!("the memory of correlated noise: {error:?}"))
                    })?);
                    for &[low, high] in words.as_chunks().0 {
                        let high = u64::from(high.cast_unsigned());
                        visit(f64::from_bits((high << 32) | u64::from(low.cast_unsigned())));
                    }
                }
            }
        }
        Ok(())
    }
}
