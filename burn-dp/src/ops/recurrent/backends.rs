use super::RecurrentOps;

#[cfg(feature = "flex")]
impl RecurrentOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl RecurrentOps for burn::backend::NdArray {}

#[cfg(feature = "cube")]
impl RecurrentOps for burn_cubecl::CubeBackend {}

/// The client side of a remote device: Burn's own operations are what the server runs.
#[cfg(feature = "remote")]
impl<C: burn_router::RouterChannel> RecurrentOps for burn_router::BackendRouter<C> {}
