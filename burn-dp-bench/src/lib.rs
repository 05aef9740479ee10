//! Benchmarks of burn-dp, and the experiments of the papers behind it.
//!
//! - [`mod@bench`]: the cost of privacy per step, in time and memory.
//! - [`audit`]: lower bounds on ε for honest training runs and for runs with planted mistakes.
//! - [`experiments`]: measurements of the papers, repeated.
//! - [`soak`]: runs that are killed at random points and resumed.
//!
//! The programs are `bench`, `audit`, `experiment` and `soak`; `cargo xtask` has a command for
//! each.

pub mod audit;
pub mod bench;
pub mod experiments;
pub mod soak;
