//! The layers of Burn that have a private twin.

use burn::nn::Linear;
use burn::nn::conv::Conv2d;

use crate::nn::PrivateLayer;

/// Name of a layer that `Private<M>` wraps; does not compile for another one.
fn wrapped<M: PrivateLayer>() -> &'static str {
    let path = std::any::type_name::<M>();
    path.rsplit("::").next().unwrap_or(path)
}

/// Whether Burn's layer of that name becomes private by `.private()`.
pub(super) fn has_private_twin(name: &str) -> bool {
    [wrapped::<Linear>(), wrapped::<Conv2d>()].contains(&name)
}
