//! Users of a flat data set.

use std::collections::HashMap;
use std::error::Error;
use std::hash::Hash;

use burn::data::dataset::Dataset;
use burn_dp_accountant::UnitOfPrivacy;

use super::distinct::KeyDigest;
use super::example_choice::ExampleChoice;
use super::records::{DistinctRecords, RecordIdentity, Seal};
use crate::DpError;
use crate::error::at_least_one;

/// Returns whether a record belongs to a user.
type Owner<I> = dyn Fn(&I, usize) -> bool + Send + Sync;

/// The users of a flat data set in which each record has one owner: item i holds records of user
/// i.
///
/// The records of a user may be anywhere in the data set. For data in several shards, join the
/// shards with Burn's [`ComposedDataset`]: a user whose records are in several shards is one item.
///
/// [`ComposedDataset`]: burn::data::dataset::transform::ComposedDataset
///
/// # Privacy
///
/// The unit is the user: plan with
/// [`with_unit(UnitOfPrivacy::User)`](crate::optim::PrivacyPlanConfig::with_unit) and the number of
/// users. All that a user contributes is one item, whose gradient or update is clipped as a whole,
/// so that the number of their records does not change the guarantee. A limit on the number of
/// records bounds the cost of a user, and the choice of the records depends only on the key of the
/// run and the records of that user.
///
/// The keys are trusted: a person with two keys is two users, and people who share a key are one
/// user. The key of each record is compared again when it is loaded. Plans for another unit reject
/// the data set.
///
/// # Example
///
/// ```
/// use burn::data::dataset::{Dataset, InMemDataset, transform::ComposedDataset};
/// use burn_dp::sampling::UserDataset;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// #[derive(Clone)]
/// struct Message {
///     author: &'static str,
///     length: f32,
/// }
///
/// let message = |author, length| Message { author, length };
/// let shards = vec![
///     InMemDataset::new(vec![message("a", 1.0), message("b", 2.0), message("a", 3.0)]),
///     InMemDataset::new(vec![message("a", 4.0), message("c", 5.0)]),
/// ];
/// let users = UserDataset::by_key(ComposedDataset::new(shards), |message: &Message| {
///     message.author
/// })?;
/// assert_eq!(users.users(), 3);
/// let of_a: Vec<f32> = users.get(0).unwrap().iter().map(|message| message.length).collect();
/// assert_eq!(of_a, [1.0, 3.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub struct UserDataset<D, I> {
    dataset: D,
    /// The records of each user, ascending.
    records: Vec<Vec<usize>>,
    owner: Box<Owner<I>>,
    limit: Limit,
    /// Of the keys of all users in order.
    digest: [u8; 32],
}

/// How many records of a user are used.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    All,
    /// At most this many, chosen again in each step.
    InEachStep(usize),
    /// At most this many, the first in data set order.
    First(usize),
}

impl<D, I> UserDataset<D, I> {
    /// Groups the records by the user that `key` returns. Users are numbered by their first record.
    ///
    /// Every record is loaded once. The keys of all users stay in memory, along with 8 bytes per
    /// record.
    ///
    /// # Privacy
    ///
    /// Records with the same key are one unit: people who share a key are not protected
    /// separately. A default such as `user_id.unwrap_or(0)` makes all anonymous people one unit:
    /// leave such records out, or give each of them a separate key, which protects one record.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if there are no records, and [`DpError::Dataset`] if a
    /// record cannot be loaded.
    pub fn by_key<E, K>(
        dataset: D,
        key: impl Fn(&I) -> K + Send + Sync + 'static,
    ) -> Result<Self, DpError>
    where
        D: Dataset<I, E>,
        E: Error + Send + Sync + 'static,
        K: Eq + Hash + Send + Sync + 'static,
    {
        let (mut users, mut records) = (HashMap::new(), Vec::<Vec<usize>>::new());
        let mut digest = KeyDigest::default();
        for index in 0..dataset.len() {
            let record = dataset.get(index).map_err(DpError::dataset)?;
            let next = records.len();
            let user = *users.entry(key(&record)).or_insert_with_key(|key| {
                digest.add(key);
                next
            });
            if user == next {
                records.push(Vec::new());
            }
            records[user].push(index);
        }
        if records.is_empty() {
            return Err(DpError::invalid("dataset", "must have at least one record, got none"));
        }
        let owner = move |record: &I, user| users.get(&key(record)) == Some(&user);
        let (owner, digest) = (Box::new(owner), digest.into_bytes());
        Ok(Self { dataset, records, owner, limit: Limit::All, digest })
    }

