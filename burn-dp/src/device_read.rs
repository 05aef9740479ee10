//! The only place that reads values from a device and waits for a read.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use burn::tensor::kind::Basic;
use burn::tensor::{DType, Int, Tensor, TensorData, Transaction};

use crate::DpError;

/// Returns the values of a tensor, on the host.
///
/// # Arguments
///
/// - `what`: the tensor, for the message of an error
///
/// # Errors
///
/// Returns [`DpError::Device`] if the values cannot be read.
pub(crate) async fn read<const D: usize, K: Basic>(
    tensor: Tensor<D, K>,
    what: &str,
) -> Result<TensorData, DpError> {
    #[cfg(feature = "remote")]
    if crate::remote::is_remote(&tensor.device()) {
        let read = async {
            let data = tensor.into_data_async().await;
            data.map_err(|error| {
                DpError::device(format!("{what}: {}", crate::remote::explained(error)))
            })
        };
        return crate::remote::within_limit(read, what).await;
    }
    #[cfg(test)]
    READS.set(READS.get() + 1);
    tensor.into_data_async().await.map_err(|error| unreadable(what, error))
}

/// Returns the values of tensors of devices that have kernels, on the host; floats in double
/// precision. If it is one device, it is waited for once.
///
/// # Arguments
///
/// - `what`: the tensors, for the message of an error
///
/// # Errors
///
/// Returns [`DpError::Device`] if the values cannot be read.
pub(crate) async fn read_together<const D: usize>(
    floats: Vec<Tensor<D>>,
    ints: Option<Tensor<D, Int>>,
    what: &str,
) -> Result<(Vec<Vec<f64>>, Option<TensorData>), DpError> {
    let devices = floats.iter().map(Tensor::device).chain(ints.iter().map(Tensor::device));
    let devices: Vec<_> = devices.collect();
    if devices.windows(2).any(|pair| pair[0] != pair[1]) {
        let mut read_floats = Vec::new();
        for float in floats {
            read_floats.push(read_f64(float, what).await?);
        }
        let ints = match ints {
            Some(ints) => Some(read(ints, what).await?),
            None => None,
        };
        return Ok((read_floats, ints));
    }
    if devices.is_empty() {
        return Ok((Vec::new(), None));
    }
    #[cfg(test)]
    READS.set(READS.get() + 1);
    let has_ints = ints.is_some();
    let all = floats.into_iter().fold(Transaction::default(), Transaction::register);
    let all = ints.into_iter().fold(all, Transaction::register);
    let mut data = all.execute_async().await.map_err(|error| unreadable(what, error))?;
    let ints = if has_ints { data.pop() } else { None };
    let floats = data.into_iter().map(|data| doubles(data, what)).collect::<Result<_, _>>()?;
    Ok((floats, ints))
}

#[cfg(test)]
thread_local! {
    static READS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns how often this thread waited for a device.
#[cfg(test)]
pub(crate) fn reads() -> usize {
    READS.get()
}

/// The read of a tensor of any rank and kind.
pub(crate) type Read = Pin<Box<dyn Future<Output = Result<TensorData, DpError>>>>;

/// Returns the values of a tensor in single precision, on the host.
///
/// # Errors
///
/// Returns [`DpError::Device`] if the values cannot be read.
pub(crate) async fn read_f32<const D: usize>(
    tensor: Tensor<D>,
    what: &str,
) -> Result<Vec<f32>, DpError> {
    let data = read(tensor, what).await?.convert_dtype(DType::F32);
    data.try_into_vec().map_err(|error| unreadable(what, error))
}

/// Returns the values of a tensor in double precision, on the host.
///
/// # Errors
///
/// Returns [`DpError::Device`] if the values cannot be read.
pub(crate) async fn read_f64<const D: usize>(
    tensor: Tensor<D>,
    what: &str,
) -> Result<Vec<f64>, DpError> {
    doubles(read(tensor, what).await?, what)
}

fn doubles(data: TensorData, what: &str) -> Result<Vec<f64>, DpError> {
    data.convert_dtype(DType::F64).try_into_vec().map_err(|error| unreadable(what, error))
}

fn unreadable(what: &str, error: impl std::fmt::Debug) -> DpError {
    DpError::device(format!("{what}: {error:?}"))
}

/// Waits for `future` and returns its output: turns an asynchronous call into a blocking one.
///
/// # Arguments
///
/// - `instead`: the asynchronous call, for the message of the error
///
/// # Errors
///
/// Returns [`DpError::InvalidState`] in a browser, where nothing can wait, if `future` is not ready
/// immediately.
pub(crate) fn blocking<T>(
    future: impl Future<Output = Result<T, DpError>>,
    instead: &str,
) -> Result<T, DpError> {
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = instead;
        wait(future)
    }
    #[cfg(target_family = "wasm")]
    at_once(future).unwrap_or_else(|| Err(not_ready(instead)))
}

/// The error of a blocking call whose future is not ready in a browser.
#[cfg(any(test, target_family = "wasm"))]
pub(crate) fn not_ready(instead: &str) -> DpError {
    DpError::state(format!(
        "nothing can wait for a device or a store in a browser; call `{instead}` and await it"
    ))
}

/// Polls `future` once, which is all that a browser allows.
#[cfg(any(test, target_family = "wasm"))]
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Parks this thread until `future` is ready.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{self, Thread};
    use std::time::Duration;

    /// The longest time between two polls.
    const LOOK: Duration = Duration::from_millis(500);

    /// Other code may unpark the thread too, or use up the token of this one.
    struct Unpark(Thread, AtomicBool);

    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.store(true, Ordering::Release);
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    // Most reads are from the CPU backends, which are ready immediately.
    if let Poll::Ready(output) =
        future.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()))
    {
        return output;
    }
    let unpark = Arc::new(Unpark(thread::current(), AtomicBool::new(false)));
    let waker = Arc::clone(&unpark).into();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        if !unpark.1.swap(false, Ordering::Acquire) {
            // Lets the future compare the time at intervals.
            thread::park_timeout(LOOK);
            unpark.1.swap(false, Ordering::Acquire);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// A future that another thread wakes several times before it is ready.
    fn woken(times: usize) -> impl Future<Output = usize> {
        let (sender, receiver) = mpsc::channel::<std::task::Waker>();
        thread::spawn(move || receiver.into_iter().for_each(std::task::Waker::wake));
        let mut polls = 0;
        std::future::poll_fn(move |context| {
            polls += 1;
            if polls > times {
                return Poll::Ready(times);
            }
            sender.send(context.waker().clone()).unwrap();
            Poll::Pending
        })
    }

    #[test]
    fn a_future_of_another_thread_is_waited_for() {
        for times in [0, 1, 5, 100] {
            assert_eq!(wait(woken(times)), times);
        }
    }

    #[test]
    fn a_future_that_is_not_ready_in_a_browser_is_an_error_with_the_way_out() {
        assert_eq!(at_once(async { 7 }), Some(7));
        assert_eq!(at_once(std::future::pending::<u8>()), None);
        let error = not_ready("DpOptimizer::step_async").to_string();
        assert!(error.contains("call `DpOptimizer::step_async` and await it"), "{error}");
    }

    #[test]
    fn a_thread_that_was_unparked_by_others_still_waits() {
        thread::current().unpark();
        assert_eq!(wait(woken(3)), 3);
    }
}
