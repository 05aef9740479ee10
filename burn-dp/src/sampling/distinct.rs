//! Comparison of the records of a data set.

use std::collections::HashMap;
use std::error::Error;
use std::hash::{Hash, Hasher};
use std::io::Write;

use burn::data::dataset::Dataset;
use burn_dp_accountant::UnitOfPrivacy;
use serde::Serialize;

use super::records::{DistinctRecords, RecordIdentity, Seal};
use crate::DpError;

/// Number of records that are loaded a second time before the run, evenly spread.
const LOADED_TWICE: usize = 1_000;

/// Checks the record at an index.
type Check<I> = dyn Fn(usize, &I) -> Result<(), DpError> + Send + Sync;

/// A data set whose records were compared, or are assumed to differ.
///
/// # Privacy
///
/// A comparison finds a record that several indices return, and an index that returns different
/// records: samplers with replacement, repeated or overlapping parts, an index that is ignored. It
/// runs before the run starts, and each record that is loaded later must still have the same key.
/// It cannot find records of one person that have different keys.
///
/// A run also compares the order of the keys when it is resumed; see
/// [`digest`](DistinctRecords::digest). Keys that depend on the process, such as addresses, cannot
/// be compared.
///
/// # Example
///
/// ```
/// use burn::data::dataset::{InMemDataset, transform::ComposedDataset};
/// use burn_dp::sampling::Distinct;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// #[derive(Clone)]
/// struct Patient {
///     number: u64,
///     age: f32,
/// }
///
/// let ward = |numbers: std::ops::Range<u64>| {
///     InMemDataset::new(numbers.map(|number| Patient { number, age: 50.0 }).collect())
/// };
/// let apart = ComposedDataset::new(vec![ward(0..50), ward(50..80)]);
/// assert!(Distinct::by_key(apart, |patient: &Patient| patient.number).is_ok());
///
/// let overlapping = ComposedDataset::new(vec![ward(0..50), ward(40..80)]);
/// let error = Distinct::by_key(overlapping, |patient: &Patient| patient.number).unwrap_err();
/// assert!(error.to_string().contains("items 40 and 50"), "{error}");
/// # Ok(())
/// # }
/// ```
pub struct Distinct<D, I> {
    dataset: D,
    /// `None` if the records were not compared.
    check: Option<Box<Check<I>>>,
    /// Of all keys in order.
    digest: Option<[u8; 32]>,
    /// Whether the keys are users.
    by_user: bool,
}

impl<D, I> Distinct<D, I> {
    /// Compares the serialized records. Use [`by_key`](Self::by_key) if different people can have
    /// equal records.
    ///
    /// Every record is loaded once, and up to 1,000 of them twice. This takes 32 bytes of memory
    /// per record.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if two records are equal, if an index returns two
    /// different records, or if a record cannot be serialized, and [`DpError::Dataset`] if a record
    /// cannot be loaded.
    pub fn new<E>(dataset: D) -> Result<Self, DpError>
    where
        D: Dataset<I, E>,
        I: Serialize + 'static,
        E: Error + Send + Sync + 'static,
    {
        Self::compare(dataset, digest)
    }

    /// Compares the keys of the records, for example the numbers of patients.
    ///
    /// Every record is loaded once, and up to 1,000 of them twice. All keys stay in memory.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if two records have the same key, or if an index
    /// returns two different keys, and [`DpError::Dataset`] if a record cannot be loaded.
    pub fn by_key<E, K>(
        dataset: D,
        key: impl Fn(&I) -> K + Send + Sync + 'static,
    ) -> Result<Self, DpError>
    where
        D: Dataset<I, E>,
        E: Error + Send + Sync + 'static,
        K: Eq + Hash + Send + Sync + 'static,
    {
        Self::compare(dataset, move |record| Ok(key(record)))
    }

    /// Assumes that the records differ, for types of Burn and of other crates that do not implement
    /// [`DistinctRecords`]. Nothing is compared, not even two calls for one index, and the privacy
    /// statement says so.
    pub fn assume(dataset: D) -> Self {
        Self { dataset, check: None, digest: None, by_user: false }
    }

