use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Device, Int, Tensor};

use crate::ops::{kept_examples, selected_rows, selects, weighted_rows};

/// A restriction of a rule to some examples of a batch.
pub(crate) enum Restriction<'a> {
    /// All examples.
    All,
    /// `length` examples from `start`, as a smaller batch.
    Range {
        /// Index of the first example.
        start: usize,
        /// Number of examples.
        length: usize,
    },
    /// All examples, but the excluded ones become zeros.
    Keep(&'a Keep),
}

impl Restriction<'_> {
    /// Restricts the rows of a recorded tensor.
    pub(crate) fn apply<const D: usize>(&self, tensor: &Tensor<D>) -> Tensor<D> {
        let tensor = tensor.clone();
        match self {
            Self::All => tensor,
            Self::Range { start, length } => tensor.narrow(0, *start, *length),
            Self::Keep(keep) => keep.apply(tensor),
        }
    }

    /// Restricts the rows of a recorded tensor that the weighted sum multiplies by the coefficients
    /// with [`scaled_examples`](crate::ops::scaled_examples), which leaves out examples with
    /// coefficient zero where it [selects](selects) them.
    pub(crate) fn apply_scaled<const D: usize>(&self, tensor: &Tensor<D>) -> Tensor<D> {
        match self {
            Self::Keep(_) if selects(tensor) => tensor.clone(),
            _ => self.apply(tensor),
        }
    }

    /// Restricts the rows of recorded indices. Excluded rows have zero gradients, so their indices
    /// need no change.
    pub(crate) fn apply_ids(&self, ids: &Tensor<2, Int>) -> Tensor<2, Int> {
        match self {
            Self::Range { start, length } => ids.clone().narrow(0, *start, *length),
            Self::All | Self::Keep(_) => ids.clone(),
        }
    }
}

/// The examples to keep. The rows of the others are replaced with zeros by selection, because a
/// product with zero would keep a NaN.
pub(crate) enum Keep {
    /// The examples that are `true` are dropped.
    Drop(Tensor<1, Bool>),
    /// The examples with coefficient zero are dropped.
    Coefficients(Tensor<1>),
}

impl Keep {
    /// Keeps the examples that are `true` in `keep`.
    pub(crate) fn new(keep: &[bool], device: &Device) -> Self {
        let drop: Vec<bool> = keep.iter().map(|keep| !keep).collect();
        Self::Drop(Tensor::from_data(drop.as_slice(), device))
    }

    /// Repeats the choice for `group_size` rows of every example.
    pub(crate) fn repeat(&self, group_size: usize) -> Self {
        match self {
            Self::Drop(drop) => Self::Drop(repeated(drop.clone(), group_size)),
            Self::Coefficients(coefficients) => {
                Self::Coefficients(repeated(coefficients.clone(), group_size))
            }
        }
    }

    /// Returns `Σ_i coefficients[i] · rows[i]`, `[rows, values]` to `[values]`. The excluded rows,
    /// whose coefficients are zero, count as zero.
    pub(crate) fn weighted_rows(&self, coefficients: Tensor<1>, rows: Tensor<2>) -> Tensor<1> {
        selected_rows(&coefficients, &rows)
            .unwrap_or_else(|| weighted_rows(coefficients, self.apply(rows)))
    }

    /// Replaces the excluded rows with zeros.
    pub(crate) fn apply<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        let drop = match self {
            Self::Drop(drop) => drop.clone(),
            Self::Coefficients(coefficients) if selects(&tensor) => {
                return kept_examples(tensor, coefficients.clone());
            }
            Self::Coefficients(coefficients) => coefficients.clone().equal_elem(0.0),
        };
        let mut shape = [1; D];
        shape[0] = tensor.dims()[0];
        let mask = drop.reshape(shape).expand(tensor.dims());
        tensor.mask_fill(mask, 0.0)
    }
}

/// Repeats every value `times` times.
fn repeated<K: Basic>(values: Tensor<1, K>, times: usize) -> Tensor<1, K> {
    let [count] = values.dims();
    values.reshape([count, 1]).repeat_dim(1, times).reshape([count * times])
}
