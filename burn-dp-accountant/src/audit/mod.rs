//! Audits: lower bounds on ε from the scores of canaries.
//!
//! An accountant proves an upper bound on ε from what the training is supposed to do. An audit
//! measures a lower bound from what it did: coins decide which examples (canaries) are included, an
//! attacker scores each of them, and scores that distinguish the two kinds better than ε allows
//! refute it. An audit finds mistakes. It proves nothing about training that passes it.
//!
//! The scores may come from training in any framework. `burn-dp` creates canaries and scores in
//! `burn_dp::audit`, which also re-exports everything in this module.
//!
//! | estimator | based on | assumptions beyond (ε, δ) |
//! |---|---|---|
//! | [`clopper_pearson`](Audit::clopper_pearson) | error rates of a threshold | independent scores |
//! | [`one_run`](Audit::one_run) | right guesses | fair coins |
//! | [`one_run_fdp`](Audit::one_run_fdp) | right guesses | fair coins, Gaussian trade-off |
//! | [`gdp`](Audit::gdp) | error rates of all thresholds | independent scores, Gaussian trade-off |
//! | [`auc`](Audit::auc) | area under the ROC curve | independent scores |
//!
//! Scores are independent if each comes from a separate training run, or if the canaries of one run
//! cannot influence each other (gradients in orthogonal directions, for a linear score). Full-batch
//! training with Gaussian noise has a Gaussian trade-off function. With sampling, it is only
//! approximately Gaussian, and the two Gaussian estimators are not bounds.
//!
//! # Example
//!
//! ```
//! use burn_dp_accountant::audit::{Audit, AuditScores, Estimator};
//!
//! let scores = AuditScores::from_json(r#"{"in": [2.5, 3.0, 1.5, 2.0], "out": [0.5, 1.0]}"#)?;
//! let estimates = Audit::new(&scores, 1e-5)?.estimates();
//! assert_eq!(estimates[0].estimator, Estimator::ClopperPearson);
//! // Six canaries show nothing at a confidence of 95 %.
//! assert_eq!(estimates[0].epsilon_lower, 0.0);
//! # Ok::<(), burn_dp_accountant::AccountantError>(())
//! ```

mod band;
mod binomial;
mod checks;
mod clopper_pearson;
mod estimate;
mod gaussian_bound;
mod guesses;
mod one_run;
mod one_run_fdp;
mod roc;
mod scores;
#[cfg(test)]
mod tests;

pub use clopper_pearson::ThresholdRule;
pub use estimate::{Audit, AuditEstimate, Estimator};
pub use gaussian_bound::GaussianLowerBound;
pub use one_run::OneRunGuesses;
pub use scores::AuditScores;
