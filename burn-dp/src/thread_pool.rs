//! The thread that trains.

/// Stack of a thread of the pool, as large as that of a main thread.
const STACK_BYTES: usize = 8 << 20;

/// Runs a function on a thread of rayon's global pool, if the pool has several.
///
/// Parallel loops of a CPU backend that start on such a thread use it and the others. Loops that
/// start on any other thread, such as the main one, are handed over, and their thread sleeps until
/// they are done, which takes as long as the arithmetic of a small network.
///
/// The threads of the pool get a stack as large as that of a main thread, unless the pool exists. A
/// pool of a single thread, as in a browser, is left to those that load data ahead, because the
/// function may wait for them.
///
/// # Example
///
/// ```
/// # fn train() -> usize { 7 }
/// let steps = burn_dp::on_thread_pool(|| train());
/// # assert_eq!(steps, 7);
/// ```
pub fn on_thread_pool<T: Send>(function: impl FnOnce() -> T + Send) -> T {
    // An error says that the pool exists.
    let _ = rayon::ThreadPoolBuilder::new().stack_size(STACK_BYTES).build_global();
    match rayon::current_num_threads() {
        1 => function(),
        _ => rayon::scope(|_| function()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_runs_on_a_thread_of_the_pool_and_returns_its_value() {
        assert!(rayon::current_thread_index().is_none());
        let is_in_pool = on_thread_pool(rayon::current_thread_index).is_some();
        assert_eq!(is_in_pool, rayon::current_num_threads() > 1);
    }
}
