//! The time of an epoch under the algorithms of per-example clipping.
//!
//! # References
//!
//! J. Lee, D. Kifer, "Scaling up Differentially Private Deep Learning with Fast Per-Example
//! Gradient Clipping", 2021, section 6, figures 5 to 9.

mod deep;
mod small;
mod times;

pub(super) use deep::{
    ARCHITECTURES, PIXELS, architectures, frozen, judge_architectures, judge_pixels, pixels,
};
pub(super) use small::{
    BATCHES, DEPTHS, MODELS, batches, depths, judge_batches, judge_depths, judge_models, models,
};
pub(super) use times::ALGORITHMS;
