use burn::tensor::{Bool, Device, Int, Tensor};

use crate::ops::selects;

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
pub(crate) struct Keep {
    drop: Tensor<1, Bool>,
}

impl Keep {
    /// Keeps the examples that are `true` in `keep`.
    pub(crate) fn new(keep: &[bool], device: &Device) -> Self {
        let drop: Vec<bool> = keep.iter().map(|keep| !keep).collect();
        Self { drop: Tensor::from_data(drop.as_slice(), device) }
    }

    /// Keeps the examples whose coefficients are not zero.
    pub(crate) fn of(coefficients: Tensor<1>) -> Self {
        Self { drop: coefficients.equal_elem(0.0) }
    }

    /// Repeats the choice for `group_size` rows of every example.
    pub(crate) fn repeat(&self, group_size: usize) -> Self {
        let units = self.drop.dims()[0];
        let drop = self.drop.clone().reshape([units, 1]).repeat_dim(1, group_size);
        Self { drop: drop.reshape([units * group_size]) }
    }

    /// Replaces the excluded rows with zeros.
    pub(crate) fn apply<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        let mut shape = [1; D];
        shape[0] = tensor.dims()[0];
        let mask = self.drop.clone().reshape(shape).expand(tensor.dims());
        tensor.mask_fill(mask, 0.0)
    }
}
