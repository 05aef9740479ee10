use burn::module::Param;
use burn::tensor::Tensor;

use super::Private;
use crate::ops::{self, Primitive};

impl<const D: usize> Private<Param<Tensor<D>>> {
    /// The parameter once for every example.
    ///
    /// # Shapes
    ///
    /// - output: `[batch_size, …]`, the shape of the parameter behind the batch axis
    ///
    /// # Panics
    ///
    /// Panics if the rank `E` is not `D + 1`.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::module::{Module, Param};
    /// use burn::tensor::{Device, Tensor};
    /// use burn_dp::nn::{IntoPrivate, Private};
    ///
    /// #[derive(Module, Debug)]
    /// struct Positions {
    ///     table: Private<Param<Tensor<2>>>,
    /// }
    ///
    /// impl Positions {
    ///     /// `[batch_size, length, d_model]`
    ///     fn forward(&self, input: Tensor<3>) -> Tensor<3> {
    ///         let [batch_size, ..] = input.dims();
    ///         input + self.table.forward(batch_size)
    ///     }
    /// }
    ///
    /// let device = Device::flex().autodiff();
    /// let model = Positions { table: Param::from_tensor(Tensor::zeros([7, 4], &device)).private() };
    /// assert_eq!(model.forward(Tensor::ones([3, 7, 4], &device)).dims(), [3, 7, 4]);
    /// ```
    pub fn forward<const E: usize>(&self, batch_size: usize) -> Tensor<E> {
        parameter(&self.inner, batch_size)
    }
}

/// A bare parameter of a module, once for every example: a positional table, a class token, a learned
/// initial state, a temperature.
///
/// The gradient of an example is that of its copy. A parameter that is used without this receives
/// a gradient that is summed over the batch, and is refused.
///
/// [`validate`](crate::model::validate), which sees the fields of a model and not its forward pass,
/// reports a bare parameter as a fault. `Private<Param<_>>` is the same with a type that says so: prefer it
/// in modules of your own.
///
/// # Shapes
///
/// - output: `[batch_size, …]`, the shape of the parameter behind the batch axis
///
/// # Panics
///
/// Panics if the rank `E` is not `D + 1`.
pub fn parameter<const D: usize, const E: usize>(
    parameter: &Param<Tensor<D>>,
    batch_size: usize,
) -> Tensor<E> {
    assert_eq!(E, D + 1, "the copies of a parameter of rank {D} have rank {}, not {E}", D + 1);
    let shape = parameter.dims();
    let repeated: [usize; E] =
        std::array::from_fn(|axis| if axis == 0 { batch_size } else { shape[axis - 1] });
    if batch_size == 0 {
        let value = parameter.val();
        return Tensor::zeros(repeated, (&value.device(), value.dtype()));
    }
    ops::apply(
        parameter,
        None,
        Primitive::Repeat,
        || crate::ops::Kept::Nothing,
        |weight, _| weight.unsqueeze::<E>().expand(repeated),
    )
}
