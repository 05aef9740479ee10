//! First coefficients of power series: a lower-triangular Toeplitz matrix is a series in the shift.

/// Returns the first `n` coefficients of `1 / c`; `c[0]` must not be 0.
pub(super) fn inverse(c: &[f64], n: usize) -> Vec<f64> {
    let mut inverse: Vec<f64> = Vec::with_capacity(n);
    for t in 0..n {
        let known = c[1..].iter().zip(inverse.iter().rev());
        let sum: f64 = known.map(|(&c, &d)| c * d).sum();
        inverse.push((if t == 0 { 1.0 - sum } else { -sum }) / c[0]);
    }
    inverse
}

/// Returns the first `n` coefficients of the product.
pub(super) fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let at = |t: usize| -> f64 {
        let first = (t + 1).saturating_sub(long.len());
        (first..short.len().min(t + 1)).map(|j| short[j] * long[t - j]).sum()
    };
    (0..n).map(at).collect()
}

/// Returns the first `n` coefficients of `1 / √(1 - x)`: 1, 1/2, 3/8, 5/16, …
pub(super) fn inverse_square_root(n: usize) -> Vec<f64> {
    binomial(n, 1.0)
}

/// Returns the first `n` coefficients of `√(1 - x)`: 1, -1/2, -1/8, -1/16, …
pub(super) fn square_root(n: usize) -> Vec<f64> {
    binomial(n, 3.0)
}

/// Returns the first `n` coefficients of `√w`; `w[0]` must be positive.
pub(super) fn square_root_of(w: &[f64], n: usize) -> Vec<f64> {
    let mut root: Vec<f64> = Vec::with_capacity(n);
    for k in 0..n {
        let value = w.get(k).copied().unwrap_or(0.0);
        if k == 0 {
            root.push(value.sqrt());
        } else {
            let known: f64 = (1..k).map(|j| root[j] * root[k - j]).sum();
            root.push((value - known) / (2.0 * root[0]));
        }
    }
    root
}

/// Returns coefficients with the ratios `(2k - less) / (2k)`.
fn binomial(n: usize, less: f64) -> Vec<f64> {
    let mut value = 1.0;
    let mut next = |k: usize| {
        if k > 0 {
            value *= (2.0 * k as f64 - less) / (2.0 * k as f64);
        }
        value
    };
    (0..n).map(&mut next).collect()
}

/// Returns the first `n` coefficients of `1 + Σ ω_i x / (1 - θ_i x)`.
pub(super) fn buffered(theta: &[f64], omega: &[f64], n: usize) -> Vec<f64> {
    let mut powers = omega.to_vec();
    let mut next = |t: usize| {
        if t == 0 {
            return 1.0;
        }
        let sum = powers.iter().sum();
        powers.iter_mut().zip(theta).for_each(|(power, &theta)| *power *= theta);
        sum
    };
    (0..n).map(&mut next).collect()
}

/// Returns the first `n` coefficients of the inverse of [`buffered`].
pub(super) fn buffered_inverse(theta: &[f64], omega: &[f64], n: usize) -> Vec<f64> {
    let mut buffers = vec![0.0; theta.len()];
    let mut next = |t: usize| {
        let kept: f64 = omega.iter().zip(&buffers).map(|(&omega, &buffer)| omega * buffer).sum();
        let value = if t == 0 { 1.0 } else { -kept };
        buffers
            .iter_mut()
            .zip(theta)
            .for_each(|(buffer, &theta)| *buffer = theta * *buffer + value);
        value
    };
    (0..n).map(&mut next).collect()
}

/// Returns the running sums of the squares.
pub(super) fn sums_of_squares(values: &[f64]) -> Vec<f64> {
    let mut sum = crate::math::sum::CompensatedSum::default();
    let mut next = |&value: &f64| {
        sum.add(value * value);
        sum.value()
    };
    values.iter().map(&mut next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn square_roots_are_inverse_to_each_other() {
        let (root, inverse_root) = (square_root(50), inverse_square_root(50));
        assert_eq!(root[..4], [1.0, -0.5, -0.125, -0.0625]);
        assert_eq!(inverse_root[..4], [1.0, 0.5, 0.375, 0.3125]);
        for (a, b) in inverse(&root, 50).iter().zip(&inverse_root) {
            assert!((a - b).abs() < 1e-14, "{a} {b}");
        }
        for (a, b) in square_root_of(&[1.0; 50], 50).iter().zip(&inverse_root) {
            assert!((a - b).abs() < 1e-14, "{a} {b}");
        }
        let one = product(&root, &inverse_root, 50);
        assert!((one[0] - 1.0).abs() < 1e-15 && one[1..].iter().all(|c| c.abs() < 1e-15));
        assert_eq!(product(&[1.0, 2.0], &[1.0, 1.0, 1.0], 4), [1.0, 3.0, 3.0, 2.0]);
    }

    #[test]
    fn buffered_series_has_its_inverse() {
        let (theta, omega) = ([0.95, 0.4], [0.15, 0.3]);
        let (c, d) = (buffered(&theta, &omega, 40), buffered_inverse(&theta, &omega, 40));
        for (a, b) in inverse(&c, 40).iter().zip(&d) {
            assert!((a - b).abs() < 1e-14, "{a} {b}");
        }
    }
}
