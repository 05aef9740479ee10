//! From a data set, a batcher and a sampler to the batches of every step.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use burn::data::{dataloader::batcher::Batcher, dataset::Dataset};
use burn::tensor::Device;

#[cfg(feature = "train")]
use super::Draw;
use super::{ExampleWeights, LogicalBatch, PhysicalBatch, Sampler};
use crate::DpError;

/// Builds the iterator over the batches of a private run, as Burn's `DataLoaderBuilder` builds that of
/// an ordinary one.
pub struct PrivateDataLoaderBuilder<I, O> {
    batcher: Arc<dyn Batcher<I, O>>,
    padding: Padding<I>,
    device: Device,
    prefetch: usize,
}

/// What fills the rows that a fixed physical size leaves over.
enum Padding<I> {
    None,
    /// The first unit of the chunk again.
    Repeat,
    /// An item that the user makes.
    Filler(Arc<dyn Fn() -> I + Send + Sync>),
}

impl<I: Send + 'static, O: Send + 'static> PrivateDataLoaderBuilder<I, O> {
    /// Batches made by `batcher` on the default device, not padded, loaded when they are asked for.
    pub fn new(batcher: impl Batcher<I, O> + 'static) -> Self {
        Self {
            batcher: Arc::new(batcher),
            padding: Padding::None,
            device: Device::default(),
            prefetch: 0,
        }
    }

    /// The device that the batcher is given.
    pub fn with_device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// Gives every physical batch the same number of rows by loading a unit of it again. Fixed shapes
    /// keep kernels and tuning results in use. Whoever watches them learns the number of physical batches of a
    /// draw, and that it was empty, but no longer its size.
    pub fn with_padding(self) -> Self {
        Self { padding: Padding::Repeat, ..self }
    }

    /// Gives every physical batch the same number of rows by adding the items that `filler` makes.
    pub fn with_padding_item(self, filler: impl Fn() -> I + Send + Sync + 'static) -> Self {
        Self { padding: Padding::Filler(Arc::new(filler)), ..self }
    }

    /// Loads up to `batches` physical batches ahead on a thread. The order stays the same.
    pub fn with_prefetch(self, batches: usize) -> Self {
        Self { prefetch: batches, ..self }
    }

    /// The batches of `steps` steps from step 0.
    ///
    /// The number of steps belongs to the configuration of the run, as the sampling probability does.
    /// It is never derived from the length of a loader.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] if the sampler was made for another number of units.
    pub fn build<D, E>(
        self,
        dataset: D,
        sampler: impl Sampler + 'static,
        steps: u64,
    ) -> Result<LogicalBatches<O>, DpError>
    where
        D: Dataset<I, E> + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        if dataset.len() != sampler.dataset_size() {
            return Err(DpError::invalid(
                "sampler",
                format!(
                    "draws from {} units, but the data set has {}; make the sampler for the length \
                     of this data set",
                    sampler.dataset_size(),
                    dataset.len()
                ),
            ));
        }
        let prefetch = self.prefetch;
        let load = DatasetLoader { builder: self, dataset, error: PhantomData };
        Ok(LogicalBatches {
            sampler: Box::new(sampler),
            load: Arc::new(load),
            prefetch,
            next: 0,
            steps,
        })
    }
}

impl<I, O> fmt::Debug for PrivateDataLoaderBuilder<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateDataLoaderBuilder")
            .field("device", &self.device)
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}

/// The logical batches of a run, one for each step, in order.
///
/// Draws are functions of the key and the step: [`skip_to`](Self::skip_to) with the number of the steps
/// already released continues a run as if it had never stopped.
pub struct LogicalBatches<O> {
    sampler: Box<dyn Sampler>,
    load: Arc<dyn LoadRows<O>>,
    prefetch: usize,
    next: u64,
    steps: u64,
}

impl<O> LogicalBatches<O> {
    /// What draws the batches, and describes the draws to the accountant.
    pub fn sampler(&self) -> &dyn Sampler {
        &*self.sampler
    }

    /// The batch of any step.
    #[cfg(feature = "train")]
    pub(crate) fn with_draw(&self, draw: Draw) -> LogicalBatch<O>
    where
        O: Send + 'static,
    {
        LogicalBatch::new(draw, self.load.clone(), self.prefetch)
    }

    /// Goes on with `step`, the number of steps that were released so far.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] if `step` lies behind the next step, whose units were already
    /// used, or after the last.
    pub fn skip_to(self, step: u64) -> Result<Self, DpError> {
        if !(self.next..=self.steps).contains(&step) {
            return Err(DpError::invalid(
                "step",
                format!("must be from {} to {}, got {step}", self.next, self.steps),
            ));
        }
        Ok(Self { next: step, ..self })
    }
}

