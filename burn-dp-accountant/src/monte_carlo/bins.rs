//! A unit in one of several bins, whose contributions have known inner products.
//!
//! With the means `m_i` of the bins and noise of standard deviation 1, the likelihood ratio is `X =
//! (1/b) Σ_i e^{x_i}` with `x_i = ⟨m_i, y⟩ - |m_i|²/2`. It depends only on the inner products
//! `⟨m_i, y⟩`, whose covariances are the inner products `G` of the means: a loss takes `b` normal
//! numbers, regardless of the number of steps in a run.
//!
//! # Tilting
//!
//! Large losses are rare under `P`. They are drawn from `R` with the density `X^k/Z` with respect
//! to `Q`, where `Z = E_Q[X^k]`. By the product `X^k = b^-k Σ e^{x_i + x_j + …}` it is a mixture
//! over tuples of `k` bins: the weights are proportional to `e^{G_ij}` for pairs, and to
//! `e^{G_ij + G_ik + G_jl}` for triples, and the means add up.

use crate::math::random::Generator;

/// Room for the rounding of the inner products and of their root.
const ROUNDING: f64 = 1.0 + 1e-9;

/// Maximum number of bins for which triples are drawn; the size of their table grows with its cube.
const MOST_BINS_OF_TRIPLES: usize = 320;

/// Maximum inner product in a table.
const LARGEST_PRODUCT: f64 = 200.0;

/// Bins with the inner products of their means.
#[derive(Clone)]
pub(super) struct Bins {
    bins: usize,
    /// Inner products over the squared noise, row by row.
    products: Vec<f64>,
    /// Their lower-triangular root: the first column of each row and its entries.
    root: Vec<(usize, Vec<f64>)>,
    /// Half of the squared norms.
    halves: Vec<f64>,
    pairs: Option<WeightTable>,
    triples: Option<WeightTable>,
}

/// Cumulative weights of pairs of bins, and the logarithm of `Z`.
#[derive(Clone)]
struct WeightTable {
    cumulative: Vec<f64>,
    ln_mean: f64,
}

impl WeightTable {
    fn new(weights: &[f64], tuples: f64) -> Option<Self> {
        let cumulative: Vec<f64> = weights
            .iter()
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let ln_mean = cumulative.last()?.ln() - tuples.ln();
        ln_mean.is_finite().then_some(Self { cumulative, ln_mean })
    }

    /// Draws a pair of bins.
    fn draw(&self, bins: usize, generator: &mut Generator) -> (usize, usize) {
        let last = self.cumulative.len() - 1;
        let at = generator.uniform() * self.cumulative[last];
        let drawn = self.cumulative.partition_point(|sum| *sum < at).min(last);
        (drawn / bins, drawn % bins)
    }
}

impl std::fmt::Debug for Bins {
    /// Writes the values that determine the rest.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bins").field("products", &self.products).finish_non_exhaustive()
    }
}

impl Bins {
    /// Creates bins with these inner products of their means over the squared noise, row by row,
    /// for only [`replaced_loss`](Self::replaced_loss).
    pub(super) fn replaced(bins: usize, products: Vec<f64>) -> Self {
        let products: Vec<f64> = products.into_iter().map(|x| x * ROUNDING).collect();
        let root = root(bins, &products);
        let halves: Vec<f64> = (0..bins).map(|i| 0.5 * products[i * bins + i]).collect();
        Self { bins, products, root, halves, pairs: None, triples: None }
    }

    /// Creates bins with these inner products of their means over the squared noise, row by row.
    pub(super) fn new(bins: usize, products: Vec<f64>) -> Self {
        let mut result = Self::replaced(bins, products);
        if result.halves.iter().all(|half| 2.0 * half <= LARGEST_PRODUCT) {
            let count = bins as f64;
            let weights: Vec<f64> = result.products.iter().map(|x| x.exp()).collect();
            result.pairs = WeightTable::new(&weights, count * count);
            if bins <= MOST_BINS_OF_TRIPLES {
                // Σ_k w_ij w_ik w_jk, by the symmetry of the weights.
                let rows: Vec<&[f64]> = weights.chunks(bins).collect();
                let third = |i: usize, j: usize| -> f64 {
                    rows[i].iter().zip(rows[j]).map(|(a, b)| a * b).sum()
                };
                let triples: Vec<f64> =
                    (0..bins * bins).map(|at| weights[at] * third(at / bins, at % bins)).collect();
                result.triples = WeightTable::new(&triples, count.powi(3));
            }
        }
        result
    }

    /// Creates bins with orthogonal means of one norm over the noise.
    pub(super) fn orthogonal(bins: usize, norm: f64) -> Self {
        Self::new(bins, diagonal(bins, norm * norm))
    }

    /// Creates [`orthogonal`](Self::orthogonal) bins for only
    /// [`replaced_loss`](Self::replaced_loss).
    pub(super) fn replaced_orthogonal(bins: usize, norm: f64) -> Self {
        Self::replaced(bins, diagonal(bins, norm * norm))
    }

