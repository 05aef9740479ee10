//! The units of a step: samplers, logical batches and physical batches.
//!
//! Amplification by sampling holds only if the batches are drawn exactly as the accountant assumes.
//! So the [`Sampler`] that draws a batch also describes the draw for the accountant
//! ([`SamplingMechanism::event`]), and the trait is sealed: a sampler from elsewhere cannot be
//! accounted for by mistake.
//!
//! | Sampler | Draw | Amplification |
//! |---|---|---|
//! | [`PoissonSampler`] | each unit independently with probability q; the size varies | Poisson |
//! | [`TruncatedPoissonSampler`] | like Poisson, truncated to a maximum size | truncated Poisson |
//! | [`FixedSizeSampler`] | a uniform subset of exactly m units | without replacement |
//! | [`WithReplacementSampler`] | m independent draws of one unit | with replacement |
//! | [`ShuffledSampler`] | consecutive parts of one permutation for each epoch | none |
//! | [`ShuffledSampler::with_one_order`] | the same permutation in all epochs | none |
//! | [`CyclicPoissonSampler`] | Poisson from one part of the data after another | by pattern |
//! | [`BallsInBinsSampler`] | each unit in one random step of an epoch, the same in all epochs | by pattern |
//! | [`BallsInBinsSampler::with_fresh_bins`] | random allocation: another step in each epoch | by pattern |
//! | [`MinSeparationSampler`] | Poisson, with a pause after each step of a unit | by pattern |
//!
//! Each also states in which steps one unit can take part ([`ParticipationPattern`]). The draws of
//! the last four depend on each other, so that no event describes a single step: a
//! [`PrivacyPlan`](crate::optim::PrivacyPlan) accounts for the run as a whole and does not accept a
//! noise schedule.
//!
//! The terms are:
//!
//! - **unit**: what the guarantee protects, one item of the data set;
//! - **draw**: the units of one step ([`Draw`]), a function of the key and the step, so that a
//!   resumed run continues with the same draws;
//! - **logical batch**: the draw with its data ([`LogicalBatch`]). One logical batch is one noisy
//!   release, regardless of its size: an empty one is noise alone, never a skipped step;
//! - **physical batch**: at most as many rows as fit into memory ([`PhysicalBatch`]). A logical
//!   batch is divided into physical batches;
//! - **part**: the mark of a physical batch ([`DrawPart`]), which says which units of which draw it
//!   contains. An optimizer accepts each drawn unit once, and no other.
//!
//! An index must be one record: [`DistinctRecords`] and [`Distinct`] exclude data sets that return
//! one record under several indices. [`UserDataset`] makes the users of a flat data set the units,
//! and [`OwnedExamples`] selects examples that belong to several users.
//!
//! # Privacy
//!
//! The adversary of [`random`](crate::random) sees every release, but neither the key nor the
//! draws. Guaranteed: the distribution of the draws is exactly the described one, for uniform
//! words; the draws of different steps are independent, except within an epoch of a shuffled
//! sampler, between epochs that share one order, and with the last four samplers; the pattern of a
//! unit holds for every key; and the sampling probability is compared without rounding.
//!
//! Which units were drawn, and how many, is as private as the data. The types have no `len`, their
//! `Debug` output shows neither, and an update is divided by [`Sampler::expected_batch_size`]. Not
//! covered: an observer of the memory, of the data that is loaded, or of the time that a step
//! takes. A known seed gives no amplification ([`Sampler::is_secure`]).
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
//!     for physical_batch in batch?.physical_batches(4)? {
//!         let (rows, part) = physical_batch?.into_parts();
//!         assert_eq!(rows.dims(), [part.rows()]);
//!     }
//!     // the noisy step comes here, also when there is no physical batch
//! }
//! # Ok(())
//! # }
//! ```

mod augmentation;
mod balls_in_bins;
mod cached_features;
mod cyclic_poisson;
mod data_loader;
mod distinct;
mod draw;
mod example_choice;
mod fixed_size;
mod logical_batch;
mod logical_batches;
mod mechanism;
mod min_separation;
mod owned_examples;
mod participation;
mod physical_batch;
mod physical_batches;
mod poisson;
mod population;
mod records;
mod row_loader;
mod sampler;
mod shuffled;
#[cfg(test)]
mod tests;
mod truncated_poisson;
mod user_dataset;
mod with_replacement;

pub use augmentation::AugmentationBatcher;
pub use balls_in_bins::BallsInBinsSampler;
pub use cached_features::{cached_features, cached_features_async};
pub use cyclic_poisson::CyclicPoissonSampler;
pub use data_loader::PrivateDataLoaderBuilder;
pub use distinct::Distinct;
pub use draw::{Draw, DrawPart};
pub use example_choice::ExampleChoice;
pub use fixed_size::FixedSizeSampler;
pub use logical_batch::LogicalBatch;
pub use logical_batches::LogicalBatches;
pub use mechanism::SamplingMechanism;
pub use min_separation::MinSeparationSampler;
pub use owned_examples::{OwnedDataset, OwnedExamples};
pub use participation::ParticipationPattern;
pub use physical_batch::PhysicalBatch;
pub use physical_batches::PhysicalBatches;
pub use poisson::PoissonSampler;
pub use records::{DistinctRecords, RecordIdentity};
pub(crate) use records::{RecordFacts, Seal};
pub use sampler::Sampler;
pub use shuffled::ShuffledSampler;
pub use truncated_poisson::TruncatedPoissonSampler;
pub use user_dataset::UserDataset;
pub use with_replacement::WithReplacementSampler;
