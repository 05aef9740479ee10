//! Measures the time of work on a device.

use burn::tensor::Device;

use crate::DpError;

/// Returns the shortest time of repeated work, in seconds; `None` where no clock exists.
///
/// # Errors
///
/// Returns [`DpError::Device`] if the device fails.
#[cfg(not(target_family = "wasm"))]
pub(super) fn shortest<T>(device: &Device, work: impl Fn() -> T) -> Result<Option<f64>, DpError> {
    /// Number of repetitions after a first one, in which kernels may be compiled.
    const REPETITIONS: usize = 4;
    let sync = || device.sync().map_err(|error| DpError::device(format!("{error:?}")));
    let mut shortest = f64::INFINITY;
    for _ in 0..=REPETITIONS {
        sync()?;
        let start = std::time::Instant::now();
        let result = work();
        sync()?;
        // A clock may be too coarse for short work.
        shortest = shortest.min(start.elapsed().as_secs_f64().max(1e-9));
        drop(result);
    }
    Ok(Some(shortest))
}

#[cfg(target_family = "wasm")]
pub(super) fn shortest<T>(_: &Device, _: impl Fn() -> T) -> Result<Option<f64>, DpError> {
    Ok(None)
}
