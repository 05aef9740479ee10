//! Images of digits: where they come from and how they become tensors.
//!
//! All sources give the same [`ImageItem`]: the embedded [`digits`] need no file at all, and
//! [`mnist`] reads the original files or downloads them.

mod batch;
pub mod digits;
mod error;
mod glyphs;
pub mod idx;
mod item;
pub mod mnist;
pub mod shakespeare;
mod stroke;

pub use batch::{ImageBatch, ImageBatcher, PIXEL_MEAN, PIXEL_STD};
pub use error::DataError;
pub use item::{CLASSES, ImageDataset, ImageItem, PIXELS, SIDE, Splits};
