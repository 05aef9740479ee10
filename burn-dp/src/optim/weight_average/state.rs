//! The file of a weight average in a checkpoint.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::{Average, WeightAverage};
use crate::checkpoint::little_endian::Reader;

/// Version of the format. Others are not read.
const FORMAT: u64 = 1;

/// All numbers are little-endian: format, decay, whether the bias is corrected, number of parameters; for
/// each its path with a length, its number of steps, the bytes of a value, the number of values, and those.
impl WeightAverage {
    /// The average as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut number = |value: u64| bytes.extend(value.to_le_bytes());
        number(FORMAT);
        number(self.decay.to_bits());
        number(self.bias_correction.into());
        number(self.averages.len() as u64);
        for (path, average) in &self.averages {
            let double = average.values.dtype() == DType::F64;
            let data = average.values.to_data();
            bytes.extend((path.len() as u64).to_le_bytes());
            bytes.extend(path.as_bytes());
            let size: u64 = if double { 8 } else { 4 };
            for value in [average.steps, size, data.num_elements() as u64] {
                bytes.extend(value.to_le_bytes());
            }
            match double {
                true => bytes.extend(data.iter::<f64>().flat_map(f64::to_le_bytes)),
                false => bytes.extend(data.iter::<f32>().flat_map(f32::to_le_bytes)),
            }
        }
        bytes
    }

    /// Nothing for bytes that are not those of an average. The values move to the device of the model with
    /// its next step.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut read = Reader::new(bytes);
        if read.u64()? != FORMAT {
            return None;
        }
        let mut found = Self::new(read.f64()?).ok()?;
        found.bias_correction = match read.u64()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let device = Device::default();
        let mut averages = BTreeMap::new();
        for _ in 0..read.u64()? {
            let (path, steps) = (read.text()?, read.u64().filter(|&steps| steps > 0)?);
            let (size, count) = (read.u64()?, read.u64()?);
            let shape = [usize::try_from(count).ok()?];
            let (data, dtype) = match size {
                4 => (TensorData::new(read.f32s(count)?, shape), DType::F32),
                8 => (TensorData::new(read.f64s(count)?, shape), DType::F64),
                _ => return None,
            };
            let values = Tensor::from_data(data, (&device, dtype)).inner();
            averages.insert(path, Average { steps, values });
        }
        found.averages = averages;
        read.is_at_end().then_some(found)
    }
}
