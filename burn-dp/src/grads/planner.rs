//! Chooses between ghost norms and instantiation for each parameter.

use super::DeviceCosts;
use super::device_costs::MOVED_BYTES;
use super::rules::{Cost, Rule};

/// Number of kernels of a ghost norm: two Gram matrices, their product, and its sum.
const GHOST_LAUNCHES: usize = 4;

/// Number of kernels to instantiate a gradient and compute its norm.
const NORM_LAUNCHES: usize = 2;

/// Temporaries of up to this many bytes are not split, because a second launch costs more.
const SMALL_TEMPORARY: usize = 4 << 20;

/// The same on devices that compile kernels: parts are concatenated by further kernels.
const SMALL_TEMPORARY_OF_KERNELS: usize = 32 << 20;

/// How the per-example norms of one parameter are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NormMethod {
    /// From the Gram matrices of the input and the output gradient; the gradients are never
    /// instantiated.
    Ghost,
    /// The gradients of all examples are instantiated and kept until the weighted sum.
    Instantiate,
    /// The gradients are instantiated for this many examples at a time, measured, and dropped.
    InstantiateInChunks(usize),
}

/// Memory that per-example gradients may use beyond the records of the backward pass.
///
/// Gradients of at most half the size of their record are always instantiated, and the record is
/// freed, so they need no extra memory. The bound limits larger gradients that are kept because
/// that is faster. A quarter of the bound limits temporary gradients, except the gradient of a
/// single example, which may be larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    bytes: usize,
}

impl MemoryBound {
    /// Creates a bound of `bytes` bytes.
    pub const fn bytes(bytes: usize) -> Self {
        Self { bytes }
    }

    /// Returns the bound in bytes.
    pub const fn as_bytes(self) -> usize {
        self.bytes
    }
}

impl Default for MemoryBound {
    /// Returns a bound of 256 MiB.
    fn default() -> Self {
        Self::bytes(256 << 20)
    }
}

/// When the per-example gradients are instantiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Formation {
    /// When this is cheapest.
    Planned,
    /// Always, and immediately.
    Always,
    /// Not before the end of the pass. For tests: every rule computes its weighted sum.
    #[cfg(test)]
    Deferred,
}

/// Plans one parameter after another within one memory bound.
#[derive(Debug)]
pub(super) struct Planner {
    left: usize,
    chunk: usize,
    small_temporary: usize,
    formation: Formation,
    costs: DeviceCosts,
}

impl Planner {
    pub(super) fn new(bound: MemoryBound, formation: Formation, costs: DeviceCosts) -> Self {
        // Gradients that are dropped after their norm may use a quarter of the bound at a time.
        let small_temporary = SMALL_TEMPORARY;
        Self { left: bound.bytes, chunk: bound.bytes / 4, small_temporary, formation, costs }
    }

    /// Plans for a device that compiles kernels.
    pub(super) fn for_kernels(self) -> Self {
        Self { small_temporary: SMALL_TEMPORARY_OF_KERNELS, ..self }
    }

    /// Returns whether the gradients of `units` units are instantiated as soon as `rule` is
    /// recorded: if they are at most half as large as the record, part of which other layers may
    /// share, unless the ghost norm costs nothing (an embedding, whose gradients are mostly zeros).
    pub(super) fn forms_at_once(&self, rule: &dyn Rule, units: usize) -> bool {
        match self.formation {
            Formation::Always => true,
            #[cfg(test)]
            Formation::Deferred => false,
            Formation::Planned => {
                let cost = rule.cost();
                2 * units * cost.values <= rule.kept_values() && cost.ghost_flops != Some(0.0)
            }
        }
    }

    /// Returns the number of examples for which the gradients are instantiated at a time: the
    /// temporaries need no more than the record, and no more than a quarter of the bound.
    pub(super) fn formation_chunk(&self, rule: &dyn Rule) -> usize {
        let recorded = (rule.kept_values() * size_of::<f32>()).max(self.small_temporary);
        self.examples(rule.cost().temporary, recorded.min(self.chunk), rule.batch_size())
    }

