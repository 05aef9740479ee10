//! From events to dominating pairs: which two distributions are the hardest to tell apart.

mod lower;
mod moments;
mod nodes;
mod pair;
mod panels;
mod tail;

pub(crate) use lower::{Lowered, lower};
pub(crate) use moments::{BLOCK, ContourMoments};
pub(crate) use nodes::{Direction, Nodes, ln_mixture};
pub(crate) use pair::Pair;
pub(crate) use tail::Tail;
