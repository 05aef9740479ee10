//! Factors on the rows of recorded output gradients.

use burn::tensor::{DType, Tensor};

use crate::DpError;

/// One factor for each row of the batch, and what the rows were after it was applied.
pub(super) struct RowScale {
    factors: Option<Tensor<1>>,
    magnitudes: Vec<Tensor<1>>,
}

impl RowScale {
    /// Leaves the rows as they are.
    pub(super) fn none() -> Self {
        Self { factors: None, magnitudes: Vec::new() }
    }

    /// `factors` is `[batch_size]`, on the plain device of the records.
    pub(super) fn new(factors: Tensor<1>) -> Self {
        Self { factors: Some(factors), magnitudes: Vec::new() }
    }

    /// Multiplies each row of axis 0 by its factor. A tensor of another batch size stays as it is:
    /// it is refused later.
    pub(super) fn apply<const D: usize>(&mut self, grad: Tensor<D>) -> Tensor<D> {
        let rows = grad.dims()[0];
        let Some(factors) = self.factors.clone().filter(|factors| factors.dims() == [rows]) else {
            return grad;
        };
        let mut shape = [1; D];
        shape[0] = rows;
        let scaled = grad * factors.reshape(shape);
        let values = scaled.clone().abs().reshape([rows as isize, -1]);
        self.magnitudes.push(values.sum_dim(1).reshape([rows]));
        scaled
    }

    /// Sums of the magnitudes in each row, for each record, on the host: `[records][batch_size]`.
    pub(super) fn into_magnitudes(self) -> Result<Vec<Vec<f32>>, DpError> {
        let Some(rows) = self.magnitudes.first().map(|first| first.dims()[0]) else {
            return Ok(Vec::new());
        };
        let table = Tensor::<1>::stack::<2>(self.magnitudes, 0).into_data();
        let table = table.convert_dtype(DType::F32).try_into_vec::<f32>().map_err(|error| {
            DpError::state(format!("gradients cannot be read from the device: {error:?}"))
        })?;
        Ok(table.chunks_exact(rows).map(<[f32]>::to_vec).collect())
    }
}
