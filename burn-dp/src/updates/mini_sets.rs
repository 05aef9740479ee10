use std::fmt;

use burn::data::dataset::Dataset;
use burn_dp_accountant::{LedgerHeader, UnitOfPrivacy};
use serde::{Deserialize, Serialize};

use crate::DpError;
use crate::random::{Domain, InsecureSeed, Key, Stream, permutation};
use crate::sampling::{DistinctRecords, RecordIdentity, Seal};

/// A partition of a data set into mini-sets of fixed membership: the units of batch clipping.
///
/// A step draws k mini-sets and adds up their clipped updates; with s examples in each, it uses m =
/// s·k examples. With k = 1, this is batch clipping in the narrow sense; with s = 1, it is
/// individual clipping.
///
/// # Privacy
///
/// The membership is fixed before the training and may be public. It must not depend on the content
/// of the examples. The sensitivity of a step depends on how the mini-sets of neighboring data sets
/// differ:
///
/// | neighbors | what changes | sensitivity of the sum |
/// |---|---|---|
/// | one example replaced, N fixed | one mini-set is replaced | 2C |
/// | one mini-set added or removed | one more or one fewer mini-set | C |
/// | one example added or removed, s > 1 | N, from which the members of all mini-sets follow | no bound |
///
/// With fixed-size sampling the relation is replace-one, and the guarantee for a mini-set also
/// holds for an example. With Poisson sampling the relation is add-or-remove of a whole
/// **mini-set**, and the ledger records it: if one example is replaced, one mini-set is removed and
/// another one added, two steps of that relation. No guarantee covers that one example is added or
/// removed.
///
/// # References
///
/// Nguyen, Nguyen, Nguyen, van Dijk, Batch clipping and adaptive layerwise clipping for
/// differential private stochastic gradient descent, 2023, section 3.1.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenMiniSets")]
pub struct MiniSets {
    /// The examples; the members of a mini-set are contiguous.
    order: Vec<usize>,
    size: usize,
    /// A digest of the membership.
    #[serde(skip)]
    digest: String,
}

/// The serialized form, which is checked when it is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMiniSets {
    order: Vec<usize>,
    size: usize,
}

impl TryFrom<WrittenMiniSets> for MiniSets {
    type Error = DpError;

    /// An example in two mini-sets would contribute twice.
    fn try_from(written: WrittenMiniSets) -> Result<Self, DpError> {
        let mut sorted = written.order.clone();
        sorted.sort_unstable();
        match sorted.into_iter().eq(0..written.order.len()) {
            true => Self::of(written.order, written.size),
            false => Err(DpError::invalid("order", "must name each example exactly once")),
        }
    }
}

impl fmt::Debug for MiniSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MiniSets").field("len", &self.len()).field("size", &self.size).finish()
    }
}

impl MiniSets {
    /// Creates mini-sets of consecutive examples of the data set.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `1 <= size <= dataset_size`.
    pub fn consecutive(dataset_size: usize, size: usize) -> Result<Self, DpError> {
        Self::of((0..dataset_size).collect(), size)
    }

    /// Creates mini-sets from a random permutation that a public seed determines.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `1 <= size <= dataset_size`.
    pub fn shuffled(dataset_size: usize, size: usize, seed: u64) -> Result<Self, DpError> {
        Self::keyed(dataset_size, size, &InsecureSeed(seed).into())
    }

    /// Creates mini-sets from a random permutation that a key determines.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] unless `1 <= size <= dataset_size`.
    pub fn keyed(dataset_size: usize, size: usize, key: &Key) -> Result<Self, DpError> {
        let mut words = Stream::new(key, Domain::MiniSets, 0, 0).into_words();
        Self::of(permutation(&mut words, dataset_size), size)
    }

    fn of(order: Vec<usize>, size: usize) -> Result<Self, DpError> {
        if size == 0 || size > order.len() {
            return Err(DpError::invalid(
                "size",
                format!("must be from 1 to dataset_size = {}, got {size}", order.len()),
            ));
        }
        let mut hasher = blake3::Hasher::new();
        for &example in &order {
            hasher.update(&(example as u64).to_le_bytes());
        }
        let digest = hasher.finalize().to_hex()[..16].to_string();
        Ok(Self { order, size, digest })
    }

    /// Returns the number of mini-sets. The last one may be smaller than the others.
    pub fn len(&self) -> usize {
        self.order.len().div_ceil(self.size)
    }

    /// Returns `false`: a partition has at least one mini-set.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the number of examples in a mini-set.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of examples in all mini-sets.
    pub fn examples(&self) -> usize {
        self.order.len()
    }

    /// Returns the examples of a mini-set.
    ///
    /// # Panics
    ///
    /// Panics if `mini_set` is not below [`len`](Self::len).
    pub fn members(&self, mini_set: usize) -> &[usize] {
        let sets = self.len();
        assert!(mini_set < sets, "mini_set must be below {sets}, got {mini_set}");
        let first = mini_set * self.size;
        &self.order[first..self.order.len().min(first + self.size)]
    }

    /// Returns the data set whose items are the mini-sets of `dataset`. Only plans for mini-sets
    /// accept it.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `dataset` does not have the length of the partition.
    pub fn dataset<D, I, E>(&self, dataset: D) -> Result<MiniSetDataset<D>, DpError>
    where
        D: Dataset<I, E>,
        E: std::error::Error + Send + Sync + 'static,
    {
        if dataset.len() != self.examples() {
            return Err(DpError::invalid(
                "dataset",
                format!(
                    "must have the {} examples of the partition, got {}",
                    self.examples(),
                    dataset.len()
                ),
            ));
        }
        Ok(MiniSetDataset { dataset, sets: self.clone() })
    }

