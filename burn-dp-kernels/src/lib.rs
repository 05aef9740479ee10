#![doc = include_str!("../README.md")]

mod convolution;
mod product;

pub use convolution::Planes;
pub use product::{Matrix, Packed, add_product, transpose, weighted_product};
