//! # Correlated noise
//!
//! Noise that is correlated over the steps of a run (DP-FTRL, matrix factorization): the noise of a
//! step cancels a part of earlier noise, so that sums over steps have a smaller error for the same
//! privacy.
//!
//! ## The mechanism
//!
//! A [`Strategy`] is a lower-triangular matrix `C` with one row and one column for each step. Step
//! `t` releases `G_t + σ (C^-1 z)_t`, where `G_t` is the clipped sum over the clipping threshold
//! and the `z_t` are independent standard normals. All steps together, multiplied by `C`, are one
//! Gaussian release `C G + σ z`. Later sums may depend on earlier releases (Denisov et al. 2022,
//! Theorem 2.1).
//!
//! - **Sensitivity.** A unit changes `C G` by at most [`Strategy::sensitivity`], which depends on
//!   how often and how far apart the unit takes part ([`Participation::AtMost`]). A whole run costs
//!   one Gaussian release of noise multiplier σ over the sensitivity, and nothing is amplified.
//! - **Amplification.** With at most as many bands as parts of [`Participation::CyclicPoisson`],
//!   the participations of a unit do not overlap. A run then costs one Poisson-sampled Gaussian
//!   release for each round over the parts. With one band, a random step in each epoch
//!   ([`Participation::BallsInBins`], [`Participation::RandomAllocation`]) and a minimum separation
//!   ([`Participation::MinSeparation`]) are also amplified. With several bands, bins are amplified
//!   to the extent that they do not share noise, and a [`Simulation`](crate::Simulation) includes
//!   the amplification of bins, fresh bins and a minimum separation.
//! - **Error.** Let `A` be the workload that a run computes from its sums, such as prefix sums for
//!   SGD. The squared error of answer `t` is the squared norm of row `t` of `A C^-1`
//!   ([`Strategy::squared_errors`]). The loss of a strategy is the error times the squared
//!   sensitivity ([`Strategy::loss`]).
//!
//! One step of a run is the event
//! [`DpEvent::CorrelatedGaussian`](crate::DpEvent::CorrelatedGaussian). The
//! [`PrivacyLedger`](crate::PrivacyLedger) merges consecutive steps into one entry. Two runs are
//! two entries, whose costs add.
//!
//! ## The strategies
//!
//! | strategy | noise of a step | memory, in models |
//! |---|---|---|
//! | [`identity`](Strategy::identity) | independent | none |
//! | [`optimal_toeplitz`](Strategy::optimal_toeplitz) | combines all earlier noise | the steps |
//! | [`banded_toeplitz`](Strategy::banded_toeplitz) | combines the last steps | bands less one |
//! | [`banded_inverse`](Strategy::banded_inverse) | combines the last steps | bands less one |
//! | [`buffered`](Strategy::buffered) (BLT) | combines a few decaying buffers | buffers |
//! | [`tree`](Strategy::tree) | combines nodes of a binary tree | `log2` of the steps |
//! | [`dense`](Strategy::dense) | combines all earlier noise | the steps |
//!
//! [`StrategySearch`] finds the best strategy of a family, and [`Strategy::load_or_search`] keeps
//! results in a folder. [`Strategy::noising`] describes how to generate the noise step by step.
//!
//! ## Sensitivity
//!
//! Contributions `u_i` of norm at most 1 in the steps of a pattern π change `C G` by the squared
//! norm `Σ_{i,j ∈ π} X[i, j] ⟨u_i, u_j⟩` with `X = C^T C`.
//!
//! - It is exact for one participation (the largest norm of a column), and if the bands of two
//!   participations cannot overlap (a sum of squared norms).
//! - For non-negative and non-increasing Toeplitz coefficients it is the squared norm of
//!   `Σ_{j<k} C[:, j b]` (Kalinin and Lampert 2024).
//! - Otherwise the smallest of several bounds is used: `Σ_{i,j ∈ π} |X[i, j]|` by dynamic
//!   programming over the patterns; the rule above for the non-increasing majorant of the absolute
//!   coefficients, which is the maximum of each and all *later* ones; and the Cauchy–Schwarz
//!   inequality in each row.
//!
//! # Example
//!
//! ```
//! use burn_dp_accountant::correlated_noise::{Participation, Strategy, StrategySearch, Workload};
//! use burn_dp_accountant::{Budget, DpEvent, calibrate_noise_multiplier};
//!
//! // The best strategy of two buffers for 1,000 steps, in which a unit takes part at most 4 times.
//! let search = StrategySearch::new(1_000)?.with_participation(4, 250)?;
//! let strategy = search.buffered(2)?;
//! let independent = Strategy::identity(1_000)?;
//! assert!(search.loss_of(&strategy)? < 0.3 * search.loss_of(&independent)?);
//!
//! // The noise of the whole run within a budget.
//! let participation = Participation::AtMost { times: 4, separation: 250 };
//! let step = |sigma| DpEvent::correlated_gaussian(sigma, &strategy, participation);
//! let sigma = calibrate_noise_multiplier(Budget::new(2.0, 1e-6)?, 1_000, step)?;
//!
//! // The noise of three steps.
//! let noising = strategy.noising();
//! let mut stream = noising.stream();
//! // There is none after the last step.
//! let noise = [0.3, -1.1, 0.8].map(|z| stream.next(z).map(|noise| sigma * noise));
//! # assert!(noise[1].is_some_and(|noise| noise.abs() < 20.0));
//! # Ok::<(), burn_dp_accountant::AccountantError>(())
//! ```
//!
//! # References
//!
//! - "Improved Differential Privacy for SGD via Optimal Private Linear Operators on Adaptive
//!   Streams", Denisov, McMahan, Rush, Smith, Thakurta 2022.
//! - "Multi-Epoch Matrix Factorization Mechanisms for Private Machine Learning", Choquette-Choo,
//!   McMahan, Rush, Thakurta 2023, and "(Amplified) Banded Matrix Factorization: A unified approach
//!   to private training", Choquette-Choo et al. 2023.
//! - "Efficient and Near-Optimal Noise Generation for Streaming Differential Privacy", Dvijotham,
//!   McMahan, Pillutla, Steinke, Thakurta 2024 (BLT).
//! - "Scaling up the Banded Matrix Factorization Mechanism for Differentially Private ML", McKenna
//!   2025.
//! - "Banded Square Root Matrix Factorization for Differentially Private Model Training", Kalinin,
//!   Lampert 2024 (sensitivity).
//! - "Back to Square Roots: An Optimal Bound on the Matrix Factorization Error for Multi-Epoch
//!   Differentially Private SGD", Kalinin, McKenna, Upadhyay, Lampert 2025 (banded inverse square
//!   root).
//! - "Constant Matters: Fine-grained Error Bound on Differentially Private Continual Observation",
//!   Fichtenberger, Henzinger, Upadhyay 2023 (optimal Toeplitz).

mod participation;
mod patterns;
mod series;
mod strategy;
mod strategy_search;
mod triangle;
mod workload;

pub use participation::Participation;
pub(crate) use strategy::Sensitivity;
pub use strategy::{
    NoiseRecipe, NoiseStream, Noising, SquaredErrors, Strategy, StrategyLoss, StrategyMatrix,
};
pub use strategy_search::{Objective, StrategyFamily, StrategySearch};
pub use workload::Workload;
