//! Randomness of a run: one key, from which the noise and the draws of every step follow.

mod key;
mod keystream;
mod sampling;
mod share;
mod source;
mod uniform;

pub use key::{InsecureSeed, NoiseKey};
pub(crate) use keystream::{GROUP_BLOCKS, GROUP_WORDS, Group, Keystream};
pub(crate) use sampling::WordStream;
pub use sampling::{InsecureSamplingSeed, SamplingKey};
pub(crate) use share::share;
pub use source::{NoiseSource, NoiseStep, NoiseStream, Purpose};