    /// Uses at most `max_examples` records of a user in a step: a uniform subset, chosen again in
    /// each step with the key of the run.
    ///
    /// The loaders of the plan and [`FederatedTraining`](crate::optim::FederatedTraining) make the
    /// choice. [`Dataset::get`] does not belong to a step and returns all records, and so does a
    /// data set around this one, such as `PartialDataset`, `ShuffledDataset` or
    /// [`Distinct`](super::Distinct): there, use
    /// [`with_first_examples`](Self::with_first_examples).
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `max_examples` is 0.
    pub fn with_max_examples(self, max_examples: usize) -> Result<Self, DpError> {
        at_least_one("max_examples", max_examples)?;
        Ok(Self { limit: Limit::InEachStep(max_examples), ..self })
    }

    /// Uses the first `max_examples` records of a user, in the order of the data set, in every
    /// step.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `max_examples` is 0.
    pub fn with_first_examples(self, max_examples: usize) -> Result<Self, DpError> {
        at_least_one("max_examples", max_examples)?;
        Ok(Self { limit: Limit::First(max_examples), ..self })
    }

    /// Returns the number of users: the data set size of the plan.
    pub fn users(&self) -> usize {
        self.records.len()
    }

    /// Returns the records of a user outside any step.
    fn records(&self, user: usize) -> Vec<usize> {
        let records = &self.records[user];
        match self.limit {
            Limit::First(most) => records[..records.len().min(most)].to_vec(),
            Limit::All | Limit::InEachStep(_) => records.clone(),
        }
    }
}

impl<D, I, E> Dataset<Vec<I>, E> for UserDataset<D, I>
where
    D: Dataset<I, E>,
    E: Error + Send + Sync + 'static,
{
    fn get(&self, index: usize) -> Result<Vec<I>, E> {
        self.dataset.get_many(self.records(index))
    }

    fn len(&self) -> usize {
        self.users()
    }
}

impl<D, I, E> DistinctRecords<Vec<I>, E> for UserDataset<D, I>
where
    D: Dataset<I, E>,
    E: Error + Send + Sync + 'static,
{
    fn identity(&self, _: Seal) -> RecordIdentity {
        RecordIdentity::UsersCompared
    }

    fn unit(&self) -> Option<UnitOfPrivacy> {
        Some(UnitOfPrivacy::User)
    }

    fn digest(&self, _: Seal) -> Option<[u8; 32]> {
        Some(self.digest)
    }

    fn check_record(&self, user: usize, records: &Vec<I>) -> Result<(), DpError> {
        let most = match self.limit {
            Limit::All => usize::MAX,
            Limit::InEachStep(most) | Limit::First(most) => most,
        };
        let fault = match records.iter().all(|record| (self.owner)(record, user)) {
            true if records.len() <= most => return Ok(()),
            true => format!("{} records of a user instead of at most {most}", records.len()),
            false => "a record of another user than before".into(),
        };
        Err(DpError::invalid(
            "dataset",
            format!(
                "must return the same records for an index in every call, but item {user} has \
                 {fault}"
            ),
        ))
    }

    fn items_of_step(&self, users: Vec<usize>, choice: &ExampleChoice) -> Result<Vec<Vec<I>>, E> {
        let Limit::InEachStep(most) = self.limit else { return self.get_many(users) };
        let items = users.into_iter().map(|user| {
            let records = &self.records[user];
            let chosen = choice.of_unit(user, records.len(), most).into_iter();
            self.dataset.get_many(chosen.map(|position| records[position]).collect())
        });
        items.collect()
    }
}

