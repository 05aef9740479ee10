//! The settings of a training mode that a resumed run must share.

use serde::Serialize;

use super::loading::DataOptions;
use super::options::{BackendName, as_typed};

/// The settings of a mode that a resumed run must share, by option.
#[derive(Serialize)]
pub(super) struct Compared<'a, S> {
    #[serde(flatten)]
    pub(super) data: Option<&'a DataOptions>,
    #[serde(flatten)]
    pub(super) settings: &'a S,
    #[serde(serialize_with = "as_typed")]
    pub(super) backend: BackendName,
}
