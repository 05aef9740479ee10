//! Devices that other machines host, with Burn's remote backend.
//!
//! # Privacy
//!
//! A remote device computes on raw examples: its machine, and the network on the way to it, see the
//! examples, the parameters, the gradients and the clipped sums. Noise is drawn and added by the
//! process that trains, and its key stays there. The statement of a run names remote devices.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use burn::backend::DispatchDevice;
use burn::tensor::Device;

use crate::DpError;

/// Maximum duration of a read from a remote device, in milliseconds.
static READ_LIMIT: AtomicU64 = AtomicU64::new(600_000);

/// Sets how long a remote device may take to answer a read, in all runs of this process. The
/// default is ten minutes.
///
/// A new limit also applies to reads in progress. A read waits for everything that it depends on:
/// the passes of a physical batch, for example. A server or a network that hangs ends the run with
/// [`DpError::Device`] after this time, without a release; the run continues from its checkpoint in
/// a new process.
pub fn set_read_limit(limit: Duration) {
    READ_LIMIT.store(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Returns whether another machine may host the device.
pub(crate) fn is_remote(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Remote(_))
}

/// Returns the error of a read, with a known cause.
pub(crate) fn explained(error: impl std::fmt::Debug) -> String {
    let cause = "; with a GPU feature Burn fuses the operations of remote devices, and some layers \
                 fail: build this program without `wgpu`, `cuda` and the like";
    format!("{error:?}{}", if cfg!(feature = "fusion") { cause } else { "" })
}

/// Waits for a read until the limit.
///
/// # Errors
///
/// Returns the error of the read, and [`DpError::Device`] after the limit.
pub(crate) async fn within_limit<T>(
    read: impl Future<Output = Result<T, DpError>>,
    what: &str,
) -> Result<T, DpError> {
    within(|| Duration::from_millis(READ_LIMIT.load(Ordering::Relaxed)), read, what).await
}

/// Waits for a read until `limit`. The time is checked when the future is polled, which
/// [`wait`](crate::device_read::wait) does at intervals.
async fn within<T>(
    limit: impl Fn() -> Duration,
    read: impl Future<Output = Result<T, DpError>>,
    what: &str,
) -> Result<T, DpError> {
    let (mut read, start) = (pin!(read), Instant::now());
    std::future::poll_fn(|context| match read.as_mut().poll(context) {
        Poll::Pending if start.elapsed() > limit() => Poll::Ready(Err(DpError::device(format!(
            "{what}: the remote device did not answer within {} s; check its server and the \
             network, then resume the run, or set a longer `remote::set_read_limit`",
            limit().as_secs_f64()
        )))),
        polled => polled,
    })
    .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::device_read::wait;

    #[test]
    fn a_read_that_never_ends_is_an_error_after_the_limit() {
        // A read that has its value is never late.
        assert_eq!(wait(within(|| Duration::ZERO, async { Ok(7) }, "norms")).unwrap(), 7);
        let hanging = std::future::pending::<Result<u8, DpError>>();
        let limit = || Duration::from_millis(20);
        let error = wait(within(limit, hanging, "norms")).unwrap_err().to_string();
        assert!(error.contains("norms: the remote device did not answer within 0.02 s"), "{error}");
    }
}
