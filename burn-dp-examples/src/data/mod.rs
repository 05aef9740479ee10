//! Data sets: where they come from and how they become tensors.
//!
//! The embedded [`digits`] need no file at all. [`mnist`] (also Fashion-MNIST), [`cifar10`] and
//! [`imdb`] read the original files, [`folder`] any images that lie in one folder a class. All of them
//! give [`Splits`] of labelled items with the [`Encoder`] that makes tensors of them.
//!
//! # Privacy
//!
//! Nothing that the readers do before training depends on the private items as a whole: pixels are
//! normalised by constants that are public ([`ImageBatcher`]), and words are numbered by a hash or by
//! a public list ([`Vocabulary`]). A mean or a vocabulary taken from the private items would be a
//! release that no ε counts.

mod archive;
mod batch;
pub mod cifar10;
mod dataset;
pub mod digits;
mod error;
mod file;
pub mod folder;
mod glyphs;
pub mod idx;
mod image;
pub mod imdb;
pub mod mnist;
pub mod shakespeare;
mod stroke;
mod text;
mod vocabulary;
mod word_vectors;

pub use batch::{Batch, Encoder, Inputs};
pub use dataset::{CLASSES, ItemDataset, PIXELS, SIDE, Splits};
pub use error::DataError;
pub use image::{ImageBatch, ImageBatcher, ImageDataset, ImageItem, ImageShape};
pub use text::{TextBatch, TextBatcher, TextDataset, TextItem};
pub use vocabulary::{PADDING, UNKNOWN, Vocabulary, words};
pub use word_vectors::WordVectors;
