//! Reads the model of a command, and chooses its device.

use std::path::Path;

use burn::tensor::Device;
use burn_dp_examples::training::{BackendName, TrainError, device, typed};

use super::options::{FinetuneOptions, Labels, Packing};
use crate::{Config, Gpt2LanguageModel, Weights};

/// Returns the names of the classes: from the options or, if absent, from the configuration.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if there are fewer than two, or one is empty or is given twice.
pub(super) fn class_names(
    options: &FinetuneOptions,
    labels: &Labels,
) -> Result<Vec<String>, TrainError> {
    let names = match labels.labels.is_empty() {
        true => Config::labels(&options.model)?,
        false => labels.labels.iter().map(|name| name.trim().to_string()).collect(),
    };
    if names.iter().any(|name| name.trim().is_empty()) {
        let reason =
            format!("must name every class, but one of the names is empty: {}", quoted(&names));
        return Err(TrainError::option("--labels", reason));
    }
    if names.len() < 2 {
        let reason = format!(
            "must name at least two classes, got {}; class names are public and are therefore \
             never read from the data",
            names.len()
        );
        return Err(TrainError::option("--labels", reason));
    }
    if let Some(name) =
        (1..names.len()).find_map(|at| names[..at].contains(&names[at]).then(|| &names[at]))
    {
        let reason = format!("must name each class once, got {name:?} twice");
        return Err(TrainError::option("--labels", reason));
    }
    Ok(names)
}

/// Returns names in quotes, separated by commas.
pub(super) fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// Returns the device of the training. All tensors that are combined need the same device.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if the backend is not available, cannot compute in the precision,
/// or has no packed weights of the type.
pub(super) fn trained_device(options: &FinetuneOptions) -> Result<Device, TrainError> {
    let device = device(options.run.backend)?.autodiff();
    let precision = options.training.precision;
    if !device.supports_dtype(precision.dtype()) {
        let [precision, backend] = [typed(precision), typed(options.run.backend)];
        let reason =
            format!("{precision} is not possible on {backend}; choose f32, or another --backend");
        return Err(TrainError::option("--precision", reason));
    }
    let packing = options.training.packed_base;
    if (options.run.backend, packing) == (BackendName::Ndarray, Some(Packing::Int4)) {
        let reason = "int4 is not possible on ndarray; choose int8, or another --backend";
        return Err(TrainError::option("--packed-base", reason));
    }
    let checkpoints = options.training.gradient_checkpointing;
    Ok(if checkpoints { device.gradient_checkpointing() } else { device })
}

/// Reads a language model.
///
/// # Errors
///
/// Returns [`TrainError`] if the model cannot be read or is not a GPT-2.
pub(super) fn language_model(
    folder: &Path,
    device: &Device,
) -> Result<(Config, Gpt2LanguageModel), TrainError> {
    let config = Config::read(folder)?;
    let Config::Gpt2(gpt2) = &config else {
        let reason = "must be a GPT-2: this model has no layer that predicts the next token";
        return Err(TrainError::option("--model", reason));
    };
    let model = Gpt2LanguageModel::new(gpt2, device);
    let model = Weights::read(folder)?.load_into(model, None)?;
    Ok((config, model))
}
