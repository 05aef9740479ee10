//! The options of correlated noise, with a sampler that bounds how often a unit takes part.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::path::PathBuf;

use burn_dp_accountant::correlated_noise::{Participation, Strategy};
use burn_dp_accountant::{AccountantError, DpEvent};
use clap::Args;

use crate::output::{invalid, needed};

/// The correlation of the noise; none by default.
#[derive(Debug, Clone, Args)]
pub(crate) struct CorrelationOptions {
    /// Coefficients of banded correlated noise, separated by commas (every sampler that bounds how
    /// often a unit takes part: cyclic-poisson, balls-in-bins, random-allocation, min-separation,
    /// shuffled, shuffled-once). --accountant exact has the certified bound, --accountant
    /// monte-carlo the simulated one.
    #[arg(long, value_delimiter = ',', value_name = "C")]
    coefficients: Vec<f64>,
    /// Strategy of the correlated noise, in place of --coefficients: a file that `strategy
    /// --output` wrote, of any kind. --steps is by default the number of its steps.
    #[arg(long, visible_alias = "correlated-noise", value_name = "FILE")]
    #[arg(conflicts_with = "coefficients")]
    strategy: Option<PathBuf>,
    /// The strategy in the file, after it was read, because a calibration needs it at every noise
    /// multiplier.
    #[arg(skip)]
    read: OnceCell<Strategy>,
}

impl CorrelationOptions {
    /// Returns an option that is given.
    pub(crate) fn option(&self) -> Option<&'static str> {
        match (&self.strategy, &self.coefficients[..]) {
            (Some(_), _) => Some("--strategy"),
            (None, []) => None,
            _ => Some("--coefficients"),
        }
    }

    /// Returns whether a strategy in a file is given.
    pub(crate) fn has_file(&self) -> bool {
        self.strategy.is_some()
    }

    /// Returns the strategy in the file, if there is one. The file is read once.
    fn strategy_of_file(&self) -> Result<Option<&Strategy>, AccountantError> {
        let Some(path) = &self.strategy else {
            return Ok(None);
        };
        if self.read.get().is_none() {
            // The cell is empty, so this cannot fail.
            let _ = self.read.set(Strategy::load(path)?);
        }
        Ok(self.read.get())
    }

    /// Returns the strategy of a run of `steps` steps. Without options the noise is independent.
    fn strategy(&self, steps: u64) -> Result<Cow<'_, Strategy>, AccountantError> {
        if let Some(strategy) = self.strategy_of_file()? {
            return Ok(Cow::Borrowed(strategy));
        }
        Ok(Cow::Owned(match &self.coefficients[..] {
            [] => Strategy::identity(steps)?,
            coefficients => Strategy::banded_toeplitz(steps, coefficients)?,
        }))
    }

    /// Returns the number of steps of the run: as given, or all steps of the strategy in the file.
    pub(crate) fn steps_of_run(&self, steps: Option<u64>) -> Result<Option<u64>, AccountantError> {
        match steps {
            None => Ok(self.strategy_of_file()?.map(Strategy::steps)),
            steps => Ok(steps),
        }
    }

    /// Returns a run with the noise of the strategy or the coefficients.
    pub(crate) fn run(
        &self,
        noise_multiplier: f64,
        steps: Option<u64>,
        participation: Participation,
    ) -> Result<(DpEvent, u64), AccountantError> {
        let steps = needed("--steps", self.steps_of_run(steps)?)?;
        let strategy = self.strategy(steps)?;
        let event = DpEvent::correlated_gaussian(noise_multiplier, &strategy, participation);
        // The strategy must also have the last step.
        event.advanced(steps.saturating_sub(1)).validate()?;
        Ok((event, steps))
    }

    /// Returns the norm of the coefficients, which must not be more than the parts: otherwise the
    /// contributions of one unit would overlap.
    pub(crate) fn norm(&self, parts: u64) -> Result<f64, AccountantError> {
        if self.coefficients.is_empty() {
            return Ok(1.0);
        }
        let norm = self.coefficients.iter().map(|c| c * c).sum::<f64>().sqrt();
        if self.coefficients.len() as u64 > parts || !(norm > 0.0 && norm.is_finite()) {
            return Err(invalid(
                "--coefficients",
                format!(
                    "must be finite, not all 0, and at most --parts = {parts}, got {} of norm \
                     {norm}; use more parts or fewer bands",
                    self.coefficients.len()
                ),
            ));
        }
        Ok(norm)
    }
}
