//! Features of a frozen network, computed once.

use std::error::Error;

use burn::data::dataset::InMemDataset;
use burn::tensor::Tensor;

use super::DistinctRecords;
use crate::DpError;
use crate::device_read::{blocking, read_f32};
use crate::error::at_least_one;

/// Maximum number of items whose features are also computed alone.
const ALONE: usize = 16;

/// Maximum difference between a feature and the feature of the item alone, relative to the largest
/// magnitude in its row: √ε of single precision, because kernels may add in another order for
/// another batch.
const TOLERANCE: f32 = 3.5e-4;

/// Computes the features of every item once, for a linear probe. The part of the network before the
/// probe is frozen, so its outputs are the same in every step.
///
/// Returns a data set with the features and what `label` returns for each item, in the order of
/// `dataset`. Features of `n` values take `4 n` bytes for each item.
///
/// # Arguments
///
/// - `batch_size`: the number of items in a call of `features`
/// - `features`: `[batch_size, n]` for a batch of items, from a model without autodiff
///   ([`Module::valid`](burn::module::Module::valid))
///
/// # Privacy
///
/// The features of an item must depend on that item alone, and no check of a private step can see
/// how they were computed. Therefore the features of up to 16 items, evenly distributed over the
/// data set and in different rows of their batches, are computed once more alone, and must be equal
/// up to rounding. This finds padding to
/// the longest item that is not masked, statistics of a batch and dropout; it cannot prove that no
/// other items mix.
///
/// A comparison of the records of `dataset` does not follow their features, nor does its unit: plan
/// for the unit of `dataset`, and compare the features with [`Distinct`](super::Distinct) by a key
/// that `label` returns.
///
/// # Errors
///
/// Returns [`DpError::InvalidArgument`] if `batch_size` is zero, [`DpError::NotPerExample`] if the
/// features are not one row for each item or depend on the batch, [`DpError::Device`] if they
/// cannot be read, and [`DpError::Dataset`] if an item cannot be loaded.
///
/// # Example
///
/// ```
/// use burn::data::dataset::{Dataset, InMemDataset};
/// use burn::module::Module;
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::sampling::cached_features;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let device = Device::flex();
/// let backbone = LinearConfig::new(2, 8).init(&device); // pre-trained on public data
/// let dataset = InMemDataset::new(vec![([0.5f32, 1.0], 0usize), ([2.0, -1.0], 1)]);
/// let features = cached_features(
///     &dataset,
///     64,
///     |items| {
///         let values: Vec<f32> = items.iter().flat_map(|(x, _)| *x).collect();
///         let x = Tensor::<1>::from_floats(values.as_slice(), &device);
///         backbone.forward(x.reshape([items.len(), 2])).tanh()
///     },
///     |(_, class)| *class,
/// )?;
/// let (row, class) = features.get(1).expect("the data set is in memory");
/// assert_eq!((row.len(), class), (8, 1));
/// # Ok(())
/// # }
/// ```
pub fn cached_features<D, I, E, L>(
    dataset: &D,
    batch_size: usize,
    features: impl Fn(Vec<I>) -> Tensor<2>,
    label: impl Fn(&I) -> L,
) -> Result<InMemDataset<(Vec<f32>, L)>, DpError>
where
    D: DistinctRecords<I, E>,
    E: Error + Send + Sync + 'static,
    L: Clone + Send + Sync,
{
    let rows = cached_features_async(dataset, batch_size, features, label);
    blocking(rows, "cached_features_async")
}