    /// Returns the number of examples whose `values` fit into `bytes`, at least one.
    fn examples(&self, values: usize, bytes: usize, batch_size: usize) -> usize {
        let batch_size = batch_size.max(1);
        if self.formation == Formation::Always {
            return batch_size;
        }
        (bytes / values.saturating_mul(size_of::<f32>()).max(1)).clamp(1, batch_size)
    }

    /// Plans one parameter whose gradients are not instantiated immediately.
    pub(super) fn plan(&mut self, rule: &dyn Rule) -> Plan {
        let (cost, batch_size) = (rule.cost(), rule.batch_size());
        if self.formation == Formation::Always {
            return Plan { method: NormMethod::Instantiate, chunk: batch_size };
        }
        let chunk = |values: usize| self.examples(values, self.chunk, batch_size);
        let ghost = Plan { method: NormMethod::Ghost, chunk: chunk(cost.ghost_temporary) };
        let time = self.ghost(cost, batch_size, ghost.chunk);
        let is_ghost = |other: f64| time.is_some_and(|time| time <= other);

        let values = batch_size as f64 * cost.values as f64;
        let moved = self.costs.bytes(MOVED_BYTES * values, 0);
        if is_ghost(moved + self.costs.operations(0.0, NORM_LAUNCHES)) {
            return ghost;
        }
        let kept = batch_size.saturating_mul(cost.values).saturating_mul(size_of::<f32>());
        if kept <= self.left {
            self.left -= kept;
            let chunk = self.formation_chunk(rule);
            return Plan { method: NormMethod::Instantiate, chunk };
        }
        // Gradients that are dropped are instantiated only for the norm; the weighted sum uses the
        // record.
        let chunk = chunk(cost.values + cost.temporary);
        let launches = NORM_LAUNCHES * batch_size.div_ceil(chunk);
        if is_ghost(moved + self.formation(cost, batch_size, launches)) {
            return ghost;
        }
        Plan { method: NormMethod::InstantiateInChunks(chunk), chunk }
    }

    /// Returns the time of the ghost norms for `chunk` examples at a time; `None` if the rule has
    /// none, zero if they cost nothing.
    fn ghost(&self, cost: Cost, batch_size: usize, chunk: usize) -> Option<f64> {
        let flops = cost.ghost_flops?;
        if flops == 0.0 {
            return Some(0.0);
        }
        let launches = GHOST_LAUNCHES * batch_size.div_ceil(chunk.max(1));
        Some(self.costs.operations(batch_size as f64 * flops, launches))
    }

    /// Returns the time of the operations that instantiate the gradients.
    fn formation(&self, cost: Cost, batch_size: usize, launches: usize) -> f64 {
        self.costs.operations(batch_size as f64 * cost.formation_flops, launches)
    }

    /// Returns an estimate of the time for the norms and the weighted sum of one parameter after
    /// the pass, in seconds. Gradients that are kept were instantiated in the pass.
    pub(super) fn estimate(&self, rule: &dyn Rule, plan: Plan) -> f64 {
        let (cost, batch_size) = (rule.cost(), rule.batch_size());
        let values = batch_size as f64 * (cost.values * size_of::<f32>()) as f64;
        let formation = |launches| self.formation(cost, batch_size, launches);
        match plan.method {
            NormMethod::Instantiate => self.costs.bytes(2.0 * values, 2),
            NormMethod::Ghost => {
                self.ghost(cost, batch_size, plan.chunk).unwrap_or(0.0) + formation(1)
            }
            NormMethod::InstantiateInChunks(chunk) => {
                let launches = NORM_LAUNCHES * batch_size.div_ceil(chunk.max(1));
                self.costs.bytes(2.0 * values, launches) + formation(0) + formation(1)
            }
        }
    }
}

