//! Exact values by numerical inversion of the moment generating function.

mod accountant;
mod contour_plan;
mod contour_values;
mod inversion;
mod rare_losses;
mod single_release;
mod value;

pub use accountant::ExactAccountant;
pub(crate) use rare_losses::{RareLosses, omitted_delta};
pub(crate) use value::Effort;
