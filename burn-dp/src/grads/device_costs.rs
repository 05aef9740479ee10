//! The costs of a device for the methods that the planner chooses between.

use burn::tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use super::clock::shortest;
use super::rules::{Factors, OuterProducts, Rule};
use crate::DpError;
use crate::error::positive;
use crate::ops::{row_squared_norms, weighted_rows};

/// Number of bytes that a per-example gradient moves for each of its values: it is written, read
/// for the norm, and read again for the weighted sum.
pub(super) const MOVED_BYTES: f64 = 12.0;

/// Number of launches that are measured together.
const LAUNCHES: usize = 64;

/// Numbers of examples, of their positions, and of features on both sides of the measured layers.
const EXAMPLES: usize = 32;
const POSITIONS: usize = 64;
const FEATURES: usize = 512;

/// The time that a device needs for a floating-point operation, to move a byte, and to start a
/// kernel. The planner uses it to compare ghost norms with instantiation.
///
/// The default was measured on CPUs with the Flex backend: eight operations take as long as moving
/// one byte. [`DeviceCosts::measure`] measures a device.
///
/// A different plan rounds sums differently. To repeat a run with a seed, or to resume one, use the
/// same costs, which can be saved with serde.
///
/// # Privacy
///
/// The costs must not depend on private data. Measuring only uses constants.
///
/// # Example
///
/// ```
/// # use burn_dp::{DpError, grads::{DeviceCosts, PrivateBackward}};
/// # use burn::tensor::Device;
/// # fn main() -> Result<(), DpError> {
/// let costs = DeviceCosts::measure(&Device::flex())?;
/// let backward = PrivateBackward::new().with_device_costs(costs);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Seconds")]
pub struct DeviceCosts {
    seconds_per_operation: f64,
    seconds_per_byte: f64,
    seconds_per_launch: f64,
}

/// Costs as they are stored, not yet checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seconds {
    seconds_per_operation: f64,
    seconds_per_byte: f64,
    seconds_per_launch: f64,
}

impl TryFrom<Seconds> for DeviceCosts {
    type Error = DpError;

    fn try_from(seconds: Seconds) -> Result<Self, DpError> {
        let Seconds { seconds_per_operation, seconds_per_byte, seconds_per_launch } = seconds;
        Self::new(seconds_per_operation, seconds_per_byte, seconds_per_launch)
    }
}

impl Default for DeviceCosts {
    fn default() -> Self {
        Self { seconds_per_operation: 2.5e-11, seconds_per_byte: 2e-10, seconds_per_launch: 0.0 }
    }
}

impl DeviceCosts {
    /// Creates costs, in seconds.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the time of an operation or of a byte is not
    /// positive and finite, or the time of a launch is negative or not finite.
    pub fn new(
        seconds_per_operation: f64,
        seconds_per_byte: f64,
        seconds_per_launch: f64,
    ) -> Result<Self, DpError> {
        positive("seconds_per_operation", seconds_per_operation)?;
        positive("seconds_per_byte", seconds_per_byte)?;
        if seconds_per_launch != 0.0 {
            positive("seconds_per_launch", seconds_per_launch)?;
        }
        Ok(Self { seconds_per_operation, seconds_per_byte, seconds_per_launch })
    }

    /// Measures a device with a ghost norm, per-example gradients of 32 MiB, and small launches. It
    /// takes less than a second on a CPU, and longer where kernels are compiled.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Device`] if the device fails, and [`DpError::InvalidState`] if there is
    /// no clock, as in a browser.
    pub fn measure(device: &Device) -> Result<Self, DpError> {
        let device = device.clone().inner();
        let options = (&device, DType::F32);
        let layer = |positions: usize| {
            let ones = || Tensor::ones([EXAMPLES, positions, FEATURES], options);
            OuterProducts::dense(ones(), ones())
        };
        let no_clock = || DpError::state("there is no clock; give the costs with `new`");
        let small = Tensor::<1>::ones([1], options);
        let launches =
            shortest(&device, || (0..LAUNCHES).fold(small.clone(), |sum, _| sum + small.clone()))?;

        let many = layer(POSITIONS);
        let operations = EXAMPLES as f64 * many.cost().ghost_flops.unwrap_or(f64::NAN);
        let ghost = shortest(&device, || many.ghost_norms(&mut Factors::default()))?;

        let one = layer(1);
        let coefficients = Tensor::<1>::ones([EXAMPLES], options);
        let bytes = MOVED_BYTES * (EXAMPLES * FEATURES * FEATURES) as f64;
        let moved = shortest(&device, || {
            let rows = one.instantiate();
            (row_squared_norms(rows.clone()), weighted_rows(coefficients.clone(), rows))
        })?;
        let (launches, ghost) = launches.zip(ghost).ok_or_else(no_clock)?;
        let moved = moved.ok_or_else(no_clock)?;
        Self::new(ghost / operations, moved / bytes, launches / LAUNCHES as f64)
    }

    /// Returns the time of one floating-point operation in a matrix product, in seconds.
    pub fn seconds_per_operation(&self) -> f64 {
        self.seconds_per_operation
    }

    /// Returns the time to move one byte of a large tensor, in seconds.
    pub fn seconds_per_byte(&self) -> f64 {
        self.seconds_per_byte
    }

    /// Returns the time to start one kernel, in seconds.
    pub fn seconds_per_launch(&self) -> f64 {
        self.seconds_per_launch
    }

    /// Returns the time of operations in a number of launches.
    pub(super) fn operations(&self, operations: f64, launches: usize) -> f64 {
        operations * self.seconds_per_operation + launches as f64 * self.seconds_per_launch
    }

    /// Returns the time to move bytes in a number of launches.
    pub(super) fn bytes(&self, bytes: f64, launches: usize) -> f64 {
        bytes * self.seconds_per_byte + launches as f64 * self.seconds_per_launch
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::Device;

    use super::*;

    #[test]
    fn costs_that_are_no_times_are_refused_by_name() {
        assert!(DeviceCosts::new(1e-11, 1e-10, 0.0).is_ok());
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = DeviceCosts::new(bad, 1.0, 1.0).unwrap_err().to_string();
            assert!(error.contains("seconds_per_operation"), "{error}");
            let error = DeviceCosts::new(1.0, bad, 1.0).unwrap_err().to_string();
            assert!(error.contains("seconds_per_byte"), "{error}");
        }
        let error = DeviceCosts::new(1.0, 1.0, -1e-6).unwrap_err().to_string();
        assert!(error.contains("seconds_per_launch") && error.contains("-0.000001"), "{error}");
    }

    #[test]
    fn saved_costs_are_checked_when_they_are_read() {
        let costs = DeviceCosts::new(1.5e-11, 3e-10, 2e-6).unwrap();
        let json = serde_json::to_string(&costs).unwrap();
        assert_eq!(serde_json::from_str::<DeviceCosts>(&json).unwrap(), costs);
        for (good, bad) in [("1.5e-11", "0.0"), ("launch", "start")] {
            assert!(serde_json::from_str::<DeviceCosts>(&json.replace(good, bad)).is_err());
        }
    }

    #[test]
    fn measured_costs_are_times() {
        let costs = DeviceCosts::measure(&Device::flex().autodiff()).unwrap();
        let times = [costs.seconds_per_operation, costs.seconds_per_byte, costs.seconds_per_launch];
        assert!(times.iter().all(|&time| time > 0.0 && time < 1e-3), "{times:?}");
    }
}
