//! Work that the calling thread shares with the thread pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

/// Runs every task once, on this thread and on those of the pool that are free.
///
/// The caller takes part. A release of a small model is done in the time that it takes to wake up a
/// sleeping thread, so waiting for the pool to do all of it would cost more than the work.
pub(super) fn share<T: Send>(tasks: Vec<T>, run: impl Fn(T) + Sync) {
    let threads = rayon::current_num_threads().min(tasks.len());
    let queue = Mutex::new(tasks.into_iter());
    let next = || match queue.lock() {
        Ok(mut queue) => queue.next(),
        // A task panicked elsewhere; the scope passes that on.
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

/// Runs `first` once for every task, `between` on all results in the order of the tasks, and then
/// `second` once for every task, as [`share`] does.
///
/// The threads of the pool are woken up once for both rounds, which takes as long as a round of a small
/// model.
pub(super) fn share_in_turn<T: Send, R: Send, C: Send + Sync>(
    tasks: Vec<T>,
    first: impl Fn(&mut T) -> R + Sync,
    between: impl FnOnce(Vec<R>) -> C,
    second: impl Fn(&mut T, &C) + Sync,
) {
    let threads = rayon::current_num_threads().min(tasks.len());
    let tasks: Vec<Mutex<T>> = tasks.into_iter().map(Mutex::new).collect();
    let results: Mutex<Vec<Option<R>>> = Mutex::new(tasks.iter().map(|_| None).collect());
    let rounds = [Round::default(), Round::default()];
    let first_round = || {
        rounds[0].each(&tasks, |index, task| {
            let result = first(task);
            if let Ok(mut results) = results.lock() {
                results[index] = Some(result);
            }
        });
    };
    // Empty inside: there is no second round, since a task of the first one panicked.
    let context: OnceLock<Option<C>> = OnceLock::new();
    let second_round = |context: &C| rounds[1].each(&tasks, |_, task| second(task, context));
    rayon::in_place_scope(|scope| {
        // Also set when this thread unwinds: the others would wait for ever.
        let close = Close(&context);
        (1..threads).for_each(|_| {
            scope.spawn(|_| {
                first_round();
                // No longer than the tasks that other threads are at.
                while context.get().is_none() {
                    thread::yield_now();
                }
                if let Some(Some(context)) = context.get() {
                    second_round(context);
                }
            });
        });
        first_round();
        while !rounds[0].is_done(tasks.len()) {
            thread::yield_now();
        }
        let results: Option<Vec<R>> =
            results.lock().ok().and_then(|mut results| results.drain(..).collect());
        if let Some(context) = context.get_or_init(|| results.map(between)) {
            second_round(context);
        }
        drop(close);
    });
}

/// Which tasks of a round were taken, and how many are done.
#[derive(Default)]
struct Round {
    next: AtomicUsize,
    done: AtomicUsize,
}

impl Round {
    /// Runs the tasks that no other thread takes first.
    fn each<T>(&self, tasks: &[Mutex<T>], run: impl Fn(usize, &mut T)) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { return };
            let _done = Done(&self.done);
            if let Ok(mut task) = task.lock() {
                run(index, &mut task);
            }
        }
    }

    fn is_done(&self, tasks: usize) -> bool {
        self.done.load(Ordering::Acquire) == tasks
    }
}

/// Counts a task as done, also if it panicked.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Closes what other threads wait for.
struct Close<'a, C>(&'a OnceLock<Option<C>>);

impl<C> Drop for Close<'_, C> {
    fn drop(&mut self) {
        // Already set unless this thread unwinds.
        let _ = self.0.set(None);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

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
    fn a_panic_of_a_task_arrives() {
        share((0..20).collect(), |task| assert_ne!(task, 7, "task 7"));
    }

    #[test]
    fn the_second_round_begins_when_the_first_is_over_whatever_the_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for number in [0, 1, 3, 1000] {
                let mut values: Vec<usize> = (0..number).collect();
                let sums = Mutex::new(Vec::new());
                pool.install(|| {
                    share_in_turn(
                        values.iter_mut().collect(),
                        |value| {
                            **value += 1;
                            **value
                        },
                        |seen| {
                            sums.lock().unwrap().push(seen.clone());
                            seen.iter().sum::<usize>()
                        },
                        |value, sum| **value += sum,
                    );
                });
                let sum = number * (number + 1) / 2;
                assert_eq!(*sums.lock().unwrap(), [(1..=number).collect::<Vec<_>>()]);
                assert_eq!(values, (1..=number).map(|i| i + sum).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_panic_in_any_part_of_two_rounds_arrives_and_nothing_waits_for_ever() {
        for part in 0..3 {
            for _ in 0..20 {
                let second = AtomicUsize::new(0);
                let run = || {
                    share_in_turn(
                        (0..20).collect(),
                        |task| assert!(part != 0 || *task != 7),
                        |_| assert!(part != 1),
                        |task, ()| {
                            second.fetch_add(1, Ordering::Relaxed);
                            assert!(part != 2 || *task != 7);
                        },
                    );
                };
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
                assert!(
                    part == 2 || second.into_inner() == 0,
                    "a second round without its context"
                );
            }
        }
    }
}
