//! The backends. Each has Burn's own operations; a folder holds the native kernels of its backend.

#[cfg(feature = "flex")]
mod flex;

#[cfg(any(feature = "ndarray", feature = "cube", feature = "remote"))]
use super::{ParametricOps, RecurrentOps};

#[cfg(feature = "ndarray")]
impl ParametricOps for burn::backend::NdArray {}

#[cfg(feature = "ndarray")]
impl RecurrentOps for burn::backend::NdArray {}

#[cfg(feature = "cube")]
impl ParametricOps for burn_cubecl::CubeBackend {}

#[cfg(feature = "cube")]
impl RecurrentOps for burn_cubecl::CubeBackend {}

/// The client side of a remote device: the server runs Burn's own operations.
#[cfg(feature = "remote")]
impl<C: burn_router::RouterChannel> ParametricOps for burn_router::BackendRouter<C> {}

#[cfg(feature = "remote")]
impl<C: burn_router::RouterChannel> RecurrentOps for burn_router::BackendRouter<C> {}
