//! The samplers, and the options and relations of each.

use burn_dp_accountant::{AccountantError, NeighboringRelation};
use clap::ValueEnum;

use crate::output::invalid;

/// How the units of a step are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sampler {
    /// Each unit independently with the same probability.
    Poisson,
    /// Poisson, cut uniformly at random to a largest batch size.
    TruncatedPoisson,
    /// Poisson from one of several fixed parts of the data, in turn.
    CyclicPoisson,
    /// Each unit in exactly one step (or several) of an epoch, chosen uniformly.
    BallsInBins,
    /// Each unit in exactly one step of an epoch, chosen uniformly again in each epoch.
    RandomAllocation,
    /// Poisson, with a pause after each step of a unit.
    MinSeparation,
    /// Parts of a permutation: each unit once in each epoch, without amplification.
    Shuffled,
    /// As shuffled, with one permutation for all epochs: the steps of a unit are an epoch apart.
    ShuffledOnce,
    /// A uniformly random batch of a fixed size.
    FixedSize,
    /// A fixed number of independent uniform draws.
    WithReplacement,
}

/// The neighboring relation, as an option.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Relation {
    /// One unit is added or removed.
    AddOrRemoveOne,
    /// One unit is replaced by another; the noise multiplier stays relative to one threshold.
    ReplaceOne,
    /// One unit is replaced by a unit that contributes nothing.
    ReplaceSpecial,
}

impl From<Relation> for NeighboringRelation {
    fn from(relation: Relation) -> Self {
        match relation {
            Relation::AddOrRemoveOne => Self::AddOrRemoveOne,
            Relation::ReplaceOne => Self::ReplaceOne,
            Relation::ReplaceSpecial => Self::ReplaceSpecial,
        }
    }
}

impl Sampler {
    /// Returns the relation that the sampler has in training: units are added or removed where the
    /// draws of one unit do not depend on the others, and replaced otherwise.
    pub(crate) fn relation(self, given: Option<Relation>) -> Result<Relation, AccountantError> {
        let fixed = matches!(
            self,
            Self::FixedSize | Self::WithReplacement | Self::Shuffled | Self::ShuffledOnce
        );
        let shuffled = matches!(self, Self::Shuffled | Self::ShuffledOnce);
        match given {
            Some(Relation::AddOrRemoveOne) if shuffled => Err(invalid(
                "--relation",
                "must be replace-one or replace-special for shuffled epochs: a unit that is added \
                 moves others to other steps",
            )),
            Some(given) => Ok(given),
            None if fixed => Ok(Relation::ReplaceOne),
            None => Ok(Relation::AddOrRemoveOne),
        }
    }

    /// Returns an error if the sampler would ignore an option.
    pub(crate) fn check_uses(self, option: &'static str) -> Result<(), AccountantError> {
        use Sampler::{
            BallsInBins, CyclicPoisson, FixedSize, MinSeparation, Poisson, RandomAllocation,
            Shuffled, ShuffledOnce, TruncatedPoisson, WithReplacement,
        };
        let (owners, why): (&[Self], &str) = match option {
            "--max-batch-size" => (&[TruncatedPoisson], ""),
            "--parts" => (&[CyclicPoisson], ""),
            "--coefficients" | "--strategy" => (
                &[
                    CyclicPoisson,
                    BallsInBins,
                    RandomAllocation,
                    MinSeparation,
                    Shuffled,
                    ShuffledOnce,
                ],
                ", which bound how often a unit takes part",
            ),
            "--bins" | "--fresh-bins" | "--participations" => {
                (&[BallsInBins, RandomAllocation], "")
            }
            "--epochs" => (&[BallsInBins, RandomAllocation, Shuffled, ShuffledOnce], ""),
            "--separation" => (&[MinSeparation], ""),
            "--sampling-probability" => {
                (&[Poisson, TruncatedPoisson, CyclicPoisson, MinSeparation], "")
            }
            "--batch-size" | "--dataset-size" => (
                &[
                    Poisson,
                    TruncatedPoisson,
                    CyclicPoisson,
                    MinSeparation,
                    FixedSize,
                    WithReplacement,
                ],
                "; bins and shuffled epochs do not need the sizes",
            ),
            _ => (
                &[Poisson, TruncatedPoisson],
                "; for other samplers, state the guarantee of several units with --group",
            ),
        };
        if owners.contains(&self) {
            return Ok(());
        }
        let names = owners.iter().filter_map(Self::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_string()).collect();
        Err(invalid(option, format!("belongs to --sampler {}{why}", names.join(", "))))
    }
}
