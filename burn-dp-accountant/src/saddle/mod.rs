//! Cumulants of the privacy loss, saddle points, and the contours through them.

mod contour;
mod cumulants;
mod source;

pub(crate) use contour::{Contour, Target, ln_largest_weight};
pub(crate) use cumulants::{Cumulants, Saddle};
