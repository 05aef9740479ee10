//! The options of correlated noise, with a sampler that bounds how often a unit takes part.

use std::borrow::Cow;

use burn_dp_accountant::correlated_noise::{Participation, Strategy};
use burn_dp_accountant::{AccountantError, DpEvent};

use crate::output::invalid;
use crate::sampler::{Sampler, SamplerOptions, needed};

impl SamplerOptions {
    /// Returns whether the noise of the steps is correlated.
    pub(crate) fn is_correlated(&self) -> bool {
        self.strategy.is_some() || !self.coefficients.is_empty()
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
    pub(crate) fn correlated(
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

    /// Returns a run of shuffled epochs.
    pub(crate) fn shuffled(
        &self,
        noise_multiplier: f64,
        steps: Option<u64>,
    ) -> Result<(DpEvent, u64), AccountantError> {
        let epochs = needed("--epochs", self.epochs)?;
        if self.is_correlated() {
            let steps = needed("--steps", self.steps_of_run(steps)?)?;
            let participation = match self.sampler {
                Sampler::ShuffledOnce => {
                    Participation::FixedOrder { period: steps.div_ceil(epochs.max(1)) }
                }
                _ => Participation::AtMost { times: epochs, separation: 1 },
            };
            if epochs == 0 || !steps.is_multiple_of(epochs) {
                return Err(invalid(
                    "--epochs",
                    format!("must divide the {steps} steps into equal epochs, got {epochs}"),
                ));
            }
            return self.correlated(noise_multiplier, Some(steps), participation);
        }
        if steps.is_some() {
            return Err(invalid(
                "--steps",
                "is not needed by shuffled epochs with independent noise: a unit takes part once \
                 in each epoch; give --epochs",
            ));
        }
        // A unit has one release in each epoch; the others do not depend on it.
        let event = DpEvent::gaussian(noise_multiplier);
        event.validate()?;
        Ok((event, epochs))
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