    fn compare<E, K>(
        dataset: D,
        key: impl Fn(&I) -> Result<K, DpError> + Send + Sync + 'static,
    ) -> Result<Self, DpError>
    where
        D: Dataset<I, E>,
        E: Error + Send + Sync + 'static,
        K: Eq + Hash + Send + Sync + 'static,
    {
        let len = dataset.len();
        let (mut indices, mut digest) = (HashMap::with_capacity(len), KeyDigest::default());
        for index in 0..len {
            let record = dataset.get(index).map_err(DpError::dataset)?;
            let found = key(&record)?;
            digest.add(&found);
            if let Some(first) = indices.insert(found, index) {
                return Err(repeated(first, index));
            }
        }
        let check = move |index, record: &I| match indices.get(&key(record)?) {
            Some(&found) if found == index => Ok(()),
            _ => Err(changed(index)),
        };
        load_again(&dataset, &check)?;
        let digest = Some(digest.into_bytes());
        Ok(Self { dataset, check: Some(Box::new(check)), digest, by_user: false })
    }
}

impl<D, J> Distinct<D, Vec<J>> {
    /// Compares the users of the examples in each item: the data set of a user-level training, in
    /// which an item is all that one user owns. Items may be empty. Only plans for users accept it.
    ///
    /// Every item is loaded once, and up to 1,000 of them twice. The keys of all users stay in
    /// memory.
    ///
    /// # Arguments
    ///
    /// - `user`: returns what identifies the user of an example
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if examples of one user are in two items, or examples
    /// of two users in one, and [`DpError::Dataset`] if an item cannot be loaded.
    pub fn by_user<E, K>(
        dataset: D,
        user: impl Fn(&J) -> K + Send + Sync + 'static,
    ) -> Result<Self, DpError>
    where
        D: Dataset<Vec<J>, E>,
        E: Error + Send + Sync + 'static,
        K: Eq + Hash + Send + Sync + 'static,
    {
        let mut items: HashMap<K, usize> = HashMap::new();
        let mut digest = KeyDigest::default();
        for index in 0..dataset.len() {
            let examples = dataset.get(index).map_err(DpError::dataset)?;
            let first = examples.first().map(&user);
            digest.add(&first);
            let Some(first) = first else { continue };
            if examples.iter().any(|example| user(example) != first) {
                return Err(DpError::invalid(
                    "dataset",
                    format!(
                        "must hold one user in each item, but item {index} holds examples of \
                         several"
                    ),
                ));
            }
            if let Some(other) = items.insert(first, index) {
                return Err(DpError::invalid(
                    "dataset",
                    format!(
                        "must hold all examples of a user in one item, but items {other} and \
                         {index} hold examples of the same user; merge them"
                    ),
                ));
            }
        }
        let check = move |index, examples: &Vec<J>| {
            let same = |example| items.get(&user(example)) == Some(&index);
            if examples.iter().all(same) { Ok(()) } else { Err(changed(index)) }
        };
        load_again(&dataset, &check)?;
        let digest = Some(digest.into_bytes());
        Ok(Self { dataset, check: Some(Box::new(check)), digest, by_user: true })
    }
}

impl<D, I, E> Dataset<I, E> for Distinct<D, I>
where
    D: Dataset<I, E>,
    E: Error + Send + Sync + 'static,
{
    fn get(&self, index: usize) -> Result<I, E> {
        self.dataset.get(index)
    }

    fn get_many(&self, indexes: Vec<usize>) -> Result<Vec<I>, E> {
        self.dataset.get_many(indexes)
    }

    fn len(&self) -> usize {
        self.dataset.len()
    }
}

impl<D, I, E> DistinctRecords<I, E> for Distinct<D, I>
where
    D: Dataset<I, E>,
    E: Error + Send + Sync + 'static,
{
    fn identity(&self, _: Seal) -> RecordIdentity {
        match self.check {
            Some(_) if self.by_user => RecordIdentity::UsersCompared,
            Some(_) => RecordIdentity::Compared,
            None => RecordIdentity::Declared,
        }
    }

    fn unit(&self) -> Option<UnitOfPrivacy> {
        self.by_user.then_some(UnitOfPrivacy::User)
    }

    fn digest(&self, _: Seal) -> Option<[u8; 32]> {
        self.digest
    }

    fn check_record(&self, index: usize, record: &I) -> Result<(), DpError> {
        self.check.as_ref().map_or(Ok(()), |check| check(index, record))
    }
}

opaque_debug!(Distinct<D, I>, |this| compared: this.check.is_some());

/// Loads some records again in reverse order: a data set that counts its calls then returns other
/// records.
fn load_again<I, E>(
    dataset: &impl Dataset<I, E>,
    check: &impl Fn(usize, &I) -> Result<(), DpError>,
) -> Result<(), DpError>
where
    E: Error + Send + Sync + 'static,
{
    let len = dataset.len();
    let indices = (0..len).rev().step_by(len.div_ceil(LOADED_TWICE).max(1));
    indices
        .into_iter()
        .try_for_each(|index| check(index, &dataset.get(index).map_err(DpError::dataset)?))
}

