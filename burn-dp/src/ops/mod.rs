//! The parametric primitives: Burn's operations with parameters, with a backward step that can yield
//! per-example information instead of the summed gradient.
//!
//! A primitive is Burn's own operation with its parameters as constants, followed by a *tap*: an
//! identity whose parents are the output and the parameters, and which keeps what their gradients
//! follow from. Its backward step is hand-written and does one of two things: the ordinary thing, or,
//! while a [recording](crate::grads) is active on the thread, it hands what was kept and the gradient
//! of the output to the recording and computes no gradient of the parameters. The gradient of the
//! layer's input is Burn's in both cases, and so is the output.
//!
//! [`ParametricOps`] extends every backend with the tap and with what the rules need of a backend.

mod autodiff;
mod backends;
mod convolution;
#[cfg(feature = "flex")]
mod flex;
mod functions;
mod kept;
mod patches;
mod primitive;
pub(crate) mod recording;
mod recurrent;
mod slot;

use burn::backend::{
    Backend, TensorMetadata, backend_extension,
    tensor::{FloatTensor, IntTensor},
};
use burn::tensor::Shape;
pub(crate) use functions::{
    apply, convolution, indexed_squared_norms, keep, keep_deformed, keep_ids, patches,
    row_squared_norms, row_sums, take, take_ids, take_rows, weight_gradient,
};
pub use kept::{Bias, Kept};
pub use patches::Patches;
pub use primitive::{LayerIds, Primitive};
pub(crate) use recurrent::recurrent;
pub use recurrent::{Cell, GateFunction, GateIds, GateParameters, Recurrence, RecurrentOps};
pub use slot::Slot;

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
    Remote: cfg(feature = "remote"),
)]
pub trait ParametricOps: Backend {
    /// Returns `output`, whose gradient will be the source of the parameters' gradients.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn tap(
        output: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Bias<Self>,
        #[extension_type] kept: Kept<Self>,
        layer: LayerIds,
        primitive: Primitive,
    ) -> FloatTensor<Self> {
        output
    }

    /// A convolution with parameters that are constants: its backward step gives the gradient of the input
    /// alone and keeps nothing but the weight.
    #[fusion(default)]
    fn convolution(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Bias<Self>,
        primitive: Primitive,
    ) -> FloatTensor<Self> {
        primitive.convolution::<Self>(input, weight, bias.into_option())
    }

    /// The gradient of a weight of shape `weight`, summed over the batch and flattened.
    #[fusion(default)]
    fn weight_gradient(
        output_grad: FloatTensor<Self>,
        #[extension_type] kept: Kept<Self>,
        weight: Shape,
        primitive: Primitive,
    ) -> FloatTensor<Self> {
        let values = Shape::new([weight.num_elements()]);
        Self::float_reshape(primitive.weight_gradient::<Self>(kept, weight, output_grad), values)
    }

    /// The patches that the kernel of a convolution sees, `[batch_size · groups, channels / groups ·
    /// kernel values, positions]` of `[batch_size, channels, depth, height, width]`, where the backend
    /// has a better way than views and a copy.
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

    /// Per example, `Σ_v ‖Σ_{t: ids[t] = v} rows[t]‖²`, `[batch_size]`, of `ids: [batch_size, positions]`
    /// and `rows: [batch_size, positions, features]`, where the backend has a better way than comparing
    /// all pairs of positions.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_indexed_squared_norms(
        ids: IntTensor<Self>,
        rows: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the tensor that a recording stored in `slot`; `witness` routes the call to the
    /// backend that stored it.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn take_recorded(witness: FloatTensor<Self>, slot: Slot) -> FloatTensor<Self> {
        slot.take::<FloatTensor<Self>>()
    }

    /// The same, with the rows flattened: `[batch_size, values]`.
    #[fusion(default)]
    fn take_recorded_rows(witness: FloatTensor<Self>, slot: Slot) -> FloatTensor<Self> {
        let tensor = Self::take_recorded(witness, slot);
        let shape = tensor.shape();
        let rows = Shape::new([shape[0], shape.iter().skip(1).product()]);
        Self::float_reshape(tensor, rows)
    }

    /// The same for indices.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn take_recorded_ids(witness: FloatTensor<Self>, slot: Slot) -> IntTensor<Self> {
        slot.take::<IntTensor<Self>>()
    }
}
