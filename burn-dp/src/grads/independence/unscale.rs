use burn::tensor::Tensor;

use crate::DpError;
use crate::device_read::read_f32;
use crate::ops::recording::{RawRecord, Recorder};
use crate::ops::{self, Slot};

/// Removes the factors of the losses from every record, and passes it to `recorder`.
pub(crate) struct Unscale<R> {
    pub(super) recorder: R,
    /// `None` if the losses have no factors.
    pub(super) batch: Option<ScaledBatch>,
}

impl<R: Recorder> Recorder for Unscale<R> {
    fn record(&mut self, mut record: RawRecord) -> Result<(), DpError> {
        if let Some(batch) = &mut self.batch {
            record.output_grad = batch.unscale(record.output_grad);
        }
        self.recorder.record(record)
    }
}

/// Finite magnitudes of the units of one record.
#[derive(Default)]
pub(super) struct Magnitudes {
    /// The magnitudes of the units that were scaled down.
    pub(super) small: Vec<f64>,
    /// The magnitudes of the units that were scaled up.
    pub(super) large: Vec<f64>,
    /// Number of units that were scaled up and have no finite magnitude.
    pub(super) overflowed: usize,
}

/// A batch whose losses are multiplied by factors.
pub(super) struct ScaledBatch {
    /// A plain tensor of the backend that records.
    witness: Tensor<1>,
    /// `[units · group_size]`.
    inverse_factors: Tensor<1>,
    /// For each unit, whether its losses were scaled down.
    small: Vec<bool>,
    group_size: usize,
    /// For each record, the sum of the magnitudes in each row.
    magnitudes: Vec<Tensor<1>>,
}

impl ScaledBatch {
    pub(super) fn new(
        witness: Tensor<1>,
        inverse_factors: Tensor<1>,
        small: Vec<bool>,
        group_size: usize,
    ) -> Self {
        Self { witness, inverse_factors, small, group_size, magnitudes: Vec::new() }
    }

    /// Removes the factors from a gradient. A tensor of another batch size is returned unchanged,
    /// because the recorder rejects it.
    fn unscale(&mut self, output_grad: Slot) -> Slot {
        let (shape, rows) = ops::take_rows(&self.witness, output_grad);
        let rows = ops::single(rows);
        let count = rows.dims()[0];
        if self.inverse_factors.dims() != [count] {
            return ops::put(rows, shape);
        }
        let rows = rows * self.inverse_factors.clone().reshape([count, 1]);
        self.magnitudes.push(ops::row_sums(rows.clone().abs()));
        ops::put(rows, shape)
    }

    /// Returns the magnitudes of the units for each record.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Device`] if the magnitudes cannot be read.
    pub(super) async fn into_unit_magnitudes(self) -> Result<Vec<Magnitudes>, DpError> {
        let Some(rows) = self.magnitudes.first().map(|first| first.dims()[0]) else {
            return Ok(Vec::new());
        };
        let table = Tensor::<1>::stack::<2>(self.magnitudes, 0);
        let table = read_f32(table, "the magnitudes of the gradients").await?;
        let units_of_record = |rows: &[f32]| {
            let mut magnitudes = Magnitudes::default();
            for (unit, &is_small) in rows.chunks_exact(self.group_size).zip(&self.small) {
                let magnitude = unit.iter().map(|&row| f64::from(row)).sum::<f64>();
                let Magnitudes { small, large, overflowed } = &mut magnitudes;
                match (magnitude.is_finite(), is_small) {
                    (true, true) => small.push(magnitude),
                    (true, false) => large.push(magnitude),
                    (false, true) => {}
                    (false, false) => *overflowed += 1,
                }
            }
            magnitudes
        };
        Ok(table.chunks_exact(rows).map(units_of_record).collect())
    }
}
