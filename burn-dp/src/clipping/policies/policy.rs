use super::config::ClippingConfig;
use super::public_norms::PublicNorms;
use crate::DpError;
use crate::clipping::thresholds::{ClippedSum, Thresholds};
use crate::grads::PerExampleGradients;
use crate::schedule::Schedule;

/// A policy that bounds what one privacy unit contributes to the sum of gradients.
///
/// # Privacy
///
/// No policy can break the guarantee of a step: coefficients, noise and event follow from the
/// [`Thresholds`] that it returned. A policy must keep one promise: its thresholds depend on
/// constants, on [public data](crate::PublicData), and on the noisy counts that it was given, and
/// on nothing else. The statement of a run whose policy is not of this crate says that this was not
/// checked, even if the policy wraps one of this crate.
pub trait Clipping: std::fmt::Debug + Send + Sync + CloneClipping {
    /// Returns the thresholds of a step. It is called once for each step, before its first unit.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if a threshold is not positive and finite.
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError>;

    /// Returns the description of the policy in a privacy statement: its settings, not its current
    /// state. A run can be resumed with a policy that has the same description.
    fn describe(&self) -> String;

    /// Adapts the policy to the counts that a step released. For each count, `fractions` holds the
    /// noisy mean of the units' contributions: for an indicator, the fraction of units whose norm
    /// is at most the threshold.
    fn update(&mut self, step: u64, fractions: &[f64]) {
        let _ = (step, fractions);
    }

    /// Adapts the policy to norms of gradients on public data, between two steps.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the policy does not use public norms, or if the
    /// norms belong to other groups.
    fn set_public_norms(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        let _ = norms;
        let reason = format!("have no use in the clipping policy ({})", self.describe());
        Err(DpError::invalid("norms", reason))
    }

    /// Returns the public data that the policy was created from, as [displayed](crate::PublicData).
    /// The privacy statement names it. The default is the data that the groups were derived from,
    /// if any.
    fn public_data(&self) -> Vec<String> {
        let thresholds = self.thresholds(0).ok();
        let groups = thresholds.as_ref().and_then(|thresholds| thresholds.groups().public_data());
        groups.map(String::from).into_iter().collect()
    }

    /// Returns the current values that the policy adapts, by name. They are public, because they
    /// follow from what was released.
    fn adapted(&self) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// Returns the schedules that the thresholds follow, so that a plan can look for steps in which
    /// no noise can be added.
    #[doc(hidden)]
    fn schedules(&self) -> Vec<&Schedule> {
        Vec::new()
    }

    /// Returns the settings of the policy as data, so that a plan with it can be saved. `None`, the
    /// default, for a policy that is not of this crate.
    #[doc(hidden)]
    fn to_config(&self, seal: Seal) -> Option<ClippingConfig> {
        let _ = seal;
        None
    }

    /// Returns, for a checkpoint, what changed since the policy was created.
    fn save_state(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Restores a saved state.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the state was not saved by a policy of this kind.
    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        match state {
            serde_json::Value::Null => Ok(()),
            _ => Err(DpError::saved_state(format!(
                "the clipping policy ({}) has no state, and the checkpoint has one for it; resume \
                 with the policy of the run",
                self.describe()
            ))),
        }
    }

    /// Clips each unit to the thresholds of the first step and returns the sum.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`thresholds`](Self::thresholds) and of
    /// [`ClippedSum::from_gradients`].
    fn clip(&self, grads: PerExampleGradients) -> Result<ClippedSum, DpError> {
        ClippedSum::from_gradients(grads, &self.thresholds(0)?)
    }
}

/// The argument of a method that only policies of this crate implement, because no other crate can
/// name its type. A wrapper is therefore never recognized as the policy in it:
///
/// ```
/// use burn_dp::DpError;
/// use burn_dp::clipping::{Clipping, FlatClipping, Thresholds};
///
/// #[derive(Clone, Debug)]
/// struct Wrapper(FlatClipping);
///
/// impl Clipping for Wrapper {
///     fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
///         self.0.thresholds(step)
///     }
///
///     fn describe(&self) -> String {
///         self.0.describe()
///     }
/// }
/// ```
/// ```compile_fail,E0050
/// # use burn_dp::DpError;
/// # use burn_dp::clipping::{Clipping, ClippingConfig, FlatClipping, Thresholds};
/// #
/// # #[derive(Clone, Debug)]
/// # struct Wrapper(FlatClipping);
/// #
/// impl Clipping for Wrapper {
///     // As above, and:
/// #     fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
/// #         self.0.thresholds(step)
/// #     }
/// #
/// #     fn describe(&self) -> String {
/// #         self.0.describe()
/// #     }
/// #
///     fn to_config(&self) -> Option<ClippingConfig> {
///         self.0.to_config()
///     }
/// }
/// ```
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Seal;

/// Clones a boxed policy, so that a configuration can be cloned together with its policy.
#[doc(hidden)]
pub trait CloneClipping {
    fn clone_clipping(&self) -> Box<dyn Clipping>;
}

impl<C: Clipping + Clone + 'static> CloneClipping for C {
    fn clone_clipping(&self) -> Box<dyn Clipping> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Clipping> {
    fn clone(&self) -> Self {
        (**self).clone_clipping()
    }
}

impl Clipping for Box<dyn Clipping> {
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
        (**self).thresholds(step)
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    fn update(&mut self, step: u64, fractions: &[f64]) {
        (**self).update(step, fractions);
    }

    fn set_public_norms(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        (**self).set_public_norms(norms)
    }

    fn public_data(&self) -> Vec<String> {
        (**self).public_data()
    }

    fn adapted(&self) -> Vec<(String, f64)> {
        (**self).adapted()
    }

    fn schedules(&self) -> Vec<&Schedule> {
        (**self).schedules()
    }

    fn to_config(&self, seal: Seal) -> Option<ClippingConfig> {
        (**self).to_config(seal)
    }

    fn save_state(&self) -> serde_json::Value {
        (**self).save_state()
    }

    fn load_state(&mut self, state: &serde_json::Value) -> Result<(), DpError> {
        (**self).load_state(state)
    }
}

/// A policy that is not of this crate, with this description.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct Own(pub(crate) &'static str);

#[cfg(test)]
impl Clipping for Own {
    fn thresholds(&self, _step: u64) -> Result<Thresholds, DpError> {
        Thresholds::whole(1.0)
    }

    fn describe(&self) -> String {
        self.0.into()
    }
}
