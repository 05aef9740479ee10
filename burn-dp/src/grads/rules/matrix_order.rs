use burn::tensor::Tensor;

/// Per-example gradients that a kernel computed as transposed matrices of the parameter. To put the
/// gradients of a batch in order would take as long as their norms; their sum is put in order.
pub(in crate::grads) struct Transposed {
    /// `[batch_size, values]`, in the order of the kernel.
    pub(in crate::grads) gradients: Tensor<2>,
    pub(in crate::grads) order: MatrixOrder,
}

/// The order of values in some matrices, each of which is transposed in the parameter.
#[derive(Clone, Copy, Debug)]
pub(in crate::grads) struct MatrixOrder {
    matrices: usize,
    rows: usize,
    columns: usize,
}

impl Transposed {
    /// Creates gradients from `[batch_size, matrices, rows, columns]`.
    pub(super) fn new(gradients: Tensor<4>) -> Self {
        let [batch_size, matrices, rows, columns] = gradients.dims();
        let gradients = gradients.reshape([batch_size, matrices * rows * columns]);
        Self { gradients, order: MatrixOrder { matrices, rows, columns } }
    }

    /// Returns the gradients in the order of the parameter's values.
    pub(in crate::grads) fn in_order(self) -> Tensor<2> {
        self.order.restore(self.gradients)
    }
}

impl MatrixOrder {
    /// Puts rows of values into the order of the parameter.
    pub(in crate::grads) fn restore(self, values: Tensor<2>) -> Tensor<2> {
        let Self { matrices, rows, columns } = self;
        transpose(values, [matrices, rows, columns])
    }

    /// Puts rows of values of the parameter into this order.
    pub(in crate::grads) fn apply(self, values: Tensor<2>) -> Tensor<2> {
        let Self { matrices, rows, columns } = self;
        transpose(values, [matrices, columns, rows])
    }
}

/// Transposes the matrices `[matrices, rows, columns]` in each row of values.
fn transpose(values: Tensor<2>, [matrices, rows, columns]: [usize; 3]) -> Tensor<2> {
    let [count, length] = values.dims();
    values.reshape([count, matrices, rows, columns]).swap_dims(2, 3).reshape([count, length])
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::grads::oracle::host;

    #[test]
    fn values_of_each_matrix_are_transposed_and_back() {
        // Two matrices of two rows and three columns, of a single example.
        let device = Device::default();
        let gradients = Tensor::<1>::from_floats(
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0],
            &device,
        );
        let given = Transposed::new(gradients.clone().reshape([1, 2, 2, 3]));
        let order = given.order;
        let found = given.in_order();
        assert_eq!(
            host(found.clone().reshape([12])),
            [0.0, 3.0, 1.0, 4.0, 2.0, 5.0, 10.0, 13.0, 11.0, 14.0, 12.0, 15.0]
        );
        assert_eq!(host(order.apply(found).reshape([12])), host(gradients));
    }
}
