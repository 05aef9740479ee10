//! An exact value with its estimated error, and the effort to find it.

/// An exact value with its estimated relative error: the difference from a second contour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExactValue {
    pub(crate) value: f64,
    pub(crate) relative_error: f64,
}

/// Largest estimated relative error of an exact value.
pub(super) const TOLERANCE: f64 = 1e-9;

/// The effort that an exact value may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// At most milliseconds.
    Quick,
    /// Up to seconds if the integrand decays slowly.
    Thorough,
}

/// Returns the value over all losses, or, if it is not accurate enough, the value with a cut.
pub(super) fn first_accurate(
    effort: Effort,
    whole: Option<ExactValue>,
    below: impl Fn() -> Option<ExactValue>,
) -> Option<ExactValue> {
    let accurate = |exact: &ExactValue| exact.relative_error <= TOLERANCE;
    if effort == Effort::Quick || whole.as_ref().is_some_and(accurate) {
        return whole;
    }
    below().filter(accurate).or(whole)
}