    /// Returns about how many random numbers a loss takes.
    pub(super) fn work(&self) -> f64 {
        let entries: usize = self.root.iter().map(|(_, row)| row.len()).sum();
        self.bins as f64 + 0.1 * entries as f64
    }

    /// Returns the mean and the variance of a linear lower bound of `ln X` under `Q`: the mean of
    /// the exponents (Jensen's inequality).
    pub(super) fn lower_bound(&self) -> (f64, f64) {
        let bins = self.bins as f64;
        let mean = self.halves.iter().sum::<f64>() / bins;
        (-mean, self.products.iter().sum::<f64>() / (bins * bins))
    }

    /// Returns the logarithm of `E_Q[X^power]`; `None` if losses are not drawn from this power.
    pub(super) fn ln_moment(&self, power: u32) -> Option<f64> {
        match power {
            0 | 1 => Some(0.0),
            2 => self.pairs.as_ref().map(|table| table.ln_mean),
            3 => self.triples.as_ref().map(|table| table.ln_mean),
            _ => None,
        }
    }

    /// Draws the exponents `x_i` under `Q`; `normals` is overwritten.
    fn draw_exponents(
        &self,
        generator: &mut Generator,
        normals: &mut Vec<f64>,
        values: &mut Vec<f64>,
    ) {
        normals.clear();
        normals.extend((0..self.bins).map(|_| generator.normal()));
        values.clear();
        values.extend(self.root.iter().zip(&self.halves).map(|((first, row), half)| {
            let dot: f64 = row.iter().zip(&normals[*first..]).map(|(a, b)| a * b).sum();
            dot - half
        }));
    }

    /// Draws `ln X/Y` from `P`, where the unit that replaces this one has the opposite means, and
    /// `Y` is its likelihood ratio: `⟨-m_i, y⟩ - |m_i|²/2 = -x_i - |m_i|²`.
    pub(super) fn replaced_loss(
        &self,
        generator: &mut Generator,
        scratch: &mut [Vec<f64>; 2],
    ) -> f64 {
        let [others, values] = scratch;
        self.draw_exponents(generator, others, values);
        let bin = generator.below(self.bins as u64) as usize;
        let row = &self.products[bin * self.bins..(bin + 1) * self.bins];
        values.iter_mut().zip(row).for_each(|(value, product)| *value += product);
        others.clear();
        others.extend(values.iter().zip(&self.halves).map(|(x, half)| -x - 2.0 * half));
        ln_mean_exp(values) - ln_mean_exp(others)
    }

    /// Draws `ln X` from the density `X^power/E_Q[X^power]` with respect to `Q`.
    pub(super) fn loss(
        &self,
        power: u32,
        generator: &mut Generator,
        scratch: &mut [Vec<f64>; 2],
    ) -> f64 {
        let bins = self.bins;
        let [normals, values] = scratch;
        self.draw_exponents(generator, normals, values);
        let mut shift = |bin: usize| {
            let row = &self.products[bin * bins..(bin + 1) * bins];
            values.iter_mut().zip(row).for_each(|(value, product)| *value += product);
        };
        match (power, &self.pairs, &self.triples) {
            (1, ..) => shift(generator.below(bins as u64) as usize),
            (2, Some(table), _) => {
                let (i, j) = table.draw(bins, generator);
                shift(i);
                shift(j);
            }
            (3, _, Some(table)) => {
                let (i, j) = table.draw(bins, generator);
                let rows = [i, j].map(|i| &self.products[i * bins..(i + 1) * bins]);
                let weights = || rows[0].iter().zip(rows[1]).map(|(a, b)| (a + b).exp());
                let mut left = generator.uniform() * weights().sum::<f64>();
                let third = weights().position(|weight| {
                    left -= weight;
                    left < 0.0
                });
                shift(i);
                shift(j);
                shift(third.unwrap_or(bins - 1));
            }
            _ => {}
        }
        ln_mean_exp(values)
    }
}

/// Returns the inner products of orthogonal means.
fn diagonal(bins: usize, square: f64) -> Vec<f64> {
    let mut products = vec![0.0; bins * bins];
    products.iter_mut().step_by(bins + 1).for_each(|product| *product = square);
    products
}

/// Returns the logarithm of the mean of the exponentials.
fn ln_mean_exp(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let sum: f64 = values.iter().map(|value| value.exp()).sum();
    if sum > f64::MIN_POSITIVE && sum < f64::INFINITY {
        return (sum / count).ln();
    }
    let most = values.iter().fold(f64::NEG_INFINITY, |most, value| most.max(*value));
    let sum: f64 = values.iter().map(|value| (value - most).exp()).sum();
    most + (sum / count).ln()
}

