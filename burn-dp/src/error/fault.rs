//! The parts of a model that cannot be trained privately.

use std::fmt;

/// The class of a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The layer mixes the examples of a batch. No rule makes it private.
    Never,
    /// The parameter has no per-example rule in this place.
    NotYet,
    /// A private layer can replace this layer.
    Replace,
    /// The layer draws random values that belong to no unit.
    Random,
    /// The model is assembled incorrectly.
    Misconfigured,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::NotYet => "not yet",
            Self::Replace => "replace",
            Self::Random => "random",
            Self::Misconfigured => "misconfigured",
        })
    }
}

/// A part of a model that cannot be trained privately.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// Path of the layer or parameter, for example `encoder.norm`; empty for the whole model.
    pub path: String,
    /// The class of the fault.
    pub kind: FaultKind,
    /// Why, and what to do instead.
    pub reason: String,
    /// Whether the fault prevents private training in every use of the model. Other faults matter
    /// only if a loss reaches the part.
    pub(crate) certain: bool,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, path: impl Into<String>, reason: impl Into<String>) -> Self {
        let certain =
            matches!(kind, FaultKind::Never | FaultKind::Random | FaultKind::Misconfigured);
        Self { path: path.into(), kind, reason: reason.into(), certain }
    }

    /// Returns whether the parameter at `path` is the faulty part or belongs to it.
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

    /// Returns the faults.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.faults.iter()
    }

    /// Returns the number of faults.
    pub fn len(&self) -> usize {
        self.faults.len()
    }

    /// Returns whether there is no fault.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Writes one line for each fault.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Faults {}
