//! The trait of all samplers.

use std::fmt;

use super::draw::Draw;
use super::mechanism::SamplingMechanism;
use super::participation::ParticipationPattern;
use super::population::Population;
use crate::DpError;

/// A way to draw the units of a step, together with its description for the accountant.
///
/// The trait is sealed. The accountant cannot verify the description of a sampler from another
/// crate, and a wrong description makes every ε wrong:
///
/// ```compile_fail
/// #[derive(Debug)]
/// struct Mine;
/// impl burn_dp::sampling::Sampler for Mine {}
/// ```
///
/// # Privacy
///
/// All constants here are public: they are fixed at construction and do not depend on the draws.
pub trait Sampler: sealed::Sealed + fmt::Debug + Send + Sync {
    /// Returns the number of units that are drawn from.
    fn dataset_size(&self) -> usize {
        self.population().size()
    }

    /// Returns the probability that a given unit is in a given draw: the mean over the steps of an
    /// epoch if it differs between them, or the expected number of times if a draw can contain a
    /// unit several times. For a draw that is truncated, it is the probability before truncation.
    ///
    /// The probability alone does not determine the amplification; [`mechanism`](Self::mechanism)
    /// does.
    fn sampling_probability(&self) -> f64;

    /// Returns the public constant that updates are divided by.
    fn expected_batch_size(&self) -> f64 {
        self.population().expected_batch_size()
    }

    /// Returns the description of the draws for the accountant.
    fn mechanism(&self) -> SamplingMechanism;

    /// Returns the guarantee about the steps in which one unit takes part.
    fn participation(&self) -> ParticipationPattern;

    /// Returns the units of `step`, a function of only the key and the step.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the draw is not a set of units of the data set.
    fn draw(&self, step: u64) -> Result<Draw, DpError> {
        let (units, size) = (self.units(step), self.dataset_size());
        Draw::new(step, units, size, self.mechanism(), self.origin())
    }

    /// Returns a mark of the sampler's key that does not reveal it. Draws carry the mark, and a
    /// private step accepts only the draws of its own plan.
    #[doc(hidden)]
    fn origin(&self) -> u64 {
        self.population().key().fingerprint()
    }

    /// Returns whether the draws follow from a secret key. If not, there is no amplification by
    /// sampling.
    fn is_secure(&self) -> bool {
        self.population().key().is_secure()
    }
}

pub(super) mod sealed {
    use super::Population;

    /// The part of a sampler that is not public.
    pub trait Sealed {
        /// Returns what the sampler draws from.
        fn population(&self) -> &Population;

        /// Returns the units of `step` in ascending order, a function of only the key and the step.
        /// Units repeat only if the mechanism repeats them.
        fn units(&self, step: u64) -> Vec<usize>;
    }
}

impl<S: Sampler + ?Sized> sealed::Sealed for Box<S> {
    fn population(&self) -> &Population {
        (**self).population()
    }

    fn units(&self, step: u64) -> Vec<usize> {
        (**self).units(step)
    }
}

impl<S: Sampler + ?Sized> Sampler for Box<S> {
    fn sampling_probability(&self) -> f64 {
        (**self).sampling_probability()
    }

    fn mechanism(&self) -> SamplingMechanism {
        (**self).mechanism()
    }

    fn participation(&self) -> ParticipationPattern {
        (**self).participation()
    }
}
