//! Randomness of a run: one key, from which the noise and the draws of every step follow.

mod key;
pub(crate) mod keystream;
pub(crate) mod sampling;
pub(crate) mod share;
mod source;
mod uniform;

pub use key::{InsecureSeed, NoiseKey};
pub(crate) use sampling::WordStream;
pub use sampling::{InsecureSamplingSeed, SamplingKey};
pub use source::{NoiseSource, NoiseStep, NoiseStream, Purpose};
