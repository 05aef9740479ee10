//! One file per primitive: the layout of its record, and its ordinary gradient.
//!
//! The per-example gradients are computed by the rule of the same name in `grads/rules`.

pub(super) mod axes;
pub(super) mod conv;
pub(super) mod embedding;
pub(super) mod linear;
pub(super) mod parameter;
mod patches;
pub(super) mod scale;
pub(super) mod standardized;

pub use conv::Convolution;
pub use patches::Patches;
