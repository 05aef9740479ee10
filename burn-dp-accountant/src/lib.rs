//! Privacy accounting for differentially private training.
//!
//! A mechanism describes what it released as [`DpEvent`]s in a [`PrivacyLedger`]; accountants analyse
//! them. ε comes as a bracket whose upper end is a guarantee ([`Epsilon`]); what nothing can
//! guarantee is infinite, with the reason, and what an accountant does not know it refuses.
//!
//! ```
//! use burn_dp_accountant::{
//!     DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger, PrivacyStatement, UnitOfPrivacy,
//! };
//!
//! let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
//! let mut ledger = PrivacyLedger::new(header);
//! ledger.record_many(&DpEvent::dp_sgd_step(0.01, 1.1), 1_000)?;
//! let epsilon = ledger.epsilon(1e-5)?;
//! assert!(epsilon.lower <= epsilon.upper && epsilon.upper < 1.6);
//! println!("{}", PrivacyStatement::from_ledger(&ledger, &[1e-5, 1e-6])?);
//! # Ok::<(), burn_dp_accountant::AccountantError>(())
//! ```
//!
//! Which accountant to use, and what each number means: [`accounting`].

pub mod accounting;
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
