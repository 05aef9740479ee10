//! Benchmarks of burn-dp, and the experiments of the papers behind it.
//!
//! - [`mod@bench`]: what privacy costs per step, in time and memory.
//! - [`experiments`]: measurements of the papers, repeated.
//!
//! The programs are `bench` and `experiment`. `cargo xtask bench` and `cargo xtask experiment`
//! start them.

pub mod bench;
pub mod experiments;
