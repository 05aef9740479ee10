//! Which way leads to the norm of a parameter's per-example gradients.

use super::rules::Rule;

/// A moved value costs about as much time as this many floating-point operations: writing the
/// gradient, reading it for the norm and reading it again for the weighted sum are three of them.
const FLOPS_PER_VALUE: f64 = 48.0;

/// Temporaries of so many bytes are never worth a second launch.
const SMALL_TEMPORARY: usize = 4 << 20;

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

/// Memory that per-example gradients may take beyond what the backward pass recorded.
///
/// Gradients that are at most half as large as what was recorded for them are formed in any case,
/// and the record is freed: they take no memory. The bound limits those that are kept though they
/// are larger, because that is faster, and a quarter of it what is formed for a moment, but for a
/// single example, which may need more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    bytes: usize,
}

impl MemoryBound {
    /// At most so many bytes.
    pub const fn bytes(bytes: usize) -> Self {
        Self { bytes }
    }

    /// The bound in bytes.
    pub const fn as_bytes(self) -> usize {
        self.bytes
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
    /// Whether nothing is formed before the pass is over.
    defers: bool,
}

impl Planner {
    pub(crate) fn new(bound: MemoryBound, always_instantiate: bool) -> Self {
        // What is dropped after its norm may use a quarter of the bound at a time.
        Self { left: bound.bytes, chunk: bound.bytes / 4, always_instantiate, defers: false }
    }

    /// Whether it forms nothing before the pass is over.
    pub(crate) fn deferred(mut self, defers: bool) -> Self {
        self.defers = defers;
        self
    }

    /// Whether the gradients of `units` units are formed as soon as `rule` was recorded: where they
    /// take at most half of the record, a part of which other layers may share, unless the ghost
    /// norm costs nothing (an embedding, whose gradients are mostly zeros).
    pub(crate) fn forms_at_once(&self, rule: &dyn Rule, units: usize) -> bool {
        let cost = rule.cost();
        let smaller = 2 * units * cost.values <= rule.kept_values();
        let smaller = smaller && cost.ghost_flops != Some(0.0);
        self.always_instantiate || (smaller && !self.defers)
    }

    /// Examples for which the gradients are formed at a time: the temporaries take no more than
    /// what was recorded, and a quarter of the bound.
    pub(crate) fn formation_chunk(&self, rule: &dyn Rule) -> usize {
        let recorded = (rule.kept_values() * size_of::<f32>()).max(SMALL_TEMPORARY);
        self.examples(rule.cost().temporary, recorded.min(self.chunk), rule.batch_size())
    }

    /// Examples whose `values` fit into `bytes`, at least one.
    fn examples(&self, values: usize, bytes: usize, batch_size: usize) -> usize {
        let batch_size = batch_size.max(1);
        if self.always_instantiate {
            return batch_size;
        }
        (bytes / (values * size_of::<f32>()).max(1)).clamp(1, batch_size)
    }

