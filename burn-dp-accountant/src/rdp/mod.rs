//! Rényi differential privacy.

mod accountant;
mod conversion;
mod curve;
mod fixed_size;

pub use accountant::RdpAccountant;
pub use conversion::{delta_from_rdp, epsilon_from_rdp, epsilon_from_rdp_mironov};
pub(crate) use curve::RenyiCurve;
pub use curve::{rdp_of_event, rdp_poisson_sampled_gaussian};
pub use fixed_size::rdp_sampled_without_replacement_gaussian;
