//! Which way leads to the norm of a parameter's per-example gradients.

use super::rules::Cost;

/// A moved value costs about as much time as this many floating-point operations: writing the
/// gradient, reading it for the norm and reading it again for the weighted sum are three of them.
const FLOPS_PER_VALUE: f64 = 48.0;

/// How the per-example norms of one parameter are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// From the Gram matrices of input and output gradient; the gradients are never formed.
    Ghost,
    /// The gradients of all examples are formed and kept until the weighted sum.
    Instantiate,
    /// The gradients are formed for so many examples at a time, measured, and dropped.
    InstantiateInChunks(usize),
}

/// Memory that per-example gradients may take during one backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    bytes: usize,
}

impl MemoryBound {
    /// At most so many bytes.
    pub const fn bytes(bytes: usize) -> Self {
        Self { bytes }
    }
}

impl Default for MemoryBound {
    /// 256 MiB.
    fn default() -> Self {
        Self::bytes(256 << 20)
    }
}

/// Plans one parameter after another within one memory bound.
#[derive(Debug)]
pub(crate) struct Planner {
    left: usize,
    chunk: usize,
    always_instantiate: bool,
}

impl Planner {
    pub(crate) fn new(bound: MemoryBound, always_instantiate: bool) -> Self {
        // What is dropped after its norm may use a quarter of the bound at a time.
        Self { left: bound.bytes, chunk: bound.bytes / 4, always_instantiate }
    }

    /// The plan for one parameter of `batch_size` examples.
    pub(crate) fn plan(&mut self, cost: Cost, batch_size: usize) -> Plan {
        let size = size_of::<f32>();
        let kept = batch_size * cost.values * size;
        let needed = kept + batch_size * cost.temporary * size;
        let ghost_is_cheaper =
            cost.ghost_flops.is_some_and(|flops| flops <= FLOPS_PER_VALUE * cost.values as f64);
        let chunk =
            |values: usize| (self.chunk / (values * size).max(1)).clamp(1, batch_size.max(1));

        if self.always_instantiate {
            return Plan { strategy: Strategy::Instantiate, chunk: batch_size };
        }
        if ghost_is_cheaper {
            return Plan { strategy: Strategy::Ghost, chunk: chunk(cost.ghost_temporary) };
        }
        if needed <= self.left {
            self.left -= kept;
            return Plan { strategy: Strategy::Instantiate, chunk: batch_size };
        }
        let chunk = chunk(cost.values + cost.temporary);
        Plan { strategy: Strategy::InstantiateInChunks(chunk), chunk }
    }
}

/// How the norms of one parameter are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) strategy: Strategy,
    /// Examples at a time.
    pub(crate) chunk: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(positions: usize, d_input: usize, d_output: usize) -> Cost {
        Cost {
            ghost_flops: Some((2 * positions * positions * (d_input + d_output)) as f64),
            ghost_temporary: 2 * positions * positions,
            values: d_input * d_output,
            temporary: 0,
        }
    }

    #[test]
    fn one_position_takes_the_ghost_norm() {
        let mut planner = Planner::new(MemoryBound::default(), false);
        assert_eq!(planner.plan(linear(1, 784, 128), 128).strategy, Strategy::Ghost);
    }

    #[test]
    fn many_positions_of_a_small_layer_are_instantiated() {
        let mut planner = Planner::new(MemoryBound::default(), false);
        assert_eq!(planner.plan(linear(576, 25, 20), 128).strategy, Strategy::Instantiate);
    }

    #[test]
    fn the_gram_matrices_of_a_ghost_norm_stay_within_the_memory_bound() {
        let mut planner = Planner::new(MemoryBound::bytes(4 * 4 * 2 * 64 * 64), false);
        let plan = planner.plan(linear(64, 2000, 2000), 128);
        assert_eq!(plan, Plan { strategy: Strategy::Ghost, chunk: 1 });
        let mut planner = Planner::new(MemoryBound::default(), false);
        assert_eq!(planner.plan(linear(64, 2000, 2000), 128).chunk, 128);
    }

    #[test]
    fn beyond_the_memory_bound_the_gradients_are_measured_in_chunks() {
        let mut planner = Planner::new(MemoryBound::bytes(16 * 500 * 4), false);
        assert_eq!(planner.plan(linear(576, 25, 20), 16).strategy, Strategy::Instantiate);
        assert_eq!(
            planner.plan(linear(576, 25, 20), 16).strategy,
            Strategy::InstantiateInChunks(4)
        );
    }
}
