//! The loss of a Toeplitz strategy and its gradient.

use super::{Objective, StrategySearch};

/// A value and its gradient with respect to coefficients.
pub(super) struct Slope {
    pub(super) value: f64,
    pub(super) gradient: Vec<f64>,
}

/// Returns the squared error of noise with the coefficients `noise`, which are the
/// coefficients of `C^-1`.
pub(super) fn error_slope(search: &StrategySearch, noise: &[f64]) -> Slope {
    if search.workload.learning_rates().is_some() {
        return error_slope_with_rates(search, noise);
    }
    let n = noise.len();
    let mut rows = noise.to_vec();
    search.workload.apply(0, &mut rows);
    // Step t has the squares up to t, so square t counts for n - t steps. The last step has the
    // largest error.
    let weight = |t: usize| match search.objective {
        Objective::Mean => (n - t) as f64 / n as f64,
        Objective::Max => 1.0,
    };
    let mut value = 0.0;
    for (t, row) in rows.iter_mut().enumerate() {
        value += weight(t) * *row * *row;
        *row *= 2.0 * weight(t);
    }
    search.workload.apply_transposed(0, &mut rows);
    Slope { value, gradient: rows }
}

/// Returns the squared error if the matrix of the workload is not Toeplitz: column by column.
fn error_slope_with_rates(search: &StrategySearch, noise: &[f64]) -> Slope {
    let n = noise.len();
    let column = |j: usize| {
        let mut column = noise[..n - j].to_vec();
        search.workload.apply(j, &mut column);
        column
    };
    let mut errors = vec![0.0; n];
    for j in 0..n {
        let of_column = column(j);
        errors[j..].iter_mut().zip(of_column).for_each(|(error, value)| *error += value * value);
    }
    let (weights, value) = match search.objective {
        Objective::Mean => {
            let weight = 1.0 / n as f64;
            (vec![weight; n], errors.iter().sum::<f64>() * weight)
        }
        Objective::Max => {
            let last = (0..n).max_by(|&a, &b| errors[a].total_cmp(&errors[b])).unwrap_or(0);
            let mut weights = vec![0.0; n];
            weights[last] = 1.0;
            (weights, errors[last])
        }
    };
    let mut gradient = vec![0.0; n];
    for j in 0..n {
        let mut back = column(j);
        back.iter_mut().zip(&weights[j..]).for_each(|(value, weight)| *value *= 2.0 * weight);
        search.workload.apply_transposed(j, &mut back);
        gradient.iter_mut().zip(back).for_each(|(slope, value)| *slope += value);
    }
    Slope { value, gradient }
}

/// Returns a bound on the squared sensitivity for the coefficients of `C`, using the majorant
/// of the coefficients. It is not smooth where a later coefficient becomes larger than an
/// earlier one.
pub(super) fn majorant_slope(search: &StrategySearch, strategy: &[f64]) -> Slope {
    let mut majorant = strategy.to_vec();
    let mut places = vec![0; strategy.len()];
    let mut place = strategy.len() - 1;
    for t in (0..strategy.len()).rev() {
        if strategy[t].abs() >= strategy[place].abs() {
            place = t;
        }
        (majorant[t], places[t]) = (strategy[place].abs(), place);
    }
    let of_majorant = sensitivity_slope(search, &majorant);
    let mut gradient = vec![0.0; strategy.len()];
    for (slope, place) in of_majorant.gradient.iter().zip(places) {
        gradient[place] += slope * strategy[place].signum();
    }
    Slope { value: of_majorant.value, gradient }
}

/// Returns the squared norm of `Σ_{j<k} C[:, j b]` for the coefficients of `C`: the squared
/// sensitivity, if they are non-negative and do not increase, or the columns do not overlap.
pub(super) fn sensitivity_slope(search: &StrategySearch, strategy: &[f64]) -> Slope {
    let n = strategy.len();
    let separation = usize::try_from(search.separation).unwrap_or(usize::MAX);
    let times = usize::try_from(search.times).unwrap_or(usize::MAX).min(n.div_ceil(separation));
    let starts = || (0..times).map(|j| j * separation);
    let mut rows = vec![0.0; n];
    for start in starts() {
        rows[start..].iter_mut().zip(strategy).for_each(|(row, c)| *row += c);
    }
    let mut gradient = vec![0.0; n];
    for start in starts() {
        gradient.iter_mut().zip(&rows[start..]).for_each(|(g, row)| *g += 2.0 * row);
    }
    Slope { value: rows.iter().map(|row| row * row).sum(), gradient }
}

/// Returns the gradient with respect to the first `lags` coefficients of `filter`, given the
/// gradient with respect to the coefficients `inverse` of its inverse.
pub(super) fn through_inverse(
    filter: &[f64],
    inverse: &[f64],
    gradient: &[f64],
    lags: usize,
) -> Vec<f64> {
    // The inverse d = 1 / c changes by -d * dc * d: once the transposed inverse filter, which runs
    // backwards, and once a correlation with d.
    let n = inverse.len();
    let mut back = vec![0.0; n];
    for t in (0..n).rev() {
        let known = filter[1..].iter().zip(&back[t + 1..]);
        back[t] = (gradient[t] - known.map(|(c, value)| c * value).sum::<f64>()) / filter[0];
    }
    let lag = |j: usize| -back[j..].iter().zip(inverse).map(|(b, d)| b * d).sum::<f64>();
    (0..lags).map(lag).collect()
}
