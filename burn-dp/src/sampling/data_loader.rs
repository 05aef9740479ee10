//! Builds the batches of every step from a data set, a batcher, and a sampler.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Device;

use super::logical_batches::LogicalBatches;
use super::records::{DistinctRecords, RecordFacts};
use super::row_loader::{DatasetLoader, Padding};
use super::sampler::Sampler;
use crate::DpError;

/// Builds the iterator over the batches of a private run, as Burn's `DataLoaderBuilder` does for an
/// ordinary run.
pub struct PrivateDataLoaderBuilder<I, O> {
    batcher: Arc<dyn Batcher<I, O>>,
    padding: Padding<I>,
    device: Device,
    prefetch: usize,
}

impl<I: Send + 'static, O: Send + 'static> PrivateDataLoaderBuilder<I, O> {
    /// Returns a builder for batches that `batcher` creates on the default device when they are
    /// requested.
    ///
    /// Unless [`with_padding`](Self::with_padding) or [`without_padding`](Self::without_padding) is
    /// called, physical batches are padded where the library computes the losses itself
    /// ([`DpOptimizer::backward_batch`](crate::optim::DpOptimizer::backward_batch), and Burn's
    /// learner) on a device that compiles its kernels (CubeCL). They are padded to the physical
    /// batch size, or to two standard deviations above the expected batch size if that is smaller.
    pub fn new(batcher: impl Batcher<I, O> + 'static) -> Self {
        Self {
            batcher: Arc::new(batcher),
            padding: Padding::Automatic,
            device: Device::default(),
            prefetch: 0,
        }
    }

    /// Sets the device of the batches.
    pub fn with_device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// Gives every physical batch the same number of rows by loading one of its units again.
    ///
    /// Fixed shapes allow kernels and tuning results to be reused. Somebody who observes the shapes
    /// learns the number of physical batches of a draw, and whether it was empty, but not its size.
    /// If the draws have a public maximum size
    /// ([`TruncatedPoissonSampler`](super::TruncatedPoissonSampler)), all of them have that number
    /// of physical batches, and the shapes reveal nothing.
    pub fn with_padding(self) -> Self {
        Self { padding: Padding::Repeat, ..self }
    }

    /// Gives every physical batch the same number of rows by adding the items that `item` returns.
    pub fn with_padding_item(self, item: impl Fn() -> I + Send + Sync + 'static) -> Self {
        Self { padding: Padding::Item(Arc::new(item)), ..self }
    }

    /// Gives a physical batch as many rows as it has units, on every device.
    pub fn without_padding(self) -> Self {
        Self { padding: Padding::None, ..self }
    }

    /// Loads up to `batches` physical batches ahead on a thread. The order does not change.
    pub fn with_prefetch(self, batches: usize) -> Self {
        Self { prefetch: batches, ..self }
    }

    /// Returns the batches of `steps` steps from step 0.
    ///
    /// The number of steps belongs to the configuration of the run, like the sampling probability.
    /// It is never derived from the length of a loader.
    ///
    /// # Privacy
    ///
    /// A record under two indices of the data set would contribute twice. Therefore `dataset` is a
    /// type that returns [other records at other indices](DistinctRecords), or is checked or
    /// declared to do so by [`Distinct`](super::Distinct).
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the sampler was created for another number of units.
    pub fn build<D, E>(
        self,
        dataset: D,
        sampler: impl Sampler + 'static,
        steps: u64,
    ) -> Result<LogicalBatches<O>, DpError>
    where
        D: DistinctRecords<I, E> + 'static,
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
        let Self { batcher, padding, device, prefetch } = self;
        let records = RecordFacts::of(&dataset);
        let error = PhantomData;
        let loader = DatasetLoader { dataset, records, batcher, padding, device, error };
        Ok(LogicalBatches::new(Box::new(sampler), Arc::new(loader), prefetch, steps))
    }
}

