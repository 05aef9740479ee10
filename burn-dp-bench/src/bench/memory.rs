//! The largest batch that fits into a memory limit, for the experiments.

use burn_dp_examples::training::{BackendName, TrainError};

use super::turns::{Player, failed_step};
use super::worker::{self, WorkerOptions};
use super::{Algorithm, InnerOptimizer, Network, Sizes, cores};

/// Returns the peak memory of a process that runs a step of one algorithm, in MiB: what its
/// allocator holds on a GPU, and otherwise the memory of the process.
///
/// # Errors
///
/// Returns the error of a process that fails, and of a system that does not report peaks.
pub(crate) fn step_peak_mib(
    network: Network,
    sizes: Sizes,
    batch: usize,
    algorithm: Algorithm,
    backend: BackendName,
) -> Result<f64, TrainError> {
    let threads = *cores::threads(&[])?.first().unwrap_or(&1);
    let worker = WorkerOptions {
        network,
        sizes,
        batch,
        algorithm,
        optimizer: InnerOptimizer::Sgd,
        backend,
        threads,
        physical_batch_size: None,
    };
    let mut process = worker::start(&worker).map_err(failed_step)?;
    process.block(1).map_err(failed_step)?;
    process
        .device_mib
        .or_else(|| process.peak_mib())
        .ok_or_else(|| failed_step("this system has no peak memory of a process".into()))
}

/// What a search found.
#[derive(Debug, PartialEq)]
pub(crate) struct LargestBatch {
    /// The largest batch within the limit; 0 if a batch of 1 is over it.
    pub(crate) batch: usize,
    /// All batches that were tried and their memory, in increasing order.
    pub(crate) tried: Vec<(usize, f64)>,
}

/// Returns the largest batch up to `most` whose memory is within `limit`, to 1/32 of the batch
/// or better.
///
/// # Errors
///
/// Returns the error of `memory`.
pub(crate) fn largest_batch<E>(
    limit: f64,
    most: usize,
    mut memory: impl FnMut(usize) -> Result<f64, E>,
) -> Result<LargestBatch, E> {
    let mut tried = Vec::new();
    let mut fits = |batch: usize| -> Result<bool, E> {
        let found = memory(batch)?;
        tried.push((batch, found));
        Ok(found <= limit)
    };
    // The largest that is known to fit, and the smallest that is known not to.
    let (mut fitting, mut failing) = (0, 1);
    while failing <= most && fits(failing)? {
        fitting = failing;
        failing = if fitting == most { most + 1 } else { (2 * fitting).min(most) };
    }
    while failing - fitting > (fitting / 32).max(1) {
        let middle = usize::midpoint(fitting, failing);
        if fits(middle)? {
            fitting = middle;
        } else {
            failing = middle;
        }
    }
    tried.sort_by_key(|&(batch, _)| batch);
    Ok(LargestBatch { batch: fitting, tried })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn the_search_ends_close_to_the_largest_batch() {
        for most in [1, 2, 7, 100, 5_000] {
            for true_largest in 0..200 {
                let memory = |batch: usize| Ok::<_, Infallible>(3.0 + 2.0 * batch as f64);
                let limit = 3.0 + 2.0 * true_largest as f64 + 1.0;
                let Ok(LargestBatch { batch: found, tried }) = largest_batch(limit, most, memory);
                let expected = true_largest.min(most);
                assert!(found <= expected && expected - found <= found / 32, "{most} {expected}");
                assert!(tried.len() <= 16 && tried.is_sorted(), "{tried:?}");
                assert!(tried.iter().all(|&(batch, _)| (1..=most).contains(&batch)));
            }
        }
    }
}
