//! Tensors as matrices, in place.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::DType;
use burn_dp_kernels::Matrix;

/// Returns a tensor of two axes whose rows or columns are contiguous in memory.
pub(super) fn matrix(tensor: &FloatTensor<Flex>) -> Option<Matrix<'_>> {
    let [rows, columns] = tensor.shape().dims();
    if let Some(values) = tensor.as_slice::<f32>() {
        return Some(Matrix::new(values, [rows, columns]));
    }
    if tensor.dtype() != DType::F32 || rows * columns == 0 {
        return None;
    }
    let values = &tensor.storage::<f32>()[tensor.layout().start_offset()..];
    placed(values, [rows, columns], [0, 1].map(|axis| tensor.layout().strides()[axis]))
}

/// Returns the matrix at each index of the first of three axes, if the rows or columns of each are
/// contiguous in memory.
pub(super) fn matrices(tensor: &FloatTensor<Flex>) -> Option<Vec<Matrix<'_>>> {
    let [count, rows, columns] = tensor.shape().dims();
    if tensor.dtype() != DType::F32 || count * rows * columns == 0 {
        return None;
    }
    let [stride, strides @ ..] = [0, 1, 2].map(|axis| tensor.layout().strides()[axis]);
    let (values, start) = (tensor.storage::<f32>(), tensor.layout().start_offset());
    let stride = usize::try_from(stride).ok()?;
    (0..count).map(|i| placed(&values[start + i * stride..], [rows, columns], strides)).collect()
}

/// Returns the matrix that begins with these values, if its rows or columns are contiguous.
fn placed(values: &[f32], [rows, columns]: [usize; 2], strides: [isize; 2]) -> Option<Matrix<'_>> {
    match strides {
        [stride, 1] if stride > 0 => {
            Some(Matrix::with_stride(values, [rows, columns], stride.unsigned_abs()))
        }
        [1, stride] if stride > 0 => {
            let matrix = Matrix::with_stride(values, [columns, rows], stride.unsigned_abs());
            Some(matrix.transpose())
        }
        _ => None,
    }
}

/// Returns the rows of a tensor of several axes; the last axis is the columns.
pub(super) fn rows(tensor: &FloatTensor<Flex>) -> Option<Matrix<'_>> {
    let columns = *tensor.shape().last()?;
    let values = tensor.as_slice::<f32>()?;
    (columns > 0).then(|| Matrix::new(values, [values.len() / columns, columns]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::Shape;

    use super::*;
    use crate::ops::backends::flex::arbitrary;

    #[test]
    fn views_of_tensors_are_read_in_place() {
        let tensor = FloatTensor::<Flex>::from_data(arbitrary([12, 7]).into_data());
        let views = [
            tensor.clone(),
            tensor.transpose(0, 1),
            tensor.narrow(0, 2, 5),
            tensor.narrow(1, 3, 2),
            tensor.narrow(1, 3, 2).transpose(0, 1),
        ];
        for view in views {
            let [rows, columns]: [usize; 2] = view.shape().dims();
            let identity: Vec<f32> = (0..columns * columns)
                .map(|i| f32::from(u8::from(i / columns == i % columns)))
                .collect();
            let identity = Matrix::new(&identity, [columns; 2]);
            let mut sums = vec![0.0; rows * columns];
            burn_dp_kernels::add_product(matrix(&view).unwrap(), identity, &mut sums);
            assert_eq!(sums, view.into_data().try_into_vec::<f32>().unwrap());
        }
    }

    #[test]
    fn views_that_repeat_values_are_left_to_burn() {
        let tensor = FloatTensor::<Flex>::from_data(arbitrary([1, 7]).into_data());
        assert!(matrix(&Flex::float_expand(tensor, Shape::new([3, 7]))).is_none());
    }
}
