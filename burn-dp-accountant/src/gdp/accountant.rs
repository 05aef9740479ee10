//! The accountant of Gaussian releases without sampling.

use super::gaussian::{delta_bracket, gaussian_bracket};
use crate::accountant::Accountant;
use crate::domain::{check_delta, check_epsilon};
use crate::dominating_pairs::{dominating_pairs_of, gaussian_shift};
use crate::epsilon::{DeltaBracket, Epsilon, Method};
use crate::error::AccountantError;
use crate::event::DpEvent;
use crate::relation::NeighboringRelation;

/// Composes Gaussian releases without sampling in closed form (μ-Gaussian differential privacy).
///
/// `lower` and `upper` differ from the closed form by about 1e-10 (relative). They enclose its
/// rounding errors. Sampled releases are rejected: the central-limit formulas for them are
/// estimates ([`CentralLimitEstimate`](crate::CentralLimitEstimate)), not guarantees.
///
/// # References
///
/// "Gaussian Differential Privacy", Dong, Roth, Su 2022, Corollaries 1 and 2.
#[derive(Debug, Clone)]
pub struct GdpAccountant {
    mu: f64,
    /// Whether real data sets attain μ, so that a lower bound exists.
    attained: bool,
    infinite: Option<String>,
}

impl GdpAccountant {
    /// Returns μ: the shift between the two neighbors over the noise standard deviation.
    pub fn mu(&self) -> f64 {
        if self.infinite.is_some() { f64::INFINITY } else { self.mu }
    }
}

impl Accountant for GdpAccountant {
    fn new<'a>(
        events: impl IntoIterator<Item = (&'a DpEvent, u64)>,
        relation: NeighboringRelation,
    ) -> Result<Self, AccountantError> {
        let events: Vec<(&DpEvent, u64)> = events.into_iter().collect();
        for &(event, count) in &events {
            let pairs = dominating_pairs_of([(event, count)], relation)?;
            let additive = pairs.mass_at_infinity > 0.0 || pairs.total_variation > 0.0;
            if additive || gaussian_shift(&pairs.parts).is_none() {
                return Err(AccountantError::unsupported(
                    event.to_string(),
                    "the closed form covers Gaussian releases without sampling; use PldAccountant",
                ));
            }
        }
        let pairs = dominating_pairs_of(events, relation)?;
        let mu = gaussian_shift(&pairs.parts).unwrap_or(f64::INFINITY);
        Ok(Self { mu, attained: !pairs.loose, infinite: pairs.infinite })
    }

    fn epsilon(&self, delta: f64) -> Result<Epsilon, AccountantError> {
        check_delta(delta)?;
        if let Some(reason) = &self.infinite {
            return Ok(Epsilon::infinite(delta, Method::ClosedForm, reason.clone()));
        }
        let [lower, estimate, upper] = gaussian_bracket(self.mu, delta);
        let mut epsilon = Epsilon::bound(delta, upper, Method::ClosedForm);
        epsilon.estimate = estimate;
        epsilon.lower = if self.attained { lower } else { 0.0 };
        Ok(epsilon)
    }