opaque_debug!(PrivateDataLoaderBuilder<I, O>, |this| device: this.device, prefetch: this.prefetch);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::random::InsecureSeed;
    use crate::sampling::{
        DrawPart, FixedSizeSampler, LogicalBatch, PoissonSampler, TruncatedPoissonSampler,
        WithReplacementSampler,
    };
    use burn::data::dataset::{Dataset, DatasetError, InMemDataset};
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
        PoissonSampler::new(len, q).unwrap().with_key(InsecureSeed(8))
    }

    fn rows(batch: &LogicalBatch<Tensor<1>>, size: usize) -> Vec<(Vec<f32>, Vec<bool>)> {
        batch
            .physical_batches(size)
            .unwrap()
            .map(|physical_batch| {
                let (values, part) = physical_batch.unwrap().into_parts();
                (values.into_data().try_to_vec::<f32>().unwrap(), part.is_padding().collect())
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
    fn batches_are_the_drawn_items_through_the_batcher() {
        let batches = builder().build(dataset(50), sampler(50, 0.2), 30).unwrap();
        assert_eq!(batches.size_hint(), (30, Some(30)));
        let mut seen = 0;
        for (step, batch) in batches.enumerate() {
            let batch = batch.unwrap();
            assert_eq!(batch.step(), step as u64);
            assert_eq!(batch.draw(), &sampler(50, 0.2).draw(step as u64).unwrap());
            let parts = rows(&batch, 4);
            assert!(parts.iter().all(|(values, padding)| values.len() == padding.len()));
            assert!(parts.iter().all(|(_, padding)| padding.iter().all(|p| !p)));
            assert_eq!(
                parts.into_iter().flat_map(|part| part.0).collect::<Vec<_>>(),
                units(&batch)
            );
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
        let item = builder().with_padding_item(|| -1.0);
        for (builder, padded) in [(repeat, None), (item, Some(-1.0))] {
            for batch in builder.build(dataset(40), sampler(40, 0.3), 20).unwrap() {
                let batch = batch.unwrap();
                let mut real = Vec::new();
                for (values, padding) in rows(&batch, 5) {
                    assert_eq!((values.len(), padding.len()), (5, 5));
                    let first = values[0];
                    for (value, padding) in values.into_iter().zip(padding) {
                        if padding {
                            assert_eq!(value, padded.unwrap_or(first));
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
    fn a_cut_draw_has_one_number_of_padded_batches_whatever_its_size() {
        let truncated = |expected| {
            let sampler = TruncatedPoissonSampler::new(40, expected, 13).unwrap();
            sampler.with_key(InsecureSeed(8))
        };
        let builders =
            || [builder().with_padding(), builder().with_padding_item(|| -1.0).with_prefetch(2)];
        for expected in [1e-6, 8.0, 13.0] {
            for builder in builders() {
                for batch in builder.build(dataset(40), truncated(expected), 20).unwrap() {
                    let batch = batch.unwrap();
                    let parts = rows(&batch, 5);
                    assert_eq!(parts.len(), 3);
                    let all = parts.into_iter().flat_map(|(values, padding)| {
                        assert_eq!((values.len(), padding.len()), (5, 5));
                        values.into_iter().zip(padding)
                    });
                    let real: Vec<f32> =
                        all.filter(|(_, padding)| !padding).map(|(value, _)| value).collect();
                    assert_eq!(real, units(&batch));
                }
            }
        }
        // Without padding, or without a maximum size, the number depends on the units.
        let mut batches = builder().build(dataset(40), truncated(1e-6), 1).unwrap();
        assert!(rows(&batches.next().unwrap().unwrap(), 5).is_empty());
        let padded = builder().with_padding();
        let mut batches = padded.build(dataset(40), sampler(40, 1e-9), 1).unwrap();
        assert!(rows(&batches.next().unwrap().unwrap(), 5).is_empty());
    }

    #[test]
    fn the_parts_of_several_devices_have_all_padded_batches() {
        let sampler = TruncatedPoissonSampler::new(40, 6.0, 13).unwrap();
        let builder = builder().with_padding();
        let sampler = sampler.with_key(InsecureSeed(8));
        for batch in builder.build(dataset(40), sampler, 20).unwrap() {
            let batch = batch.unwrap();
            let parts = (0..2).flat_map(|part| batch.part(5, (part, 2), None).unwrap());
            let found: Vec<DrawPart> = parts.map(|batch| batch.unwrap().into_parts().1).collect();
            assert_eq!(found.len(), 3);
            let mut units: Vec<usize> =
                found.iter().flat_map(|part| part.private_indices().to_vec()).collect();
            units.sort_unstable();
            assert_eq!(units, batch.draw().private_indices());
        }
    }

    #[test]
    fn a_unit_that_is_drawn_twice_is_two_rows() {
        let sampler = WithReplacementSampler::new(4, 4).unwrap().with_key(InsecureSeed(8));
        let mut repeated = false;
        for batch in builder().build(dataset(4), sampler, 20).unwrap() {
            let batch = batch.unwrap();
            let found: Vec<f32> = rows(&batch, 3).into_iter().flat_map(|part| part.0).collect();
            assert_eq!(found, units(&batch));
            repeated |= found.windows(2).any(|pair| pair[0] == pair[1]);
        }
        assert!(repeated);
    }

    #[test]
    fn prefetching_does_not_change_the_batches() {
        let run = |prefetch| -> Vec<_> {
            let builder = builder().with_padding().with_prefetch(prefetch);
            let batches = builder.build(dataset(60), sampler(60, 0.2), 10).unwrap();
            batches.map(|batch| rows(&batch.unwrap(), 4)).collect()
        };
        assert_eq!(run(0), run(1));
        assert_eq!(run(0), run(4));
    }

    #[test]
    fn a_resumed_run_has_the_draws_of_an_uninterrupted_run() {
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
        assert_eq!(batches.size_hint(), (7, Some(7)));
        let error = batches.skip_to(2).unwrap_err().to_string();
        assert!(error.contains("from 3 to 10, got 2"), "{error}");
        let batches = builder().build(dataset(6), sampler(6, 0.5), 10).unwrap();
        assert!(batches.skip_to(11).is_err());
    }

    #[test]
    fn a_sampler_of_another_data_set_size_is_refused() {
        let error = builder().build(dataset(6), sampler(7, 0.5), 1).unwrap_err().to_string();
        assert!(error.contains("7 units") && error.contains("has 6"), "{error}");
    }

    #[test]
    fn boxed_samplers_can_be_used() {
        let boxed: Box<dyn Sampler> = Box::new(FixedSizeSampler::new(20, 6).unwrap());
        let batches = builder().build(dataset(20), boxed, 3).unwrap();
        assert_eq!(batches.sampler().expected_batch_size(), 6.0);
        for batch in batches {
            let sizes: Vec<usize> =
                rows(&batch.unwrap(), 4).iter().map(|part| part.0.len()).collect();
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

    impl DistinctRecords<f32> for Damaged {}

    #[test]
    fn an_unreadable_item_is_an_error_with_its_cause() {
        let mut batches = builder().build(Damaged, sampler(5, 1.0), 1).unwrap();
        let batch = batches.next().unwrap().unwrap();
        let results: Vec<_> = batch.physical_batches(2).unwrap().collect();
        assert_eq!(results.len(), 2);
        let error = results[1].as_ref().unwrap_err();
        assert!(matches!(error, DpError::Dataset { .. }));
        assert!(error.to_string().contains("bad checksum"), "{error}");
    }

    /// Returns fewer items than requested.
    struct Incomplete;

    impl Dataset<f32> for Incomplete {
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

    impl DistinctRecords<f32> for Incomplete {}

    #[test]
    fn a_data_set_that_omits_units_is_refused() {
        let mut batches = builder().with_padding().build(Incomplete, sampler(3, 1.0), 1).unwrap();
        let batch = batches.next().unwrap().unwrap();
        let error = batch.physical_batches(4).unwrap().next().unwrap().unwrap_err().to_string();
        assert!(error.contains("2 items for 3 indices"), "{error}");
    }
}
