//! x
mod accountant;
pub mod accounting;
mod analysis;
mod budget;
mod calibration;
mod domain;
mod dominating_pairs;
mod epsilon;
mod error;
mod event;
mod exact;
mod gdp;
mod lattice;
mod ledger;
mod math;
mod pld;
mod rdp;
mod relation;
mod rounded;
mod saddle;
mod split;
mod statement;
mod tan;

pub use accountant::Accountant;
pub use budget::Budget;
pub use calibration::{CALIBRATION_TOLERANCE, Calibration, calibrate_noise_multiplier};
pub use epsilon::{DeltaBracket, Epsilon, Method};
pub use error::AccountantError;
pub use event::{DpEvent, RunCount};
pub use exact::ExactAccountant;
pub use gdp::{
    ApproximateEpsilon, CentralLimitEstimate, GaussianDp, GdpAccountant, TradeoffCurve,
    TradeoffFunction,
};
pub use ledger::{
    LEDGER_FORMAT_VERSION, LedgerEntry, LedgerHeader, NoiseProvenance, PrivacyLedger, UnitOfPrivacy,
};
pub use pld::PldAccountant;
pub use rdp::{
    RdpAccountant, delta_from_rdp, epsilon_from_rdp, epsilon_from_rdp_mironov, rdp_of_event,
    rdp_poisson_sampled_gaussian, rdp_sampled_without_replacement_gaussian,
};
pub use relation::NeighboringRelation;
pub use rounded::Rounded;
pub use split::{AdaptiveClippingSplit, effective_noise_multiplier};
pub use statement::PrivacyStatement;
pub use tan::{PRIVACY_WALL, RunPlan, ScalingLaw, TotalAmountOfNoise};
