//! Clipping policies: the rules that choose the thresholds of each step.

mod automatic;
mod config;
mod flat;
mod grouped;
mod layerwise;
mod multiplied;
mod policy;
mod public_norms;
mod quantile;
mod quantile_estimate;
mod quantile_tracker;
mod saved;
mod saved_groups;
mod saved_values;
mod scheduled;

pub use automatic::AutomaticClipping;
pub use config::ClippingConfig;
pub use flat::FlatClipping;
pub use grouped::GroupedClipping;
pub use layerwise::LayerwiseClipping;
pub use multiplied::MultipliedClipping;
pub use policy::Clipping;
#[cfg(test)]
pub(crate) use policy::Own;
pub(crate) use policy::Seal;
pub use public_norms::PublicNorms;
pub use quantile::QuantileClipping;
pub use quantile_estimate::{QuantileEstimate, QuantileRule};
pub use quantile_tracker::QuantileTracker;
pub use scheduled::ScheduledClipping;
