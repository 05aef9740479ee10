#![doc = include_str!("../README.md")]

mod convolution;
mod matrix;
mod packed;
mod product;
mod tile;

pub use convolution::Planes;
pub use matrix::{Matrix, transpose};
pub use packed::Packed;
pub use product::{add_product, weighted_product};
