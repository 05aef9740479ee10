//! Norms of sums of outer products from Gram matrices.

use burn::tensor::{Int, Tensor};

use super::{Magnitudes, Rounding, SquaredNorms};
use crate::ops::{
    self, additions, enlarged_squared_norms, is_same_memory, norm_products, row_products, row_sums,
};

/// Number of features that are multiplied at a time by Burn's kernels, which can add them one after
/// another: for a vocabulary of 50,257 and 200 random positions, the margin for that would be up to
/// half of the norm.
const FEATURES: usize = 1 << 12;

/// Factors of sums of outer products, most recent last, with the intermediate results for their
/// norms. Layers with one input (the gates of a recurrent layer; query, key, and value) share one
/// factor, and so do the two layers of a gate. Backends that cannot compare memory compute it
/// again.
#[derive(Default)]
pub(in crate::grads) struct Factors {
    /// Factors with several positions.
    several: Vec<Factor>,
    /// The last right factor with one position, and its squared norms.
    rows: Option<(Tensor<2>, Tensor<1>)>,
}

#[derive(Clone)]
struct Factor {
    /// `[batch_size, positions, features]`.
    values: Tensor<3>,
    /// The norms of the positions, rounded up: `[batch_size, positions]`.
    lengths: Tensor<2>,
    /// `[batch_size, positions, positions]`.
    gram: Tensor<3>,
    /// Upper bound on the roundings of a product of two features in the Gram matrix.
    roundings: usize,
}

impl Factor {
    fn new(values: Tensor<3>) -> Self {
        let [_, _, features] = values.dims();
        match ops::gram_matrices(values.clone()) {
            Some((gram, squares)) => {
                let roundings = ops::gram_roundings(features);
                // A diagonal entry is a sum of squares.
                let rounding = (roundings + 3) as f64 * f64::from(f32::EPSILON);
                let squares = squares.mul_scalar(1.0 + rounding).add_scalar(lost_squares(features));
                Self { values, lengths: squares.sqrt(), gram, roundings }
            }
            None => {
                let (gram, roundings) = gram(values.clone(), FEATURES);
                let lengths = lengths(values.clone());
                Self { values, lengths, gram, roundings }
            }
        }
    }
}

impl Factors {
    /// The factors of two layers with two factors each.
    const KEPT: usize = 4;

    fn of(&mut self, values: Tensor<3>) -> Factor {
        let is_same = |factor: &Factor| is_same_memory(&factor.values, &values);
        let factor = match self.several.iter().position(is_same) {
            Some(index) => self.several.remove(index),
            None => Factor::new(values),
        };
        // A backend that cannot compare memory would never find a stored factor.
        if is_same_memory(&factor.values, &factor.values) {
            if self.several.len() == Self::KEPT {
                self.several.remove(0);
            }
            self.several.push(factor.clone());
        }
        factor
    }

    /// Returns the squared norms of `rows`, rounded up, if they are the last right factor with one
    /// position: the gradient of a bias is the gradient of the output, like that factor.
    pub(in crate::grads) fn norms_of(&self, rows: &Tensor<2>) -> Option<Tensor<1>> {
        let (last, norms) = self.rows.as_ref()?;
        is_same_memory(last, rows).then(|| norms.clone())
    }
}

/// Returns the squared Frobenius norms of `Σ_t a_tᵀ g_t` per example, rounded up.
///
/// For one position this is `‖a‖²‖g‖²`. For several it is `Σ_{t,s} (a_t · a_s)(g_t · g_s)`, whose
/// terms can cancel. A tiny factor can underflow although the other factor is huge; a bound on that
/// loss is added.
///
/// # Shapes
///
/// - a: `[batch_size, positions, d]`
/// - g: `[batch_size, positions, p]`
pub(super) fn outer(a: Tensor<3>, g: Tensor<3>, factors: &mut Factors) -> SquaredNorms {
    let [_, positions, d] = a.dims();
    let p = g.dims()[2];
    if positions == 1 {
        return outer_rows(a.squeeze_dim(1), g.squeeze_dim(1), factors);
    }
    let (a, g) = (factors.of(a), factors.of(g));
    let underflow = squared_totals(a.lengths.clone()).mul_scalar(lost_squares(p))
        + squared_totals(g.lengths.clone()).mul_scalar(lost_squares(d));
    let (products, roundings) = row_products(flat(a.gram), flat(g.gram));
    SquaredNorms {
        values: products + underflow,
        rounding: Rounding::Gram {
            magnitudes: Magnitudes {
                squared: squared_totals(a.lengths * g.lengths),
                roundings: sum_roundings(positions),
            },
            // The last one is the sum with the underflow.
            roundings: a.roundings + g.roundings + roundings + 1,
        },
    }
}