    /// Adds the facts that describe which examples the mini-sets consist of.
    pub(crate) fn describe(&self, header: LedgerHeader) -> LedgerHeader {
        header
            .with_fact("mini_set_size", self.size())
            .with_fact("examples", self.examples())
            .with_fact("mini_set_members", self.digest())
    }

    /// Returns digest and size, as a data set of the mini-sets states them.
    pub(crate) fn members_in_words(&self) -> String {
        format!("{} in sets of {}", self.digest, self.size)
    }

    /// Returns a digest of the membership, which checkpoints and data sets are compared by.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }
}

/// A data set of mini-sets: item i holds the examples of mini-set i.
#[derive(Clone, Debug)]
pub struct MiniSetDataset<D> {
    dataset: D,
    sets: MiniSets,
}

impl<D, I, E> Dataset<Vec<I>, E> for MiniSetDataset<D>
where
    D: Dataset<I, E>,
    E: std::error::Error + Send + Sync + 'static,
{
    fn get(&self, index: usize) -> Result<Vec<I>, E> {
        self.dataset.get_many(self.sets.members(index).to_vec())
    }

    fn len(&self) -> usize {
        self.sets.len()
    }
}

impl<D, I, E> DistinctRecords<Vec<I>, E> for MiniSetDataset<D>
where
    D: DistinctRecords<I, E>,
    E: std::error::Error + Send + Sync + 'static,
{
    fn identity(&self, seal: Seal) -> RecordIdentity {
        self.dataset.identity(seal)
    }

    fn unit(&self) -> Option<UnitOfPrivacy> {
        Some(UnitOfPrivacy::MiniSet)
    }

    fn members(&self) -> Option<String> {
        Some(self.sets.members_in_words())
    }

    fn digest(&self, seal: Seal) -> Option<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.dataset.digest(seal)?).update(self.sets.digest().as_bytes());
        Some(*hasher.finalize().as_bytes())
    }

    fn check_record(&self, index: usize, examples: &Vec<I>) -> Result<(), DpError> {
        let members = self.sets.members(index);
        if members.len() != examples.len() {
            return Err(DpError::invalid(
                "dataset",
                format!(
                    "returns {} records for the {} examples of mini-set {index}; return one for \
                     each index",
                    examples.len(),
                    members.len()
                ),
            ));
        }
        let mut members = members.iter().zip(examples);
        members.try_for_each(|(&example, record)| self.dataset.check_record(example, record))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use burn::data::dataset::InMemDataset;

    #[test]
    fn every_example_is_in_exactly_one_mini_set() {
        for sets in [MiniSets::consecutive(103, 10), MiniSets::shuffled(103, 10, 4)] {
            let sets = sets.unwrap();
            assert_eq!((sets.len(), sets.size(), sets.examples()), (11, 10, 103));
            let mut all: Vec<usize> = (0..11).flat_map(|set| sets.members(set).to_vec()).collect();
            assert_eq!((sets.members(0).len(), sets.members(10).len()), (10, 3));
            all.sort_unstable();
            assert_eq!(all, (0..103).collect::<Vec<_>>());
        }
    }

    #[test]
    fn membership_follows_from_the_seed() {
        let sets = MiniSets::shuffled(1000, 8, 1).unwrap();
        assert_eq!(sets, MiniSets::shuffled(1000, 8, 1).unwrap());
        assert_ne!(sets, MiniSets::shuffled(1000, 8, 2).unwrap());
        assert_ne!(sets.digest(), MiniSets::shuffled(1000, 8, 2).unwrap().digest());
        assert_ne!(sets.members(0), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn mini_sets_of_compared_examples_have_a_digest() {
        let examples = || InMemDataset::new((0..8).collect::<Vec<u8>>());
        let sets = MiniSets::consecutive(8, 2).unwrap();
        let compared = crate::sampling::Distinct::<_, u8>::new(examples()).unwrap();
        let compared = sets.dataset::<_, u8, _>(compared).unwrap();
        assert!(DistinctRecords::<Vec<u8>, _>::digest(&compared, Seal).is_some());
        let declared = sets.dataset::<_, u8, _>(examples()).unwrap();
        assert!(DistinctRecords::<Vec<u8>, _>::digest(&declared, Seal).is_none());
    }

    #[test]
    fn invalid_size_of_mini_sets_is_refused_by_name() {
        for size in [0, 11] {
            let error = MiniSets::consecutive(10, size).unwrap_err().to_string();
            assert!(error.contains("size must be from 1 to dataset_size = 10"), "{error}");
        }
    }

    #[test]
    fn items_of_the_data_set_are_the_mini_sets() {
        let examples = InMemDataset::new((100..110).collect::<Vec<usize>>());
        let sets = MiniSets::shuffled(10, 4, 0).unwrap();
        let dataset = sets.dataset::<_, usize, _>(examples).unwrap();
        assert_eq!(Dataset::<Vec<usize>, _>::len(&dataset), 3);
        for set in 0..3 {
            let expected: Vec<usize> = sets.members(set).iter().map(|i| i + 100).collect();
            assert_eq!(dataset.get(set).unwrap(), expected);
        }
        let short = InMemDataset::new(vec![1usize]);
        assert!(
            sets.dataset::<_, usize, _>(short)
                .map(|_| ())
                .unwrap_err()
                .to_string()
                .contains("10 examples")
        );
    }
}
