//! The options of a private search over runs.

use burn_dp_accountant::{AccountantError, DpEvent, RunCount};
use clap::{Args, ValueEnum};

use crate::output::invalid;

/// A search that repeats the training a random number of times, and releases the best result.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct SearchOptions {
    /// The training is one run of a search, and only the best of a random, secret number of runs is
    /// released: the distribution of that number.
    #[arg(long, value_enum, requires = "mean_runs", conflicts_with = "ledger")]
    runs: Option<Distribution>,
    /// Expected number of runs of the search.
    #[arg(long, value_name = "N", requires = "runs")]
    mean_runs: Option<f64>,
    /// Shape of --runs negative-binomial, greater than -1: 1 is geometric, 0 is logarithmic.
    #[arg(long, requires = "runs")]
    shape: Option<f64>,
}

/// The distribution of the number of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Distribution {
    /// At least one run.
    Geometric,
    /// At least one run, with a long tail.
    Logarithmic,
    /// At least one run: truncated negative binomial of --shape.
    NegativeBinomial,
    /// Zero runs are possible.
    Poisson,
}

impl SearchOptions {
    /// Returns the release of a search whose runs have these events, or the events.
    pub(crate) fn of_runs(
        self,
        events: Vec<(DpEvent, u64)>,
    ) -> Result<Vec<(DpEvent, u64)>, AccountantError> {
        let Some((distribution, mean)) = self.runs.zip(self.mean_runs) else { return Ok(events) };
        let runs = match (distribution, self.shape) {
            (Distribution::NegativeBinomial, Some(shape)) => {
                RunCount::TruncatedNegativeBinomial { mean, shape }
            }
            (Distribution::NegativeBinomial, None) => {
                return Err(invalid("--shape", "is needed by --runs negative-binomial; try 0.5"));
            }
            (_, Some(shape)) => {
                let reason = format!(
                    "belongs to --runs negative-binomial, got {shape}; leave it out, or use that"
                );
                return Err(invalid("--shape", reason));
            }
            (Distribution::Geometric, None) => RunCount::geometric(mean),
            (Distribution::Logarithmic, None) => RunCount::logarithmic(mean),
            (Distribution::Poisson, None) => RunCount::Poisson { mean },
        };
        let parts = events.into_iter().map(|(event, count)| {
            let (event, count) = event.without_correlation(count)?;
            Ok(DpEvent::self_composed(event, count))
        });
        let events = parts.collect::<Result<_, AccountantError>>()?;
        let search =
            DpEvent::RepeatAndSelect { event: Box::new(DpEvent::Composed { events }), runs };
        search.validate()?;
        Ok(vec![(search, 1)])
    }
}
