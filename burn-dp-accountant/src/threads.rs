//! Computations on several threads, where threads can be spawned.

use std::sync::Mutex;
use std::thread::{Builder, scope};

/// Returns the results of two computations, on two threads where a second thread can be spawned,
/// one after another elsewhere: in a browser, or in a process at its limit. The second result is
/// `None` if its computation panicked on its thread.
pub(crate) fn both<A, B: Send>(
    first: impl FnOnce() -> A,
    second: impl Fn() -> B + Sync,
) -> (A, Option<B>) {
    both_by(Builder::new(), first, second)
}

fn both_by<A, B: Send>(
    thread: Builder,
    first: impl FnOnce() -> A,
    second: impl Fn() -> B + Sync,
) -> (A, Option<B>) {
    scope(|scope| {
        let spawned = thread.spawn_scoped(scope, &second);
        let first = first();
        let second = match spawned {
            Ok(thread) => thread.join().ok(),
            Err(_) => Some(second()),
        };
        (first, second)
    })
}

/// Runs every task once, on this thread and on as many others as can be spawned, up to `threads`
/// in total.
pub(crate) fn share<T: Send>(tasks: Vec<T>, threads: usize, run: impl Fn(T) + Sync) {
    share_by(Builder::new, tasks, threads, run);
}

fn share_by<T: Send>(
    thread: impl Fn() -> Builder,
    tasks: Vec<T>,
    threads: usize,
    run: impl Fn(T) + Sync,
) {
    let queue = Mutex::new(tasks.into_iter());
    let work = || {
        // No task can poison the queue, because the lock is released before a task runs.
        while let Some(task) = queue.lock().ok().and_then(|mut queue| queue.next()) {
            run(task);
        }
    };
    scope(|scope| {
        let mut spawned = (1..threads).map(|_| thread().spawn_scoped(scope, work));
        while spawned.next().is_some_and(|spawned| spawned.is_ok()) {}
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A thread that no system can spawn.
    fn impossible() -> Builder {
        Builder::new().stack_size(1 << 60)
    }

    #[test]
    fn two_results_are_the_same_with_and_without_a_second_thread() {
        assert!(impossible().spawn(|| ()).is_err());
        for thread in [Builder::new(), impossible()] {
            assert_eq!(both_by(thread, || 1, || "two"), (1, Some("two")));
        }
    }

    #[test]
    fn a_panic_of_the_second_thread_is_a_missing_result() {
        let (first, second) = both(|| 1, || -> u32 { panic!("on purpose") });
        assert_eq!((first, second), (1, None));
    }

    #[test]
    fn every_task_runs_once_with_and_without_threads() {
        for thread in [Builder::new as fn() -> Builder, impossible] {
            for threads in [0, 1, 3] {
                let runs: Vec<AtomicU32> = (0..20).map(AtomicU32::new).collect();
                share_by(thread, runs.iter().collect(), threads, |run: &AtomicU32| {
                    run.fetch_add(100, Ordering::Relaxed);
                });
                let runs: Vec<u32> = runs.into_iter().map(AtomicU32::into_inner).collect();
                assert_eq!(runs, (100..120).collect::<Vec<u32>>());
            }
        }
    }
}
