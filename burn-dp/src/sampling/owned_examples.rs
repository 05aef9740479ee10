//! Examples that belong to several users.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::hash::Hash;

use burn::data::dataset::Dataset;
use burn_dp_accountant::UnitOfPrivacy;

use super::example_choice::ExampleChoice;
use super::records::{DistinctRecords, RecordIdentity, Seal};
use crate::DpError;
use crate::error::at_least_one;
use crate::random::{Domain, InsecureSeed, Stream, permutation};

/// A selection of examples such that each user owns at most k of them, for data in which an example
/// belongs to several users: a message to its sender and its receivers, a photograph to all people
/// on it.
///
/// Examples are considered one after another, and selected if all of their owners have fewer than k
/// selected examples. They are considered in the order of the data set, or in an order that follows
/// from a public seed.
///
/// Plan with [`for_owned_examples`](crate::optim::PrivacyPlanConfig::for_owned_examples), and train
/// on [`dataset`](Self::dataset).
///
/// # Privacy
///
/// The selection depends only on the ownership graph: which example belongs to whom, without the
/// content of any example. Two data sets are neighbors if they have the same graph, and only the
/// content of the examples of one user differs. Both then have the same selection and differ in at
/// most k of its examples.
///
/// | k | unit of the guarantee | neighbors, under Poisson sampling |
/// |---|---|---|
/// | 1 | one user, with all examples that they own alone or with others | the selected example of the user contributes nothing |
/// | larger | one example | the example contributes nothing |
///
/// With a fixed-size sampler, the example is replaced by another one. For k larger than 1 a user is
/// a group of up to k units, unless the plan has
/// [`with_unit(UnitOfPrivacy::User)`](crate::optim::PrivacyPlanConfig::with_unit):
///
/// - Poisson sampling: the number of drawn examples of a user is binomial, and each step is
///   accounted for as the mixture of Gaussian releases of all of these numbers.
/// - Sampling with replacement: a draw is an example of the user with a probability of at most
///   1/⌊N/k⌋, so a step costs at most what it costs one of ⌊N/k⌋ examples.
/// - Shuffled epochs: by the triangle inequality, a run costs at most what it costs one example
///   with the noise divided by k, also with correlated noise.
///
/// The other samplers do not accept that unit.
///
/// Not covered: the graph itself. Who owns how many examples, with whom they share them, and
/// whether a user is present at all are treated as public, like the number of selected examples.
/// Adding or removing a user together with their examples would change the selection of other
/// examples, and no bound is given for that.
///
/// # Example
///
/// ```
/// use burn_dp::sampling::OwnedExamples;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// // The sender and the receiver of each message.
/// let owners = [vec!["a", "b"], vec!["b", "c"], vec!["c", "d"], vec!["a", "c"]];
/// let selection = OwnedExamples::in_order(owners, 1)?;
/// assert_eq!(selection.selected(), [0, 2]); // "b" and "c" already own one of the others
/// # Ok(())
/// # }
/// ```
///
/// # References
///
/// A. Ganesh et al., "It's My Data Too: Private ML for Datasets with Multi-User Training Examples",
/// 2025 (fixed-graph adjacency, greedy contribution bounding).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedExamples {
    /// Ascending.
    selected: Vec<usize>,
    examples: usize,
    users: usize,
    max_examples: usize,
}

impl OwnedExamples {
    /// Selects examples in the order of the data set.
    ///
    /// # Arguments
    ///
    /// - `owners`: the users who own each example, for all examples in order
    /// - `max_examples`: k, the largest number of selected examples of a user
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if there are no examples, if an example has no owner,
    /// or if `max_examples` is 0.
    pub fn in_order<K: Eq + Hash>(
        owners: impl IntoIterator<Item = Vec<K>>,
        max_examples: usize,
    ) -> Result<Self, DpError> {
        let graph = Graph::new(owners)?;
        let order = 0..graph.owners.len();
        graph.select(order, max_examples)
    }

