//! Translates events into dominating pairs: the two distributions that are hardest to distinguish.
//!
//! `from_events` translates events into counted pairs. The other files compute the properties of a
//! pair that the accountants need: its privacy loss, its rare losses, and the moments of its
//! likelihood ratio by two quadrature rules (`trapezoidal` on the whole line, `panels` up to a
//! given loss).

mod allocation;
mod binomial;
mod composition;
mod contour_moments;
mod direction;
mod from_events;
mod loss;
mod loss_table;
mod multiplier;
mod nodes;
mod pair;
mod panels;
mod participation;
mod poisson;
mod tail;
mod trapezoidal;
mod truncation;

pub(crate) use composition::{DominatingPairs, directions, gaussian_shift, largest_loss};
pub(crate) use contour_moments::{BLOCK, ContourMoments};
pub(crate) use direction::Direction;
pub(crate) use from_events::dominating_pairs_of;
pub(crate) use loss::{ln_line, ln_mixture};
pub(crate) use loss_table::LossTable;
pub(crate) use nodes::Nodes;
pub(crate) use pair::Pair;
pub(crate) use panels::{GAUSS_16, panel_nodes};
pub(crate) use tail::Tail;
pub(crate) use trapezoidal::trapezoidal_nodes;