/// How the norms of one parameter are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) method: NormMethod,
    /// Number of examples at a time.
    pub(super) chunk: usize,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::{Device, Int, Tensor};

    use super::super::rules::{OuterProducts, Summed};
    use super::*;

    fn plans(bound: MemoryBound, formation: Formation) -> Planner {
        Planner::new(bound, formation, DeviceCosts::default())
    }

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
        let mut planner = plans(MemoryBound::default(), Formation::Planned);
        assert_eq!(planner.plan(&linear(1, 784, 128, 8)).method, NormMethod::Ghost);
        assert!(!planner.forms_at_once(&linear(1, 784, 128, 8), 8));
    }

    #[test]
    fn gradients_of_half_the_record_are_formed_at_once() {
        let planner = plans(MemoryBound::bytes(0), Formation::Planned);
        let deferred = plans(MemoryBound::bytes(0), Formation::Deferred);
        // The record has 23 · 45 values, the gradient 25 · 20.
        assert!(planner.forms_at_once(&linear(23, 25, 20, 4), 4));
        assert!(!planner.forms_at_once(&linear(22, 25, 20, 4), 4));
        assert!(!deferred.forms_at_once(&linear(23, 25, 20, 4), 4));
    }

    #[test]
    fn the_gradient_of_an_embedding_is_not_formed_at_once() {
        let ids = Tensor::<2, Int>::zeros([4, 50], &Device::default());
        let rows = Tensor::zeros([4, 50, 3], &Device::default());
        let outer = OuterProducts::indexed(2, ids, rows);
        assert!(4 * outer.cost().values < outer.kept_values());
        let mut planner = plans(MemoryBound::default(), Formation::Planned);
        assert!(!planner.forms_at_once(&outer, 4));
        assert_eq!(planner.plan(&outer).method, NormMethod::Ghost);
    }

    #[test]
    fn temporaries_stay_within_the_record_and_the_memory_bound() {
        let unit = |batch_size: usize| {
            let uses: Vec<Box<dyn Rule>> = vec![Box::new(linear(40, 400, 80, 2 * batch_size))];
            Summed { uses, group_size: 2 }
        };
        let planner = plans(MemoryBound::bytes(0), Formation::Planned);
        assert_eq!(planner.formation_chunk(&unit(16)), 1);
        // Twice the gradient of 400 · 80 values for each unit.
        let planner = plans(MemoryBound::bytes(3 * 4 * 2 * 400 * 80 * 4), Formation::Planned);
        assert_eq!(planner.formation_chunk(&unit(16)), 3);
        assert_eq!(
            plans(MemoryBound::default(), Formation::Planned).formation_chunk(&unit(16)),
            16
        );
    }

    #[test]
    fn temporaries_of_kernels_are_split_later() {
        let rule = linear(40, 400, 80, 64);
        let part = Summed { uses: vec![Box::new(rule)], group_size: 1 };
        // 128 kB for each of 64 examples, and a record of 5 MB.
        let planner = || plans(MemoryBound::default(), Formation::Planned);
        assert_eq!(planner().formation_chunk(&part), 38);
        assert_eq!(planner().for_kernels().formation_chunk(&part), 64);
    }

    #[test]
    fn many_positions_of_a_small_layer_are_instantiated() {
        let mut planner = plans(MemoryBound::default(), Formation::Planned);
        assert_eq!(planner.plan(&linear(60, 100, 80, 16)).method, NormMethod::Instantiate);
    }

    #[test]
    fn gram_matrices_stay_within_the_memory_bound() {
        let mut planner = plans(MemoryBound::bytes(4 * 4 * 2 * 24 * 24), Formation::Planned);
        let plan = planner.plan(&linear(24, 300, 300, 8));
        assert_eq!(plan, Plan { method: NormMethod::Ghost, chunk: 1 });
        let mut planner = plans(MemoryBound::default(), Formation::Planned);
        assert_eq!(planner.plan(&linear(24, 300, 300, 8)).chunk, 8);
    }

    #[test]
    fn gradients_beyond_the_memory_bound_are_measured_in_chunks() {
        let mut planner = plans(MemoryBound::bytes(16 * 8000 * 4), Formation::Planned);
        let outer = linear(80, 100, 80, 16);
        assert_eq!(planner.plan(&outer).method, NormMethod::Instantiate);
        assert_eq!(planner.plan(&outer).method, NormMethod::InstantiateInChunks(4));
    }

    #[test]
    fn gradients_that_cannot_be_kept_cost_their_formation() {
        // The ghost norm takes more time than moving the gradient, and less than also instantiating
        // it.
        let mut planner = plans(MemoryBound::bytes(16 * 8000 * 4), Formation::Planned);
        let outer = linear(60, 100, 80, 16);
        assert_eq!(planner.plan(&outer).method, NormMethod::Instantiate);
        assert_eq!(planner.plan(&outer).method, NormMethod::Ghost);
    }

    #[test]
    fn a_tied_vocabulary_of_two_examples_takes_the_ghost_norm() {
        let device = Device::default();
        let (vocabulary, width, positions) = (50_257, 768, 256);
        // Views of one value, which take no memory.
        let zeros =
            |columns| Tensor::<3>::zeros([1, 1, 1], &device).expand([2, positions, columns]);
        let tied = OuterProducts::dense(zeros(vocabulary), zeros(width));
        let mut planner = plans(MemoryBound::default(), Formation::Planned);
        assert_eq!(planner.plan(&tied).method, NormMethod::Ghost);
    }

    #[test]
    fn the_costs_of_the_device_decide() {
        let plan = |positions: usize, operation: f64, byte: f64, launch: f64, bytes: usize| {
            let costs = DeviceCosts::new(operation, byte, launch).unwrap();
            let bound = MemoryBound::bytes(bytes);
            let outer = linear(positions, 100, 80, 16);
            Planner::new(bound, Formation::Planned, costs).plan(&outer).method
        };
        let all = usize::MAX;
        assert_eq!(plan(60, 1e-11, 8e-11, 0.0, all), NormMethod::Instantiate);
        // Bytes are not moved if this is expensive.
        assert_eq!(plan(60, 1e-11, 8e-10, 0.0, all), NormMethod::Ghost);
        // A gradient that is dropped is instantiated twice.
        assert_eq!(plan(60, 1e-11, 8e-11, 0.0, 0), NormMethod::Ghost);
        assert_eq!(plan(80, 1e-11, 1e-12, 0.0, 0), NormMethod::InstantiateInChunks(1));
        // A ghost norm of few operations needs more kernels than a small gradient.
        assert_eq!(plan(1, 1e-11, 8e-11, 0.0, all), NormMethod::Ghost);
        assert_eq!(plan(1, 1e-11, 8e-11, 1e-3, all), NormMethod::Instantiate);
    }

    #[test]
    fn estimates_follow_the_plan() {
        let outer = linear(60, 100, 80, 16);
        let costs = DeviceCosts::new(1e-9, 1e-8, 1e-3).unwrap();
        let planner = Planner::new(MemoryBound::default(), Formation::Planned, costs);
        let estimate = |method, chunk| planner.estimate(&outer, Plan { method, chunk });
        let close = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-12);
        // 16 examples: Gram matrices of 60 positions, and their sum of 60 outer products.
        let formed = 16.0 * 2.0 * (60 * 100 * 80) as f64 * 1e-9;
        let gram = 16.0 * 2.0 * (60 * 60 * 180) as f64 * 1e-9;
        let read = 2.0 * (16 * 100 * 80 * 4) as f64 * 1e-8;
        close(estimate(NormMethod::Ghost, 16), gram + 4e-3 + formed + 1e-3);
        close(estimate(NormMethod::Ghost, 8), gram + 8e-3 + formed + 1e-3);
        close(estimate(NormMethod::Instantiate, 16), read + 2e-3);
        let chunks = NormMethod::InstantiateInChunks(4);
        close(estimate(chunks, 4), read + 8e-3 + formed + formed + 1e-3);
    }
}