/// Returns the lower-triangular root of a positive semidefinite matrix, without the zeros before
/// the first entry of each row. A bin that is never used has a row of zeros.
fn root(n: usize, matrix: &[f64]) -> Vec<(usize, Vec<f64>)> {
    let mut rows: Vec<(usize, Vec<f64>)> = Vec::with_capacity(n);
    for i in 0..n {
        let line = &matrix[i * n..i * n + i];
        let first = line.iter().position(|value| *value != 0.0).unwrap_or(i);
        let mut row = Vec::with_capacity(i + 1 - first);
        for j in first..=i {
            // Entries of both rows from the later of their first columns.
            let (from, other): (usize, &[f64]) =
                if j == i { (first, &[]) } else { (rows[j].0, &rows[j].1) };
            let start = from.max(first);
            let dot: f64 = if j == i {
                row.iter().map(|x: &f64| x * x).sum()
            } else {
                let length = j.saturating_sub(start);
                let left = row.iter().skip(start - first).take(length);
                left.zip(other.iter().skip(start - from)).map(|(a, b)| a * b).sum()
            };
            let rest = matrix[i * n + j] - dot;
            row.push(match j == i {
                true => rest.max(0.0).sqrt(),
                false => match other.last() {
                    Some(diagonal) if *diagonal > 0.0 => rest / diagonal,
                    _ => 0.0,
                },
            });
        }
        rows.push((first, row));
    }
    rows
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn example() -> Bins {
        let products = |i: i32, j: i32| match (i - j).abs() {
            0 => 1.2 + 0.1 * f64::from(i),
            1 => 0.5,
            3 => 0.3,
            _ => 0.0,
        };
        Bins::new(5, (0..25).map(|at| products(at / 5, at % 5)).collect())
    }

    #[test]
    fn root_has_the_products() {
        let bins = example();
        let entry = |i: usize, j: usize| {
            let (first, row) = &bins.root[i];
            j.checked_sub(*first).and_then(|k| row.get(k)).copied().unwrap_or(0.0)
        };
        for i in 0..5 {
            for j in 0..5 {
                let found: f64 = (0..5).map(|k| entry(i, k) * entry(j, k)).sum();
                assert!((found - bins.products[i * 5 + j]).abs() < 1e-12, "{i} {j}: {found}");
            }
        }
        // A bin beyond the last step.
        let unused = Bins::new(2, vec![1.0, 0.0, 0.0, 0.0]);
        assert_eq!(unused.root[1].1, [0.0]);
    }

    /// E_Q[X^k] by the definition.
    fn moment(bins: &Bins, power: u32) -> f64 {
        let n = 5usize;
        let tuples = n.pow(power);
        let sum: f64 = (0..tuples)
            .map(|tuple| {
                let chosen: Vec<usize> = (0..power).map(|k| tuple / n.pow(k) % n).collect();
                let mut exponent = 0.0;
                for (k, i) in chosen.iter().enumerate() {
                    exponent += chosen[..k].iter().map(|j| bins.products[i * n + j]).sum::<f64>();
                }
                exponent.exp()
            })
            .sum();
        sum / tuples as f64
    }

    #[test]
    fn every_power_draws_from_its_density() {
        let bins = example();
        let mut scratch = Default::default();
        for power in 0..=3 {
            let truth = moment(&bins, power);
            let found = bins.ln_moment(power).unwrap().exp();
            assert!((found / truth - 1.0).abs() < 1e-12, "{power}: {found} {truth}");
            // E_R[X^-power] = 1/Z, and E_R[X^(1-power)] = 1/Z.
            let mut generator = Generator::new(5, u64::from(power));
            let samples = 400_000;
            let mut sums = [0.0; 2];
            for _ in 0..samples {
                let loss = bins.loss(power, &mut generator, &mut scratch);
                sums[0] += (-f64::from(power) * loss).exp();
                sums[1] += ((1.0 - f64::from(power)) * loss).exp();
            }
            for sum in sums {
                let mean = sum / f64::from(samples);
                assert!((mean * truth - 1.0).abs() < 0.03, "{power}: {mean} {truth}");
            }
        }
        assert!(bins.ln_moment(4).is_none());
    }

    #[test]
    fn replaced_losses_belong_to_the_two_data_sets() {
        // E_P[Y/X] = 1, and the distribution of the loss is symmetric: E_P[f(-L) e^{-L}] is
        // E_Q'[f(-L)] = E_P[f(L)].
        let bins = Bins::replaced(5, example().products);
        let (mut generator, mut scratch) = (Generator::new(6, 1), Default::default());
        let mut sums = [0.0; 3];
        for _ in 0..400_000 {
            let loss = bins.replaced_loss(&mut generator, &mut scratch);
            sums[0] += (-loss).exp();
            sums[1] += (-loss.abs()).exp() * (-loss).exp() * f64::from(u8::from(loss < 0.0));
            sums[2] += (-loss.abs()).exp() * f64::from(u8::from(loss > 0.0));
        }
        assert!((sums[0] / 4e5 - 1.0).abs() < 0.03, "{sums:?}");
        assert!((sums[1] / sums[2] - 1.0).abs() < 0.03, "{sums:?}");
    }

    #[test]
    fn small_and_large_values_have_a_mean() {
        for values in [[900.0, 899.0], [-900.0, -901.0], [1.0, 0.0]] {
            let truth = values[0] + ((1.0 + (-1.0f64).exp()) / 2.0).ln();
            assert!((ln_mean_exp(&values) - truth).abs() < 1e-12);
        }
    }
}
