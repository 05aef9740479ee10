//! Which units a step sees: samplers, logical batches and virtual batches.
//!
//! A privacy guarantee by amplification holds only when the batches are drawn exactly as the accountant
//! was told. So the [`Sampler`] that draws a batch is also what describes the draw to the accountant
//! ([`SamplingMechanism::event`]), and the trait is sealed: a sampler that this crate does not know cannot be
//! accounted by mistake.
//!
//! | Sampler | Draw | Amplification |
//! |---|---|---|
//! | [`PoissonSampler`] | every unit by itself with probability q; the size varies, and may be 0 | Poisson |
//! | [`FixedSizeSampler`] | a uniform subset of exactly m units | without replacement |
//! | [`ShuffledSampler`] | consecutive parts of a permutation, one permutation an epoch | none |
//!
//! The words used are:
//!
//! - **unit**: what the guarantee protects, one item of the data set;
//! - **draw**: the units of one step ([`Draw`]), a function of the key and the step, so that a resumed
//!   run goes on with the draws that it would have made;
//! - **logical batch**: the draw with its data ([`LogicalBatch`]). One logical batch is one noisy
//!   release, whatever its size: an empty one is noise alone, never a step left out;
//! - **physical batch**: at most as many rows as fit into memory ([`PhysicalBatch`]). A logical batch is
//!   worked off in as many of them as it takes.
//!
//! Which units were drawn and how many is as private as the data. The types have no `len`, their
//! `Debug` output shows neither, and an update is divided by [`Sampler::expected_batch_size`].
//!
//! # Example
//!
//! ```
//! use burn::data::{dataloader::batcher::Batcher, dataset::InMemDataset};
//! use burn::tensor::{Device, Tensor};
//! use burn_dp::sampling::{PoissonSampler, PrivateDataLoaderBuilder};
//!
//! struct Columns;
//! impl Batcher<f32, Tensor<1>> for Columns {
//!     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
//!         Tensor::from_floats(items.as_slice(), device)
//!     }
//! }
//!
//! # fn main() -> Result<(), burn_dp::DpError> {
//! let dataset = InMemDataset::new((0..100).map(|i| i as f32).collect());
//! let sampler = PoissonSampler::new(100, 0.1)?;
//! let steps = 5;
//! for batch in PrivateDataLoaderBuilder::new(Columns).build(dataset, sampler, steps)? {
//!     for chunk in batch?.chunks(4)? {
//!         let (rows, weights) = chunk?.into_parts();
//!         assert_eq!(rows.dims(), weights.tensor().dims());
//!     }
//!     // the noisy step comes here, also when there was no chunk
//! }
//! # Ok(())
//! # }
//! ```

mod copies;
mod draw;
mod fixed_size;
mod loader;
mod logical_batch;
mod physical_batch;
mod poisson;
mod sampler;
mod shuffled;

#[cfg(test)]
pub(crate) mod statistics;

pub use copies::CopiesBatcher;
pub use draw::Draw;
pub use fixed_size::FixedSizeSampler;
pub use loader::{LogicalBatches, PrivateDataLoaderBuilder};
pub use logical_batch::{LogicalBatch, PhysicalBatches};
pub use physical_batch::{ExampleWeights, PhysicalBatch};
pub use poisson::PoissonSampler;
pub use sampler::{Sampler, SamplingMechanism};
pub use shuffled::ShuffledSampler;
