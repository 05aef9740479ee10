//! Gaussian differential privacy, trade-off functions, and the central-limit approximations.

mod approximation;
mod gaussian;
mod tradeoff;

pub use approximation::{ApproximateEpsilon, CentralLimitEstimate};
pub use gaussian::GaussianDp;
pub use tradeoff::{TradeoffCurve, TradeoffFunction};
