//! The record of a weight average.

use std::collections::BTreeMap;

use burn::tensor::{Bytes, DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use super::{Average, WeightAverage};
use crate::DpError;
use crate::device_read::{blocking, read};
use crate::optim::pack;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    decay: f64,
    bias_correction: bool,
    /// Number of averaged steps of each parameter, by path.
    steps: BTreeMap<String, u64>,
}

impl WeightAverage {
    /// Returns the average as a burnpack record.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Encoding`] if the record cannot be encoded.
    pub fn to_bytes(&self) -> Result<Bytes, DpError> {
        blocking(self.to_bytes_async(), "WeightAverage::to_bytes_async")
    }

    /// Runs [`to_bytes`](Self::to_bytes) without blocking the thread, as browsers require.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`to_bytes`](Self::to_bytes), and [`DpError::Device`] if a value
    /// cannot be read.
    pub async fn to_bytes_async(&self) -> Result<Bytes, DpError> {
        let steps = self.averages.iter().map(|(path, average)| (path.clone(), average.steps));
        let settings = Settings {
            decay: self.decay,
            bias_correction: self.bias_correction,
            steps: steps.collect(),
        };
        let mut tensors = Vec::new();
        for (path, average) in &self.averages {
            let data = read(average.values.clone(), "an average").await?;
            tensors.push((path.clone(), data));
        }
        pack::write(&settings, tensors)
    }

    /// Returns the average of a record. Its values move to the device of the model in the next
    /// step.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the record is damaged or has another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DpError> {
        let (settings, mut tensors): (Settings, _) = pack::read(bytes)?;
        let mut found = Self::new(settings.decay)?;
        found.bias_correction = settings.bias_correction;
        let device = Device::default();
        for (path, steps) in settings.steps {
            let data = tensors.remove(&path);
            let data = data.ok_or_else(|| pack::unreadable(format!("no values of {path}")))?;
            let dtype = data.dtype();
            if data.shape().num_dims() != 1
                || steps == 0
                || !matches!(dtype, DType::F32 | DType::F64)
            {
                return Err(pack::unreadable(format!("the values of {path} are not an average")));
            }
            let values = Tensor::from_data(data, (&device, dtype)).inner();
            found.averages.insert(path, Average { steps, values });
        }
        match tensors.is_empty() {
            true => Ok(found),
            false => Err(pack::unreadable("a tensor too many")),
        }
    }
}
