//! The rows of a logical batch that are processed at once.

use super::draw::{Draw, DrawPart};
use super::records::RecordFacts;

/// The output of the user's `Batcher` for at most as many units as fit into memory, with the mark
/// of their draw.
///
/// The data and the mark are one value, which
/// [`DpOptimizer::backward`](crate::optim::DpOptimizer::backward) consumes: losses belong to the
/// physical batch that they are computed from.
///
/// A loop that loads its data itself uses a [`DrawPart`], or a whole [`Draw`], as the physical
/// batch of its units' indices.
///
/// ```compile_fail,E0382
/// # use burn::tensor::Tensor;
/// # use burn_dp::{DpError, optim::DpOptimizer, sampling::PhysicalBatch};
/// # fn twice(
/// #     optim: &mut DpOptimizer,
/// #     model: &burn::nn::Linear,
/// #     batch: PhysicalBatch<Tensor<1>>,
/// # ) -> Result<(), DpError> {
/// optim.backward(model, batch, |_, losses| losses)?;
/// optim.backward(model, batch, |_, losses| losses)
/// # }
/// ```
pub struct PhysicalBatch<O> {
    batch: O,
    part: DrawPart,
}

impl<O> PhysicalBatch<O> {
    pub(crate) fn new(batch: O, part: DrawPart) -> Self {
        Self { batch, part }
    }

    /// Returns the output of the `Batcher`.
    pub fn batch(&self) -> &O {
        &self.batch
    }

    /// Returns the units of the rows.
    pub fn part(&self) -> &DrawPart {
        &self.part
    }

    /// Returns both, by value, for sums that are [clipped
    /// elsewhere](crate::optim::DpOptimizer::accumulate). They cannot be recombined.
    pub fn into_parts(self) -> (O, DrawPart) {
        (self.batch, self.part)
    }
}

/// The units' indices as the batch.
impl From<DrawPart> for PhysicalBatch<Vec<usize>> {
    fn from(part: DrawPart) -> Self {
        let units = part.private_indices().to_vec();
        // The loop loads the units itself, so nothing compares what it loads.
        let part = part.with_rows(units.len()).with_records(RecordFacts::UNKNOWN);
        Self { part, batch: units }
    }
}

/// All units' indices as one batch.
impl From<&Draw> for PhysicalBatch<Vec<usize>> {
    fn from(draw: &Draw) -> Self {
        DrawPart::from(draw).into()
    }
}

opaque_debug!(PhysicalBatch<O>);