/// Runs [`cached_features`] without blocking the thread, as browsers require.
///
/// # Errors
///
/// Returns the errors of [`cached_features`].
pub async fn cached_features_async<D, I, E, L>(
    dataset: &D,
    batch_size: usize,
    features: impl Fn(Vec<I>) -> Tensor<2>,
    label: impl Fn(&I) -> L,
) -> Result<InMemDataset<(Vec<f32>, L)>, DpError>
where
    D: DistinctRecords<I, E>,
    E: Error + Send + Sync + 'static,
    L: Clone + Send + Sync,
{
    at_least_one("batch_size", batch_size)?;
    let (units, mut rows) = (dataset.len(), Vec::with_capacity(dataset.len()));
    let load = |indices: Vec<usize>| dataset.get_many(indices).map_err(DpError::dataset);
    for start in (0..units).step_by(batch_size) {
        let items = load((start..units.min(start + batch_size)).collect())?;
        let labels: Vec<L> = items.iter().map(&label).collect();
        let read = read(features(items), labels.len()).await?;
        rows.extend(read.into_iter().zip(labels));
    }
    for (check, first) in (0..units).step_by(units.div_ceil(ALONE).max(1)).enumerate() {
        // Another row of the batch each time, beginning with the last one: a mixture along the
        // batch can leave the first row as it is.
        let start = first / batch_size * batch_size;
        let last = batch_size.min(units - start) - 1;
        let unit = start + last - check * last / ALONE;
        let alone = read(features(load(vec![unit])?), 1).await?.swap_remove(0);
        if differs(&rows[unit].0, &alone) {
            return Err(DpError::NotPerExample {
                reason: format!(
                    "the features of item {unit} are other values when they are computed alone, so \
                     they depend on the other items of a batch or on random values; mask padding, \
                     and compute them with `model.valid()`"
                ),
            });
        }
    }
    Ok(InMemDataset::new(rows))
}

/// Returns the rows on the host.
async fn read(features: Tensor<2>, items: usize) -> Result<Vec<Vec<f32>>, DpError> {
    let [rows, values] = features.dims();
    if rows != items {
        let reason = format!("expected one row of features for each of {items} items, got {rows}");
        return Err(DpError::NotPerExample { reason });
    }
    let data = read_f32(features, "the features").await?;
    Ok((0..rows).map(|row| data[row * values..(row + 1) * values].to_vec()).collect())
}

