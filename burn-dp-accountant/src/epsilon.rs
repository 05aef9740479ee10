//! The answer of an accountant.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How an ε was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// Nothing was released: ε is 0.
    Nothing,
    /// Rényi divergences.
    Rdp,
    /// Privacy loss distributions.
    Pld,
    /// Exact Gaussian trade-off.
    ClosedForm,
    /// Certified bracket by privacy loss distributions, estimate by the inverse Laplace transform.
    Exact,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing released",
            Self::Rdp => "Rényi divergences",
            Self::Pld => "privacy loss distributions",
            Self::ClosedForm => "closed form",
            Self::Exact => "exact, inside a certified bracket",
        })
    }
}

/// ε at one δ: a bracket that contains the true value, and the best estimate inside of it.
///
/// What is printed to a person is `upper`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Epsilon {
    /// The δ it belongs to.
    pub delta: f64,
    /// The true ε is not below this. 0 if the method gives no lower bound.
    #[serde(with = "finite_or_text")]
    pub lower: f64,
    /// The true ε is not above this. Infinite if nothing can be guaranteed; `notes` says why.
    #[serde(with = "finite_or_text")]
    pub upper: f64,
    /// The best estimate, inside `[lower, upper]`. No guarantee of its own.
    #[serde(with = "finite_or_text")]
    pub estimate: f64,
    /// How it was computed.
    pub method: Method,
    /// The best Rényi order, for [`Method::Rdp`].
    pub order: Option<f64>,
    /// The width of the grid of the privacy loss, for [`Method::Pld`] and [`Method::Exact`].
    pub grid: Option<f64>,
    /// What a reader must know: why something is infinite, or why the bracket is wide.
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

/// δ at one ε: a bracket that contains the true value, and the best estimate inside of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeltaBracket {
    /// The ε it belongs to.
    pub epsilon: f64,
    /// The true δ is not below this.
    pub lower: f64,
    /// The true δ is not above this.
    pub upper: f64,
    /// The best estimate. No guarantee of its own.
    pub estimate: f64,
    /// What a reader must know.
    pub notes: Vec<String>,
}

impl fmt::Display for Epsilon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epsilon = {} at delta = {:e}", Upward(self.upper), self.delta)
    }
}

/// Prints a number rounded up to six significant digits: an upper bound stays one on paper.
pub(crate) struct Upward(pub(crate) f64);

impl fmt::Display for Upward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value == 0.0 || !value.is_finite() {
            return write!(f, "{value}");
        }
        let digits = (5 - value.abs().log10().floor() as i32).clamp(0, 300);
        let text = format!("{value:.*}", digits as usize);
        let rounded: f64 = text.parse().unwrap_or(f64::INFINITY);
        if rounded >= value {
            return f.write_str(&text);
        }
        let unit = 10f64.powi(-digits);
        write!(f, "{:.*}", digits as usize, rounded + unit)
    }
}

/// JSON has no infinity: it is written as the text "inf".
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
    fn a_printed_bound_is_never_below_the_number() {
        for value in [1.0000004, 2.381596921489, 9.99999951, 1e-7 / 3.0, 123456.7891, 0.1] {
            let printed: f64 = Upward(value).to_string().parse().unwrap();
            assert!(printed >= value && printed <= value * (1.0 + 1.1e-5), "{value} {printed}");
        }
    }

    #[test]
    fn infinity_survives_json() {
        let epsilon = Epsilon::infinite(1e-5, Method::Pld, "why");
        let text = serde_json::to_string(&epsilon).unwrap();
        assert_eq!(serde_json::from_str::<Epsilon>(&text).unwrap(), epsilon);
    }
}
