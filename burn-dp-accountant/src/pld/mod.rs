//! Privacy loss distributions: certified brackets of ε and δ.
//!
//! Lattices of single releases ([`crate::lattice`]) are composed in two ways: as sums over the
//! frequencies of their transforms (`spectrum`, for one ε) and over a whole window (`window`, for
//! curves). `bracket` and `delta` refine the grid until the bracket is narrow enough. Where the
//! bracket of ε stays wide, the moments of sampled Gaussian releases are inverted (`inversion`).
//! `selection` turns the δ of one run into the δ of a private search over runs.

mod accountant;
mod bounds;
mod bracket;
mod composition;
mod delta;
mod few_frequencies;
mod fourier;
mod grid_settings;
mod heavy_masses;
mod inversion;
mod powers;
mod profile;
mod rotation;
mod selection;
mod spectrum;
mod tabulated;
mod transforms;
mod variation;
mod weights;
mod window;

pub use accountant::PldAccountant;
pub(crate) use delta::delta_when_added;
pub(crate) use selection::pairs_with_searches;
