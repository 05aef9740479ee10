//! Rényi divergences of single events.

use super::curve::RenyiCurve;
use super::fixed_size::FixedSizeBound;
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::relation::NeighboringRelation;

fn check_arguments(q: f64, sigma: f64, order: f64) -> Result<(), AccountantError> {
    DpEvent::dp_sgd_step(q, sigma).validate()?;
    if order > 1.0 && order.is_finite() {
        Ok(())
    } else {
        Err(AccountantError::invalid("order", format!("must be finite and above 1, got {order}")))
    }
}

/// Returns the Rényi divergence of order `order` of one Gaussian release on a Poisson sample, under
/// add-or-remove-one, in the worse direction.
///
/// The relative error is about 1e-12 for every order, integer or not (trapezoidal rule on a
/// positive integrand). For orders whose rule would be too long, it is the upper bound from
/// Minkowski's inequality.
///
/// # Errors
///
/// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain.
///
/// # References
///
/// "Rényi Differential Privacy of the Sampled Gaussian Mechanism", Mironov, Talwar, Zhang 2019,
/// sections 3.1 to 3.3.
pub fn rdp_poisson_sampled_gaussian(
    sampling_probability: f64,
    noise_multiplier: f64,
    order: f64,
) -> Result<f64, AccountantError> {
    check_arguments(sampling_probability, noise_multiplier, order)?;
    rdp_of_event(
        &DpEvent::dp_sgd_step(sampling_probability, noise_multiplier),
        NeighboringRelation::AddOrRemoveOne,
        order,
    )
}

/// Returns an upper bound on the Rényi divergence of order `order` of an event.
///
/// # Errors
///
/// Returns [`AccountantError::Unsupported`] if there is no bound, which includes events with an
/// additive δ (their Rényi divergence is infinite), and [`AccountantError::InvalidArgument`] if a
/// parameter is outside its domain.
pub fn rdp_of_event(
    event: &DpEvent,
    relation: NeighboringRelation,
    order: f64,
) -> Result<f64, AccountantError> {
    let curve = RenyiCurve::new([(event, 1)], relation)?;
    if curve.has_additive_delta() {
        return Err(AccountantError::unsupported(
            event.to_string(),
            "its Rényi divergence is infinite; use RdpAccountant::epsilon, which adds its δ",
        ));
    }
    Ok(if curve.infinite().is_some() { f64::INFINITY } else { curve.at(order) })
}

/// Returns an upper bound on the Rényi divergence of order `order` of the Gaussian mechanism on a
/// uniformly random sample of fixed size, under replace-one. It is never above the divergence
/// without amplification.
///
/// `noise_multiplier` is the noise standard deviation over the clipping threshold `C`. The function
/// applies the sensitivity `2C` of replace-one. (dp_accounting's RDP takes the multiplier relative
/// to `2C`: pass twice its number here.)
///
/// # Errors
///
/// Returns [`AccountantError::InvalidArgument`] if a number is outside its domain.
///
/// # References
///
/// "Subsampled Rényi Differential Privacy and Analytical Moments Accountant", Wang, Balle,
/// Kasiviswanathan 2019, Theorem 27; non-integer orders by convexity (Corollary 10).
pub fn rdp_sampled_without_replacement_gaussian(
    sampling_probability: f64,
    noise_multiplier: f64,
    order: f64,
) -> Result<f64, AccountantError> {
    check_arguments(sampling_probability, noise_multiplier, order)?;
    if sampling_probability == 0.0 {
        return Ok(0.0);
    }
    Ok(FixedSizeBound::new(sampling_probability, 2.0 / noise_multiplier).at(order))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::math::gaussian_dp::gaussian_delta;
    use crate::math::logarithms::{ln_add_exp, ln_binomial};

    /// Integer orders by the binomial sum (Mironov, Talwar, Zhang 2019, section 3.3).
    fn binomial_sum(q: f64, sigma: f64, order: u32) -> f64 {
        let n = f64::from(order);
        let sum = (0..=order)
            .map(|k| {
                let k = f64::from(k);
                ln_binomial(n, k)
                    + k * q.ln()
                    + (n - k) * (-q).ln_1p()
                    + k * (k - 1.0) / (2.0 * sigma * sigma)
            })
            .fold(f64::NEG_INFINITY, ln_add_exp);
        sum / (n - 1.0)
    }

    #[test]
    fn integer_orders_equal_the_binomial_sum() {
        for (q, sigma) in [(0.01, 1.0), (0.3, 0.5), (0.5, 4.0), (0.9, 2.0)] {
            for order in [2, 3, 7, 32, 256] {
                let got = rdp_poisson_sampled_gaussian(q, sigma, f64::from(order)).unwrap();
                let expected = binomial_sum(q, sigma, order);
                assert!((got / expected - 1.0).abs() < 1e-9, "{q} {sigma} {order}: {got}");
            }
        }
    }

    #[test]
    fn conversion_is_above_the_exact_gaussian_delta() {
        let event = DpEvent::gaussian(2.0);
        let curve = RenyiCurve::new([(&event, 5)], NeighboringRelation::AddOrRemoveOne).unwrap();
        let mu = 5f64.sqrt() / 2.0;
        for epsilon in [0.1, 1.0, 4.0] {
            assert!(curve.delta(epsilon).0 >= gaussian_delta(mu, epsilon));
        }
    }

    #[test]
    fn divergence_is_bounded_at_very_large_orders() {
        let moderate = rdp_poisson_sampled_gaussian(0.01, 0.5, 5e3).unwrap();
        let large = rdp_poisson_sampled_gaussian(0.01, 0.5, 1e6).unwrap();
        assert!(moderate < large && large <= 1e6 * 2.0, "{moderate} {large}");
    }

    #[test]
    fn theorem_27_has_its_golden_values() {
        // fixed_size_wor.json, row p00 (50-digit arithmetic); sigma is relative to 2C there.
        let truth = [
            (1.5, 8.319752726513766e-05),
            (2.0, 8.319752726513766e-05),
            (2.5, 0.00011154088898322577),
            (12.0, 0.0005449200449195384),
            (32.0, 7.612547932687498),
            (256.0, 100.30952009878152),
            (257.0, 100.72281621377518),
        ];
        for (order, expected) in truth {
            let got = rdp_sampled_without_replacement_gaussian(256.0 / 60_000.0, 2.2, order);
            assert!((got.unwrap() / expected - 1.0).abs() < 1e-10, "{order}");
        }
    }
}
