//! Parameters of a model in the files and under the names of public checkpoints.

mod adapter;
mod names;
mod read;
mod write;

pub use adapter::{Adapter, LoraTargets};
pub(crate) use names::{LayerKind, fill_trained, is_in, parameters};
pub use read::Weights;
pub(crate) use write::{tensors, to_safetensors};
