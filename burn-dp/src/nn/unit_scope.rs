//! Randomness of layers that belongs to a unit instead of a row of a batch.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::marker::PhantomData;

use burn::module::{Module, ParamId};

use super::layers::KEYED_LAYERS;
use crate::DpError;
use crate::random::{LayerKey, LayerRandomness, share};
use crate::walk::{Value, for_each_value};

/// The units of a forward pass.
#[derive(Clone, Debug)]
pub(crate) enum Units {
    /// Each has `copies` consecutive rows, in this order.
    Rows {
        /// The units of the data set.
        units: Vec<usize>,
        /// Number of rows of each unit.
        copies: usize,
    },
    /// All rows belong to this unit of the data set.
    One(usize),
}

impl Units {
    /// Returns the unit of a row, and the number of the row within it; `None` if the batch does not
    /// consist of the rows of these units.
    fn of_row(&self, row: usize, rows: usize) -> Option<[u64; 2]> {
        match self {
            Self::Rows { units, copies } => (rows == units.len() * copies)
                .then(|| [units[row / copies] as u64, (row % copies) as u64]),
            Self::One(unit) => Some([*unit as u64, row as u64]),
        }
    }
}

/// The random layers of a model and the units of its forward pass.
struct Active {
    layers: HashMap<ParamId, Layer>,
    units: Units,
}

struct Layer {
    key: LayerKey,
    /// Number of uses in this forward pass.
    uses: u64,
}

thread_local! {
    static ACTIVE: RefCell<Option<Active>> = const { RefCell::new(None) };
    static UNKEYED: Cell<u64> = const { Cell::new(0) };
}

/// The scope of one forward pass on one thread, in which the random layers of a model have the
/// units of their rows. Dropping it restores the previous scope.
pub(crate) struct UnitScope {
    before: Option<Active>,
    // The scope belongs to the thread that opened it.
    _not_send: PhantomData<*const ()>,
}

impl UnitScope {
    /// Opens the scope for the random layers of `model`.
    pub(crate) fn enter<M: Module>(model: &M, randomness: &LayerRandomness, units: Units) -> Self {
        let mut layers = HashMap::new();
        for_each_value(model, |place, value| {
            let Value::Flag(flag) = value else { return };
            if place.holder().is_some_and(|layer| KEYED_LAYERS.contains(&layer)) {
                // A layer that the model holds twice has one path, and its uses are counted.
                layers.entry(flag.id).or_insert_with(|| {
                    let key = randomness.of_layer(place.path());
                    Layer { key, uses: 0 }
                });
            }
        });
        let before = ACTIVE.replace(Some(Active { layers, units }));
        Self { before, _not_send: PhantomData }
    }
}

impl Drop for UnitScope {
    fn drop(&mut self) {
        ACTIVE.set(self.before.take());
    }
}

/// Returns one random word for each value of a tensor with these axes, the first of which has the
/// rows of the units. `None` if no scope is open for the layer, or if the rows are not its units.
///
/// The words of a unit are derived from the run, the step, the unit, the path of the layer, its
/// use, and the position of the value. They do not depend on the other units of the batch, nor on
/// the length of its axes.
pub(super) fn unit_words(layer: ParamId, axes: &[usize]) -> Option<Vec<u32>> {
    let (&rows, values) = axes.split_first()?;
    let (key, number, places) = ACTIVE.with_borrow_mut(|active| {
        let Active { layers, units } = active.as_mut()?;
        let places = (0..rows).map(|row| units.of_row(row, rows)).collect::<Option<Vec<_>>>()?;
        let layer = layers.get_mut(&layer)?;
        layer.uses += 1;
        Some((layer.key.clone(), layer.uses, places))
    })?;
    let length = values.iter().product::<usize>();
    let mut words = vec![0; rows * length];
    if length > 0 {
        let tasks = places.into_iter().zip(words.chunks_mut(length)).collect();
        share(tasks, |([unit, row], words)| fill_row(&key, &[unit, row, number], values, words));
    }
    Some(words)
}

/// Fills the words of one row. The last two axes are one matrix; the position on the axes before
/// them is part of its place.
fn fill_row(key: &LayerKey, place: &[u64], axes: &[usize], words: &mut [u32]) {
    const COLUMNS: usize = 16;
    match axes {
        [] | [_] => {
            // In rows of a fixed length, so that no word of a block is skipped.
            let mut padded = vec![0; words.len().next_multiple_of(COLUMNS)];
            key.fill(place, COLUMNS, &mut padded);
            words.copy_from_slice(&padded[..words.len()]);
        }
        [before @ .., rows, columns] => {
            for (index, words) in words.chunks_mut(rows * columns).enumerate() {
                let mut place = place.to_vec();
                let mut rest = index;
                for &length in before.iter().rev() {
                    place.push((rest % length) as u64);
                    rest /= length;
                }
                key.fill(&place, *columns, words);
            }
        }
    }
}

/// Counts a draw of this thread that belongs to no unit.
pub(super) fn count_unkeyed() {
    UNKEYED.set(UNKEYED.get() + 1);
}

/// Runs `compute`, which processes one unit.
///
/// # Errors
///
/// Returns the error of `compute`, and [`DpError::NotPerExample`] if a random layer drew values on
/// this thread that belong to no unit.
pub(crate) fn refuse_unkeyed<T>(
    compute: impl FnOnce() -> Result<T, DpError>,
) -> Result<T, DpError> {
    let before = UNKEYED.get();
    let computed = compute()?;
    if UNKEYED.get() == before { Ok(computed) } else { Err(unkeyed_randomness()) }
}

/// The error for random values that belong to no unit.
pub(crate) fn unkeyed_randomness() -> DpError {
    DpError::NotPerExample {
        reason: "a random layer (dropout) drew values that belong to no unit, so they depend on \
                 which examples came before: compute the losses inside the closure of \
                 `DpOptimizer::backward_batch` or in `PrivateTraining`, keep the examples on axis \
                 0 of the layer, hold the layer in the model that is given, and draw nothing on \
                 other threads; or freeze the layer"
            .into(),
    }
}
