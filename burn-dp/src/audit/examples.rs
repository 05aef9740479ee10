//! Canaries that are items of a data set: examples or users.

use burn::data::dataset::Dataset;
use burn_dp_accountant::UnitOfPrivacy;

use super::coins::CanaryCoins;
use crate::DpError;
use crate::random::{Domain, InsecureSeed, Stream, below};
use crate::sampling::{DistinctRecords, RecordIdentity, Seal};

/// A data set followed by the included canaries. An item is a unit: an example, or everything that
/// one user owns.
///
/// The plan needs its length. The length depends on the coins, and the attacker may use it. `Debug`
/// prints no item.
#[derive(Clone)]
pub struct CanaryDataset<D, I> {
    dataset: D,
    included: Vec<I>,
}

opaque_debug!(CanaryDataset<D, I>);

impl<D, I> CanaryDataset<D, I> {
    /// Creates the data set; `canaries[i]` is included if coin i says so.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless there is one coin for each canary.
    pub fn new(dataset: D, canaries: Vec<I>, coins: &CanaryCoins) -> Result<Self, DpError> {
        if canaries.len() != coins.len() {
            return Err(DpError::invalid(
                "canaries",
                format!("must be {}, one for each coin, got {}", coins.len(), canaries.len()),
            ));
        }
        let numbered = canaries.into_iter().enumerate();
        let included = numbered.filter(|(i, _)| coins.is_included(*i)).map(|(_, item)| item);
        Ok(Self { dataset, included: included.collect() })
    }
}

impl<D, I, E> Dataset<I, E> for CanaryDataset<D, I>
where
    D: Dataset<I, E>,
    I: Clone + Send + Sync,
    E: std::error::Error + Send + Sync + 'static,
{
    fn get(&self, index: usize) -> Result<I, E> {
        match index.checked_sub(self.dataset.len()) {
            Some(canary) => Ok(self.included[canary].clone()),
            None => self.dataset.get(index),
        }
    }

    fn len(&self) -> usize {
        self.dataset.len() + self.included.len()
    }
}

/// Canaries are created for the audit, so none of them is a record of the data set.
impl<D, I, E> DistinctRecords<I, E> for CanaryDataset<D, I>
where
    D: DistinctRecords<I, E>,
    I: Clone + Send + Sync,
    E: std::error::Error + Send + Sync + 'static,
{
    fn identity(&self, seal: Seal) -> RecordIdentity {
        self.dataset.identity(seal).min(RecordIdentity::Declared)
    }

    fn unit(&self) -> Option<UnitOfPrivacy> {
        self.dataset.unit()
    }

    fn members(&self) -> Option<String> {
        self.dataset.members()
    }

    fn check_record(&self, index: usize, record: &I) -> Result<(), DpError> {
        match index < self.dataset.len() {
            true => self.dataset.check_record(index, record),
            false => Ok(()),
        }
    }
}

/// Returns a wrong label for each label, uniform among the other classes: the labels of mislabeled
/// canaries, which a model can only memorize.
///
/// # Errors
///
/// Returns [`DpError::InvalidArgument`] if there is no other class, or a label is not a class.
pub fn wrong_labels(
    labels: &[usize],
    classes: usize,
    seed: InsecureSeed,
) -> Result<Vec<usize>, DpError> {
    if classes < 2 {
        return Err(DpError::invalid("classes", format!("must be at least 2, got {classes}")));
    }
    if let Some(label) = labels.iter().find(|&&label| label >= classes) {
        let reason = format!("must be less than the {classes} classes, got {label}");
        return Err(DpError::invalid("labels", reason));
    }
    let mut words = Stream::new(&seed.into(), Domain::Canaries, 1, 0).into_words();
    let others = classes as u64 - 1;
    let wrong = |&label: &usize| (label + 1 + below(&mut words, others) as usize) % classes;
    Ok(labels.iter().map(wrong).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::data::dataset::InMemDataset;

    use super::*;

    #[test]
    fn included_canaries_follow_the_items() {
        let coins = CanaryCoins::from_seed(40, InsecureSeed(5));
        let canaries: Vec<usize> = (100..140).collect();
        let dataset = CanaryDataset::new(InMemDataset::new(vec![7, 8]), canaries, &coins).unwrap();
        let items: Vec<usize> = (0..dataset.len()).map(|i| dataset.get(i).unwrap()).collect();
        let included = (0..40).filter(|&i| coins.is_included(i)).map(|i| 100 + i);
        assert_eq!(items, [7, 8].into_iter().chain(included).collect::<Vec<_>>());
        assert!(items.len() > 10 && items.len() < 34);
        assert_eq!(format!("{dataset:?}"), "CanaryDataset { .. }");
        assert!(CanaryDataset::new(InMemDataset::new(vec![7]), vec![1], &coins).is_err());
    }

    #[test]
    fn wrong_labels_are_never_right_and_reach_every_other_class() {
        let labels = vec![2; 200];
        let wrong = wrong_labels(&labels, 4, InsecureSeed(1)).unwrap();
        for class in 0..4 {
            assert_eq!(wrong.contains(&class), class != 2, "{class}");
        }
        assert!(wrong_labels(&[0], 1, InsecureSeed(1)).is_err());
        assert!(wrong_labels(&[4], 4, InsecureSeed(1)).is_err());
    }
}
