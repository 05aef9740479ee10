//! The randomness of a run: one key, which determines the noise and the draws of every step.
//!
//! ```text
//! NoiseSource ──begin_step(purpose, step)──▶ NoiseStep ──stream(parameter)──▶ Stream ─▶ noise
//! (256-bit key)    once for each step             once for each parameter
//!       └─────────────(domain, step, position)──────────────────────────────▶ Stream ─▶ draws
//! ```
//!
//! The generator is ChaCha12: the words take a large part of the time of a release, and every round
//! costs the same. Published attacks on ChaCha with a 256-bit key reach between seven and eight
//! rounds, and need far more than 2^128 operations; Aumasson (2019) concludes that eight rounds are
//! enough. Twelve leave a margin of four; Rust's `StdRng` and the disk encryption Adiantum use as
//! many. These attacks see the words themselves, but an adversary of private training sees sums of
//! noise and unknown gradients.
//!
//! A word depends only on the key, its purpose, the step, the parameter or unit, and its position
//! in the stream. Neither the order of the calls, nor the number of threads, nor the vector unit
//! changes a bit, so a run that is resumed continues bit for bit. Generator and mapping from words
//! to values may change between versions of this crate; a checkpoint of a version with others is
//! refused, because a step that it repeats would have other noise.
//!
//! Burn's own generators are never used. They are fast and designed for initialization: they are
//! seeded by `Device::seed`, which programs set to a known number, they are linear on the GPU, and
//! their normal values do not reach six standard deviations.
//!
//! # Privacy
//!
//! The adversary sees every release and has all information except the key: the code, the data of
//! all other units, and every configuration value. Guaranteed, if this adversary cannot distinguish
//! ChaCha12 from a random function:
//!
//! - The words of different (purpose, step, parameter, position) are as good as independent uniform
//!   words. No two streams share a word; [`NoiseSource`] says why.
//! - The same noise is not added twice. A step of noise begins once, in increasing order; a
//!   parameter has one stream in a step; a stream is consumed by its use. Once somebody else may
//!   have the key (through a checkpoint), the noise is a function of the sums that it is added to
//!   ([`NoiseStep::bound_to`]).
//! - A known seed cannot be mistaken for a secret key: [`Key::is_secure`] survives storage.
//!
//! Not covered: somebody who reads the memory of the process or the stored key, a copy of the
//! process that continues with the same key (a fork, a restored virtual machine), and the time that
//! a call takes.
//!
//! # References
//!
//! - J.-P. Aumasson, "Too Much Crypto", IACR ePrint 2019/1492.

mod bernoulli;
mod content;
mod key;
mod keystream;
mod layer;
mod purpose;
mod share;
mod source;
#[cfg(test)]
pub(crate) mod statistics;
mod step;
mod stream;
mod uniform;
mod words;

pub(crate) use bernoulli::Bernoulli;
pub(crate) use content::{BLOCK as CONTENT_BLOCK, ContentKey, ContentMark};
pub use key::{InsecureSeed, Key};
#[cfg(feature = "cube")]
pub(crate) use keystream::DOUBLE_ROUNDS;
#[cfg(test)]
pub(crate) use keystream::tests::architectures;
pub(crate) use keystream::{GROUP_BLOCKS, GROUP_WORDS, Group, Keystream};
pub(crate) use layer::{LayerKey, LayerRandomness};
pub(crate) use purpose::Domain;
pub use purpose::Purpose;
pub(crate) use share::share;
pub use source::NoiseSource;
pub use step::NoiseStep;
pub use stream::Stream;
pub(crate) use uniform::{below, choose_without_replacement, permutation};
pub(crate) use words::Words;
