//! The backends. Each has Burn's own operations; a folder holds the native kernels of its backend.

#[cfg(feature = "cube")]
pub(super) mod cube;
#[cfg(feature = "flex")]
mod flex;

use burn::backend::Dispatch;
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{FusedOps, KernelOps, ReleaseOps};

#[cfg(any(feature = "ndarray", feature = "cube", feature = "remote"))]
use super::{LayerOps, ParametricOps};

/// The recurrent primitive chooses kernels by the backend that the dispatch leads to.
impl FusedOps for Dispatch {
    type Packed = ();
}

#[cfg(feature = "ndarray")]
impl ParametricOps for burn::backend::NdArray {}

#[cfg(feature = "ndarray")]
impl FusedOps for burn::backend::NdArray {
    type Packed = ();
}

#[cfg(feature = "ndarray")]
impl LayerOps for burn::backend::NdArray {}

/// The CPU backends release on the host, where their sums are.
#[cfg(feature = "flex")]
impl ReleaseOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl ReleaseOps for burn::backend::NdArray {}

/// The CPU backends have native kernels for norms, or compute them by Burn's operations.
#[cfg(feature = "flex")]
impl KernelOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl KernelOps for burn::backend::NdArray {}

/// Norms have no gradient.
impl<B: KernelOps, C: CheckpointStrategy> KernelOps for Autodiff<B, C> {}

/// Sums have no gradient.
impl<B: ReleaseOps, C: CheckpointStrategy> ReleaseOps for Autodiff<B, C> {}

#[cfg(feature = "cube")]
impl ParametricOps for burn_cubecl::CubeBackend {}

#[cfg(feature = "cube")]
impl FusedOps for burn_cubecl::CubeBackend {
    type Packed = ();
}

#[cfg(feature = "cube")]
impl LayerOps for burn_cubecl::CubeBackend {}

/// Fusion compiles its own kernels.
#[cfg(feature = "fusion")]
impl<B: burn_fusion::FusionBackend> FusedOps for burn_fusion::Fusion<B> {
    type Packed = ();
}

/// The client side of a remote device: the server runs Burn's own operations.
#[cfg(feature = "remote")]
impl<C: burn_router::RouterChannel> ParametricOps for burn_router::BackendRouter<C> {}

#[cfg(feature = "remote")]
impl<C: burn_router::RouterChannel> FusedOps for burn_router::BackendRouter<C> {
    type Packed = ();
}

#[cfg(feature = "remote")]
impl<C: burn_router::RouterChannel> LayerOps for burn_router::BackendRouter<C> {}

#[cfg(feature = "remote")]
impl<C: burn_router::RouterChannel> ReleaseOps for burn_router::BackendRouter<C> {}

#[cfg(feature = "remote")]
impl<C: burn_router::RouterChannel> KernelOps for burn_router::BackendRouter<C> {}
