//! Metrics of a private training, for Burn's dashboard.
//!
//! | metric | privacy |
//! |---|---|
//! | [`EpsilonMetric`] | public: follows from the ledger |
//! | [`ClippingNormMetric`] | public: a constant, or adapted from noisy counts |
//! | [`SignalToNoiseMetric`] | post-processing of the noisy gradient |
//! | [`ClippedShareMetric`] | **not private**: exact counts of the batch |
//! | [`NonPrivateMetric`] | **not private**: any metric of Burn on training batches |
//!
//! The last two must not be published. They are computed only if they are registered, and their
//! names on the dashboard contain "not private".

mod clipped_share;
mod clipping_norm;
mod epsilon;
mod last_value;
mod non_private;
mod signal_to_noise;

pub use clipped_share::ClippedShareMetric;
pub use clipping_norm::ClippingNormMetric;
pub use epsilon::EpsilonMetric;
pub use non_private::NonPrivateMetric;
pub use signal_to_noise::SignalToNoiseMetric;