    /// The plan for one parameter whose gradients are not formed at once.
    pub(crate) fn plan(&mut self, rule: &dyn Rule) -> Plan {
        let (cost, batch_size) = (rule.cost(), rule.batch_size());
        let kept = batch_size * cost.values * size_of::<f32>();
        let ghost_is_cheaper =
            cost.ghost_flops.is_some_and(|flops| flops <= FLOPS_PER_VALUE * cost.values as f64);
        let chunk = |values: usize| self.examples(values, self.chunk, batch_size);

        if self.always_instantiate {
            return Plan { strategy: Strategy::Instantiate, chunk: batch_size };
        }
        if ghost_is_cheaper {
            return Plan { strategy: Strategy::Ghost, chunk: chunk(cost.ghost_temporary) };
        }
        if kept <= self.left {
            self.left -= kept;
            let chunk = self.formation_chunk(rule);
            return Plan { strategy: Strategy::Instantiate, chunk };
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
    use burn::tensor::{Device, Int, Tensor};

    use super::super::rules::{OuterProducts, Summed};
    use super::*;

    fn linear(
        positions: usize,
        d_input: usize,
        d_output: usize,
        batch_size: usize,
    ) -> OuterProducts {
        let zeros = |features| Tensor::zeros([batch_size, positions, features], &Device::default());
        OuterProducts::dense(zeros(d_input), zeros(d_output))
    }

    #[test]
    fn one_position_takes_the_ghost_norm() {
        let mut planner = Planner::new(MemoryBound::default(), false);
        assert_eq!(planner.plan(&linear(1, 784, 128, 8)).strategy, Strategy::Ghost);
        assert!(!planner.forms_at_once(&linear(1, 784, 128, 8), 8));
    }

    #[test]
    fn gradients_of_half_the_record_are_formed_at_once() {
        let planner = Planner::new(MemoryBound::bytes(0), false);
        // 23 · 45 values were recorded for 25 · 20.
        assert!(planner.forms_at_once(&linear(23, 25, 20, 4), 4));
        assert!(!planner.forms_at_once(&linear(22, 25, 20, 4), 4));
        assert!(!planner.deferred(true).forms_at_once(&linear(23, 25, 20, 4), 4));
    }

    #[test]
    fn the_gradient_of_an_embedding_is_never_formed_before_it_must_be() {
        let ids = Tensor::<2, Int>::zeros([4, 50], &Device::default());
        let rows = Tensor::zeros([4, 50, 3], &Device::default());
        let outer = OuterProducts::indexed(2, ids, rows);
        assert!(4 * outer.cost().values < outer.kept_values());
        let mut planner = Planner::new(MemoryBound::default(), false);
        assert!(!planner.forms_at_once(&outer, 4));
        assert_eq!(planner.plan(&outer).strategy, Strategy::Ghost);
    }

    #[test]
    fn temporaries_stay_within_the_record_and_the_bound() {
        let unit = |batch_size: usize| {
            let uses: Vec<Box<dyn Rule>> = vec![Box::new(linear(40, 400, 80, 2 * batch_size))];
            Summed { uses, group_size: 2 }
        };
        let planner = Planner::new(MemoryBound::bytes(0), false);
        assert_eq!(planner.formation_chunk(&unit(16)), 1);
        // Twice the gradient of 400 · 80 values for each unit.
        let planner = Planner::new(MemoryBound::bytes(3 * 4 * 2 * 400 * 80 * 4), false);
        assert_eq!(planner.formation_chunk(&unit(16)), 3);
        assert_eq!(Planner::new(MemoryBound::default(), false).formation_chunk(&unit(16)), 16);
    }

    #[test]
    fn many_positions_of_a_small_layer_are_instantiated() {
        let mut planner = Planner::new(MemoryBound::default(), false);
        assert_eq!(planner.plan(&linear(40, 100, 80, 16)).strategy, Strategy::Instantiate);
    }

    #[test]
    fn the_gram_matrices_of_a_ghost_norm_stay_within_the_memory_bound() {
        let mut planner = Planner::new(MemoryBound::bytes(4 * 4 * 2 * 24 * 24), false);
        let plan = planner.plan(&linear(24, 300, 300, 8));
        assert_eq!(plan, Plan { strategy: Strategy::Ghost, chunk: 1 });
        let mut planner = Planner::new(MemoryBound::default(), false);
        assert_eq!(planner.plan(&linear(24, 300, 300, 8)).chunk, 8);
    }

    #[test]
    fn beyond_the_memory_bound_the_gradients_are_measured_in_chunks() {
        let mut planner = Planner::new(MemoryBound::bytes(16 * 8000 * 4), false);
        let outer = linear(40, 100, 80, 16);
        assert_eq!(planner.plan(&outer).strategy, Strategy::Instantiate);
        assert_eq!(planner.plan(&outer).strategy, Strategy::InstantiateInChunks(4));
    }
}
