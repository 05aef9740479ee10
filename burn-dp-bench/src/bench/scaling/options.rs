use std::path::PathBuf;

use clap::Args;

use super::axis::Axis;
use crate::bench::Algorithm;

/// Options of `bench scaling`.
#[derive(Args, Debug, Clone)]
pub struct ScalingOptions {
    /// The sizes that are increased.
    #[arg(long, value_enum, value_delimiter = ',', default_values =
        ["batch", "width", "depth", "sequence", "image"])]
    pub axes: Vec<Axis>,
    /// Sizes to measure instead of the usual ones; needs a single axis.
    #[arg(long, value_delimiter = ',')]
    pub values: Vec<usize>,
    /// Algorithms to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values =
        ["non-private", "book-keeping", "materialize"])]
    pub algorithms: Vec<Algorithm>,
    /// Numbers of threads [default: one for each core].
    #[arg(long, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Measured seconds of each algorithm at each size, in all blocks together.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Blocks of each algorithm.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub blocks: usize,
    /// File for the figures and the exponents.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// File for a picture of the exponents.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
