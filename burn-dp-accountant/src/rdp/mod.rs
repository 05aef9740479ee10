//! Rényi differential privacy.
//!
//! [`RenyiCurve`](curve::RenyiCurve) composes the divergences of dominating pairs (`pairs`), of
//! fixed-size sampling (`fixed_size`) and of repeat-and-select (`selection`).

mod accountant;
mod base_delta;
mod conversion;
mod curve;
mod divergence;
mod fixed_size;
mod pairs;
mod selection;

pub use accountant::RdpAccountant;
pub use conversion::{delta_from_rdp, epsilon_from_rdp, epsilon_from_rdp_mironov};
pub use divergence::{
    rdp_of_event, rdp_poisson_sampled_gaussian, rdp_sampled_without_replacement_gaussian,
};
