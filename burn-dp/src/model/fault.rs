use std::fmt;

use crate::DpError;

/// Why something cannot be trained privately, and what could change that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// It mixes the examples of a batch: no rule makes it private.
    Never,
    /// It has no per-example rule where it stands.
    NotYet,
    /// There is a private twin to put in its place.
    Replace,
    /// The model is put together wrongly.
    Misconfigured,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::NotYet => "not yet",
            Self::Replace => "replace",
            Self::Misconfigured => "misconfigured",
        })
    }
}

/// One thing that cannot be trained privately as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// Path of the layer or parameter, for example `encoder.norm`; empty for the whole model.
    pub path: String,
    /// The class of the fault.
    pub kind: FaultKind,
    /// Why, and what to do instead.
    pub reason: String,
    /// Whether it stands in the way however the model is used. The others matter only if a loss reaches
    /// them.
    pub(crate) certain: bool,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, path: impl Into<String>, reason: impl Into<String>) -> Self {
        let certain = matches!(kind, FaultKind::Never | FaultKind::Misconfigured);
        Self { path: path.into(), kind, reason: reason.into(), certain }
    }

    /// Whether the parameter at `path` is the faulty thing, or a part of it.
    pub(crate) fn covers(&self, path: &str) -> bool {
        path.strip_prefix(self.path.as_str())
            .is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with('.'))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the model" } else { &self.path };
        write!(f, "{path} ({}): {}", self.kind, self.reason)
    }
}

/// All faults of a model, sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    faults: Vec<Fault>,
}

impl Faults {
    pub(crate) fn new(mut faults: Vec<Fault>) -> Self {
        faults.sort_by(|a, b| a.path.cmp(&b.path));
        Self { faults }
    }

    /// The faults.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.faults.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

/// One fault a line.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl From<Fault> for DpError {
    fn from(fault: Fault) -> Self {
        Self::UnsupportedModel { path: fault.path, reason: fault.reason }
    }
}

impl From<Faults> for DpError {
    fn from(faults: Faults) -> Self {
        Self::UnsupportedParts(faults)
    }
}
