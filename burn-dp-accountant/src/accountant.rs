//! The interface that all accountants share.

use crate::epsilon::{DeltaBracket, Epsilon};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::relation::NeighboringRelation;

/// Computes ε and δ of a composition of events under one neighboring relation.
///
/// The fields of [`Epsilon`] and [`DeltaBracket`] mean the same for every accountant:
///
/// - `upper` is a guarantee. It is infinite (δ: 1) if the method proves no upper bound.
/// - `lower` is never above the true value. It is 0 if the method proves no lower bound.
/// - `estimate` is the best known value, within `[lower, upper]`. It is not a guarantee.
///
/// | accountant | `lower` | `upper` | `estimate` |
/// |---|---|---|---|
/// | [`PldAccountant`](crate::PldAccountant) | proven | proven | middle of the bracket |
/// | [`RdpAccountant`](crate::RdpAccountant) | 0 | proven | `upper` |
/// | [`GdpAccountant`](crate::GdpAccountant) | proven | proven | closed form |
/// | [`ExactAccountant`](crate::ExactAccountant) | 0 | infinite (δ: 1) | nine correct digits |
///
/// An accountant that cannot analyze an event returns an error. It never skips an event, because a
/// skipped event is privacy loss that nobody counts.
///
/// # Example
///
/// ```
/// use burn_dp_accountant::{
///     Accountant, DpEvent, ExactAccountant, NeighboringRelation, PldAccountant, RdpAccountant,
/// };
///
/// let step = DpEvent::dp_sgd_step(0.01, 1.1);
/// let relation = NeighboringRelation::AddOrRemoveOne;
/// let accountants: [Box<dyn Accountant>; 3] = [
///     Box::new(PldAccountant::new([(&step, 1_000)], relation)?),
///     Box::new(RdpAccountant::new([(&step, 1_000)], relation)?),
///     Box::new(ExactAccountant::new([(&step, 1_000)], relation)?),
/// ];
/// for accountant in accountants {
///     let epsilon = accountant.epsilon(1e-5)?;
///     assert!(epsilon.lower <= epsilon.estimate && epsilon.estimate <= epsilon.upper);
/// }
/// # Ok::<(), burn_dp_accountant::AccountantError>(())
/// ```
pub trait Accountant {
    /// Creates the accountant of `events`, each released `count` times on the same data.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::Unsupported`] if the method has no answer for one of the events,
    /// and [`AccountantError::InvalidArgument`] if a parameter is outside its domain.
    fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError>
    where
        Self: Sized;

    /// Returns ε at `delta`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `delta` is not between 0 and 1, and
    /// [`AccountantError::Numerical`] if the method does not reach its accuracy.
    fn epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError>;

    /// Returns δ at `epsilon`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `epsilon` is negative or not finite, and
    /// [`AccountantError::Numerical`] if the method does not reach its accuracy.
    fn delta(&self, epsilon: f64) -> Result<DeltaBracket, AccountantError>;
}
