//! Work that the calling thread shares with the thread pool.

use std::sync::Mutex;

/// Runs every task once, on this thread and on the idle threads of the pool.
///
/// A release of a small model takes no longer than waking a thread, so the calling thread also
/// works: waiting for the pool would cost more than the work.
pub(crate) fn share<T: Send>(tasks: Vec<T>, run: impl Fn(T) + Sync) {
    let threads = rayon::current_num_threads().min(tasks.len());
    let queue = Mutex::new(tasks.into_iter());
    let next = || match queue.lock() {
        Ok(mut queue) => queue.next(),
        // A task panicked on another thread; the scope passes the panic on.
        Err(_) => None,
    };
    let work = || {
        while let Some(task) = next() {
            run(task);
        }
    };
    rayon::in_place_scope(|scope| {
        (1..threads).for_each(|_| scope.spawn(|_| work()));
        work();
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_task_runs_once_whatever_the_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for tasks in [0, 1, 3, 1000] {
                let runs: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.install(|| {
                    share(runs.iter().collect(), |run| {
                        run.fetch_add(1, Ordering::Relaxed);
                    });
                });
                assert!(runs.into_iter().all(|run| run.into_inner() == 1));
            }
        }
    }

    #[test]
    #[should_panic(expected = "task 7")]
    fn a_panic_of_a_task_is_passed_on() {
        share((0..20).collect(), |task| assert_ne!(task, 7, "task 7"));
    }
}
