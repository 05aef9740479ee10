//! Packed weights under low-rank adapters.

use burn::module::Module;
use burn::tensor::quantization::{QuantScheme, QuantValue, ScaleDtype};
use burn_dp_examples::training::TrainError;

use super::options::Packing;
use crate::LoraTargets;
use crate::weights::{LayerKind, parameters};

/// Numbers of values with one scale; the first one that fits is used.
const BLOCKS: [u8; 4] = [64, 32, 16, 8];

/// Returns the scheme that packs the weights of the linear layers with adapters. Each block of
/// the weights of one input has its own scale.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if no linear layer has an adapter, or if the outputs of one
/// are not a whole number of blocks.
pub(super) fn scheme<M: Module>(
    packing: Packing,
    model: &M,
    targets: &LoraTargets,
) -> Result<QuantScheme, TrainError> {
    let refuse = |reason: String| Err(TrainError::option("--packed-base", reason));
    let mut layers = Vec::new();
    parameters(model, |name, parameter| {
        if name.layer == LayerKind::Linear && targets.contains(&name.path) {
            layers.push((name.stored, parameter.dims()[1]));
        }
    });
    let Some(device) = model.devices().into_iter().next().filter(|_| !layers.is_empty()) else {
        let reason = "only packs linear layers with adapters, but --lora-layers selects none";
        return refuse(reason.into());
    };
    let fits = |block: &u8| layers.iter().all(|(_, d)| d.is_multiple_of(usize::from(*block)));
    let Some(block) = BLOCKS.into_iter().find(fits) else {
        let odd = layers.iter().find(|(_, outputs)| !outputs.is_multiple_of(8));
        let (name, outputs) = odd.map_or(("", 0), |(name, outputs)| (name.as_str(), *outputs));
        return refuse(format!(
            "packs blocks of 8 outputs, and {name} has {outputs}; leave this layer out of \
             --lora-layers"
        ));
    };
    let value = match packing {
        Packing::Int8 => QuantValue::Q8S,
        Packing::Int4 => QuantValue::Q4S,
    };
    let scheme = device.settings().quantization.scheme.with_value(value);
    Ok(scheme.per_block([block], ScaleDtype::F32))
}
