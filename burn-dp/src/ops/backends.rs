use super::ParametricOps;

#[cfg(feature = "ndarray")]
impl ParametricOps for burn::backend::NdArray {}

#[cfg(feature = "cube")]
impl ParametricOps for burn_cubecl::CubeBackend {}
