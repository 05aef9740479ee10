#![doc = include_str!("../README.md")]

mod affine;
mod convolution;
mod exponential;
mod gram;
mod matrix;
mod normalization;
mod packed;
mod pool;
mod product;
mod rows;
mod softmax;
mod tile;

pub use affine::{affine, axis_sums};
pub use convolution::Planes;
pub use exponential::exponential;
pub use gram::gram;
pub use matrix::{Matrix, transpose};
pub use normalization::{normalize, normalize_gradient};
pub use packed::Packed;
pub use pool::MaxPool;
pub use product::{add_product, weighted_product};
pub use rows::{DOT_ROUNDINGS, dot, weighted_rows};
pub use softmax::{softmax, softmax_gradient};
pub use tile::DEPTH;
