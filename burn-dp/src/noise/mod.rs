//! The noise: where the randomness of a private release comes from, and the Gaussian mechanism.
//!
//! ```text
//! NoiseSource ──begin_step(purpose, step)──▶ NoiseStep ──stream(parameter)──▶ NoiseStream
//! (256-bit key)       once a step                          once a parameter        │ used once
//!                                                                                  ▼
//!                                       GaussianMechanism::release, bernoulli, uniform, rng
//! ```
//!
//! A value depends on the key, the purpose, the step, the parameter and its own position, and on
//! nothing else: neither the order of the calls nor the number of threads nor the vector unit
//! changes a bit. A stream is consumed by its use, so the same noise cannot be added twice. Which
//! word becomes which value may change with a version of this crate; privacy does not depend on it.
//!
//! Idle threads draw the noise of the next step ahead, as long as nobody else can have the key. Once
//! it was exported, for a checkpoint, a step could be made again, so its noise depends on its sums
//! ([`NoiseStep::bound_to`](crate::random::NoiseStep::bound_to)) and is drawn when they are known.
//!
//! A step has one noise, however many virtual batches, devices or replicas contribute: add up the
//! clipped sums first and release the total once.
//!
//! Burn's own generators are never used. They are fast and made for initialisation: seeded by
//! `Device::seed`, which programs set to a known number, linear on the GPU, and with normal
//! values that end below six standard deviations.
//!
//! # Privacy
//!
//! What the noise protects against is an adversary who sees every release and knows everything
//! but the key. Given that ChaCha20 cannot be told from random by that adversary, the words are as
//! good as independent uniform ones. Not covered: someone who reads the memory of the process, a
//! copy of the process that runs on with the same key (a fork, a restored virtual machine), and
//! the time a call takes.

mod ahead;
mod gaussian;
mod normal;
#[cfg(test)]
mod statistics;

pub(crate) use ahead::NoiseAhead;
pub use gaussian::GaussianMechanism;