/// Returns the squared norms of `aᵀ g` per example, `‖a‖²‖g‖²`, rounded up like [`outer`].
///
/// # Shapes
///
/// - a: `[batch_size, d]`
/// - g: `[batch_size, p]`
pub(super) fn outer_rows(a: Tensor<2>, g: Tensor<2>, factors: &mut Factors) -> SquaredNorms {
    let lost = [a.dims()[1], g.dims()[1]].map(lost_squares);
    let (values, norms) = norm_products(&a, &g, lost).unwrap_or_else(|| {
        let norms = enlarged_norms(g.clone());
        (enlarged_norms(a) * norms.clone(), norms)
    });
    factors.rows = Some((g, norms));
    SquaredNorms { values, rounding: Rounding::Relative }
}

/// Returns the squared norms of `Σ_t e_{ids[t]} g_tᵀ` per example, where e_v is a unit vector,
/// rounded up: positions with equal ids are added first.
///
/// # Shapes
///
/// - ids: `[batch_size, positions]`
/// - g: `[batch_size, positions, p]`
pub(super) fn indexed(ids: Tensor<2, Int>, g: Tensor<3>) -> SquaredNorms {
    let [_, positions, p] = g.dims();
    let magnitudes = Magnitudes {
        squared: squared_totals(lengths(g.clone())),
        roundings: sum_roundings(positions),
    };
    if let Some(values) = ops::indexed_squared_norms(ids.clone(), g.clone()) {
        return SquaredNorms { values, rounding: Rounding::Reordered(magnitudes) };
    }
    let equal = ids.clone().unsqueeze_dim::<3>(2).equal(ids.unsqueeze_dim::<3>(1));
    let (gram, of_entries) = gram(g, FEATURES);
    let underflow = (positions * positions) as f64 * lost_squares(p);
    SquaredNorms {
        values: totals(gram.mask_fill(equal.bool_not(), 0.0)).add_scalar(underflow),
        rounding: Rounding::Gram {
            magnitudes,
            roundings: of_entries + additions(positions * positions) + 1,
        },
    }
}

/// Returns `2 · ⟨Σ_s a_sᵀ g_s, Σ_t e_{ids[t]} h_tᵀ⟩` per example, rounded up by the largest loss
/// to underflow, and an upper bound on the roundings of a product of two terms.
///
/// # Shapes
///
/// - a: `[batch_size, positions_a, d]`
/// - g: `[batch_size, positions_a, p]`
/// - ids: `[batch_size, positions]`, below d
/// - h: `[batch_size, positions, p]`
pub(super) fn cross(
    a: Tensor<3>,
    g: Tensor<3>,
    ids: Tensor<2, Int>,
    h: Tensor<3>,
) -> (Tensor<1>, usize) {
    let [batch_size, positions_a, _] = a.dims();
    let [_, positions, p] = h.dims();
    let ids = ids.unsqueeze_dim::<3>(1).expand([batch_size, positions_a, positions]);
    let products = g.matmul(h.swap_dims(1, 2));
    let total = totals(a.clone().gather(2, ids) * products);
    // An inner product g · h can lose this much, and is multiplied by a component of a, which is
    // not larger than the norm of its position.
    let underflow = row_sums(lengths(a)).add_scalar(positions_a as f64);
    let underflow = underflow.mul_scalar(2.0 * positions as f64 * lost_squares(p));
    // The product with a component of a, and the sum with the underflow.
    let roundings = p + 1 + additions(positions_a * positions) + 1;
    (total.mul_scalar(2.0) + underflow, roundings)
}

/// Returns the Gram matrices of the positions of each example by Burn's kernels, and an upper bound
/// on the roundings of a product of two features.
///
/// - block: number of features that are multiplied at a time
fn gram(values: Tensor<3>, block: usize) -> (Tensor<3>, usize) {
    let [_, _, features] = values.dims();
    let product = |part: Tensor<3>| part.clone().matmul(part.swap_dims(1, 2));
    let roundings = ops::block_roundings(features, block);
    if features <= block {
        return (product(values), roundings);
    }
    let part = |start| product(values.clone().narrow(2, start, block.min(features - start)));
    let rest = (block..features).step_by(block).map(part);
    (rest.fold(part(0), |sum, product| sum + product), roundings)
}

/// Returns bounds on the terms of `Σ_t a_tᵀ g_t`.
pub(super) fn magnitudes(a: Tensor<3>, g: Tensor<3>) -> Magnitudes {
    let [_, positions, _] = a.dims();
    let squared = squared_totals(lengths(a) * lengths(g));
    Magnitudes { squared, roundings: sum_roundings(positions) }
}