opaque_debug!(UserDataset<D, I>, |this| users: this.users(), limit: this.limit);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicBool, Ordering};

    use burn::data::dataset::transform::ComposedDataset;
    use burn::data::dataset::{DatasetError, InMemDataset};

    use super::*;
    use crate::random::InsecureSeed;

    /// A user and a number.
    type Record = (u8, usize);

    fn flat(users: &[u8]) -> InMemDataset<Record> {
        InMemDataset::new(users.iter().copied().zip(0..).collect())
    }

    fn by_user<D: Dataset<Record>>(dataset: D) -> UserDataset<D, Record> {
        UserDataset::by_key(dataset, |record: &Record| record.0).unwrap()
    }

    fn numbers(records: &[Record]) -> Vec<usize> {
        records.iter().map(|record| record.1).collect()
    }

    fn choice(step: u64) -> ExampleChoice {
        ExampleChoice::new(&InsecureSeed(3).into(), step)
    }

    #[test]
    fn an_item_has_all_records_of_one_user_and_no_others() {
        let users = by_user(flat(&[7, 3, 7, 7, 3, 9]));
        assert_eq!((users.users(), Dataset::<Vec<Record>, _>::len(&users)), (3, 3));
        for (user, (key, expected)) in
            [(7, vec![0, 2, 3]), (3, vec![1, 4]), (9, vec![5])].into_iter().enumerate()
        {
            let records = users.get(user).unwrap();
            assert!(records.iter().all(|record| record.0 == key));
            assert_eq!(numbers(&records), expected);
            assert!(users.check_record(user, &records).is_ok());
        }
        assert_eq!(users.identity(Seal), RecordIdentity::UsersCompared);
        assert_eq!(users.unit(), Some(UnitOfPrivacy::User));
        assert!(UserDataset::by_key(flat(&[]), |record: &Record| record.0).is_err());
    }

    #[test]
    fn the_digest_follows_the_order_of_the_users_alone() {
        let digest = |users: &[u8]| by_user(flat(users)).digest(Seal);
        assert_eq!(digest(&[7, 3, 7, 9]), digest(&[7, 7, 3, 9]));
        assert_ne!(digest(&[7, 3, 7, 9]), digest(&[3, 7, 7, 9]));
        assert_ne!(digest(&[7, 3, 7, 9]), digest(&[7, 3, 7, 8]));
    }

    #[test]
    fn a_user_in_several_shards_is_one_item() {
        let shards = vec![flat(&[1, 2]), flat(&[2, 3]), flat(&[2])];
        let users = by_user(ComposedDataset::new(shards));
        assert_eq!(users.users(), 3);
        assert_eq!(users.get(1).unwrap(), [(2, 1), (2, 0), (2, 0)]);
    }

    #[test]
    fn a_step_uses_at_most_the_limit_and_other_steps_use_others() {
        let records: Vec<u8> = (0..60).map(|record| if record < 50 { 1 } else { 2 }).collect();
        let users = by_user(flat(&records)).with_max_examples(20).unwrap();
        let of = |step| users.items_of_step(vec![0, 1], &choice(step)).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for step in 0..30 {
            let items = of(step);
            assert_eq!((items[0].len(), items[1].len()), (20, 10));
            assert!(items[0].iter().all(|record| record.0 == 1));
            assert!(users.check_record(0, &items[0]).is_ok());
            seen.extend(numbers(&items[0]));
            assert_eq!(items, of(step));
        }
        assert_eq!(seen.len(), 50);
        assert_ne!(of(0)[0], of(1)[0]);
        // The choice belongs to the unit, not to its place in a batch.
        assert_eq!(users.items_of_step(vec![0], &choice(4)).unwrap()[0], of(4)[0]);
        let all = users.get(0).unwrap();
        assert!(users.check_record(0, &all).unwrap_err().to_string().contains("at most 20"));
        assert!(by_user(flat(&[1])).with_max_examples(0).is_err());
    }

    #[test]
    fn the_first_examples_are_the_same_in_every_step() {
        let users = by_user(flat(&[1, 2, 1, 1, 2])).with_first_examples(2).unwrap();
        for step in 0..5 {
            let items = users.items_of_step(vec![0, 1], &choice(step)).unwrap();
            assert_eq!(
                items.iter().map(|item| numbers(item)).collect::<Vec<_>>(),
                [[0, 2], [1, 4]]
            );
        }
        // They do not depend on the other users.
        let fewer = by_user(flat(&[2, 2, 2, 2, 2])).with_first_examples(2).unwrap();
        assert_eq!(fewer.get(0).unwrap().len(), 2);
        assert!(by_user(flat(&[1])).with_first_examples(0).is_err());
    }

    /// Assigns all records to another user once the flag is set.
    struct Drifting(AtomicBool);

    impl Dataset<Record> for Drifting {
        fn get(&self, index: usize) -> Result<Record, DatasetError> {
            Ok((if self.0.load(Ordering::Relaxed) { 2 } else { 1 + index as u8 % 2 }, index))
        }

        fn len(&self) -> usize {
            6
        }
    }

    #[test]
    fn a_record_that_moves_to_another_user_is_refused_when_loaded() {
        let users = by_user(Drifting(AtomicBool::new(false)));
        assert!(users.check_record(0, &users.get(0).unwrap()).is_ok());
        users.dataset.0.store(true, Ordering::Relaxed);
        let error = users.check_record(0, &users.get(0).unwrap()).unwrap_err().to_string();
        assert!(error.contains("item 0 has a record of another user"), "{error}");
    }
}