    /// Selects examples in a random order that follows from a public seed.
    ///
    /// # Arguments
    ///
    /// - `owners` and `max_examples`: as in [`in_order`](Self::in_order)
    ///
    /// # Errors
    ///
    /// Returns the errors of [`in_order`](Self::in_order).
    pub fn shuffled<K: Eq + Hash>(
        owners: impl IntoIterator<Item = Vec<K>>,
        max_examples: usize,
        seed: u64,
    ) -> Result<Self, DpError> {
        let graph = Graph::new(owners)?;
        let stream = Stream::new(&InsecureSeed(seed).into(), Domain::Examples, 0, 0);
        let order = permutation(&mut stream.into_words(), graph.owners.len());
        graph.select(order, max_examples)
    }

    /// Returns the indices of the selected examples, ascending.
    pub fn selected(&self) -> &[usize] {
        &self.selected
    }

    /// Returns the number of selected examples: the data set size of the plan.
    pub fn len(&self) -> usize {
        self.selected.len()
    }

    /// Returns `false`: the first example of the order is always selected.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the number of users who own an example, selected or not.
    pub fn users(&self) -> usize {
        self.users
    }

    /// Returns k, the largest number of selected examples of a user.
    pub fn max_examples(&self) -> usize {
        self.max_examples
    }

    /// Returns a digest of the selection, which checkpoints and data sets are compared by.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        for &example in [self.examples].iter().chain(&self.selected) {
            hasher.update(&(example as u64).to_le_bytes());
        }
        let mut digest = [0; 8];
        hasher.finalize_xof().fill(&mut digest);
        u64::from_le_bytes(digest)
    }

    /// Returns the data set of the selected examples, after their owners were counted again: in a
    /// data set of another order, a user can own more of them. Each selected example is loaded
    /// once.
    ///
    /// # Arguments
    ///
    /// - `owners`: returns the users who own an example
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `dataset` does not have one item for each example
    /// whose owners were given, if a selected example has no owner, or if a user owns more than k
    /// of them, and [`DpError::Dataset`] if an example cannot be loaded.
    pub fn dataset<D, I, E, K>(
        &self,
        dataset: D,
        owners: impl Fn(&I) -> Vec<K>,
    ) -> Result<OwnedDataset<D>, DpError>
    where
        D: Dataset<I, E>,
        E: Error + Send + Sync + 'static,
        K: Eq + Hash,
    {
        let Self { selected, max_examples, .. } = self;
        let owned = OwnedDataset { is_compared: true, ..self.assume_dataset(dataset)? };
        let mut counts: HashMap<K, usize> = HashMap::new();
        for &example in selected {
            let users: HashSet<K> = owners(&owned.dataset.get(example).map_err(DpError::dataset)?)
                .into_iter()
                .collect();
            if users.is_empty() {
                return Err(of_nobody(example));
            }
            for user in users {
                let count = counts.entry(user).or_default();
                *count += 1;
                if *count > *max_examples {
                    return Err(DpError::invalid(
                        "dataset",
                        format!(
                            "must have at most {max_examples} selected examples of each user, but \
                             the owner of example {example} has more; give the examples in the \
                             order in which their owners were given"
                        ),
                    ));
                }
            }
        }
        Ok(owned)
    }

    /// Returns the data set of the selected examples and assumes that they have the owners that
    /// were given, for examples whose owners cannot be read from them. The privacy statement says
    /// that nothing was compared.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if `dataset` does not have one item for each example
    /// whose owners were given.
    pub fn assume_dataset<D, I, E>(&self, dataset: D) -> Result<OwnedDataset<D>, DpError>
    where
        D: Dataset<I, E>,
        E: Error + Send + Sync + 'static,
    {
        if dataset.len() != self.examples {
            return Err(DpError::invalid(
                "dataset",
                format!(
                    "must have the {} examples whose owners were given, got {}",
                    self.examples,
                    dataset.len()
                ),
            ));
        }
        let (selected, selection) = (self.selected.clone(), self.digest());
        Ok(OwnedDataset { dataset, selected, selection, is_compared: false })
    }
}

/// The users of each example, numbered by their first example.
struct Graph {
    owners: Vec<Vec<usize>>,
    users: usize,
}

impl Graph {
    fn new<K: Eq + Hash>(owners: impl IntoIterator<Item = Vec<K>>) -> Result<Self, DpError> {
        let mut numbers: HashMap<K, usize> = HashMap::new();
        let mut number = |user| {
            let next = numbers.len();
            *numbers.entry(user).or_insert(next)
        };
        let owners: Vec<Vec<usize>> = owners
            .into_iter()
            // A user who is named twice owns the example once.
            .map(|users| {
                users.into_iter().map(&mut number).collect::<HashSet<_>>().into_iter().collect()
            })
            .collect();
        if owners.is_empty() {
            return Err(DpError::invalid("owners", "must be given for at least one example"));
        }
        if let Some(example) = owners.iter().position(Vec::is_empty) {
            return Err(of_nobody(example));
        }
        Ok(Self { owners, users: numbers.len() })
    }

