//! The options and relations of each sampler.

use burn_dp_accountant::AccountantError;
use clap::ValueEnum;

use crate::output::invalid;
use crate::sampler::{Sampler, SamplerOptions};
use crate::training::Relation;

impl SamplerOptions {
    /// Returns the relation that the sampler has in training: units are added or removed where the
    /// draws of one unit do not depend on the others, and replaced otherwise.
    pub(crate) fn relation(&self, given: Option<Relation>) -> Result<Relation, AccountantError> {
        let fixed = matches!(
            self.sampler,
            Sampler::FixedSize
                | Sampler::WithReplacement
                | Sampler::Shuffled
                | Sampler::ShuffledOnce
        );
        let shuffled = matches!(self.sampler, Sampler::Shuffled | Sampler::ShuffledOnce);
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

    /// Returns an error for options that the sampler would ignore.
    pub(crate) fn refuse_foreign_options(&self) -> Result<(), AccountantError> {
        use Sampler::{
            BallsInBins, CyclicPoisson, MinSeparation, Poisson, RandomAllocation, Shuffled,
            ShuffledOnce, TruncatedPoisson,
        };
        let bins = &[BallsInBins, RandomAllocation];
        let with_epochs = &[BallsInBins, RandomAllocation, Shuffled, ShuffledOnce];
        let bounded =
            &[CyclicPoisson, BallsInBins, RandomAllocation, MinSeparation, Shuffled, ShuffledOnce];
        let options: [(bool, &'static str, &[Sampler], &str); 9] = [
            (self.max_batch_size.is_some(), "--max-batch-size", &[TruncatedPoisson], ""),
            (self.parts.is_some(), "--parts", &[CyclicPoisson], ""),
            (
                !self.coefficients.is_empty(),
                "--coefficients",
                bounded,
                ", which bound how often a unit takes part",
            ),
            (
                self.strategy.is_some(),
                "--strategy",
                bounded,
                ", which bound how often a unit takes part",
            ),
            (self.bins.is_some(), "--bins", bins, ""),
            (self.epochs.is_some(), "--epochs", with_epochs, ""),
            (self.fresh_bins, "--fresh-bins", bins, ""),
            (self.participations != 1, "--participations", bins, ""),
            (self.separation.is_some(), "--separation", &[MinSeparation], ""),
        ];
        let several = (
            self.examples_per_unit != 1,
            "--examples-per-unit",
            &[Poisson, TruncatedPoisson][..],
            "; for other samplers, state the guarantee of several units with --group",
        );
        for (given, name, owners, why) in options.into_iter().chain([several]) {
            if given && !owners.contains(&self.sampler) {
                let value = |sampler: &Sampler| sampler.to_possible_value();
                let names = owners.iter().filter_map(value).map(|v| v.get_name().to_string());
                let names = names.collect::<Vec<_>>().join(", ");
                return Err(invalid(name, format!("belongs to --sampler {names}{why}")));
            }
        }
        Ok(())
    }
}
