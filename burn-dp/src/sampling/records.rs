//! Data sets with one record for each index.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use burn::data::dataset::transform::{PartialDataset, ShuffledDataset};
use burn::data::dataset::{Dataset, DatasetError, InMemDataset};
use burn_dp_accountant::UnitOfPrivacy;
use serde::{Deserialize, Serialize};

use super::example_choice::ExampleChoice;
use crate::DpError;

/// A data set whose index i is always record i, and whose records differ. Private loaders require
/// this trait.
///
/// A record under k indices enters a batch up to k times and moves the clipped sum by k times the
/// clipping threshold, for which there is no noise. Therefore the data sets of Burn that resample
/// or overlap ([`SamplerDataset`], [`ComposedDataset`], [`WindowsDataset`], [`SelectionDataset`])
/// do not implement the trait, nor does [`MapperDataset`], whose mapper may return anything, such
/// as earlier records. [`Distinct`](super::Distinct) makes them usable after a comparison of their
/// records, as it does for all other types:
///
/// ```compile_fail,E0277
/// # use burn::data::dataset::{InMemDataset, transform::SamplerDataset};
/// # use burn_dp::sampling::DistinctRecords;
/// # fn accept(_: impl DistinctRecords<u8>) {}
/// let records = InMemDataset::new(vec![1, 2, 3, 4]);
/// accept(SamplerDataset::with_replacement(records, 64));
/// ```
///
/// ```compile_fail,E0277
/// # use burn::data::dataset::{InMemDataset, transform::{Mapper, MapperDataset}};
/// # use burn_dp::sampling::DistinctRecords;
/// # fn accept(_: impl DistinctRecords<u8>) {}
/// # struct Negative;
/// # impl Mapper<u8, u8> for Negative {
/// #     fn map(&self, item: &u8) -> u8 {
/// #         !item
/// #     }
/// # }
/// let records = InMemDataset::new(vec![1, 2, 3, 4]);
/// accept(MapperDataset::new(records, Negative));
/// ```
///
/// [`SamplerDataset`]: burn::data::dataset::transform::SamplerDataset
/// [`ComposedDataset`]: burn::data::dataset::transform::ComposedDataset
/// [`WindowsDataset`]: burn::data::dataset::transform::WindowsDataset
/// [`SelectionDataset`]: burn::data::dataset::transform::SelectionDataset
/// [`MapperDataset`]: burn::data::dataset::transform::MapperDataset
///
/// # Privacy
///
/// An implementation declares that no two indices return the same record (in user-level training:
/// records of the same user), and that the records of an index never change. Augmentation belongs
/// in the batcher. Nothing verifies the declaration, not even at a few indices, because items need
/// not be comparable: a `get` that ignores its index is accepted. The privacy statement says that
/// nothing was compared. Test an implementation with [`Distinct::new`](super::Distinct::new) or
/// [`Distinct::by_key`](super::Distinct::by_key), which find such mistakes. The data sets of Burn
/// that implement the trait ([`InMemDataset`], [`PartialDataset`],
/// [`ShuffledDataset`]) return what they hold, or what a data set with the declaration returns.
///
/// # Example
///
/// ```
/// use burn::data::dataset::{Dataset, DatasetError};
/// use burn_dp::sampling::DistinctRecords;
///
/// struct Lines(Vec<String>);
///
/// impl Dataset<String> for Lines {
///     fn get(&self, index: usize) -> Result<String, DatasetError> {
///         Ok(self.0[index].clone())
///     }
///
///     fn len(&self) -> usize {
///         self.0.len()
///     }
/// }
///
/// /// Every line was written by another person.
/// impl DistinctRecords<String> for Lines {}
/// ```
#[diagnostic::on_unimplemented(
    message = "the records of `{Self}` are not known to be distinct",
    label = "wrap it, for example `Distinct::new(dataset)?`",
    note = "`Distinct::new` compares all records and `Distinct::by_key` their keys",
    note = "`Distinct::assume`, or an implementation of `DistinctRecords`, declares the difference"
)]
pub trait DistinctRecords<I, E = DatasetError>: Dataset<I, E>
where
    E: Error + Send + Sync + 'static,
{
    /// Returns the evidence that the records differ: a declaration, except for data sets of this
    /// crate that compare them. [`RecordIdentity::of`] returns it.
    #[doc(hidden)]
    fn identity(&self, seal: Seal) -> RecordIdentity {
        let _ = seal;
        RecordIdentity::Declared
    }

    /// Returns what one item is, or `None` if the type does not determine it. A plan for another
    /// unit rejects the data set.
    fn unit(&self) -> Option<UnitOfPrivacy> {
        None
    }

    /// Returns a digest of the division or selection of examples that the items follow, or `None`
    /// if there is none. A plan for another division or selection rejects the data set.
    fn members(&self) -> Option<String> {
        None
    }

    /// Returns a digest of what the records were compared by, in the order of the indices, or
    /// `None` if they were not compared. A run rejects data sets with another digest than the first
    /// one, also after it is resumed.
    ///
    /// # Privacy
    ///
    /// It is a function of the records. A checkpoint contains only a mark that depends on the key
    /// of the run.
    #[doc(hidden)]
    fn digest(&self, seal: Seal) -> Option<[u8; 32]> {
        let _ = seal;
        None
    }

    /// Checks that `record` is the record that `index` had when the records were compared.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if it is not.
    fn check_record(&self, index: usize, record: &I) -> Result<(), DpError> {
        let _ = (index, record);
        Ok(())
    }

    /// Returns the items of `indices` for one step. They are the items of
    /// [`get_many`](Dataset::get_many), except where a step uses only some examples of a unit,
    /// which `choice` determines; see [`UserDataset`](super::UserDataset).
    ///
    /// # Errors
    ///
    /// Returns the error of the data set if an item cannot be loaded.
    fn items_of_step(&self, indices: Vec<usize>, choice: &ExampleChoice) -> Result<Vec<I>, E> {
        let _ = choice;
        self.get_many(indices)
    }
}

