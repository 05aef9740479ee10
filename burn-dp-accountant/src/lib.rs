//! Privacy accounting for differentially private training.
//!
//! A mechanism describes its releases as [`DpEvent`]s in a [`PrivacyLedger`]. Accountants turn the
//! events into ε at a δ. The crate has no tensor dependency and can be used without `burn-dp`.
//!
//! - **ε is a certified bracket** ([`Epsilon`]): `upper` is a guarantee, `lower` shows how tight it
//!   is, and `estimate` is the best known value. If nothing is guaranteed, `upper` is infinite and
//!   a note gives the reason.
//! - **Events are never skipped.** An accountant returns an error for an event that it cannot
//!   analyze.
//! - **Everything rounds to the safe side.** A calibrated noise multiplier is rounded up, a number
//!   of steps is rounded down, and a printed ε ([`Rounded::up`]) is rounded up.
//!
//! # Example
//!
//! ```
//! use burn_dp_accountant::{
//!     Budget, DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger, PrivacyStatement,
//!     UnitOfPrivacy, calibrate_noise_multiplier,
//! };
//!
//! // The noise for 1,000 steps with sampling probability 0.01 within ε = 2 at δ = 1e-5.
//! let budget = Budget::new(2.0, 1e-5)?;
//! let step = |sigma| DpEvent::dp_sgd_step(0.01, sigma);
//! let sigma = calibrate_noise_multiplier(budget, 1_000, step)?;
//!
//! // The ledger of the training, its ε and its privacy statement.
//! let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::AddOrRemoveOne);
//! let mut ledger = PrivacyLedger::new(header);
//! ledger.record_many(&step(sigma), 1_000)?;
//! let epsilon = ledger.epsilon(1e-5)?;
//! assert!(epsilon.lower <= epsilon.upper && epsilon.upper <= 2.0);
//! println!("{}", PrivacyStatement::from_ledger(&ledger, &[1e-5, 1e-6])?);
//! # Ok::<(), burn_dp_accountant::AccountantError>(())
//! ```
//!
//! # Overview
//!
//! | task | items |
//! |---|---|
//! | describe releases | [`DpEvent`], [`PrivacyLedger`], [`LedgerHeader`], [`NoiseProvenance`] |
//! | state the terms | [`UnitOfPrivacy`], [`NeighboringRelation`], [`Budget`] |
//! | publish them | [`PrivacyStatement`] |
//! | compute ε or δ | [`Accountant`] and its implementations below |
//! | – certified brackets | [`PldAccountant`], [`GdpAccountant`] (Gaussian releases only) |
//! | – upper bounds | [`RdpAccountant`] |
//! | – exact estimates | [`ExactAccountant`] |
//! | – bounds by simulation | [`MonteCarloAccountant`]; in a ledger: [`Simulation`] |
//! | correlate the noise of steps | [`correlated_noise`] |
//! | plan a run | [`Calibration`], [`AdaptiveClippingSplit`], [`TotalAmountOfNoise`], [`RunPlan`] |
//! | work with f-DP | [`GaussianDp`], [`TradeoffCurve`], [`TradeoffFunction`] |
//! | read older papers | [`CentralLimitEstimate`], [`epsilon_from_rdp_mironov`] |
//! | work with Rényi divergences | [`rdp_of_event`], [`epsilon_from_rdp`], [`delta_from_rdp`] |
//! | choose releases adaptively | [`PrivacyFilter`], [`PrivacyOdometer`] |
//! | search hyperparameters | [`search`] |
//! | compare guarantees | [`PrivacyStatement::compare`], [`Comparison`] |
//! | measure a lower bound on ε | [`audit`] |
//!
//! The page [`accounting`] explains the meaning of each number and the choice of an accountant.
//!
//! # Modules
//!
//! Modules import only from modules in later rows:
//!
//! | module | content |
//! |---|---|
//! | `statement`, `tan` | the privacy statement, plans based on the total amount of noise |
//! | `audit` | lower bounds on ε from measured scores |
//! | `search` | a random number of runs |
//! | `ledger`, `calibration`, `filter` | the record of releases, searches within a budget |
//! | `group` | several units at once |
//! | `analysis` | the choice of the tightest method |
//! | `monte_carlo` | the accountant that simulates |
//! | `pld`, `exact`, `rdp`, `gdp` | the other accountants |
//! | `accountant` | their common trait |
//! | `saddle` | cumulants, saddle points, contours |
//! | `lattice` | privacy losses on a grid |
//! | `dominating_pairs` | the translation of events into pairs of distributions |
//! | `comparison` | the stronger of two guarantees |
//! | `split`, `budget`, `event`, `epsilon` | data: splits of noise, budgets, events, answers |
//! | `correlated_noise` | strategies of correlated noise, their errors and sensitivities |
//! | `math`, `domain`, `relation`, `rounded`, `atomic_file`, `threads`, `error` | numerics, checks, texts, files, threads, errors |
//!
//! # Features
//!
//! `cli` builds the program `burn-dp-accountant`. The library needs no feature.

mod accountant;
pub mod accounting;
mod analysis;
mod atomic_file;
pub mod audit;
mod budget;
mod calibration;
mod comparison;
pub mod correlated_noise;
mod domain;
mod dominating_pairs;
mod epsilon;
mod error;
mod event;
mod exact;
mod filter;
mod gdp;
mod group;
mod lattice;
mod ledger;
mod math;
mod monte_carlo;
mod pld;
mod rdp;
mod relation;
mod rounded;
mod saddle;
pub mod search;
mod split;
mod statement;
#[doc(hidden)]
pub mod strict_json;
mod tan;
mod threads;

pub use accountant::Accountant;
pub use budget::Budget;
pub use calibration::{CALIBRATION_TOLERANCE, Calibration, calibrate_noise_multiplier};
pub use comparison::{Comparison, Stronger};
pub use epsilon::{DeltaBracket, Epsilon, Method};
pub use error::AccountantError;
pub use event::{DpEvent, GaussianMixture, PatternedGaussian, RandomParticipation, RunCount};
pub use exact::ExactAccountant;
pub use filter::{PrivacyFilter, PrivacyOdometer};
pub use gdp::{
    ApproximateEpsilon, CentralLimitEstimate, GaussianDp, GaussianFit, GdpAccountant,
    TradeoffCurve, TradeoffFunction,
};
pub use group::GroupEpsilon;
#[doc(hidden)]
pub use ledger::join_values;
pub use ledger::{
    LEDGER_FORMAT_VERSION, LedgerEntry, LedgerHeader, NoiseProvenance, PrivacyLedger, UnitOfPrivacy,
};
pub use monte_carlo::{MonteCarloAccountant, Simulation, verified_delta};
pub use pld::PldAccountant;
pub use rdp::{
    RdpAccountant, delta_from_rdp, epsilon_from_rdp, epsilon_from_rdp_mironov, rdp_of_event,
    rdp_poisson_sampled_gaussian, rdp_sampled_without_replacement_gaussian,
};
pub use relation::NeighboringRelation;
pub use rounded::Rounded;
pub use split::{AdaptiveClippingSplit, effective_noise_multiplier};
pub use statement::PrivacyStatement;
pub use tan::{RunPlan, ScalingLaw, TAN_APPROXIMATION_LIMIT, TotalAmountOfNoise};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
