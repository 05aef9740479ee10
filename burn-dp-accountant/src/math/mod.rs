//! Special functions to full double precision, accurate sums, minimization, sides of bounds.

pub(crate) mod complex;
pub(crate) mod envelope;
pub(crate) mod gaussian_dp;
pub(crate) mod logarithms;
pub(crate) mod minimization;
pub(crate) mod normal;
pub(crate) mod quadrature;
pub(crate) mod random;
pub(crate) mod selection;
pub(crate) mod side;
pub(crate) mod sum;