/// An argument that cannot be named outside of this crate: only its own data sets say that they
/// compared records. One of a program could pass on the evidence of a data set that it changes.
///
/// ```compile_fail,E0050
/// # use burn::data::dataset::{Dataset, DatasetError, InMemDataset};
/// # use burn_dp::sampling::{DistinctRecords, RecordIdentity};
/// #
/// struct Repeated(InMemDataset<u8>);
/// # impl Dataset<u8> for Repeated {
/// #     fn get(&self, _: usize) -> Result<u8, DatasetError> {
/// #         self.0.get(0)
/// #     }
/// #     fn len(&self) -> usize {
/// #         self.0.len()
/// #     }
/// # }
///
/// impl DistinctRecords<u8> for Repeated {
///     fn identity(&self) -> RecordIdentity {
///         RecordIdentity::Compared
///     }
/// }
/// ```
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Seal;

/// The evidence that the units of a run are different records. The weakest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RecordIdentity {
    /// None: the loop loaded the units itself.
    NotChecked,
    /// The type of the data set declares it.
    Declared,
    /// All records, or their keys, were compared before the run, and again when they were loaded.
    Compared,
    /// The keys of all users were compared, each item has one user, and each user has one item.
    UsersCompared,
}

impl RecordIdentity {
    /// Returns the evidence that the records of `dataset` differ.
    pub fn of<I, E>(dataset: &impl DistinctRecords<I, E>) -> Self
    where
        E: Error + Send + Sync + 'static,
    {
        dataset.identity(Seal)
    }

