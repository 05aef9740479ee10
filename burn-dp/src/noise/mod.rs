//! The Gaussian mechanism: noise for sums of bounded sensitivity.
//!
//! ```text
//! NoiseStep ──stream(parameter)──▶ Stream ──▶ GaussianMechanism::release(stream, sums)
//! ```
//!
//! A [`Stream`](crate::random::Stream) is consumed by its use, so the same noise cannot be added
//! twice. Idle threads draw the noise of the next step ahead while nobody else can have the key.
//! Once the key was exported, for a checkpoint, a step could be repeated. Its noise then depends on
//! its sums ([`NoiseStep::bound_to`](crate::random::NoiseStep::bound_to)) and is drawn when the
//! sums are computed.
//!
//! Noise is added once per step, regardless of the number of physical batches, devices, or
//! replicas: add up the clipped sums first and release the total once.
//!
//! # Privacy
//!
//! The adversary of [`random`](crate::random) sees every release in full precision. The mechanism
//! gives the guarantee of the Gaussian mechanism for the declared sensitivity, even against attacks
//! on floating-point arithmetic; [`GaussianMechanism`] says what is proven and what is not. Not
//! covered: a sensitivity that is declared too small, the rounding of the sums before the release,
//! and the time that a release takes.

mod ahead;
mod correlated;
#[cfg(all(test, feature = "cube"))]
mod correlated_on_device;
mod correlated_step;
mod grid;
mod integer_normal;
mod kept_values;
mod mechanism;
#[cfg(all(test, feature = "cube"))]
mod on_device;
mod recurrence;
mod release;
mod standard_normal;
#[cfg(test)]
mod statistics;

pub(crate) use ahead::NoiseAhead;
pub(crate) use correlated::{CorrelatedNoise, CorrelatedNoiseState, DEFAULT_MEMORY};
pub(crate) use correlated_step::CorrelatedStep;
pub use mechanism::GaussianMechanism;
pub(crate) use mechanism::not_finite;
pub(crate) use recurrence::check_growth;