/// Returns whether two rows of one item differ by more than rounding.
fn differs(row: &[f32], alone: &[f32]) -> bool {
    let magnitude = row.iter().chain(alone).fold(0.0f32, |largest, value| largest.max(value.abs()));
    let same = |(a, b): (&f32, &f32)| {
        let close = magnitude.is_finite() && (a - b).abs() <= TOLERANCE * magnitude;
        close || a.to_bits() == b.to_bits()
    };
    row.len() != alone.len() || !row.iter().zip(alone).all(same)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::data::dataset::Dataset;
    use burn::nn::{DropoutConfig, LinearConfig};
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn an_infinite_feature_hides_no_other_difference() {
        let infinite = f32::INFINITY;
        assert!(differs(&[infinite, 1.0], &[infinite, 2.0]) && differs(&[infinite], &[1.0]));
        assert!(!differs(&[infinite, 1.0], &[infinite, 1.0]) && !differs(&[1.0], &[1.0 + 1e-7]));
    }

    #[test]
    fn differences_are_relative_to_the_largest_feature() {
        assert!(differs(&[1e-3], &[1.001e-3]) && !differs(&[1e3], &[1000.2]));
    }

    #[test]
    fn mixtures_that_leave_the_first_row_as_it_is_are_refused() {
        let items = |count: usize| InMemDataset::new((0..count).map(|i| i as f32 + 1.0).collect());
        let features = |items: Vec<f32>| {
            let column = Tensor::<1>::from_floats(items.as_slice(), &Device::flex());
            column.reshape([items.len(), 1]).cumsum(0)
        };
        for (count, size) in [(64, 4), (64, 64), (65_536, 64), (100, 33), (2, 2), (17, 16)] {
            let found = cached_features(&items(count), size, features, |_| ());
            let error = found.err().unwrap();
            assert!(error.to_string().contains("computed alone"), "{count} {size}: {error}");
        }
        assert_eq!(cached_features(&items(64), 1, features, |_| ()).unwrap().len(), 64);
    }

    #[test]
    fn the_items_that_are_compared_are_in_all_batches_and_several_rows() {
        let alone = std::cell::RefCell::new(Vec::new());
        let features = |items: Vec<f32>| {
            if let [item] = items[..] {
                alone.borrow_mut().push(item as usize);
            }
            let column = Tensor::<1>::from_floats(items.as_slice(), &Device::flex());
            column.reshape([items.len(), 1])
        };
        let items = InMemDataset::new((0..30).map(|item| item as f32).collect());
        cached_features(&items, 8, features, |_| ()).unwrap();
        let expected = [7, 7, 7, 6, 14, 13, 13, 12, 20, 20, 19, 19, 26, 25, 25];
        assert_eq!(alone.into_inner(), expected);
    }

    /// Texts of one to five numbers.
    fn texts(count: usize) -> InMemDataset<Vec<f32>> {
        let text = |unit: usize| (0..unit % 5 + 1).map(|at| (unit + at) as f32 * 0.1).collect();
        InMemDataset::new((0..count).map(text).collect())
    }

    /// The texts, padded with zeros to the longest of them.
    fn padded(texts: &[Vec<f32>]) -> Tensor<2> {
        let longest = texts.iter().map(Vec::len).max().unwrap();
        let row = |text: &Vec<f32>| {
            let mut row = text.clone();
            row.resize(longest, 0.0);
            row
        };
        let values: Vec<f32> = texts.iter().flat_map(row).collect();
        Tensor::<1>::from_floats(values.as_slice(), &Device::flex()).reshape([texts.len(), longest])
    }

    #[test]
    fn features_are_those_of_each_item_whatever_the_batch_size() {
        let layer = LinearConfig::new(1, 3).init(&Device::flex());
        let features = |texts: Vec<Vec<f32>>| layer.forward(padded(&texts).sum_dim(1));
        let of = |size| cached_features(&texts(23), size, features, Vec::len).unwrap();
        let expected = of(1);
        assert_eq!(expected.len(), 23);
        for size in [4, 23, 100] {
            let found = of(size);
            for unit in 0..23 {
                let ((row, label), (expected, _)) =
                    (found.get(unit).unwrap(), expected.get(unit).unwrap());
                assert_eq!(label, unit % 5 + 1);
                assert!(!differs(&row, &expected));
            }
        }
    }

    #[test]
    fn features_that_depend_on_their_batch_are_refused() {
        let dropout = DropoutConfig::new(0.5).init();
        let refused = |name: &str, features: &dyn Fn(Tensor<2>) -> Tensor<2>| {
            let features = |texts: Vec<Vec<f32>>| features(padded(&texts));
            let found = cached_features(&texts(23), 8, features, Vec::len);
            let error = found.map(drop).unwrap_err();
            assert!(matches!(error, DpError::NotPerExample { .. }), "{name}: {error}");
        };
        refused("the mean over the longest", &|x| x.mean_dim(1));
        refused("centered over the batch", &|x| x.clone().sum_dim(1) - x.sum_dim(1).mean_dim(0));
        refused("dropout", &|x| dropout.forward(x.sum_dim(1).repeat_dim(1, 64).autodiff()).inner());
        refused("not a number", &|x| {
            let rows = x.dims()[0];
            x.sum_dim(1).mul_scalar(if rows > 1 { f32::NAN } else { 1.0 })
        });
        refused("one row", &|x| x.sum_dim(1).narrow(0, 0, 1));
    }

    #[test]
    fn empty_data_sets_have_no_features_and_batches_have_items() {
        let features = |texts: Vec<Vec<f32>>| padded(&texts).sum_dim(1);
        assert_eq!(cached_features(&texts(0), 4, features, Vec::len).unwrap().len(), 0);
        let error = cached_features(&texts(2), 0, features, Vec::len).map(drop).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("batch_size must be at least 1, got 0"), "{error}");
    }
}
