//! The per-example rules, which compute the gradient of one parameter for each example from the
//! tensors that a layer kept and the gradient of its output.
//!
//! | file | layers |
//! |---|---|
//! | `linear` | linear layers, also transposed; the layers of recurrent gates and of attention |
//! | `embedding` | embeddings, also tied to an output layer |
//! | `conv/` | convolutions: ordinary, transposed, deformable |
//! | `scale` | gains of norms, PReLU |
//! | `shift` | biases of all layers |
//! | `parameter` | bare parameters |
//!
//! Each file has the lift of a record to contributions, the rule with its mathematics and sources,
//! and the tests that compare the layer with the loop over single examples. They share `outer/`
//! (sums of outer products) and `ghost` (their norms).

mod contribution;
mod conv;
mod cost;
mod embedding;
mod ghost;
mod lift;
mod linear;
mod matrix_order;
mod outer;
mod parameter;
mod record;
mod restriction;
mod rule;
mod scale;
mod shift;
mod squared_norms;
mod sum;

pub(super) use contribution::{Contribution, combine};
pub(super) use cost::Cost;
pub(super) use ghost::Factors;
pub(super) use lift::lift;
pub(super) use matrix_order::{MatrixOrder, Transposed};
pub(super) use restriction::{Keep, Restriction};
pub(super) use rule::Rule;
pub(super) use squared_norms::{Magnitudes, Rounding, SquaredNorms};

pub(super) use outer::OuterProducts;
#[cfg(test)]
pub(super) use sum::Summed;
