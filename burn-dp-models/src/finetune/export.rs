//! The output of a run for Python: a model or an adapter.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn_dp_examples::training::place::{CONFIG, PRETRAINED};
use burn_dp_examples::training::{Output, STATEMENT_JSON, STATEMENT_TEXT, TrainError, files};
use serde_json::{Map, Value, json};

use super::encoding;
use super::ways::Parts;
use crate::weights::{tensors, to_safetensors};
use crate::{Adapter, LoraTargets, ModelError};

/// Folders in the output folder.
pub(super) const MODEL: &str = "model";
pub(super) const ADAPTER: &str = "adapter";

/// The preprocessing of images.
pub(super) const PREPROCESSOR: &str = "preprocessor_config.json";

/// Files of the base that a model needs in Python, copied unchanged.
const COPIED: [&str; 7] = [
    encoding::FILE,
    PREPROCESSOR,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
];

/// Further files that a run may write into these folders.
const NAMES: [&str; 4] = [CONFIG, "model.safetensors", Adapter::CONFIG_FILE, Adapter::WEIGHTS_FILE];

/// The description of a model in the files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Export<'a> {
    /// Name of the class in `transformers`.
    pub(super) architecture: &'static str,
    /// Names of the classes.
    pub(super) labels: Option<&'a [String]>,
    /// Parts of the model.
    pub(super) parts: Parts,
    /// Type of the task in `peft`.
    pub(super) task: Option<&'static str>,
}

/// The content of files that are not written yet.
#[derive(Debug)]
pub(super) struct Written {
    folder: &'static str,
    files: Vec<(&'static str, Vec<u8>)>,
}

impl Written {
    /// Returns the files of a whole model: its parameters, and the other files of its base.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Record`] if a file of the base cannot be read.
    pub(super) fn model<M: Module>(
        export: &Export<'_>,
        base: &Path,
        model: &M,
    ) -> Result<Self, TrainError> {
        let weights = to_safetensors(&tensors(model));
        let weights = weights.map_err(|reason| ModelError::new(MODEL, reason))?;
        let mut files = vec![("model.safetensors", weights)];
        // A residual network has no configuration.
        if base.join(CONFIG).is_file() {
            files.push((CONFIG, text(&export.config(base)?)));
        }
        for name in COPIED {
            let path = base.join(name);
            if path.is_file() {
                files.push((name, bytes(&path)?));
            }
        }
        Ok(Self { folder: MODEL, files })
    }

    /// Returns the files of an adapter.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Record`] if the parameters cannot be serialized.
    pub(super) fn adapter<M: Module>(
        export: &Export<'_>,
        base: &Path,
        model: &M,
        targets: &LoraTargets,
    ) -> Result<Self, TrainError> {
        let (base, heads) = (base.to_string_lossy(), export.parts.with_adapters());
        let adapter = Adapter::of(model, targets, &base, heads, export.task);
        let adapter = adapter.map_err(|reason| ModelError::new(ADAPTER, reason))?;
        let weights = adapter.weights().map_err(|reason| ModelError::new(ADAPTER, reason))?;
        let files =
            vec![(Adapter::CONFIG_FILE, text(adapter.config())), (Adapter::WEIGHTS_FILE, weights)];
        Ok(Self { folder: ADAPTER, files })
    }

    /// Writes the files in place of the files of an earlier run. They are complete before the
    /// earlier ones are removed, and the statement of the earlier run is never next to them.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Io`] if a file cannot be written.
    pub(super) fn publish(self, output: &Output) -> Result<PathBuf, TrainError> {
        let folder = output.file(self.folder);
        files::make_folder(&folder)?;
        let folders = [MODEL, ADAPTER].map(|name| output.file(name));
        folders.iter().filter(|folder| folder.is_dir()).try_for_each(|folder| {
            // Of a process that was killed here.
            files::remove_incomplete(folder)
        })?;
        let new: Vec<PathBuf> = self.files.iter().map(|(name, _)| folder.join(name)).collect();
        let complete = self.files.iter().zip(&new);
        let complete = complete.map(|((_, content), path)| files::Complete::write(path, content));
        let complete = complete.collect::<Result<Vec<_>, _>>()?;
        for name in [STATEMENT_JSON, STATEMENT_TEXT] {
            files::remove(&output.file(name))?;
        }
        for earlier in written(&output.folder).filter(|path| !new.contains(path)) {
            files::remove(&earlier)?;
        }
        complete.into_iter().try_for_each(files::Complete::publish)?;
        for folder in folders {
            // Fails if the folder has files.
            let _ = std::fs::remove_dir(folder);
        }
        Ok(folder)
    }
}

/// Returns the paths that a run may write and remove in the folders of its models.
pub(super) fn written(output: &Path) -> impl Iterator<Item = PathBuf> {
    let names = || NAMES.iter().chain(&COPIED);
    let folders = [MODEL, ADAPTER].map(|folder| output.join(folder));
    folders.into_iter().flat_map(move |folder| names().map(move |name| folder.join(name)))
}

impl Export<'_> {
    /// Returns the configuration of the base with the classes of the new head.
    fn config(&self, base: &Path) -> Result<Value, TrainError> {
        let path = base.join(CONFIG);
        let config = serde_json::from_slice::<Map<String, Value>>(&bytes(&path)?);
        let mut config = config.map_err(|error| ModelError::new(&path, error))?;
        config.insert("architectures".into(), json!([self.architecture]));
        config.remove(PRETRAINED);
        if let Some(labels) = self.labels {
            let ids = labels.iter().enumerate();
            let names: Map<_, _> =
                ids.clone().map(|(id, name)| (id.to_string(), json!(name))).collect();
            let ids: Map<_, _> = ids.map(|(id, name)| (name.clone(), json!(id))).collect();
            config.insert("id2label".into(), names.into());
            config.insert("label2id".into(), ids.into());
            let is_gpt2 = self.architecture.starts_with("GPT2");
            if is_gpt2 && config.get("pad_token_id").is_none_or(Value::is_null) {
                // GPT-2 has no padding token, and its classifier needs one.
                let end = config.get("eos_token_id").cloned().unwrap_or(Value::Null);
                config.insert("pad_token_id".into(), end);
            }
        }
        Ok(config.into())
    }
}

fn text(json: &Value) -> Vec<u8> {
    format!("{json:#}\n").into_bytes()
}

fn bytes(path: &Path) -> Result<Vec<u8>, TrainError> {
    Ok(std::fs::read(path).map_err(|error| ModelError::new(path, error))?)
}