impl<O: Send + 'static> Iterator for LogicalBatches<O> {
    type Item = Result<LogicalBatch<O>, DpError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.steps {
            return None;
        }
        let draw = self.sampler.draw(self.next);
        self.next += 1;
        Some(draw.map(|draw| LogicalBatch::new(draw, self.load.clone(), self.prefetch)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.steps - self.next);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

impl<O> fmt::Debug for LogicalBatches<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogicalBatches")
            .field("sampler", &self.sampler)
            .field("next", &self.next)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

/// Loads units into one physical batch; hides the types of the item and of the data set's error.
pub(crate) trait LoadRows<O>: Send + Sync {
    /// Loads the units `indices`, at least one, into `rows` rows if padded, on `device` or on that of the
    /// loader.
    fn load(
        &self,
        indices: &[usize],
        rows: usize,
        device: Option<&Device>,
    ) -> Result<PhysicalBatch<O>, DpError>;
}

struct DatasetLoader<D, I, E, O> {
    builder: PrivateDataLoaderBuilder<I, O>,
    dataset: D,
    error: PhantomData<fn() -> E>,
}

impl<D, I, E, O> LoadRows<O> for DatasetLoader<D, I, E, O>
where
    D: Dataset<I, E>,
    I: Send,
    E: std::error::Error + Send + Sync + 'static,
{
    fn load(
        &self,
        indices: &[usize],
        rows: usize,
        device: Option<&Device>,
    ) -> Result<PhysicalBatch<O>, DpError> {
        let failed = |error: E| DpError::io("data set", std::io::Error::other(error));
        let mut items = self.dataset.get_many(indices.to_vec()).map_err(failed)?;
        if items.len() != indices.len() {
            return Err(DpError::invalid(
                "dataset",
                format!("gave {} items for {} indices", items.len(), indices.len()),
            ));
        }
        while items.len() < rows {
            match &self.builder.padding {
                Padding::None => break,
                Padding::Repeat => items.push(self.dataset.get(indices[0]).map_err(failed)?),
                Padding::Filler(filler) => items.push(filler()),
            }
        }
        let device = device.unwrap_or(&self.builder.device);
        let weights = ExampleWeights::new(indices.len(), items.len(), device.clone());
        Ok(PhysicalBatch::new(self.builder.batcher.batch(items, device), weights))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSamplingSeed;
    use crate::sampling::{FixedSizeSampler, PoissonSampler};
    use burn::data::dataset::{DatasetError, InMemDataset};
    use burn::tensor::Tensor;

    struct Column;

    impl Batcher<f32, Tensor<1>> for Column {
        fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
            Tensor::from_floats(items.as_slice(), device)
        }
    }

    /// The value of unit i is i + 1, so that no unit looks like padding.
    fn dataset(len: usize) -> InMemDataset<f32> {
        InMemDataset::new((1..=len).map(|i| i as f32).collect())
    }

    fn sampler(len: usize, q: f64) -> PoissonSampler {
        PoissonSampler::new(len, q).unwrap().with_key(InsecureSamplingSeed(8))
    }

    fn rows(batch: &LogicalBatch<Tensor<1>>, size: usize) -> Vec<(Vec<f32>, Vec<bool>)> {
        batch
            .chunks(size)
            .unwrap()
            .map(|chunk| {
                let (values, weights) = chunk.unwrap().into_parts();
                (values.into_data().try_to_vec::<f32>().unwrap(), weights.is_padding().collect())
            })
            .collect()
    }

    fn units(batch: &LogicalBatch<Tensor<1>>) -> Vec<f32> {
        batch.draw().private_indices().iter().map(|&i| i as f32 + 1.0).collect()
    }

    fn builder() -> PrivateDataLoaderBuilder<f32, Tensor<1>> {
        PrivateDataLoaderBuilder::new(Column)
    }

    #[test]
    fn the_batches_are_the_items_of_the_draws_through_the_batcher() {
        let batches = builder().build(dataset(50), sampler(50, 0.2), 30).unwrap();
        assert_eq!(batches.size_hint(), (30, Some(30)));
        let mut seen = 0;
        for (step, batch) in batches.enumerate() {
            let batch = batch.unwrap();
            assert_eq!(batch.step(), step as u64);
            assert_eq!(batch.draw(), &sampler(50, 0.2).draw(step as u64).unwrap());
            let chunks = rows(&batch, 4);
            assert!(chunks.iter().all(|(values, padding)| values.len() == padding.len()));
            assert!(chunks.iter().all(|(_, padding)| padding.iter().all(|p| !p)));
            assert_eq!(chunks.into_iter().flat_map(|c| c.0).collect::<Vec<_>>(), units(&batch));
            seen += 1;
        }
        assert_eq!(seen, 30);
    }

    #[test]
    fn an_empty_draw_is_a_step_like_any_other() {
        let batches = builder().build(dataset(3), sampler(3, 1e-9), 4).unwrap();
        let steps: Vec<u64> = batches
            .map(|batch| {
                let batch = batch.unwrap();
                assert!(rows(&batch, 8).is_empty());
                batch.step()
            })
            .collect();
        assert_eq!(steps, [0, 1, 2, 3]);
    }

    #[test]
    fn padding_fixes_the_number_of_rows_and_changes_no_unit() {
        let repeat = builder().with_padding();
        let filler = builder().with_padding_item(|| -1.0);
        for (builder, filled) in [(repeat, None), (filler, Some(-1.0))] {
            for batch in builder.build(dataset(40), sampler(40, 0.3), 20).unwrap() {
                let batch = batch.unwrap();
                let mut real = Vec::new();
                for (values, padding) in rows(&batch, 5) {
                    assert_eq!((values.len(), padding.len()), (5, 5));
                    let first = values[0];
                    for (value, padding) in values.into_iter().zip(padding) {
                        if padding {
                            assert_eq!(value, filled.unwrap_or(first));
                        } else {
                            real.push(value);
                        }
                    }
                }
                assert_eq!(real, units(&batch));
            }
        }
    }

    #[test]
    fn prefetching_changes_nothing_but_the_time() {
        let run = |prefetch| -> Vec<_> {
            let builder = builder().with_padding().with_prefetch(prefetch);
            let batches = builder.build(dataset(60), sampler(60, 0.2), 10).unwrap();
            batches.map(|batch| rows(&batch.unwrap(), 4)).collect()
        };
        assert_eq!(run(0), run(1));
        assert_eq!(run(0), run(4));
    }

    #[test]
    fn a_run_that_is_resumed_sees_what_it_would_have_seen() {
        let build = || builder().build(dataset(60), sampler(60, 0.2), 10).unwrap();
        let draws = |batches: LogicalBatches<_>| -> Vec<_> {
            batches.map(|batch| batch.unwrap().draw().clone()).collect()
        };
        let whole = draws(build());
        for step in [0, 1, 7, 10] {
            assert_eq!(draws(build().skip_to(step).unwrap()), whole[step as usize..]);
        }
    }

    #[test]
    fn steps_that_were_used_or_do_not_exist_are_refused() {
        let mut batches = builder().build(dataset(6), sampler(6, 0.5), 10).unwrap();
        batches.by_ref().take(3).for_each(drop);
        let error = batches.skip_to(2).unwrap_err().to_string();
        assert!(error.contains("from 3 to 10, got 2"), "{error}");
        let batches = builder().build(dataset(6), sampler(6, 0.5), 10).unwrap();
        assert!(batches.skip_to(11).is_err());
    }

    #[test]
    fn a_sampler_for_another_number_of_units_is_refused() {
        let error = builder().build(dataset(6), sampler(7, 0.5), 1).unwrap_err().to_string();
        assert!(error.contains("7 units") && error.contains("has 6"), "{error}");
    }

    #[test]
    fn other_samplers_and_boxed_ones_are_used_in_the_same_way() {
        let boxed: Box<dyn Sampler> = Box::new(FixedSizeSampler::new(20, 6).unwrap());
        let batches = builder().build(dataset(20), boxed, 3).unwrap();
        assert_eq!(batches.sampler().expected_batch_size(), 6.0);
        for batch in batches {
            let sizes: Vec<usize> = rows(&batch.unwrap(), 4).iter().map(|c| c.0.len()).collect();
            assert_eq!(sizes, [4, 2]);
        }
    }

    struct Damaged;

    impl Dataset<f32> for Damaged {
        fn get(&self, index: usize) -> Result<f32, DatasetError> {
            match index {
                3 => Err(DatasetError::new(std::io::Error::other("bad checksum"))),
                _ => Ok(index as f32),
            }
        }

        fn len(&self) -> usize {
            5
        }
    }

    #[test]
    fn an_item_that_cannot_be_read_is_an_error_with_its_cause() {
        let mut batches = builder().build(Damaged, sampler(5, 1.0), 1).unwrap();
        let batch = batches.next().unwrap().unwrap();
        let results: Vec<_> = batch.chunks(2).unwrap().collect();
        assert_eq!(results.len(), 2);
        let error = results[1].as_ref().unwrap_err().to_string();
        assert!(error.contains("bad checksum"), "{error}");
    }

    /// Leaves out what it cannot find.
    struct Forgetful;

    impl Dataset<f32> for Forgetful {
        fn get(&self, index: usize) -> Result<f32, DatasetError> {
            Ok(index as f32)
        }

        fn get_many(&self, indexes: Vec<usize>) -> Result<Vec<f32>, DatasetError> {
            indexes.into_iter().filter(|&i| i != 1).map(|i| self.get(i)).collect()
        }

        fn len(&self) -> usize {
            3
        }
    }

    #[test]
    fn a_data_set_that_leaves_out_units_is_refused() {
        let mut batches = builder().with_padding().build(Forgetful, sampler(3, 1.0), 1).unwrap();
        let batch = batches.next().unwrap().unwrap();
        let error = batch.chunks(4).unwrap().next().unwrap().unwrap_err().to_string();
        assert!(error.contains("2 items for 3 indices"), "{error}");
    }
}
