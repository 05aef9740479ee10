//! Gaussian differential privacy, trade-off functions, and the central-limit approximations.

mod accountant;
mod approximation;
mod fit;
mod gaussian;
mod tradeoff;

pub use accountant::GdpAccountant;
pub use approximation::{ApproximateEpsilon, CentralLimitEstimate};
pub use fit::GaussianFit;
pub use gaussian::GaussianDp;
pub(crate) use gaussian::gaussian_bracket;
pub use tradeoff::{TradeoffCurve, TradeoffFunction};
