//! Per-example norms, gradients and coefficients by kernels, on devices that compile kernels.
//!
//! | file | content |
//! |---|---|
//! | `norms` | squared norms of rows, rounded up |
//! | `convolutions` | gradients of small convolutions |
//! | `coefficients` | clipping coefficients |
//! | `selection` | products with coefficients that leave out examples |
//! | `layout` | sizes and words that kernels and their callers share |
//! | `kernel_ops` | the kernels, for the dispatch of Burn |

mod coefficients;
mod convolutions;
mod kernel_ops;
mod layout;
mod norms;
mod selection;

pub(crate) use coefficients::coefficients;
pub(super) use convolutions::small_convolution_gradients;
pub use kernel_ops::KernelOps;
pub use layout::{ClippingWords, RoundedUp};
pub(crate) use layout::{DeviceClipping, DeviceGroup, DeviceParameter, single_above};
#[cfg(feature = "cube")]
pub(super) use layout::{PART, PROCESSOR_UNITS, RUN, UNITS, gradients_shape, parts_shape, words};
pub(crate) use norms::norm_products;
pub(super) use norms::row_squared_norms;
pub(crate) use selection::{
    kept_examples, scaled_examples, selected_outer_products, selected_rows, selects,
};
