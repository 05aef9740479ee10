//! Binomial distributions of sampling: how often a unit is drawn, how often a batch is cut.

use crate::math::logarithms::ln_binomial;

/// Returns how often one unit is drawn with replacement: the probability of at least one draw, the
/// conditional distribution `(probability, shift)` of the number of draws, and an upper bound of
/// the probability that the distribution omits.
pub(super) fn multiplicities(
    dataset_size: u64,
    sample_size: u64,
    mu: f64,
) -> (f64, Vec<(f64, f64)>, f64) {
    let (n, k) = (dataset_size as f64, sample_size as f64);
    if dataset_size == 1 {
        return (1.0, Vec::new(), 0.0);
    }
    let q = -(k * (-1.0 / n).ln_1p()).exp_m1();
    let ln_mass = |j: f64| ln_binomial(k, j) - j * n.ln() + (k - j) * (-1.0 / n).ln_1p();
    let mut components: Vec<(f64, f64)> = Vec::new();
    let mut rest = 0.0;
    for j in 1..=sample_size {
        let mass = ln_mass(j as f64).exp();
        // Beyond the mode the masses fall at least geometrically.
        let ratio = (k - j as f64) / ((j as f64 + 1.0) * (n - 1.0));
        if mass < 1e-30 && ratio < 0.5 {
            rest = 2.0 * mass;
            break;
        }
        components.push((mass, j as f64 * mu));
    }
    let total: f64 = components.iter().map(|(w, _)| w).sum();
    for (w, _) in &mut components {
        *w /= total;
    }
    (q, components, rest)
}

/// Returns an upper bound of `P[Binomial(n, q) > limit]`: a sum of masses, then a geometric series.
pub(super) fn binomial_tail_upper(n: u64, q: f64, limit: u64) -> f64 {
    if limit >= n || q == 0.0 {
        return 0.0;
    }
    if q == 1.0 {
        return 1.0;
    }
    let (size, odds) = (n as f64, q / (1.0 - q));
    let mean = size * q;
    if (limit as f64) < mean {
        return 1.0;
    }
    let mut j = limit as f64 + 1.0;
    let mut mass = (ln_binomial(size, j) + j * q.ln() + (size - j) * (-q).ln_1p()).exp();
    let mut sum = 0.0;
    while j <= size {
        sum += mass;
        let ratio = (size - j) / (j + 1.0) * odds;
        if ratio < 1.0 && mass * ratio / (1.0 - ratio) < 1e-12 * sum {
            sum += mass * ratio / (1.0 - ratio);
            break;
        }
        mass *= ratio;
        j += 1.0;
    }
    // The logarithms of factorials carry a relative error that grows with their size.
    (sum * (1.0 + 1e-14 * size * size.ln().max(1.0))).min(1.0)
}
