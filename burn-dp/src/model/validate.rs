use burn::module::Module;

use super::scan::ModelScan;
use crate::error::Faults;

/// Finds every part of `model` that cannot be trained privately as it is.
///
/// Each fault has a path, a reason, and a remedy. Training uses the same checks, so it rejects a
/// model for the same reasons.
///
/// Validation checks the fields of a model, not its forward pass. This has two consequences:
///
/// - A model without faults can still be used incorrectly. Only the backward pass can check that a
///   layer keeps the examples on axis 0 and that loss i depends on example i alone.
/// - A parameter outside a private layer is a fault even if no loss uses it, and even if the
///   forward pass reads it only through [`nn::parameter`](crate::nn::parameter). Such a model can
///   still be trained. Hold the parameter as a `Private<Param<_>>`, which has the same record, to
///   pass validation.
///
/// # Errors
///
/// Returns all faults, sorted by path.
///
/// # Example
///
/// ```
/// use burn::module::Module;
/// use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
/// use burn::tensor::Device;
/// use burn_dp::model::validate;
/// use burn_dp::nn::{IntoPrivate, Private};
///
/// #[derive(Module, Debug)]
/// struct Net {
///     fc1: Private<Linear>,
///     norm: BatchNorm,
///     fc2: Linear,
/// }
///
/// let device = Device::flex().autodiff();
/// let net = Net {
///     fc1: LinearConfig::new(4, 8).init(&device).private(),
///     norm: BatchNormConfig::new(8).init(&device),
///     fc2: LinearConfig::new(8, 2).init(&device),
/// };
/// let faults = validate(&net).unwrap_err();
/// // The norm mixes the examples, and its scale and shift are trained outside of a private layer.
/// let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
/// assert_eq!(paths, ["fc2", "norm", "norm"]);
/// println!("{faults}");
/// ```
pub fn validate<M: Module>(model: &M) -> Result<(), Faults> {
    let faults = ModelScan::of(model).into_faults();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}
