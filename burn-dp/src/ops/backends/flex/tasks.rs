//! How the kernels share their work among threads.

/// Minimum number of values per task: below it, starting a thread costs more than it saves.
pub(super) const TASK_VALUES: usize = 1 << 14;
