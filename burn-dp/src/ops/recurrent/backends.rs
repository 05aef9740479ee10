use super::RecurrentOps;

#[cfg(feature = "flex")]
impl RecurrentOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl RecurrentOps for burn::backend::NdArray {}

#[cfg(feature = "cube")]
impl RecurrentOps for burn_cubecl::CubeBackend {}