fn repeated(first: usize, second: usize) -> DpError {
    DpError::invalid(
        "dataset",
        format!(
            "must return another record at every index, but items {first} and {second} are the \
             same, and a record that is drawn twice is not covered by the noise; remove the \
             repetition, or compare by a key that differs between people (`Distinct::by_key`)"
        ),
    )
}

fn changed(index: usize) -> DpError {
    DpError::invalid(
        "dataset",
        format!(
            "must return the same record for an index in every call, but item {index} changed; \
             leave sampling to the plan and augment in the batcher"
        ),
    )
}

/// A digest of keys in order.
#[derive(Default)]
pub(super) struct KeyDigest(blake3::Hasher);

impl KeyDigest {
    pub(super) fn add(&mut self, key: &impl Hash) {
        key.hash(self);
    }

    pub(super) fn into_bytes(self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

impl Hasher for KeyDigest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let mut hash = [0; 8];
        self.0.finalize_xof().fill(&mut hash);
        u64::from_le_bytes(hash)
    }
}

/// Returns a digest of the serialized record.
fn digest<I: Serialize>(record: &I) -> Result<[u8; 32], DpError> {
    struct Digest(blake3::Hasher);
    impl Write for Digest {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut digest = Digest(blake3::Hasher::new());
    serde_json::to_writer(&mut digest, record).map_err(|error| {
        let reason = format!("has a record that cannot be compared ({error}); use `by_key`");
        DpError::invalid("dataset", reason)
    })?;
    Ok(*digest.0.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use burn::data::dataset::transform::{
        ComposedDataset, SamplerDataset, SelectionDataset, WindowsDataset,
    };
    use burn::data::dataset::{DatasetError, InMemDataset};

    use super::*;

    /// 64 items; the function returns the record at an index.
    struct Items<F>(F);

    impl<F: Fn(usize) -> u32 + Send + Sync> Dataset<u32> for Items<F> {
        fn get(&self, index: usize) -> Result<u32, DatasetError> {
            Ok((self.0)(index))
        }

        fn len(&self) -> usize {
            64
        }
    }

    /// Returns the errors of both comparisons.
    fn refused<D: Dataset<u32>>(dataset: impl Fn() -> D) -> Vec<String> {
        let by_key = Distinct::by_key(dataset(), |record: &u32| *record);
        [Distinct::new(dataset()), by_key].map(|found| found.unwrap_err().to_string()).into()
    }

    fn records(range: std::ops::Range<u32>) -> InMemDataset<u32> {
        InMemDataset::new(range.collect())
    }

    // Moved the clipped sum of 64 units by 64 times the threshold before there was a comparison.
    #[test]
    fn an_index_that_is_ignored_is_refused() {
        for error in refused(|| Items(|_| 0)) {
            assert!(error.contains("items 0 and 1 are the same"), "{error}");
        }
    }

    // Moved the clipped sum by 15 times the threshold.
    #[test]
    fn four_records_stretched_to_64_items_are_refused() {
        for error in refused(|| Items(|index| index as u32 / 16)) {
            assert!(error.contains("items 0 and 1 are the same"), "{error}");
        }
        for error in refused(|| InMemDataset::new([7, 8, 9, 10].repeat(16))) {
            assert!(error.contains("items 0 and 4 are the same"), "{error}");
        }
    }

    // Moved the clipped sum by up to 4 times the threshold.
    #[test]
    fn samplers_of_burn_are_refused() {
        for error in refused(|| SamplerDataset::with_replacement(records(0..64), 64)) {
            assert!(error.contains("are the same"), "{error}");
        }
        // Once every 64 calls, in another order in each round.
        for error in refused(|| SamplerDataset::without_replacement(records(0..64), 64)) {
            assert!(error.contains("changed"), "{error}");
        }
        for error in refused(|| SamplerDataset::without_replacement(records(0..64), 65)) {
            assert!(error.contains("are the same"), "{error}");
        }
    }

    #[test]
    fn overlapping_parts_and_selections_are_refused_and_others_accepted() {
        let composed = |second| ComposedDataset::new(vec![records(0..40), records(second..80)]);
        for error in refused(|| composed(39)) {
            assert!(error.contains("items 39 and 40"), "{error}");
        }
        assert!(Distinct::<_, u32>::new(composed(40)).is_ok());
        let selected =
            |last| SelectionDataset::from_indices_checked(records(0..9), vec![8, 0, last]);
        for error in refused(|| selected(8)) {
            assert!(error.contains("items 0 and 2"), "{error}");
        }
        assert!(Distinct::<_, u32>::new(selected(5)).is_ok());
    }

    // Windows overlap: their contents differ, and each record is in several. They are accepted only
    // with a declaration.
    #[test]
    fn windows_with_the_key_of_a_user_are_refused() {
        let windows = WindowsDataset::<_, u32>::new(records(0..9), 3);
        let error = Distinct::by_user(windows, |record: &u32| *record).unwrap_err().to_string();
        assert!(error.contains("item 0 holds examples of several"), "{error}");
    }

    #[test]
    fn an_index_that_changes_is_refused_before_and_during_the_run() {
        let drifting = |from: usize| {
            let calls = AtomicUsize::new(0);
            Items(move |index| {
                let late = calls.fetch_add(1, Ordering::Relaxed) >= from;
                index as u32 + if late { 64 } else { 0 }
            })
        };
        for error in refused(|| drifting(64)) {
            assert!(error.contains("item 63 changed"), "{error}");
        }
        let late = Distinct::new(drifting(128)).unwrap();
        let record = late.get(5).unwrap();
        let error = late.check_record(5, &record).unwrap_err().to_string();
        assert!(error.contains("item 5 changed"), "{error}");
        assert!(late.check_record(5, &5).is_ok());
        assert!(late.check_record(5, &6).is_err());
    }

    #[test]
    fn users_in_several_items_and_several_users_in_an_item_are_refused() {
        type Example = (&'static str, u8);
        let users = |items: &[&[Example]]| {
            let items = InMemDataset::new(items.iter().map(|item| item.to_vec()).collect());
            Distinct::by_user(items, |example: &Example| example.0)
        };
        let compared = users(&[&[("a", 1), ("a", 2)], &[], &[("b", 1)], &[]]).unwrap();
        assert_eq!(compared.identity(Seal), RecordIdentity::UsersCompared);
        assert_eq!(compared.unit(), Some(UnitOfPrivacy::User));
        let error = users(&[&[("a", 1)], &[("b", 1)], &[("a", 2)]]).unwrap_err().to_string();
        assert!(error.contains("items 0 and 2 hold examples of the same user"), "{error}");
        let error = users(&[&[("a", 1)], &[("b", 1), ("c", 1)]]).unwrap_err().to_string();
        assert!(error.contains("item 1 holds examples of several"), "{error}");
    }

    #[test]
    fn the_digest_follows_the_order_of_the_keys() {
        let by_key = |records: Vec<u32>| {
            let records = Distinct::by_key(InMemDataset::new(records), |record: &u32| *record);
            records.unwrap().digest(Seal)
        };
        let digest = by_key(vec![3, 1, 2]);
        assert!(digest.is_some() && digest == by_key(vec![3, 1, 2]));
        assert_ne!(digest, by_key(vec![3, 2, 1]));
        let serialized = |records: Vec<u32>| {
            Distinct::<_, u32>::new(InMemDataset::new(records)).unwrap().digest(Seal)
        };
        assert_eq!(serialized(vec![3, 1]), serialized(vec![3, 1]));
        assert_ne!(serialized(vec![3, 1]), serialized(vec![1, 3]));
        let by_user = |users: [&[u8]; 3]| {
            let items = InMemDataset::new(users.map(<[u8]>::to_vec).to_vec());
            Distinct::by_user(items, |user: &u8| *user).unwrap().digest(Seal)
        };
        // A user without examples keeps their place.
        assert_eq!(by_user([&[1], &[], &[2]]), by_user([&[1, 1], &[], &[2]]));
        assert_ne!(by_user([&[1], &[], &[2]]), by_user([&[], &[1], &[2]]));
        assert_eq!(Distinct::<_, u32>::assume(records(0..9)).digest(Seal), None);
        assert_eq!(records(0..9).digest(Seal), None);
    }

    #[test]
    fn an_assumption_is_stated_as_one() {
        let assumed = Distinct::assume(Items(|_| 0));
        assert_eq!(assumed.identity(Seal), RecordIdentity::Declared);
        let compared = Distinct::<_, u32>::new(records(0..9)).unwrap();
        assert_eq!(compared.identity(Seal), RecordIdentity::Compared);
        assert_eq!(compared.get_many(vec![3, 1]).unwrap(), [3, 1]);
        assert_eq!(records(0..9).identity(Seal), RecordIdentity::Declared);
    }
}
