use super::Cell;
use crate::ops::LayerIds;

/// A recurrent layer, without its tensors.
#[derive(Clone, Debug)]
pub struct Recurrence {
    pub(crate) cell: Cell,
    /// Whether the sequence runs from the last position to the first.
    pub(crate) reverse: bool,
    /// The linear layers of the gates, in the order of the cell.
    pub(crate) gates: Vec<GateIds>,
    /// Whether the input is kept, because a weight that it is multiplied with is trained.
    pub(crate) keeps_input: bool,
}

/// The two linear layers of a gate.
#[derive(Clone, Copy, Debug)]
pub struct GateIds {
    pub(crate) input: LayerIds,
    pub(crate) hidden: LayerIds,
}
