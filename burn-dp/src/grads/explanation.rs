//! Human-readable report of the planner's decisions.

use std::fmt;

use super::planner::{MemoryBound, NormMethod};
use crate::model::ParameterInfo;

/// The rule and the method for the per-example gradients of one parameter, and their costs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExplainedParameter {
    /// The parameter.
    pub info: ParameterInfo,
    /// Name of the rule; `None` if no example reached the parameter: its release is only noise.
    pub rule: Option<&'static str>,
    /// Number of uses in the pass.
    pub uses: usize,
    /// How the norms are computed; `None` if no example reached the parameter.
    pub method: Option<NormMethod>,
    /// Floating-point operations of the ghost norms of all units; `None` if the rule has no ghost
    /// norm.
    pub ghost_flops: Option<f64>,
    /// Bytes of the per-example gradients of all units.
    pub gradient_bytes: usize,
    /// Bytes of the inputs and output gradients that the pass recorded for them.
    pub recorded_bytes: usize,
    /// Bytes kept until the norms are known: the gradients if they are instantiated and kept,
    /// otherwise the record.
    pub kept_bytes: usize,
    /// Bytes of temporaries.
    pub temporary_bytes: usize,
    /// Estimate of the time for the norms and the weighted sum after the pass, from the
    /// [costs of the device](super::DeviceCosts), in seconds.
    pub estimated_seconds: f64,
    /// The measured time for them; `None` if no example reached the parameter, and in browsers.
    pub measured_seconds: Option<f64>,
}

impl ExplainedParameter {
    /// Describes a parameter that no example reached.
    pub(super) fn unreached(info: &ParameterInfo) -> Self {
        Self {
            info: info.clone(),
            rule: None,
            uses: 0,
            method: None,
            ghost_flops: None,
            gradient_bytes: 0,
            recorded_bytes: 0,
            kept_bytes: 0,
            temporary_bytes: 0,
            estimated_seconds: 0.0,
            measured_seconds: None,
        }
    }

    /// Adds further uses; the gradients of all uses are instantiated.
    pub(super) fn plus(mut self, other: Self) -> Self {
        self.uses += other.uses;
        self.ghost_flops = self.ghost_flops.zip(other.ghost_flops).map(|(a, b)| a + b);
        self.recorded_bytes += other.recorded_bytes;
        self.temporary_bytes = self.temporary_bytes.max(other.temporary_bytes);
        self
    }

    /// Returns the bytes that the memory bound counts: gradients that are kept although they are
    /// larger than half of their record.
    fn bounded_bytes(&self) -> usize {
        let kept = self.method == Some(NormMethod::Instantiate);
        if kept && 2 * self.gradient_bytes > self.recorded_bytes { self.kept_bytes } else { 0 }
    }
}

/// A table of the planner's choices for one batch, in the order of the model's parameters.
///
/// # Privacy
///
/// Apart from the measured times, the table depends only on the shapes of the layers and the batch,
/// not on the values of the examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub(super) parameters: Vec<ExplainedParameter>,
    pub(super) units: usize,
    pub(super) bound: MemoryBound,
}

impl Explanation {
    /// Returns the parameters.
    pub fn parameters(&self) -> &[ExplainedParameter] {
        &self.parameters
    }

    /// Returns the number of units in the batch.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Returns the bytes kept until the norms are known.
    pub fn kept_bytes(&self) -> usize {
        self.parameters.iter().map(|parameter| parameter.kept_bytes).sum()
    }

    /// Returns the bytes of the kept gradients that are larger than half of their record. The
    /// memory bound limits these.
    pub fn bounded_bytes(&self) -> usize {
        self.parameters.iter().map(ExplainedParameter::bounded_bytes).sum()
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = [
            "parameter",
            "shape",
            "rule",
            "uses",
            "norm",
            "ghost flops",
            "gradients",
            "kept",
            "estimated",
            "measured",
        ];
        let mut rows = vec![header.map(String::from)];
        rows.extend(self.parameters.iter().map(|parameter| {
            [
                parameter.info.path.clone(),
                format!("{:?}", parameter.info.shape),
                parameter.rule.unwrap_or("not reached: only noise").into(),
                parameter.uses.to_string(),
                match parameter.method {
                    None => "-".into(),
                    Some(NormMethod::Ghost) => "ghost".into(),
                    Some(NormMethod::Instantiate) => "instantiated".into(),
                    Some(NormMethod::InstantiateInChunks(chunk)) => format!("{chunk} at a time"),
                },
                parameter.ghost_flops.map_or("-".into(), |flops| format!("{flops:.2e}")),
                Bytes(parameter.gradient_bytes).to_string(),
                Bytes(parameter.kept_bytes).to_string(),
                parameter.rule.map_or("-".into(), |_| time(parameter.estimated_seconds)),
                parameter.measured_seconds.map_or("-".into(), time),
            ]
        }));
        let widths: [usize; 10] = std::array::from_fn(|column| {
            rows.iter().map(|row| row[column].len()).max().unwrap_or(0)
        });
        for row in &rows {
            let line: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        let bounded = self.bounded_bytes();
        let bound = self.bound.as_bytes();
        write!(
            f,
            "{} units; kept {}; gradients beyond the record {} of a bound of {}",
            self.units,
            Bytes(self.kept_bytes()),
            Bytes(bounded),
            Bytes(bound),
        )?;
        if bounded > bound { f.write_str(": over the bound") } else { Ok(()) }
    }
}

/// Returns a time in milliseconds or microseconds.
fn time(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{:.0} µs", ms * 1e3),
    }
}

struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match units.into_iter().find(|&(_, shift)| self.0 >= 1 << shift) {
            Some((unit, shift)) => {
                write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64)
            }
            None => write!(f, "{} B", self.0),
        }
    }
}
