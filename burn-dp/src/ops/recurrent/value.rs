use std::ops::{Add, Mul, Range, Sub};

use burn::backend::{Backend, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{Scalar, Shape, Slice};

/// A tensor of a backend, with operators.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Value<B: Backend>(pub(in crate::ops) FloatTensor<B>);

impl<B: Backend> Add for Value<B> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(B::float_add(self.0, other.0))
    }
}

impl<B: Backend> Sub for Value<B> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(B::float_sub(self.0, other.0))
    }
}

impl<B: Backend> Mul for Value<B> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self(B::float_mul(self.0, other.0))
    }
}

impl<B: Backend> Value<B> {
    pub(super) fn dims<const D: usize>(&self) -> [usize; D] {
        self.0.shape().dims()
    }

    pub(super) fn matmul(self, other: Self) -> Self {
        Self(B::float_matmul(self.0, other.0))
    }

    pub(super) fn swap_dims(self, first: usize, second: usize) -> Self {
        Self(B::float_swap_dims(self.0, first, second))
    }

    pub(super) fn reshape<const D: usize>(self, shape: [usize; D]) -> Self {
        Self(B::float_reshape(self.0, Shape::new(shape)))
    }

    pub(super) fn one_minus(self) -> Self {
        Self(B::float_add_scalar(B::float_neg(self.0), 1.0f32.into()))
    }

    /// Returns `length` indices of axis `dim` from `start` on.
    pub(super) fn narrow(self, dim: usize, start: usize, length: usize) -> Self {
        let mut slices = vec![Slice::full(); dim + 1];
        slices[dim] = Slice::new(start as isize, Some((start + length) as isize), 1);
        Self(B::float_slice(self.0, &slices))
    }

    /// Returns position `t` of `[positions, batch_size, features]`, as `[batch_size, features]`.
    pub(super) fn position(&self, t: usize) -> Self {
        let [_, batch_size, features] = self.dims();
        self.clone().narrow(0, t, 1).reshape([batch_size, features])
    }

    /// Returns some rows of `[batch_size, features]`.
    pub(super) fn examples(self, examples: &Range<usize>) -> Self {
        let [batch_size, _] = self.dims();
        if *examples == (0..batch_size) {
            return self;
        }
        self.narrow(0, examples.start, examples.len())
    }

    pub(super) fn cat(values: Vec<Self>, dim: usize) -> Self {
        Self(B::float_cat(values.into_iter().map(|value| value.0).collect(), dim))
    }

    pub(super) fn clamp(self, bound: f64) -> Self {
        Self(B::float_clamp(self.0, Scalar::from(-bound), Scalar::from(bound)))
    }

    /// Returns the gradient of the input of [`clamp`](Self::clamp) from the gradient of its output.
    pub(super) fn clamp_backward(input: Self, grad: Self, bound: f64) -> Self {
        let dtype = burn::backend::get_or_init_device_settings::<B>(&input.0.device()).bool_dtype;
        let above = B::float_greater_elem(input.0.clone(), Scalar::from(bound), dtype);
        let below = B::float_lower_elem(input.0, Scalar::from(-bound), dtype);
        let grad = B::float_mask_fill(grad.0, above, 0.0f32.into());
        Self(B::float_mask_fill(grad, below, 0.0f32.into()))
    }

    /// Returns zeros of the shape and type of `self`.
    pub(super) fn zeros_like(&self) -> Self {
        Self(B::float_zeros(self.0.shape(), &self.0.device(), self.0.dtype().into()))
    }
}
