use burn::tensor::{Bool, Device, Int, Tensor};

/// Which examples of a batch a rule is restricted to.
pub(crate) enum Restriction<'a> {
    /// All of them.
    All,
    /// `length` examples from `start`, as a smaller batch.
    Range {
        /// The first of them.
        start: usize,
        /// Their number.
        length: usize,
    },
    /// Those that are kept; the others become zeros.
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

    /// Restricts the rows of recorded indices; what is not kept is zero already by its gradients.
    pub(crate) fn apply_ids(&self, ids: &Tensor<2, Int>) -> Tensor<2, Int> {
        match self {
            Self::Range { start, length } => ids.clone().narrow(0, *start, *length),
            Self::All | Self::Keep(_) => ids.clone(),
        }
    }
}

/// Which examples to keep. The rows of the others are replaced by zeros, by selection: a product with
/// zero would keep a NaN.
pub(crate) struct Keep {
    drop: Tensor<1, Bool>,
}

impl Keep {
    pub(crate) fn new(keep: &[bool], device: &Device) -> Self {
        let drop: Vec<bool> = keep.iter().map(|keep| !keep).collect();
        Self { drop: Tensor::from_data(drop.as_slice(), device) }
    }

    /// The same for `group_size` rows of every example.
    pub(crate) fn repeat(&self, group_size: usize) -> Self {
        let units = self.drop.dims()[0];
        let drop = self.drop.clone().reshape([units, 1]).repeat_dim(1, group_size);
        Self { drop: drop.reshape([units * group_size]) }
    }

    /// Zeros in the rows that are not kept.
    pub(crate) fn apply<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        let mut shape = [1; D];
        shape[0] = tensor.dims()[0];
        let mask = self.drop.clone().reshape(shape).expand(tensor.dims());
        tensor.mask_fill(mask, 0.0)
    }
}