/// Returns an upper bound on the roundings of a term in a sum of `terms` products, each of which
/// has a coefficient, in any order.
pub(super) fn sum_roundings(terms: usize) -> usize {
    // The product with the coefficient, the product of the factors, and the additions.
    1 + terms.max(1)
}

/// Returns the norms of the positions, rounded up: `[batch_size, positions]`.
pub(super) fn lengths(x: Tensor<3>) -> Tensor<2> {
    position_norms(x).sqrt()
}

/// Returns the squared norms of the positions, rounded up by the largest loss to underflow:
/// `[batch_size, positions]`.
fn position_norms(x: Tensor<3>) -> Tensor<2> {
    let [batch_size, positions, features] = x.dims();
    enlarged_norms(x.reshape([batch_size * positions, features])).reshape([batch_size, positions])
}

/// Returns the squared norms of rows, rounded up by the largest loss to underflow: `[rows]`.
fn enlarged_norms(rows: Tensor<2>) -> Tensor<1> {
    let lost = lost_squares(rows.dims()[1]);
    enlarged_squared_norms(rows, lost)
}

/// Returns the squares of sums over the positions.
pub(super) fn squared_totals(lengths: Tensor<2>) -> Tensor<1> {
    row_sums(lengths).square()
}

fn totals(products: Tensor<3>) -> Tensor<1> {
    row_sums(flat(products))
}

/// Merges the axes of the products of each example.
fn flat(products: Tensor<3>) -> Tensor<2> {
    let [batch_size, rows, columns] = products.dims();
    products.reshape([batch_size, rows * columns])
}

