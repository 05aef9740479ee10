//! The answers of the accountants.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rounded::Rounded;

/// The method that computed an ε.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// Nothing was released: ε is 0.
    Nothing,
    /// Composition of Rényi divergences.
    Rdp,
    /// Composition of privacy loss distributions.
    Pld,
    /// Closed form of Gaussian releases.
    ClosedForm,
    /// Certified bracket from privacy loss distributions, with an exact estimate within it.
    Exact,
    /// Only numerical inversion: an exact estimate without a guarantee.
    Inversion,
    /// Random privacy losses: a bound with a failure probability that is part of δ.
    MonteCarlo,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing released",
            Self::Rdp => "Rényi divergences",
            Self::Pld => "privacy loss distributions",
            Self::ClosedForm => "closed form",
            Self::Exact => "exact, inside a certified bracket",
            Self::Inversion => "exact, not certified",
            Self::MonteCarlo => "Monte Carlo, failure probability inside of delta",
        })
    }
}

/// ε at one δ: a bracket that contains the true value, and the best estimate within it.
///
/// [`Display`](fmt::Display) prints `upper`, rounded up to six digits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Epsilon {
    /// δ of the guarantee.
    pub delta: f64,
    /// Lower bound of the true ε; 0 if the method proves none.
    #[serde(with = "finite_or_text")]
    pub lower: f64,
    /// Upper bound of the true ε. Infinite if nothing is guaranteed; `notes` says why.
    #[serde(with = "finite_or_text")]
    pub upper: f64,
    /// Best estimate, within `[lower, upper]`. It is not a guarantee.
    #[serde(with = "finite_or_text")]
    pub estimate: f64,
    /// The method that computed it.
    pub method: Method,
    /// Best Rényi order, for [`Method::Rdp`].
    pub order: Option<f64>,
    /// Width of the grid of the privacy loss, for [`Method::Pld`] and [`Method::Exact`].
    pub grid: Option<f64>,
    /// Caveats: why a bound is infinite, or why the bracket is wide.
    pub notes: Vec<String>,
}

impl Epsilon {
    pub(crate) fn bound(delta: f64, upper: f64, method: Method) -> Self {
        let upper = if upper.is_nan() { f64::INFINITY } else { upper.max(0.0) };
        Self {
            delta,
            lower: 0.0,
            upper,
            estimate: upper,
            method,
            order: None,
            grid: None,
            notes: Vec::new(),
        }
    }

    pub(crate) fn zero(delta: f64) -> Self {
        Self::bound(delta, 0.0, Method::Nothing)
    }

    pub(crate) fn infinite(delta: f64, method: Method, reason: impl Into<String>) -> Self {
        let mut epsilon = Self::bound(delta, f64::INFINITY, method);
        epsilon.notes.push(reason.into());
        epsilon
    }
}

impl fmt::Display for Epsilon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epsilon = {} at delta = {:e}", Rounded::up(self.upper), self.delta)
    }
}

/// δ at one ε: a bracket that contains the true value, and the best estimate within it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeltaBracket {
    /// ε of the guarantee.
    pub epsilon: f64,
    /// Lower bound of the true δ; 0 if the method proves none.
    pub lower: f64,
    /// Upper bound of the true δ; 1 if the method proves none.
    pub upper: f64,
    /// Best estimate, within `[lower, upper]`. It is not a guarantee.
    pub estimate: f64,
    /// Caveats: why nothing is guaranteed, or why the bracket is wide.
    pub notes: Vec<String>,
}

impl DeltaBracket {
    pub(crate) fn bound(epsilon: f64, upper: f64) -> Self {
        let upper = if upper.is_nan() { 1.0 } else { upper.clamp(0.0, 1.0) };
        Self { epsilon, lower: 0.0, upper, estimate: upper, notes: Vec::new() }
    }

    pub(crate) fn unknown(epsilon: f64, reason: impl Into<String>) -> Self {
        Self { notes: vec![reason.into()], ..Self::bound(epsilon, 1.0) }
    }
}

/// Writes infinity as the text "inf", because JSON has no infinity.
pub(crate) mod finite_or_text {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Text(String),
    }

    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() {
            serializer.serialize_f64(*value)
        } else {
            serializer.serialize_str("inf")
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Finite(value) => Ok(value),
            Number::Text(text) if text == "inf" => Ok(f64::INFINITY),
            Number::Text(text) => {
                Err(serde::de::Error::custom(format!("expected a number or \"inf\", got {text:?}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn infinity_survives_json() {
        let epsilon = Epsilon::infinite(1e-5, Method::Pld, "why");
        let text = serde_json::to_string(&epsilon).unwrap();
        assert_eq!(serde_json::from_str::<Epsilon>(&text).unwrap(), epsilon);
    }
}
