//! The computation of a run from its noisy sums.

use super::series;
use crate::domain::check_positive;
use crate::error::AccountantError;
use crate::math::sum::CompensatedSum;

/// The linear queries that are answered from the noisy sums of the steps, one query for each step.
///
/// The default is the prefix sums: the parameters of plain SGD after each step, up to the learning
/// rate. Momentum, learning rates and weight decay change it:
///
/// ```text
/// m_t = momentum · m_{t-1} + x_t
/// y_t = decay · y_{t-1} + rate_t · m_t
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    momentum: f64,
    decay: f64,
    rates: Option<Vec<f64>>,
    coefficients: Option<Vec<f64>>,
}

impl Workload {
    /// Creates the workload of prefix sums.
    pub fn prefix_sums() -> Self {
        Self { momentum: 0.0, decay: 1.0, rates: None, coefficients: None }
    }

    /// Creates a workload of any Toeplitz matrix: `y_t = Σ_j coefficients[j] · x_{t-j}`.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if there is no coefficient, or one is not
    /// finite.
    pub fn toeplitz(coefficients: &[f64]) -> Result<Self, AccountantError> {
        if coefficients.is_empty() || coefficients.iter().any(|c| !c.is_finite()) {
            return Err(AccountantError::invalid(
                "coefficients",
                format!("must be finite, and at least one, got {coefficients:?}"),
            ));
        }
        Ok(Self { coefficients: Some(coefficients.to_vec()), ..Self::prefix_sums() })
    }

    /// Sets the momentum.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `momentum` is not in `[0, 1)`.
    pub fn with_momentum(mut self, momentum: f64) -> Result<Self, AccountantError> {
        if !(0.0..1.0).contains(&momentum) {
            return Err(AccountantError::invalid(
                "momentum",
                format!("must be at least 0 and below 1, got {momentum}"),
            ));
        }
        self.momentum = momentum;
        Ok(self)
    }

    /// Sets the factor by which the parameters shrink in each step: 1 minus the learning rate times
    /// the weight decay.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if `decay` is not positive, or above 1.
    pub fn with_decay(mut self, decay: f64) -> Result<Self, AccountantError> {
        if !(decay > 0.0 && decay <= 1.0) {
            return Err(AccountantError::invalid(
                "decay",
                format!("must be positive and at most 1, got {decay}"),
            ));
        }
        self.decay = decay;
        Ok(self)
    }

    /// Sets the learning rate of each step.
    ///
    /// # Errors
    ///
    /// Returns [`AccountantError::InvalidArgument`] if a rate is not positive and finite.
    pub fn with_learning_rates(mut self, rates: &[f64]) -> Result<Self, AccountantError> {
        rates.iter().try_for_each(|&rate| check_positive("rates", rate))?;
        self.rates = Some(rates.to_vec());
        Ok(self)
    }

    /// Returns the number of learning rates, if steps have their own.
    pub(super) fn learning_rates(&self) -> Option<usize> {
        self.rates.as_ref().map(Vec::len)
    }

    /// Returns the workload with a learning rate of 1 in each step.
    pub(super) fn without_learning_rates(&self) -> Self {
        Self { rates: None, ..self.clone() }
    }

    fn rate(&self, step: usize) -> f64 {
        self.rates.as_ref().map_or(1.0, |rates| rates[step])
    }

    /// Replaces inputs from step `first` on, with nothing before, with the answers of these steps.
    pub(super) fn apply(&self, first: usize, values: &mut [f64]) {
        if let Some(coefficients) = &self.coefficients {
            let product = series::product(coefficients, values, values.len());
            values.copy_from_slice(&product);
        }
        let mut moment = 0.0;
        let mut sum = CompensatedSum::default();
        let mut decayed = 0.0;
        for (step, value) in values.iter_mut().enumerate() {
            moment = self.momentum * moment + *value;
            let rate = self.rate(first + step);
            if self.coefficients.is_some() {
                *value = rate * moment;
            } else if self.decay == 1.0 {
                sum.add(rate * moment);
                *value = sum.value();
            } else {
                decayed = self.decay * decayed + rate * moment;
                *value = decayed;
            }
        }
    }

