use super::ParametricOps;

#[cfg(feature = "flex")]
impl ParametricOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
impl ParametricOps for burn::backend::NdArray {}

#[cfg(feature = "cube")]
impl ParametricOps for burn_cubecl::CubeBackend {}