/// Returns an upper bound on what `terms` squares lose to underflow.
fn lost_squares(terms: usize) -> f64 {
    terms as f64 * f64::from(f32::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Tensor, TensorData};

    use super::*;
    use crate::grads::oracle::{host, numbers};
    use crate::test_devices::devices;

    #[test]
    fn gram_matrices_in_blocks_equal_one_product() {
        for device in devices() {
            let values: Vec<f32> = (0..2 * 5 * 7).map(|i| (i % 9) as f32 - 4.0).collect();
            let values = Tensor::<3>::from_data(TensorData::new(values, [2, 5, 7]), &device);
            // Integers, whose sums are exact.
            let expected = values.clone().matmul(values.clone().swap_dims(1, 2)).into_data();
            for (block, roundings) in [(1, 7), (3, 5), (7, 7), (8, 7)] {
                let (found, bound) = gram(values.clone(), block);
                assert_eq!(bound, roundings);
                found.into_data().assert_eq(&expected, true);
            }
            // One sum over all features would round away the ones next to the large square.
            let value = |i: usize| match i % 512 {
                0 => 4096.0,
                1..64 => 0.0,
                _ => 1.0,
            };
            let rows: Vec<f32> = (0..2 * 512).map(value).collect();
            let rows = Tensor::<3>::from_data(TensorData::new(rows, [1, 2, 512]), &device);
            assert_eq!(host(gram(rows, 64).0), [16_777_216.0 + 448.0; 4]);
        }
    }

    #[test]
    fn layers_with_one_input_share_its_gram_matrix() {
        for device in devices() {
            let tensor = |phase: f32| {
                let values: Vec<f32> = (0..2 * 5 * 3).map(|i| (i as f32 + phase).sin()).collect();
                Tensor::<3>::from_data(TensorData::new(values, [2, 5, 3]), &device)
            };
            let norms = |a: &Tensor<3>, g: &Tensor<3>, factors: &mut Factors| {
                let norms = outer(a.clone(), g.clone(), factors).values;
                norms.into_data().iter::<f32>().collect::<Vec<_>>()
            };
            let (input, grads) = (tensor(0.1), [tensor(0.2), tensor(0.3), tensor(0.4)]);
            let mut shared = Factors::default();
            for (grad, kept) in grads.iter().zip([2, 3, 4]) {
                let apart = norms(&input, grad, &mut Factors::default());
                assert_eq!(norms(&input, grad, &mut shared), apart);
                let compares = is_same_memory(&input, &input.clone());
                assert_eq!(shared.several.len(), if compares { kept } else { 0 });
                assert!(shared.several.len() <= Factors::KEPT);
            }
        }
    }

    #[test]
    fn a_bias_takes_the_norms_of_the_right_factor() {
        for device in devices() {
            let numbers = |seed| -> Tensor<2> { numbers([4, 30], seed, &device) };
            let (a, g, other) = (numbers(1), numbers(2), numbers(3));
            let mut factors = Factors::default();
            assert!(factors.norms_of(&g).is_none());
            let products = host(outer_rows(a.clone(), g.clone(), &mut factors).values);
            let compares = is_same_memory(&g, &g.clone());
            let found = factors.norms_of(&g);
            assert_eq!(found.is_some(), compares);
            assert!(factors.norms_of(&a).is_none() && factors.norms_of(&other).is_none());
            let exact = |rows: Tensor<2>| -> Vec<f64> {
                host(rows)
                    .chunks(30)
                    .map(|row| row.iter().map(|value| value * value).sum())
                    .collect()
            };
            let (of_a, of_g) = (exact(a), exact(g));
            if let Some(found) = found {
                for (found, exact) in host(found).into_iter().zip(&of_g) {
                    assert!((1.0..1.0 + 1e-4).contains(&(found / exact)), "{found} {exact}");
                }
            }
            for (found, (a, g)) in products.into_iter().zip(of_a.into_iter().zip(of_g)) {
                assert!((1.0..1.0 + 1e-4).contains(&(found / (a * g))), "{found} {a} {g}");
            }
        }
    }

    #[test]
    fn magnitudes_and_roundings_are_those_of_the_terms() {
        assert_eq!([0, 1, 5].map(sum_roundings), [2, 2, 6]);
        for device in devices() {
            let (a, g) = (numbers([2, 4, 3], 1, &device), numbers([2, 4, 2], 2, &device));
            let lengths = |x: &Tensor<3>| host(x.clone().square().sum_dim(2).sqrt());
            let terms: Vec<f64> = lengths(&a).iter().zip(lengths(&g)).map(|(a, g)| a * g).collect();
            let exact: Vec<f64> =
                terms.chunks(4).map(|terms| terms.iter().sum::<f64>().powi(2)).collect();

            let norms = outer(a.clone(), g.clone(), &mut Factors::default());
            let Rounding::Gram { magnitudes: of_norms, roundings } = norms.rounding else {
                panic!("norms of several positions are products of Gram matrices");
            };
            // Both Gram matrices, their product, and the sum with the underflow.
            let ones = || Tensor::<2>::ones([1, 16], &device);
            assert_eq!(roundings, 3 + 2 + row_products(ones(), ones()).1 + 1);
            for found in [of_norms, magnitudes(a, g)] {
                assert_eq!(found.roundings, 5);
                for (found, exact) in host(found.squared).into_iter().zip(&exact) {
                    assert!((found / exact - 1.0).abs() < 1e-5, "{found} {exact}");
                }
            }
        }
    }

    #[test]
    fn lengths_of_factors_are_rounded_up() {
        for device in devices() {
            let values: Tensor<3> = numbers([2, 3, 500], 1, &device);
            let found = host(Factor::new(values.clone()).lengths);
            let positions = host(values);
            for (found, position) in found.into_iter().zip(positions.chunks(500)) {
                let exact = position.iter().map(|value| value * value).sum::<f64>().sqrt();
                assert!(found >= exact * (1.0 - 1e-6), "{found} {exact} on {device:?}");
            }
        }
    }

    #[test]
    fn what_underflows_is_added_to_norms() {
        for device in devices() {
            // The squares of one factor are zero.
            for (a, g) in [(1e-23, 1e18), (1e18, 1e-23)] {
                let full =
                    |features, value: f64| Tensor::<3>::full([1, 4, features], value, &device);
                let norms = outer(full(3, a), full(2, g), &mut Factors::default());
                let exact = 6.0 * (4.0 * a * g).powi(2);
                assert!(host(norms.values)[0] >= exact, "{a} {g} on {device:?}");
            }

            let check = |found: Tensor<1>, terms: f64| {
                let found = host(found)[0];
                let expected = terms * 2.0 * f64::from(f32::MIN_POSITIVE);
                assert!((found / expected - 1.0).abs() < 1e-5, "{found} {expected}");
            };
            let ids = Tensor::<2, Int>::from_ints([[0, 1, 0]], &device);
            let zeros = |positions| Tensor::<3>::zeros([1, positions, 2], &device);
            let norms = indexed(ids.clone(), zeros(3));
            let magnitudes = match norms.rounding {
                Rounding::Gram { magnitudes, roundings } => {
                    // All pairs of positions.
                    check(norms.values, 9.0);
                    assert_eq!(roundings, 2 + 8 + 1);
                    magnitudes
                }
                Rounding::Reordered(magnitudes) => magnitudes,
                Rounding::Relative => panic!("positions are added in some order"),
            };
            assert_eq!(magnitudes.roundings, 4);

            let (product, roundings) =
                cross(Tensor::ones([1, 2, 4], &device), zeros(2), ids, zeros(3));
            // Two positions of norm 2, and 1 for each, with three positions, twice.
            check(product, (2.0 * 2.0 + 2.0) * 3.0 * 2.0);
            assert_eq!(roundings, 2 + 1 + 5 + 1);
        }
    }
}