    /// Replaces values of the answers from step `first` on with their product with the transposed
    /// matrix of [`apply`](Self::apply).
    pub(super) fn apply_transposed(&self, first: usize, values: &mut [f64]) {
        let (mut sum, mut moment) = (0.0, 0.0);
        for (step, value) in values.iter_mut().enumerate().rev() {
            sum = match self.coefficients {
                Some(_) => *value,
                None => self.decay * sum + *value,
            };
            moment = self.momentum * moment + self.rate(first + step) * sum;
            *value = moment;
        }
        if let Some(coefficients) = &self.coefficients {
            values.reverse();
            let product = series::product(coefficients, values, values.len());
            values.copy_from_slice(&product);
            values.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::strategy::Strategy;
    use super::*;

    #[test]
    fn workloads_follow_their_recursion() {
        let rates = [0.5, 1.0, 2.0, 1.5];
        let workload = Workload::prefix_sums().with_momentum(0.9).unwrap();
        let workload = workload.with_decay(0.8).unwrap().with_learning_rates(&rates).unwrap();
        let x = [1.0, -2.0, 0.5, 3.0];
        let (mut m, mut y, mut answers) = (0.0, 0.0, Vec::new());
        for (x, rate) in x.iter().zip(rates) {
            m = 0.9 * m + x;
            y = 0.8 * y + rate * m;
            answers.push(y);
        }
        let mut found = x;
        workload.apply(0, &mut found);
        assert_eq!(found[..], answers);
        // The general path and the path of Toeplitz matrices agree.
        let toeplitz = Workload::prefix_sums().with_momentum(0.9).unwrap();
        let equal = toeplitz.clone().with_learning_rates(&[1.0; 30]).unwrap();
        let strategy = Strategy::buffered(30, &[0.9], &[0.3]).unwrap();
        let (a, b) =
            (strategy.squared_errors(&toeplitz).unwrap(), strategy.squared_errors(&equal).unwrap());
        for (a, b) in a.of_steps().iter().zip(b.of_steps()) {
            assert!((a / b - 1.0).abs() < 1e-13, "{a} {b}");
        }
        let ones = Workload::toeplitz(&[1.0; 30]).unwrap();
        let (a, b) = (
            strategy.squared_errors(&ones).unwrap(),
            strategy.squared_errors(&Workload::prefix_sums()).unwrap(),
        );
        assert!((a.mean() / b.mean() - 1.0).abs() < 1e-13);
    }

    #[test]
    fn transposed_workload_has_the_same_products() {
        let rates = [0.5, 1.0, 2.0, 1.5, 0.7];
        let rated = |workload: Workload| workload.with_learning_rates(&rates).unwrap();
        let sums = Workload::prefix_sums().with_momentum(0.9).unwrap();
        let toeplitz = Workload::toeplitz(&[1.0, 0.3, -0.2]).unwrap();
        for workload in [sums.clone(), rated(sums.with_decay(0.8).unwrap()), rated(toeplitz)] {
            for first in [0, 2] {
                let x: Vec<f64> = (first..5).map(|i| (i as f64 * 1.7).sin()).collect();
                let y: Vec<f64> = (first..5).map(|i| (i as f64 * 0.9).cos()).collect();
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let (mut forward, mut backward) = (x.clone(), y.clone());
                workload.apply(first, &mut forward);
                workload.apply_transposed(first, &mut backward);
                let (a, b) = (dot(&forward, &y), dot(&x, &backward));
                assert!((a - b).abs() < 1e-12, "{workload:?} {first}: {a} {b}");
            }
        }
    }

    #[test]
    fn wrong_workloads_are_refused_by_name() {
        let refused = |result: Result<Workload, AccountantError>| result.unwrap_err().to_string();
        let sums = Workload::prefix_sums;
        assert!(refused(sums().with_momentum(1.0)).contains("momentum"));
        assert!(refused(sums().with_decay(0.0)).contains("decay"));
        assert!(refused(sums().with_learning_rates(&[1.0, -1.0])).contains("-1"));
        assert!(refused(Workload::toeplitz(&[])).contains("coefficients"));
        let short = sums().with_learning_rates(&[1.0; 3]).unwrap();
        let error = Strategy::identity(4).unwrap().squared_errors(&short).unwrap_err();
        assert!(error.to_string().contains("4 steps, got 3"), "{error}");
    }
}
