//! Data sets and their conversion into tensors.
//!
//! The synthetic [`digits`] and [roles](drawn_roles) need no file. [`mnist`] (also Fashion-MNIST),
//! [`cifar10`] and [`imdb`] read the original files, [`folder`] reads images in one folder per
//! class. All of them return [`Splits`] of labeled items with the [`Encoder`] that converts them
//! into tensors. [`FeatureBatcher`] replaces images with their scattering features.
//!
//! # Privacy
//!
//! Nothing before training depends on the private items as a whole: pixels are normalized with
//! public constants ([`ImageBatcher`]), and words are numbered by a hash or a public list
//! ([`Vocabulary`]). A mean or a vocabulary computed from the private items would be a release that
//! ε does not count.

mod archive;
mod batch;
pub mod cifar10;
mod dataset;
mod dice;
pub mod digits;
#[cfg(any(feature = "download", test))]
mod download;
mod drawing;
pub mod drawn_roles;
mod error;
mod features;
mod file;
pub mod folder;
mod glyphs;
pub mod idx;
mod image;
pub mod imdb;
pub mod mnist;
mod scattering;
pub mod shakespeare;
mod stroke;
mod text;
mod vocabulary;
mod word_vectors;

pub use batch::{Batch, Encoder, Inputs};
pub use dataset::{CLASSES, ItemDataset, PIXELS, SIDE, Splits};
pub use error::DataError;
pub use features::{FeatureBatcher, FeatureItem};
pub use file::read as read_file;
pub use image::{ImageBatch, ImageBatcher, ImageDataset, ImageItem, ImageShape};
pub use scattering::Scattering2d;
pub use text::{TextBatch, TextBatcher, TextDataset, TextItem};
pub use vocabulary::{PADDING, UNKNOWN, Vocabulary, words};
pub use word_vectors::WordVectors;
