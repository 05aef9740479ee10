use super::ParametricOps;

#[cfg(feature = "ndarray")]
impl ParametricOps for burn::backend::NdArray {}

#[cfg(feature = "cube")]
impl ParametricOps for burn_cubecl::CubeBackend {}

/// The client side of a remote device: Burn's own operations are what the server runs.
#[cfg(feature = "remote")]
impl<C: burn_router::RouterChannel> ParametricOps for burn_router::BackendRouter<C> {}
