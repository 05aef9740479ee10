//! From events to dominating pairs: which two distributions are the hardest to tell apart.

mod lower;
mod nodes;
mod pair;

pub(crate) use lower::{Lowered, lower};
pub(crate) use nodes::{ContourMoments, Direction, Nodes, ln_mixture};
pub(crate) use pair::Pair;
