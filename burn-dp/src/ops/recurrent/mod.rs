//! Recurrent layers: one primitive for a whole sequence, with a hand-written backpropagation
//! through time.
//!
//! The gates are stored side by side. One matrix product projects the input of all positions for
//! all gates; one matrix product per position projects the hidden state. During a recording, the
//! primitive passes on one record for each of the two linear layers of every gate. It is the record
//! of a linear layer whose positions are the sequence: the inputs of the layer and the gradients of
//! its products.
//!
//! # References
//!
//! Lee and Kifer, Scaling up differentially private deep learning with fast per-example gradient
//! clipping, 2021, section 5 (recurrent layers and LSTM).

mod autodiff;
mod cell;
mod functions;
mod fused_ops;
mod gate_function;
mod gate_layers;
mod gate_parameters;
mod gru;
mod lstm;
#[cfg(all(test, feature = "flex"))]
mod oracle;
mod recurrence;
mod rnn;
mod sequence;
mod settings;
mod state;
mod uses;
mod value;

pub(super) use autodiff::recurrent as recurrent_with_gradient;
pub use cell::Cell;
pub(crate) use functions::{activation, recurrent};
pub use fused_ops::FusedOps;
pub use gate_parameters::GateParameters;
pub use recurrence::{GateIds, Recurrence};
pub(super) use sequence::Operands;
pub use settings::{GateFunction, GruCell, LstmCell, RnnCell};
pub(super) use value::Value;
