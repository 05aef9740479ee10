use burn::backend::{
    Backend, TensorMetadata, backend_extension,
    tensor::{FloatTensor, IntTensor, QuantizedTensor},
};
use burn::tensor::Shape;

use super::primitives::{scale, standardized};
use super::{Bias, Convolution, Kept, LayerIds, Patches, Primitive, Slot};

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
    /// Returns `output`. The gradients of the parameters are computed from its gradient.
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

    /// Computes `input @ weight + bias`, whose parameters are constants. Its backward step computes
    /// only the gradient of the input and keeps only the weight.
    #[fusion(default)]
    fn matrix_product(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Bias<Self>,
    ) -> FloatTensor<Self> {
        Self::linear(input, weight, bias.into_option())
    }

    /// Returns the gradient of the input of [`matrix_product`](Self::matrix_product).
    #[fusion(default)]
    fn matrix_product_input_gradient(
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        Self::linear_x_backward(weight, grad)
    }

    /// Computes `input ∘ weight + bias`, both along `axis`, whose parameters are constants. Its
    /// backward step computes only the gradient of the input and keeps only the weight.
    #[fusion(default)]
    fn affine(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Bias<Self>,
        axis: usize,
    ) -> FloatTensor<Self> {
        scale::affine::<Self>(input, weight, bias.into_option(), axis)
    }

    /// Computes a convolution whose parameters are constants. Its backward step computes only the
    /// gradient of the input and keeps only the weight.
    #[fusion(default)]
    fn convolution(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Bias<Self>,
        convolution: Convolution,
    ) -> FloatTensor<Self> {
        convolution.forward::<Self>(input, weight, bias.into_option())
    }

    /// Returns the gradient of an input of shape `input` of [`convolution`](Self::convolution).
    #[fusion(default)]
    fn convolution_input_gradient(
        input: Shape,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        convolution: Convolution,
    ) -> FloatTensor<Self> {
        convolution.input_gradient::<Self>(input, weight, grad)
    }

    /// Computes `input @ weight` with a packed, constant weight. The backward step keeps the packed
    /// weight, and unpacks it again.
    #[fusion(default)]
    fn packed_linear(input: FloatTensor<Self>, weight: QuantizedTensor<Self>) -> FloatTensor<Self> {
        let weight = Self::dequantize(weight, input.dtype().into());
        Self::linear(input, weight, None)
    }

    /// Returns the gradient of the input of [`packed_linear`](Self::packed_linear).
    #[fusion(default)]
    fn packed_linear_input_gradient(
        weight: QuantizedTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let weight = Self::dequantize(weight, grad.dtype().into());
        Self::linear_x_backward(weight, grad)
    }

    /// Returns the gradient of a weight of shape `weight`, summed over the batch and flattened.
    #[fusion(default)]
    fn weight_gradient(
        output_grad: FloatTensor<Self>,
        #[extension_type] kept: Kept<Self>,
        weight: Shape,
        primitive: Primitive,
    ) -> FloatTensor<Self> {
        primitive.flat_weight_gradient::<Self>(kept, weight, output_grad)
    }

    /// Returns the gradient of a bias, summed over the batch: `[parameters]`.
    #[fusion(default)]
    fn bias_gradient(output_grad: FloatTensor<Self>, primitive: Primitive) -> FloatTensor<Self> {
        primitive.bias_gradient::<Self>(output_grad)
    }

    /// Returns the gradients of a stored weight from gradients of the standardized one, in rows.
    #[fusion(default)]
    fn standardized_gradients(
        gradients: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        standardized::gradients::<Self>(gradients, weight, epsilon)
    }

    /// Returns the patches under the kernel of a convolution, if the backend has a native kernel
    /// for them; see `patches`.
    ///
    /// - input: `[batch_size, channels, depth, height, width]`
    /// - output: `[batch_size · groups, channels / groups · kernel values, positions]`
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_patches(input: FloatTensor<Self>, patches: Patches) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the squared norms of rows, `[rows, values]` to `[rows]`, if the backend has a native
    /// kernel for them; see `row_squared_norms`.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_row_squared_norms(rows: FloatTensor<Self>) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the Gram matrices of the positions of each example,
    /// `[batch_size, positions, positions]`, and their diagonals, `[batch_size, positions]`, if the
    /// backend has a native kernel for them; see `gram_matrices`.
    ///
    /// - values: `[batch_size, positions, features]`
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_gram(values: FloatTensor<Self>) -> Option<(FloatTensor<Self>, FloatTensor<Self>)> {
        None
    }

    /// Returns `Σ coefficients[i] · rows[i]`, `[rows, values]` to `[values]`, if the backend has a
    /// native kernel for it; see `weighted_rows`.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_weighted_rows(
        coefficients: FloatTensor<Self>,
        rows: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the sums of rows over all axes except the examples and the parameters, `[batch_size,
    /// parameters]`, if the backend has a native kernel for them; see `axis_sums`.
    ///
    /// - values: `[batch_size, outer, parameters, inner]`
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_axis_sums(values: FloatTensor<Self>) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the sums of products, like [`native_axis_sums`](Self::native_axis_sums); see
    /// `axis_product_sums`.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_axis_product_sums(
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the inner products of rows, `[rows, values]` twice to `[rows]`, if the backend has a
    /// native kernel for them; see `row_products`.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_row_products(
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns the gradients of the weight of a convolution for each example,
    /// `[batch_size, groups, rows, channels]`, if the backend has a native kernel for them; see
    /// `convolution_gradients`.
    ///
    /// - image, pixels: `[batch_size, channels, …]`, the tensor that the kernel slides over, and
    ///   the tensor that its positions are paired with
    /// - weight: shape of the weight
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_convolution_gradients(
        image: FloatTensor<Self>,
        pixels: FloatTensor<Self>,
        weight: Shape,
        convolution: Convolution,
    ) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns `Σ coefficients[i] left[i, t]ᵀ right[i, t]`, `[rows, columns]`, if the backend has a
    /// native kernel for it; see `weighted_outer_products`.
    ///
    /// - left: `[batch_size, positions, rows]`
    /// - right: `[batch_size, positions, columns]`
    /// - coefficients: `[batch_size]`
    #[fusion(default)]
    #[allow(unused_variables)]
    fn native_outer_products(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        coefficients: FloatTensor<Self>,
    ) -> Option<FloatTensor<Self>> {
        None
    }

    /// Returns `Σ_v ‖Σ_{t: ids[t] = v} rows[t]‖²` for each example, `[batch_size]`, if the backend
    /// has a native kernel for it; see `indexed_squared_norms`.
    ///
    /// - ids: `[batch_size, positions]`
    /// - rows: `[batch_size, positions, features]`
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

    /// Returns the indices that a recording stored in `slot`; `witness` routes the call to the
    /// backend that stored them.
    #[fusion(default)]
    #[allow(unused_variables)]
    fn take_recorded_ids(witness: FloatTensor<Self>, slot: Slot) -> IntTensor<Self> {
        slot.take::<IntTensor<Self>>()
    }
}
