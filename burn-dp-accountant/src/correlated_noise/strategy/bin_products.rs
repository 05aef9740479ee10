//! Inner products of the contributions of a run's bins.

use super::Strategy;

/// Maximum number of rows of a matrix whose products are formed one by one.
const MAX_DENSE: usize = 4_096;

impl Strategy {
    /// Returns the inner products of `m_i = Σ_e |C|[:, i + e bins]`, cut to the first `steps` rows,
    /// for all pairs of bins, row by row; `None` for a matrix that is too large and not Toeplitz.
    pub(crate) fn bin_products(&self, steps: u64, bins: u64) -> Option<Vec<f64>> {
        let (n, b) = (usize::try_from(steps).ok()?, usize::try_from(bins).ok()?);
        let mut products = vec![0.0; b.checked_mul(b)?];
        if let Some(c) = self.toeplitz(n).filter(|_| !self.has_normalized_columns()) {
            // Row s of m_i is f(s - i) with f(d) = Σ_e |c_{d - e b}|.
            let mut sums = vec![0.0; n];
            for d in 0..n {
                let before = if d >= b { sums[d - b] } else { 0.0 };
                sums[d] = c.get(d).map_or(0.0, |c| c.abs()) + before;
            }
            for distance in 0..b.min(n) {
                let mut sum = 0.0;
                // Bins i and i + distance share the rows from i + distance on.
                for u in 0..n - distance {
                    sum += sums[u] * sums[u + distance];
                    let i = n - 1 - distance - u;
                    if i + distance < b {
                        products[i * b + i + distance] = sum;
                        products[(i + distance) * b + i] = sum;
                    }
                }
            }
            return Some(products);
        }
        if n > MAX_DENSE {
            return None;
        }
        let gram = self.gram(n, true);
        for (i, row) in gram.chunks(n).enumerate() {
            for (j, value) in row.iter().enumerate() {
                products[(i % b) * b + j % b] += value;
            }
        }
        Some(products)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn products_of_bins_are_sums_of_the_gram_matrix() {
        for strategy in [
            Strategy::identity(11).unwrap(),
            Strategy::banded_toeplitz(11, &[1.0, 0.5, 0.25]).unwrap(),
            Strategy::buffered(11, &[0.9], &[0.3]).unwrap(),
            Strategy::banded_inverse(11, &[1.0, 0.5]).unwrap(),
            Strategy::optimal_toeplitz(11).unwrap().with_normalized_columns(),
            Strategy::tree(11).unwrap(),
        ] {
            for (steps, bins) in [(11, 4), (8, 4), (5, 1), (3, 5)] {
                let gram = strategy.gram(steps, true);
                let found = strategy.bin_products(steps as u64, bins as u64).unwrap();
                for (i, row) in found.chunks(bins).enumerate() {
                    for (j, value) in row.iter().enumerate() {
                        let pairs = (i..steps)
                            .step_by(bins)
                            .flat_map(|s| (j..steps).step_by(bins).map(move |t| (s, t)));
                        let truth: f64 = pairs.map(|(s, t)| gram[s * steps + t]).sum();
                        assert!(
                            (value - truth).abs() < 1e-12,
                            "{strategy} {steps} {bins}: {i} {j}"
                        );
                    }
                }
            }
        }
    }
}
