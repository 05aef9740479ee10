//! The parametric primitives: Burn's operations with parameters, with a backward step that can yield
//! per-example information instead of the summed gradient.
//!
//! [`ParametricOps`] extends every backend. On a plain backend a primitive *is* Burn's operation. On
//! an autodiff backend its backward step is hand-written and does one of two things: the ordinary
//! thing, or, while a [recording](crate::grads) is active on the thread, it hands the layer's input
//! and the gradient of its output to the recording and computes no gradient of the parameters.

mod autodiff;
mod backends;
#[cfg(feature = "flex")]
mod flex;
mod functions;
mod layer;
mod patches;
mod recurrent;
mod slot;

use burn::backend::{Backend, ExtensionType, backend_extension, tensor::FloatTensor};
use burn::tensor::ops::ConvOptions;
pub(crate) use functions::{conv2d, linear, patches, row_squared_norms, take};
pub use layer::LayerIds;
pub(crate) use layer::LayerRule;
pub use patches::Patches;
pub(crate) use recurrent::recurrent;
pub use recurrent::{Cell, GateFunction, HiddenParameters, Recurrence, RecurrentOps};
pub use slot::Slot;

/// A bias that a layer may have.
#[doc(hidden)]
#[derive(ExtensionType)]
pub enum Bias<B: Backend> {
    /// The layer has this bias, `[d_output]`.
    Present(FloatTensor<B>),
    /// The layer has none.
    Absent,
}

impl<B: Backend> Bias<B> {
    fn into_option(self) -> Option<FloatTensor<B>> {
        match self {
            Self::Present(bias) => Some(bias),
            Self::Absent => None,
        }
    }
}

/// The parametric primitives of a backend.
///
/// An implementation detail that is public because Burn's dispatch needs it to be.
#[doc(hidden)]
#[backend_extension(
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    Cube: cfg(feature = "cube"),
    Autodiff,
    Fusion: cfg(feature = "fusion"),
)]
pub trait ParametricOps: Backend {
    /// `input @ weight + bias`, the batch on axis 0 of `input`.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn parametric_linear(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Bias<Self>,
        layer: LayerIds,
    ) -> FloatTensor<Self> {
        Self::linear(input, weight, bias.into_option())
    }

    /// Two-dimensional convolution.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn parametric_conv2d(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Bias<Self>,
        options: ConvOptions<2>,
        layer: LayerIds,
    ) -> FloatTensor<Self> {
        Self::conv2d(input, weight, bias.into_option(), options)
    }

    /// The patches that the kernel of a convolution sees, `[batch_size · groups, channels / groups ·
    /// kernel_height · kernel_width, height_out · width_out]`, where the backend has a better way than
    /// views and a copy.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_patches(input: FloatTensor<Self>, patches: Patches) -> Option<FloatTensor<Self>> {
        None
    }

    /// Squared norms of rows, `[rows, values]` to `[rows]`, where the backend has a better way than a
    /// product and a sum.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_row_squared_norms(rows: FloatTensor<Self>) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the tensor that a recording stored in `slot`; `witness` routes the call to the
    /// backend that stored it.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn take_recorded(witness: FloatTensor<Self>, slot: Slot) -> FloatTensor<Self> {
        slot.take::<FloatTensor<Self>>()
    }
}