    fn delta(&self, epsilon: f64) -> Result<DeltaBracket, AccountantError> {
        check_epsilon(epsilon)?;
        if let Some(reason) = &self.infinite {
            return Ok(DeltaBracket::unknown(epsilon, reason.clone()));
        }
        let [lower, estimate, upper] = delta_bracket(self.mu, epsilon);
        let mut delta = DeltaBracket::bound(epsilon, upper);
        delta.estimate = estimate;
        delta.lower = if self.attained { lower } else { 0.0 };
        Ok(delta)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::gdp::GaussianDp;

    const RELATION: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

    #[test]
    fn bounds_of_delta_enclose_values_of_sixty_digits() {
        // Φ(-ε/μ + μ/2) - exp(ε) Φ(-ε/μ - μ/2) by mpmath 1.3.0 at 60 digits.
        for (mu, epsilon, delta) in [
            (0.01, 0.2436, 1.049_559_299_114_455_1e-134),
            (0.005, 0.0721, 6.896_447_924_211_457e-51),
            // Where one series of Mills' ratio follows another.
            (0.01, 0.3, 1.896_039_567_938_983_6e-201),
            (0.015625, 0.46875, 3.223_318_431_141_479e-201),
            (0.0078125, 0.234375, 1.433_472_116_364_620_8e-201),
        ] {
            let event = DpEvent::gaussian(1.0 / mu);
            let bracket = GdpAccountant::new([(&event, 1)], RELATION).unwrap();
            let bracket = bracket.delta(epsilon).unwrap();
            assert!(bracket.lower <= delta && delta <= bracket.upper, "{bracket:?}");
        }
    }

    #[test]
    fn next_to_no_noise_has_a_huge_epsilon_and_every_delta() {
        for (sigma, count) in [(1e-9, 1), (1e-3, 1_000_000_000_000), (1e-7, 9), (2e-8, 3)] {
            let event = DpEvent::gaussian(sigma);
            let accountant = GdpAccountant::new([(&event, count)], RELATION).unwrap();
            let mu = (count as f64).sqrt() / sigma;
            let answer = accountant.epsilon(1e-5).unwrap();
            let truth = 0.5 * mu * mu + 4.2649 * mu;
            assert!(answer.lower <= truth && truth * (1.0 - 1e-9) <= answer.upper, "{answer:?}");
            assert!(answer.upper < truth * 1.001, "{answer:?}");
        }
        // δ = Φ(2) up to a negligible difference.
        let event = DpEvent::gaussian(1e-9);
        let delta = GdpAccountant::new([(&event, 1)], RELATION).unwrap().delta(4.99999998e17);
        let delta = delta.unwrap();
        assert!(delta.lower <= 0.97724 && 0.97725 <= delta.upper, "{delta:?}");
    }

    #[test]
    fn delta_that_underflows_is_not_zero() {
        let event = DpEvent::gaussian(1.0);
        let delta = GdpAccountant::new([(&event, 1)], RELATION).unwrap().delta(50.0).unwrap();
        assert_eq!((delta.lower, delta.upper > 0.0), (0.0, true));
        let nothing = GdpAccountant::new(std::iter::empty(), RELATION).unwrap();
        assert_eq!(nothing.delta(50.0).unwrap().upper, 0.0);
    }

    #[test]
    fn gaussian_releases_compose_in_closed_form() {
        let (one, two) = (DpEvent::gaussian(4.0), DpEvent::gaussian(3.0));
        let accountant = GdpAccountant::new([(&one, 7), (&two, 2)], RELATION).unwrap();
        let gdp = GaussianDp::new((7.0f64 / 16.0 + 2.0 / 9.0).sqrt()).unwrap();
        assert!((accountant.mu() / gdp.mu() - 1.0).abs() < 1e-15);
        let epsilon = accountant.epsilon(1e-6).unwrap();
        assert!(epsilon.lower < epsilon.estimate && epsilon.estimate < epsilon.upper);
        assert!((epsilon.upper / gdp.epsilon(1e-6).unwrap() - 1.0).abs() < 1e-9);
        let delta = accountant.delta(epsilon.estimate).unwrap();
        assert!(delta.lower < delta.upper && (delta.estimate / 1e-6 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn sampled_releases_are_refused_by_name() {
        let step = DpEvent::dp_sgd_step(0.01, 1.0);
        let error = GdpAccountant::new([(&step, 3)], RELATION).unwrap_err();
        assert!(error.to_string().contains("PoissonSampled(0.01"), "{error}");
        let leaky = DpEvent::EpsilonDelta { epsilon: 0.0, delta: 1e-3 };
        assert!(GdpAccountant::new([(&leaky, 1)], RELATION).is_err());
    }

    #[test]
    fn a_release_without_noise_has_infinite_epsilon() {
        let accountant = GdpAccountant::new([(&DpEvent::NonPrivate, 1)], RELATION).unwrap();
        assert!(accountant.epsilon(1e-5).unwrap().upper.is_infinite());
        assert_eq!(accountant.delta(1.0).unwrap().upper, 1.0);
    }
}
