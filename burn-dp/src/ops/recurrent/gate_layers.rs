use std::ops::Range;

use burn::backend::Backend;

use super::FusedOps;
use super::value::Value;

/// The linear layers of all gates that have one input, side by side.
#[derive(Clone, Debug)]
pub(super) struct GateLayers<B: Backend> {
    /// `[d, gates · d_hidden]`.
    pub(super) weight: Value<B>,
    /// `[1, gates · d_hidden]`.
    pub(super) bias: Value<B>,
}

impl<B: FusedOps> GateLayers<B> {
    /// Returns the product of the input at all positions with all gates, plus their bias.
    ///
    /// - input: `[batch_size, positions, d_input]`
    /// - output: `[positions, batch_size, gates · d_hidden]`
    pub(super) fn project(self, input: Value<B>) -> Value<B> {
        let [batch_size, positions, d_input] = input.dims();
        let [_, features] = self.weight.dims();
        let rows = input.swap_dims(0, 1).reshape([positions * batch_size, d_input]);
        Product::new(0..1, self.weight, Some(self.bias))
            .of(rows)
            .reshape([positions, batch_size, features])
    }

    /// Returns the layers of the hidden state, ready for all positions.
    ///
    /// - uses: the ranges of gates that are applied together
    pub(super) fn products(&self, uses: &[Range<usize>]) -> Products<B> {
        let [size, _] = self.weight.dims();
        let product = |gates: &Range<usize>| {
            let bias = columns(&self.bias, gates, size);
            Product::new(gates.clone(), columns(&self.weight, gates, size), Some(bias))
        };
        Products(uses.iter().map(product).collect())
    }

    /// Returns the products of the backward pass, with the transposed weights of the hidden state.
    pub(super) fn transposed_products(weight: &Value<B>, uses: &[Range<usize>]) -> Products<B> {
        let [size, _] = weight.dims();
        let product = |gates: &Range<usize>| {
            let weight = columns(weight, gates, size).swap_dims(0, 1);
            Product::new(gates.clone(), weight, None)
        };
        Products(uses.iter().map(product).collect())
    }
}

/// Returns the columns of some gates.
fn columns<B: Backend>(value: &Value<B>, gates: &Range<usize>, size: usize) -> Value<B> {
    let [_, features] = value.dims();
    if gates.len() * size == features {
        return value.clone();
    }
    value.clone().narrow(1, gates.start * size, gates.len() * size)
}

/// The products that a cell computes at every position.
#[derive(Debug)]
pub(super) struct Products<B: FusedOps>(Vec<Product<B>>);

impl<B: FusedOps> Products<B> {
    /// Returns the product of `left` with the weights of the gates, plus their bias in the forward
    /// pass.
    ///
    /// - left: `[batch_size, …]`, the hidden state, or the gradient of the product with it
    pub(super) fn of(&self, left: Value<B>, gates: Range<usize>) -> Value<B> {
        let found = self.0.iter().find(|product| product.gates == gates);
        found.expect("a cell applies the gates that it uses together").of(left)
    }
}

/// A product with a constant matrix.
#[derive(Debug)]
struct Product<B: FusedOps> {
    gates: Range<usize>,
    weight: Value<B>,
    packed: Option<B::Packed>,
    bias: Option<Value<B>>,
}

impl<B: FusedOps> Product<B> {
    fn new(gates: Range<usize>, weight: Value<B>, bias: Option<Value<B>>) -> Self {
        Self { packed: B::pack(&weight.0), gates, weight, bias }
    }

    fn of(&self, left: Value<B>) -> Value<B> {
        let bias = self.bias.as_ref();
        let packed = self.packed.as_ref();
        let native =
            packed.and_then(|weight| B::product(&left.0, weight, bias.map(|bias| &bias.0)));
        match native {
            Some(native) => Value(native),
            None => self.by_operations(left),
        }
    }

    fn by_operations(&self, left: Value<B>) -> Value<B> {
        let product = left.matmul(self.weight.clone());
        match &self.bias {
            Some(bias) => product + bias.clone(),
            None => product,
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use proptest::prelude::*;

    use super::*;
    use crate::ops::recurrent::oracle::{ramp, values};

    proptest! {
        #[test]
        fn native_products_equal_the_operations_of_burn(
            rows in 1usize..300,
            inner in 1usize..70,
            columns in 1usize..200,
            with_bias: bool,
            transposed: bool,
        ) {
            let left: Value<Flex> = ramp([rows, inner], 0.0);
            let weight = match transposed {
                true => ramp([columns, inner], 0.1).swap_dims(0, 1),
                false => ramp([inner, columns], 0.1),
            };
            let product = Product::new(0..1, weight, with_bias.then(|| ramp([1, columns], 0.2)));
            prop_assert!(product.packed.is_some());
            let tolerance = burn::tensor::Tolerance::<f32>::absolute(1e-4).set_relative(1e-5);
            let expected = values(&product.by_operations(left.clone()));
            values(&product.of(left)).assert_approx_eq::<f32>(&expected, tolerance);
        }
    }
}