    /// Returns what a guarantee for this unit does not cover.
    pub(crate) fn not_covered(self, unit: &UnitOfPrivacy) -> String {
        let sentence = match self {
            Self::NotChecked | Self::Declared => {
                "One record under several indices of the data set: the records were not compared."
            }
            Self::Compared => {
                "Records that overlap, or belong to one person, under several indices with \
                 different keys."
            }
            Self::UsersCompared => {
                return "A person with several user keys, who is several units. People who share a \
                        user key, for example a default for unknown users, are one unit and are \
                        not protected separately."
                    .into();
            }
        };
        match unit {
            UnitOfPrivacy::User => format!(
                "{sentence} One user could own several items: the users of the items were not \
                 compared."
            ),
            _ => sentence.into(),
        }
    }
}

impl fmt::Display for RecordIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotChecked => "not checked",
            Self::Declared => "declared by the type of the data set",
            Self::Compared => "all records compared",
            Self::UsersCompared => "all users compared",
        })
    }
}

/// What a data set states about its records.
#[derive(Clone)]
pub(crate) struct RecordFacts {
    pub(crate) identity: RecordIdentity,
    pub(crate) unit: Option<UnitOfPrivacy>,
    /// A digest of the division or selection of examples.
    pub(crate) members: Option<String>,
    pub(crate) digest: Option<[u8; 32]>,
}

impl RecordFacts {
    /// The facts of records that a loop loads itself.
    pub(crate) const UNKNOWN: Self =
        Self { identity: RecordIdentity::NotChecked, unit: None, members: None, digest: None };

    /// Returns the facts of the records of `dataset`.
    pub(crate) fn of<I, E>(dataset: &impl DistinctRecords<I, E>) -> Self
    where
        E: Error + Send + Sync + 'static,
    {
        let (identity, unit) = (dataset.identity(Seal), dataset.unit());
        Self { identity, unit, members: dataset.members(), digest: dataset.digest(Seal) }
    }
}

impl<I: Clone + Send + Sync> DistinctRecords<I> for InMemDataset<I> {}

/// A part of the records. A comparison that the whole data set made does not follow them, nor does
/// its unit: compare the records of the part with [`Distinct`](super::Distinct) instead.
impl<D, I, E> DistinctRecords<I, E> for PartialDataset<D, I>
where
    D: DistinctRecords<I, E>,
    I: Clone + Send + Sync,
    E: Error + Send + Sync + 'static,
{
}

/// A permutation of all records. A comparison that the data set made does not follow them, nor does
/// its unit: compare the permuted records with [`Distinct`](super::Distinct) instead.
impl<D, I> DistinctRecords<I> for ShuffledDataset<D, I>
where
    D: DistinctRecords<I>,
    I: Clone + Send + Sync,
{
}

/// A pointer to a data set has the records of the data set.
macro_rules! records_behind {
    ($($pointer:ident),+) => {$(
        impl<D, I, E> DistinctRecords<I, E> for $pointer<D>
        where
            D: DistinctRecords<I, E>,
            E: Error + Send + Sync + 'static,
        {
            fn identity(&self, seal: Seal) -> RecordIdentity {
                (**self).identity(seal)
            }

            fn unit(&self) -> Option<UnitOfPrivacy> {
                (**self).unit()
            }

            fn members(&self) -> Option<String> {
                (**self).members()
            }

            fn digest(&self, seal: Seal) -> Option<[u8; 32]> {
                (**self).digest(seal)
            }

            fn check_record(&self, index: usize, record: &I) -> Result<(), DpError> {
                (**self).check_record(index, record)
            }

            fn items_of_step(
                &self,
                indices: Vec<usize>,
                choice: &ExampleChoice,
            ) -> Result<Vec<I>, E> {
                (**self).items_of_step(indices, choice)
            }
        }
    )+};
}

records_behind!(Arc, Box);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sampling::Distinct;

    #[test]
    fn data_sets_of_compared_records_pass_their_digest_on() {
        let compared = || Distinct::<_, u8>::new(InMemDataset::new(vec![0, 1, 2, 3])).unwrap();
        let digest = compared().digest(Seal);
        assert!(digest.is_some());
        assert_eq!(Box::new(compared()).digest(Seal), digest);
        assert_eq!(Arc::new(compared()).digest(Seal), digest);
    }
}
