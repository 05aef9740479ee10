//! # Accounting
//!
//! The meaning of the numbers, and the choice of an accountant.
//!
//! ## The guarantee
//!
//! A training run is (ε, δ)-differentially private if, for every two neighboring data sets and
//! every set of outcomes, `P[M(D) ∈ S] <= e^ε P[M(D') ∈ S] + δ`. Three terms belong to the number,
//! and a [`PrivacyStatement`](crate::PrivacyStatement) always states them:
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
//! - [`RdpAccountant`](crate::RdpAccountant): an upper bound, typically 5 to 15% too large, and far
//!   more for small sampling probabilities. For hyperparameter search and zero-concentrated events.
//! - [`ExactAccountant`](crate::ExactAccountant): the true ε to nine digits, in about a
//!   millisecond, and up to seconds if a few rare losses dominate. Its error is estimated, not
//!   proven. For searches and comparisons.
//!
//! - [`MonteCarloAccountant`](crate::MonteCarloAccountant): a bound from random privacy losses, for
//!   participations and correlated noise without a tight certified bound. Its failure probability
//!   is part of δ. A ledger uses it only with a [`Simulation`](crate::Simulation): see below.
//!
//! Two further types are not accountants: [`GaussianDp`](crate::GaussianDp) (the calculus of f-DP)
//! and [`CentralLimitEstimate`](crate::CentralLimitEstimate), an approximation of older papers that
//! can be far too small.
//!
//! ## What the bracket contains
//!
//! `upper` is the number to report. The gap between `lower` and `upper` covers the error of the
//! grid, the truncation of the privacy loss, the wrap-around of the transform, and the rounding of
//! every operation. The grid is refined until the relative width is at most 1e-4, and further as
//! long as this takes only milliseconds, within limits on memory. If this is not sufficient (a few
//! steps with a tiny sampling probability, where nearly all of the loss is one value), a note says
//! so and the bracket stays valid.
//!
//! ## Known results for each event
//!
//! | event | add or remove one, replace special | replace one |
//! |---|---|---|
//! | Gaussian, joint Gaussian | exact | exact |
//! | Gaussian under Poisson sampling | exact | exact |
//! | correlated Gaussian | see below | see below |
//! | Laplace | exact | exact |
//! | Laplace under Poisson sampling | exact | upper bound: without sampling |
//! | fixed-size sampling | see below | certified upper bound |
//! | truncated Poisson | bracket, tight upper end | bracket |
//! | truncated Poisson, several examples | upper bound; zero-out is refused | refused |
//! | random allocation, one step | bracket | upper bound: without amplification |
//! | random allocation, several steps | upper bound | upper bound: without amplification |
//! | Gaussian mixture on a line | exact | refused |
//! | patterned Gaussian, other mixtures | upper bound; simulation | refused |
//! | discrete Gaussian | exact | exact |
//! | exponential mechanism | pure and Rényi bound | pure and Rényi bound |
//! | zero-concentrated | Rényi bound | Rényi bound |
//! | (ε, δ) | bound by randomized response | bound by randomized response |
//! | repeat-and-select | upper bound | upper bound |
//! | non-private | infinite | infinite |
//!
//! - Correlated Gaussian: a whole run is one Gaussian release, one sampled release for each round
//!   of cyclic Poisson sampling, or, with one band, the allocation of bins or the Poisson sampling
//!   of a minimum separation. Bins of several bands are an allocation to as many bins as do not
//!   share noise. The answer is exact if the sensitivity of the strategy is, and otherwise an upper
//!   bound: see [`correlated_noise`](crate::correlated_noise). A simulation includes the
//!   amplification of several bands.
//! - Poisson sampling under replace-one: the proof is next to the dominating pair in the source.
//! - Fixed-size sampling, with and without replacement: add-or-remove-one is an error, because the
//!   size of the data set is fixed. Replace-special is analyzed as replace-one. Without replacement
//!   the lower end comes from a data set that attains it.
//! - Truncated Poisson sampling: a cut batch changes by two contributions, because the unit
//!   displaces another one, with the probability that the unit is in a cut batch. The lower end
//!   comes from the data set whose other units contribute nothing. ε stays finite where the cap is
//!   the mean. Several examples of a unit (add-or-remove-one): up to twice as many contributions as
//!   it has drawn examples if the batch may be cut, and as many as drawn otherwise.
//! - Random allocation (balls in bins): the likelihood ratio is a mean of log-normal variables,
//!   bounded from both sides in convex order. The same bins in all epochs are one event; new bins
//!   in each epoch compose. Several steps in an epoch are bounded by blocks with one step each.
//! - Gaussian mixture: exact if all means are on one side of one line, as the number of drawn
//!   examples of one unit ([`DpEvent::poisson_sampled_examples`](crate::DpEvent)). Otherwise the
//!   component is assumed to be known.
//! - Patterned Gaussian releases (minimum separation, bins and cyclic sampling with correlated
//!   noise): the pattern as part of the outcome is certified. Cyclic Poisson sampling keeps its
//!   amplification; for the other patterns, only the simulation includes it.
//! - Repeat-and-select: the δ of one run at every ε bounds how much better a result can rank in one
//!   data set than in its neighbor, and so the δ of the search at every ε. That ε is up to a third
//!   below the Rényi bound, which remains where no privacy loss distribution of a run is known.
//!
//! ## Events that each accountant supports
//!
//! Under add-or-remove-one, and replace-one for fixed sizes. "yes" is an answer, which may be a
//! bound; "no" is an error. [`PrivacyLedger`](crate::PrivacyLedger) supports every event that one
//! of the first four supports.
//!
//! | event | pld | rdp | exact | gdp | monte carlo |
//! |---|---|---|---|---|---|
//! | gaussian | yes | yes | yes | yes | yes |
//! | joint_gaussian | yes | yes | yes | yes | yes |
//! | poisson_gaussian | yes | yes | yes | no | yes |
//! | laplace | yes | yes | no | no | no |
//! | poisson_laplace | yes | yes | no | no | no |
//! | truncated_poisson | yes | yes | no | no | yes |
//! | truncated_poisson_examples | yes | yes | no | no | no |
//! | without_replacement | yes | yes | no | no | no |
//! | with_replacement | yes | no | no | no | no |
//! | random_allocation | yes | yes | no | no | yes |
//! | correlated_bins | yes | yes | no | no | yes |
//! | correlated_separation | yes | yes | no | yes | yes |
//! | patterned | yes | yes | no | yes | yes |
//! | gaussian_mixture | yes | yes | no | no | yes |
//! | discrete_gaussian | yes | yes | no | no | no |
//! | exponential | yes | yes | no | no | no |
//! | zero_concentrated | no | yes | no | no | no |
//! | epsilon_delta | yes | yes | no | no | no |
//! | repeat_and_select | yes | yes | no | no | no |
//!
//! ## Simulation
//!
//! Random participations with correlated noise of several bands have no tight certified analysis. A
//! ledger whose header has a [`Simulation`](crate::Simulation), and a
//! [`Calibration`](crate::Calibration) with one, draw privacy losses of the whole composition. The
//! result is still a bracket: the lower end is certified, and the upper end is the smaller of the
//! two bounds. The method and the notes say which one it is, with the seed and the failure
//! probability, which is part of δ and covers all answers together. Where the certified analysis is
//! tight, nothing is simulated.
//!
//! - Balls in bins, any strategy: the losses follow from the inner products of the bins. They are
//!   drawn from the square or the cube of the likelihood ratio, whose terms have a proven bound.
//!   With 100 bins, 4 epochs and 4 bands, a million samples bound ε by 4.13 (estimate: 4.08,
//!   certified: 5.38) at δ = 1e-6, and by 5.55 (5.46, 6.80) at δ = 1e-8.
//! - Fresh bins and a minimum separation: all steps are drawn, from the losses themselves, so that
//!   δ needs about `60 / δ` samples.
//! - Everything is an upper bound even if contributions depend on earlier outputs; the proof is in
//!   the source (`monte_carlo/correlated.rs`). Under replace-one, two opposite contributions are
//!   drawn.
//!
//! ## Releases that depend on earlier ones
//!
//! The ledger composes releases that were fixed in advance, or whose parameters are public. If
//! noise, sampling, or the number of releases depend on released values, check each release with a
//! [`PrivacyFilter`](crate::PrivacyFilter) first: it rejects releases that would exceed the budget.
//! [`PrivacyOdometer`](crate::PrivacyOdometer) has no budget and costs more.
//!
//! ## Several units, several statements
//!
//! [`PrivacyLedger::group_epsilon`](crate::PrivacyLedger::group_epsilon) is the guarantee for `k`
//! units at once. [`PrivacyStatement::compare`](crate::PrivacyStatement::compare) returns which of
//! two guarantees is stronger at each δ, and
//! [`TradeoffCurve::gaussian_fit`](crate::TradeoffCurve::gaussian_fit) summarizes a curve by one μ.
//!
//! ## Searching
//!
//! [`Calibration`](crate::Calibration) finds noise, steps, sampling probability or batch size for a
//! budget and rounds to the safe side: the certified upper end at the returned value was computed
//! and meets the budget.
//!
//! A hyperparameter search on private data is itself a release; see the module
//! [`search`](crate::search). The best of several runs must not be reported as one run:
//! [`PrivacyStatement::from_runs`](crate::PrivacyStatement::from_runs) counts all of them.
//! [`RunPlan`](crate::RunPlan) plans a large run from small ones.