    fn select(
        self,
        order: impl IntoIterator<Item = usize>,
        max_examples: usize,
    ) -> Result<OwnedExamples, DpError> {
        at_least_one("max_examples", max_examples)?;
        let mut owned = vec![0; self.users];
        let mut selected = Vec::new();
        for example in order {
            let users = &self.owners[example];
            if users.iter().all(|&user| owned[user] < max_examples) {
                users.iter().for_each(|&user| owned[user] += 1);
                selected.push(example);
            }
        }
        selected.sort_unstable();
        let Self { owners, users } = self;
        Ok(OwnedExamples { selected, examples: owners.len(), users, max_examples })
    }
}

/// The error for an example that has no owner.
fn of_nobody(example: usize) -> DpError {
    DpError::invalid(
        "owners",
        format!(
            "must name at least one user for each example, but example {example} belongs to \
             nobody, and no guarantee would cover it; leave it out, or use it as public data"
        ),
    )
}

/// The selected examples of a data set; see [`OwnedExamples::dataset`]. An item is an example, also
/// where the unit of the plan is a user.
#[derive(Clone, Debug)]
pub struct OwnedDataset<D> {
    dataset: D,
    selected: Vec<usize>,
    /// A digest of the selection.
    selection: u64,
    /// Whether the owners of the selected examples were compared.
    is_compared: bool,
}

impl<D> OwnedDataset<D> {
    fn places(&self, indices: &[usize]) -> Vec<usize> {
        indices.iter().map(|&index| self.selected[index]).collect()
    }
}

impl<D, I, E> Dataset<I, E> for OwnedDataset<D>
where
    D: Dataset<I, E>,
    E: Error + Send + Sync + 'static,
{
    fn get(&self, index: usize) -> Result<I, E> {
        self.dataset.get(self.selected[index])
    }

    fn get_many(&self, indices: Vec<usize>) -> Result<Vec<I>, E> {
        self.dataset.get_many(self.places(&indices))
    }

    fn len(&self) -> usize {
        self.selected.len()
    }
}

