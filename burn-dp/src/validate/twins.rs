//! The layers of Burn that have a private twin.

use crate::nn::private_layers;

/// Whether Burn's layer of that name becomes private by `.private()`.
pub(super) fn has_private_twin(name: &str) -> bool {
    private_layers().into_iter().any(|path| path.rsplit("::").next() == Some(name))
}
