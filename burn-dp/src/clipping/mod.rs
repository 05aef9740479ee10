//! Clipping: turns the gradients of single units into a sum of bounded sensitivity.
//!
//! A [`Clipping`] policy returns the [`Thresholds`] of each step. Clipping coefficients,
//! sensitivity, noise and the event in the ledger all follow from that one value. A source of
//! gradients ([`PerExampleGradients`](crate::grads::PerExampleGradients), or the [unit
//! updates](crate::updates)) returns norms and weighted sums. The result is a [`ClippedSum`], which
//! keeps its thresholds.
//!
//! | policy | thresholds |
//! |---|---|
//! | [`FlatClipping`] | one for the whole gradient |
//! | [`AutomaticClipping`] | none to tune: every gradient is scaled to the same norm |
//! | [`GroupedClipping`] | one for each layer, module or group of parameters |
//! | [`QuantileClipping`] | a quantile of the norms, estimated privately |
//! | [`LayerwiseClipping`] | one for each layer, proportional to its norm on public data |
//! | [`MultipliedClipping`] | one for the whole gradient, after each layer is multiplied |
//! | [`ScheduledClipping`] | the thresholds of another policy, times a schedule |
//! | [`QuantileTracker`] | the thresholds of another policy, or none: it estimates norms |
//!
//! Each of these policies is saved with its plan; see [`ClippingConfig`].
//!
//! `thresholds` holds what one step needs; `policies` holds the rules that choose it.

mod policies;
mod thresholds;

#[cfg(test)]
pub(crate) use policies::Own;
pub(crate) use policies::Seal;
pub use policies::{
    AutomaticClipping, Clipping, ClippingConfig, FlatClipping, GroupedClipping, LayerwiseClipping,
    MultipliedClipping, PublicNorms, QuantileClipping, QuantileEstimate, QuantileRule,
    QuantileTracker, ScheduledClipping,
};
pub use thresholds::{
    ClippedSum, ClippingStatistics, Count, CountKind, CountNoise, NoiseSplit, StepNoise, Thresholds,
};
