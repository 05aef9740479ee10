//! # Accounting
//!
//! What the numbers mean, and which accountant to use.
//!
//! ## The guarantee
//!
//! A training is (ε, δ)-differentially private if, for every two neighbouring data sets and every set of
//! outcomes, `P[M(D) ∈ S] <= e^ε P[M(D') ∈ S] + δ`. Three things belong to the number, and a
//! [`PrivacyStatement`](crate::PrivacyStatement) always says them:
//!
//! - the **unit** that is hidden ([`UnitOfPrivacy`](crate::UnitOfPrivacy)): one example, or all of one user;
//! - the **relation** ([`NeighboringRelation`](crate::NeighboringRelation)): one unit more or less, or one
//!   replaced by another. Under replace-one the sensitivity of a clipped sum is `2C`. A noise multiplier is
//!   always the noise over `C`; the accountants apply the relation;
//! - **δ**, which should be far below one over the number of units.
//!
//! ## Which accountant
//!
//! | | what it gives | when |
//! |---|---|---|
//! | [`PrivacyLedger::epsilon`](crate::PrivacyLedger::epsilon) | the best guarantee there is, chosen among the ones below | always |
//! | [`PldAccountant`](crate::PldAccountant) | a certified bracket `[lower, upper]` that contains the true ε | guarantees |
//! | [`ExactAccountant`](crate::ExactAccountant) | the true ε to nine digits, in about a millisecond (up to seconds where a few rare losses decide); its error is estimated, not proven | searches, comparisons |
//! | [`RdpAccountant`](crate::RdpAccountant) | an upper bound, typically 5 to 15 % too large, far more for small sampling probabilities | hyper-parameter search, zCDP |
//! | [`GaussianDp`](crate::GaussianDp) | closed forms for Gaussian releases without sampling | teaching, f-DP |
//! | [`CentralLimitEstimate`](crate::CentralLimitEstimate) | an approximation that can be far too small | reading older papers |
//!
//! ## What the bracket contains
//!
//! `upper` is printed to people. Between `lower` and `upper` lie the error of the grid, the truncation of
//! the privacy loss, the wrap-around of the transform, and the rounding of every operation. The grid is
//! refined until the relative width is at most 1e-4, and further as long as that costs milliseconds; within
//! bounds on memory. Where that does not suffice
//! (a few steps with a tiny sampling probability, where nearly all of the loss is one value), a note
//! says so and the bracket stays valid.
//!
//! ## What is known for which event
//!
//! | event | add or remove one, replace special | replace one |
//! |---|---|---|
//! | Gaussian, joint Gaussian | exact | exact |
//! | the same under Poisson sampling | exact | exact (proof at the dominating pair in the source) |
//! | Laplace | exact | exact |
//! | Laplace under Poisson sampling | exact | upper bound, that without sampling |
//! | fixed-size sampling, with and without replacement | refused under add-or-remove (the size is fixed); replace-special as replace-one | certified upper bound; lower end from a data set that attains it (without replacement) |
//! | truncated Poisson | bracket, δ widened by the probability of a cut | the same |
//! | zero-concentrated | Rényi bound | Rényi bound |
//! | (ε, δ) | bound by randomised response | the same |
//! | repeat-and-select | Rényi bound | Rényi bound |
//! | non-private | infinite | infinite |
//!
//! ## Searching
//!
//! [`Calibration`](crate::Calibration) finds noise, steps, sampling probability or batch size for a budget and
//! rounds to the safe side: the certified upper end at the returned value was computed and meets the budget.
//! A search for hyper-parameters on private data is itself a release: record it as
//! [`DpEvent::RepeatAndSelect`](crate::DpEvent::RepeatAndSelect), or search on runs that are never released
//! and plan with [`RunPlan`](crate::RunPlan).
