//! Writing checkpoints.

use std::collections::{BTreeMap, HashMap};

use burn::module::Module;
use burn::tensor::TensorData;
use safetensors::tensor::{Dtype, TensorView};

use super::names::parameters;

/// Tensors of f32 by name.
pub(crate) type Tensors = BTreeMap<String, TensorData>;

/// Returns the parameters of a model under the names of its checkpoint.
///
/// Adapters are not part of it; [`Module::materialize`] merges them first.
pub(crate) fn tensors<M: Module>(model: &M) -> Tensors {
    let mut tensors = Tensors::new();
    parameters(model, |name, parameter| {
        if name.factor().is_none() {
            tensors.insert(name.stored, parameter.value(name.is_transposed));
        }
    });
    tensors
}

/// Returns the content of a safetensors file that PyTorch loads.
///
/// # Errors
///
/// Returns the message of the format.
pub(crate) fn to_safetensors(tensors: &Tensors) -> Result<Vec<u8>, String> {
    let views = tensors.iter().map(|(name, data)| {
        let view = TensorView::new(Dtype::F32, data.shape().to_vec(), data.as_bytes());
        Ok((name, view.map_err(|error| format!("{name}: {error}"))?))
    });
    let views = views.collect::<Result<Vec<_>, String>>()?;
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    safetensors::serialize(views, Some(metadata)).map_err(|error| error.to_string())
}
