//! Privacy accounting for differentially private training.

mod analysis;
mod budget;
mod calibration;
mod epsilon;
mod error;
mod event;
mod exact;
mod gdp;
mod ledger;
mod math;
mod mechanism;
mod pld;
mod rdp;
mod relation;
mod saddle;
mod split;
mod statement;
mod tan;

pub use budget::Budget;
pub use calibration::{CALIBRATION_TOLERANCE, Calibration, calibrate_noise_multiplier};
pub use epsilon::{DeltaBracket, Epsilon, Method};
pub use error::AccountantError;
pub use event::{DpEvent, RunCount};
pub use exact::ExactAccountant;
pub use gdp::{
    ApproximateEpsilon, CentralLimitEstimate, GaussianDp, TradeoffCurve, TradeoffFunction,
};
pub use ledger::{
    LEDGER_FORMAT_VERSION, LedgerEntry, LedgerHeader, NoiseSource, PrivacyLedger, UnitOfPrivacy,
};
pub use pld::PldAccountant;
pub use rdp::{
    RdpAccountant, delta_from_rdp, epsilon_from_rdp, epsilon_from_rdp_mironov, rdp_of_event,
    rdp_poisson_sampled_gaussian, rdp_sampled_without_replacement_gaussian,
};
pub use relation::NeighboringRelation;
pub use split::{AdaptiveClippingSplit, effective_noise_multiplier};
pub use statement::PrivacyStatement;
pub use tan::{PRIVACY_WALL, RunPlan, ScalingLaw, TotalAmountOfNoise};
