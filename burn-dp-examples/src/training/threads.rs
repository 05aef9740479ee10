//! The thread that trains.

/// Stack of a thread of the pool, as large as that of a main thread.
const STACK_BYTES: usize = 8 << 20;

/// Runs a function on a thread of rayon's pool.
///
/// Parallel loops that start on such a thread use it and the others. Loops that start on any other
/// thread are handed over, and their thread sleeps until they are done, which takes as long as the
/// arithmetic of a small network.
pub fn on_thread_pool<T: Send>(function: impl FnOnce() -> T + Send) -> T {
    // An error says that the pool exists.
    let _ = rayon::ThreadPoolBuilder::new().stack_size(STACK_BYTES).build_global();
    rayon::scope(|_| function())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_runs_on_a_thread_of_the_pool_and_returns_its_value() {
        assert!(rayon::current_thread_index().is_none());
        assert!(on_thread_pool(rayon::current_thread_index).is_some());
    }
}
