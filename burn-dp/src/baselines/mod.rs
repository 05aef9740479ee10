//! Slower ways to compute the clipped sum of [`FlatClipping`], for benchmarks and oracles.
//!
//! | function | cost | works for |
//! |---|---|---|
//! | [`reweight`] | two forward and backward passes | models with private layers |
//! | [`microbatch`] | one backward pass per example | every model |
//!
//! For training, use [`DpOptimizer::backward`](crate::optim::DpOptimizer::backward) instead, which
//! needs one pass.
//!
//! [`FlatClipping`]: crate::clipping::FlatClipping

mod microbatch;
mod repeated_losses;
mod reweight;

pub use microbatch::microbatch;
pub use reweight::reweight;
