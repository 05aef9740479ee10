//! # Accounting
//!
//! What the numbers mean, and which accountant to use.
//!
//! ## The guarantee
//!
//! A training is (ε, δ)-differentially private if, for every two neighboring data sets and every
//! set of outcomes, `P[M(D) ∈ S] <= e^ε P[M(D') ∈ S] + δ`. Three terms belong to the number, and a
//! [`PrivacyStatement`](crate::PrivacyStatement) always states them:
//!
//! - The **unit** that is hidden ([`UnitOfPrivacy`](crate::UnitOfPrivacy)): one example, or all
//!   examples of one user.
//! - The **relation** ([`NeighboringRelation`](crate::NeighboringRelation)): one unit is added or
//!   removed, or one unit is replaced by another. Under replace-one the sensitivity of a clipped
//!   sum is `2C`. A noise multiplier is always the noise over `C`; the accountants apply the
//!   relation.
//! - **δ**, which should be far below one over the number of units.
//!
//! ## Which accountant
//!
//! [`PrivacyLedger::epsilon`](crate::PrivacyLedger::epsilon) chooses the tightest guarantee among
//! the accountants below. Use it unless you need one of them. All of them implement
//! [`Accountant`](crate::Accountant).
//!
//! - [`PldAccountant`](crate::PldAccountant): a certified bracket `[lower, upper]` that contains
//!   the true ε. For guarantees.
//! - [`GdpAccountant`](crate::GdpAccountant): closed forms for Gaussian releases without sampling.
//! - [`RdpAccountant`](crate::RdpAccountant): an upper bound, typically 5 to 15 % too large, and
//!   far more for small sampling probabilities. For hyperparameter search and zero-concentrated
//!   events.
//! - [`ExactAccountant`](crate::ExactAccountant): the true ε to nine digits, in about a
//!   millisecond, and up to seconds if a few rare losses decide. Its error is estimated, not
//!   proven. For searches and comparisons.
//!
//! Two further types are not accountants: [`GaussianDp`](crate::GaussianDp) (the calculus of f-DP)
//! and [`CentralLimitEstimate`](crate::CentralLimitEstimate), an approximation of older papers that
//! can be far too small.
//!
//! ## What the bracket contains
//!
//! `upper` is the number to report. Between `lower` and `upper` lie the error of the grid, the
//! truncation of the privacy loss, the wrap-around of the transform, and the rounding of every
//! operation. The grid is refined until the relative width is at most 1e-4, and further as long as
//! that costs only milliseconds, within limits on memory. If that does not suffice (a few steps
//! with a tiny sampling probability, where nearly all of the loss is one value), a note says so and
//! the bracket stays valid.
//!
//! ## What is known for which event
//!
//! | event | add or remove one, replace special | replace one |
//! |---|---|---|
//! | Gaussian, joint Gaussian | exact | exact |
//! | Gaussian under Poisson sampling | exact | exact |
//! | Laplace | exact | exact |
//! | Laplace under Poisson sampling | exact | upper bound: without sampling |
//! | fixed-size sampling | see below | certified upper bound |
//! | truncated Poisson | bracket | bracket |
//! | zero-concentrated | Rényi bound | Rényi bound |
//! | (ε, δ) | bound by randomized response | bound by randomized response |
//! | repeat-and-select | Rényi bound | Rényi bound |
//! | non-private | infinite | infinite |
//!
//! - Poisson sampling under replace-one: the proof is next to the dominating pair in the source.
//! - Fixed-size sampling, with and without replacement: add-or-remove-one is an error, because the
//!   size of the data set is fixed. Replace-special is analyzed as replace-one. Without replacement
//!   the lower end comes from a data set that attains it.
//! - Truncated Poisson sampling: δ is widened by the probability of a cut.
//!
//! ## Searching
//!
//! [`Calibration`](crate::Calibration) finds noise, steps, sampling probability or batch size for a
//! budget and rounds to the safe side: the certified upper end at the returned value was computed
//! and meets the budget.
//!
//! A search for hyperparameters on private data is itself a release. Record it as
//! [`DpEvent::RepeatAndSelect`](crate::DpEvent::RepeatAndSelect), or search with runs that are
//! never released and plan with [`RunPlan`](crate::RunPlan).