impl<D, I, E> DistinctRecords<I, E> for OwnedDataset<D>
where
    D: DistinctRecords<I, E>,
    E: Error + Send + Sync + 'static,
{
    fn identity(&self, seal: Seal) -> RecordIdentity {
        self.dataset.identity(seal)
    }

    /// Owned examples are selected one by one, whatever the items of the inner data set are.
    fn unit(&self) -> Option<UnitOfPrivacy> {
        Some(UnitOfPrivacy::Example)
    }

    fn members(&self) -> Option<String> {
        Some(format!("{:016x}", self.selection))
    }

    fn digest(&self, seal: Seal) -> Option<[u8; 32]> {
        self.dataset.digest(seal).filter(|_| self.is_compared)
    }

    fn check_record(&self, index: usize, record: &I) -> Result<(), DpError> {
        self.dataset.check_record(self.selected[index], record)
    }

    fn items_of_step(&self, indices: Vec<usize>, choice: &ExampleChoice) -> Result<Vec<I>, E> {
        self.dataset.items_of_step(self.places(&indices), choice)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::data::dataset::InMemDataset;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::sampling::Distinct;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 200,
            rng_seed: RngSeed::Fixed(2),
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn no_user_owns_more_selected_examples_and_none_could_be_added(
            owners in prop::collection::vec(prop::collection::vec(0_u8..12, 1..4), 1..60),
            max_examples in 1_usize..5,
            seed in 0_u64..100,
        ) {
            for selection in [
                OwnedExamples::in_order(owners.clone(), max_examples).unwrap(),
                OwnedExamples::shuffled(owners.clone(), max_examples, seed).unwrap(),
            ] {
                let owns = |user: u8| {
                    let of_user = |example: &&usize| owners[**example].contains(&user);
                    selection.selected().iter().filter(of_user).count()
                };
                prop_assert!((0..12).all(|user| owns(user) <= max_examples));
                prop_assert!(selection.selected().is_sorted_by(|a, b| a < b));
                for example in (0..owners.len()).filter(|e| !selection.selected().contains(e)) {
                    prop_assert!(owners[example].iter().any(|&user| owns(user) == max_examples));
                }
            }
        }
    }

    #[test]
    fn the_selection_follows_from_the_owners_alone() {
        let owners: Vec<Vec<usize>> = (0..300).map(|i| vec![i % 37, (i * i) % 41]).collect();
        let shuffled = |seed| OwnedExamples::shuffled(owners.clone(), 2, seed).unwrap();
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1).selected(), shuffled(2).selected());
        let users: HashSet<usize> = owners.concat().into_iter().collect();
        assert_eq!((shuffled(1).users(), shuffled(1).max_examples()), (users.len(), 2));
        // Renaming a user, or naming one twice, changes nothing.
        let renamed = owners.iter().map(|users| {
            users.iter().chain(users).map(|user| format!("user {user}")).collect::<Vec<_>>()
        });
        assert_eq!(OwnedExamples::shuffled(renamed, 2, 1).unwrap(), shuffled(1));
    }

    #[test]
    fn items_are_the_selected_examples() {
        let owners = [vec![1, 2], vec![2, 3], vec![3, 4], vec![5]];
        let selection = OwnedExamples::in_order(owners.clone(), 1).unwrap();
        let examples = InMemDataset::new(vec![10, 11, 12, 13]);
        let of_example = |example: &i32| owners[*example as usize - 10].clone();
        let dataset = selection.dataset(examples, of_example).unwrap();
        assert_eq!(dataset.get_many(vec![0, 1, 2]).unwrap(), [10, 12, 13]);
        assert_eq!(Dataset::<i32, _>::len(&dataset), selection.len());
        assert!(!selection.is_empty());
        assert_eq!(DistinctRecords::<i32, _>::unit(&dataset), Some(UnitOfPrivacy::Example));
        let short = InMemDataset::new(vec![10]);
        let error = selection.dataset(short, of_example).map(drop).unwrap_err().to_string();
        assert!(error.contains("4 examples"), "{error}");
    }

    #[test]
    fn a_data_set_in_another_order_than_the_owners_is_refused() {
        // Examples of two owners each.
        let owners = |example: &u8| vec![example / 2, 100 + example / 3];
        let selection = OwnedExamples::in_order((0..6).map(|i| owners(&i)), 1).unwrap();
        assert_eq!(selection.selected(), [0, 3]);
        let dataset = |examples: Vec<u8>| {
            let dataset = selection.dataset(InMemDataset::new(examples), owners);
            dataset.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(dataset(vec![0, 1, 2, 3, 4, 5]), Ok(()));
        let error = dataset(vec![0, 5, 4, 1, 2, 3]).unwrap_err();
        assert!(error.contains("owner of example 3 has more"), "{error}");
        let examples = InMemDataset::new(vec![0_u8; 6]);
        let nobody = selection.dataset(examples, |_: &u8| Vec::<u8>::new()).map(drop);
        assert!(nobody.unwrap_err().to_string().contains("example 0 belongs to nobody"));
        // Without a comparison, the order of the records is not compared either.
        let keyed = || Distinct::by_key(InMemDataset::new((0..6).collect()), u8::clone).unwrap();
        let compared = selection.dataset(keyed(), owners).unwrap();
        assert!(DistinctRecords::<u8, _>::digest(&compared, Seal).is_some());
        assert!(compared.check_record(1, &3).is_ok() && compared.check_record(1, &1).is_err());
        let assumed = selection.assume_dataset::<_, u8, _>(keyed()).unwrap();
        assert!(DistinctRecords::<u8, _>::digest(&assumed, Seal).is_none());
    }

    #[test]
    fn an_example_without_owner_is_refused_by_its_index() {
        let error = OwnedExamples::in_order([vec![1], vec![]], 1).unwrap_err().to_string();
        assert!(error.contains("example 1 belongs to nobody"), "{error}");
        assert!(OwnedExamples::in_order(Vec::<Vec<u8>>::new(), 1).is_err());
        let error = OwnedExamples::in_order([vec![1]], 0).unwrap_err().to_string();
        assert!(error.contains("max_examples"), "{error}");
    }
}
