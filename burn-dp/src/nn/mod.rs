#![doc = include_str!("guide.md")]

mod conv2d;
mod linear;
mod low_rank;
mod padding;
mod private;
pub(crate) mod scope;

pub use private::{IntoPrivate, Private, PrivateLayer};
