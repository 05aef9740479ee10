//! Reading checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::TensorData;
use burn_store::{ModuleStore, PytorchStore, SafetensorsStore, bridge, burn_pack};
use serde_json::Value;

use super::names::{Mapper, Name, is_in};
use crate::ModelError;

/// Names of the files in the folder of a model, the first that exists is read.
const SAFETENSORS: &str = "model.safetensors";
const SHARDS: &str = "model.safetensors.index.json";
const PYTORCH: &str = "pytorch_model.bin";

/// Suffixes of the names of values that a checkpoint can have in addition to the parameters of a
/// model.
const BUFFERS: [&str; 7] = [
    ".attn.bias",
    ".attn.masked_bias",
    "position_ids",
    "token_type_ids",
    "num_batches_tracked",
    // GroupNorm in place of BatchNorm has none.
    "running_mean",
    "running_var",
];

/// The parameters in the files of a checkpoint, by name.
#[derive(Debug, Clone)]
pub struct Weights {
    path: PathBuf,
    tensors: BTreeMap<String, TensorData>,
}

impl Weights {
    /// Reads the checkpoint in a folder: `model.safetensors`, its shards, or `pytorch_model.bin`.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] if there is none or a file is damaged.
    pub fn read(folder: &Path) -> Result<Self, ModelError> {
        let file = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
        if let Some(path) = file(SAFETENSORS).or_else(|| file(PYTORCH)) {
            return Self::read_file(&path);
        }
        if let Some(path) = file(SHARDS) {
            return Self::read_shards(folder, &path);
        }
        Err(ModelError::new(
            folder,
            format!("contains neither {SAFETENSORS} (single file or sharded) nor {PYTORCH}"),
        ))
    }

    /// Reads one file: safetensors, or PyTorch if its name ends in `.bin`, `.pt` or `.pth`.
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] if the file is missing or damaged.
    pub fn read_file(path: &Path) -> Result<Self, ModelError> {
        let failed = |error: &dyn std::fmt::Display| {
            ModelError::new(path, format!("cannot be read as a checkpoint: {error}"))
        };
        let extension = path.extension().unwrap_or_default();
        let tensors = if ["bin", "pt", "pth"].iter().any(|name| extension == *name) {
            let mut store = PytorchStore::from_file(path).map_indices_contiguous(false);
            data(store.get_all_tensors().map_err(|error| failed(&error))?)
        } else {
            let mut store = SafetensorsStore::from_file(path);
            data(store.get_all_tensors().map_err(|error| failed(&error))?)
        };
        Ok(Self { path: path.into(), tensors: tensors.map_err(|error| failed(&error))? })
    }

    fn read_shards(folder: &Path, index: &Path) -> Result<Self, ModelError> {
        let text = std::fs::read_to_string(index).map_err(|error| ModelError::new(index, error))?;
        let json: Value =
            serde_json::from_str(&text).map_err(|error| ModelError::new(index, error))?;
        let files = json.get("weight_map").and_then(Value::as_object).into_iter().flatten();
        let files: BTreeSet<_> = files.filter_map(|(_, file)| file.as_str()).collect();
        let mut tensors = BTreeMap::new();
        for file in files {
            tensors.extend(Self::read_file(&folder.join(file))?.tensors);
        }
        Ok(Self { path: index.into(), tensors })
    }

    /// Returns the file that was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the tensors by name.
    pub fn tensors(&self) -> &BTreeMap<String, TensorData> {
        &self.tensors
    }

    /// Returns the model with the values of the checkpoint.
    ///
    /// A checkpoint of only the encoder, whose names lack the first part, is loaded like one of the
    /// whole model.
    ///
    /// # Arguments
    ///
    /// - `new`: the paths of the parts that keep their random values, for example a new head
    ///
    /// # Errors
    ///
    /// Returns [`ModelError`] with the first parameter that is missing or has another shape, or
    /// that the model lacks.
    pub fn load_into<'a, M: Module>(
        &self,
        model: M,
        new: impl IntoIterator<Item = &'a str>,
    ) -> Result<M, ModelError> {
        let mut fault = None;
        let mut used = BTreeSet::new();
        let new: Vec<&str> = new.into_iter().collect();
        let is_new = |path: &str| new.iter().any(|part| is_in(part, path));
        let model = model.map(&mut Mapper::new(|name: Name, shape: &[usize]| {
            if is_new(&name.path) {
                return None;
            }
            let Some((stored, found)) = self.find(&name.stored) else {
                fault.get_or_insert_with(|| format!("has no parameter `{}`", name.stored));
                return None;
            };
            used.insert(stored);
            let expected = if name.is_transposed { vec![shape[1], shape[0]] } else { shape.into() };
            if **found.shape() != *expected {
                fault.get_or_insert_with(|| {
                    format!(
                        "`{stored}` has the shape {:?}, but the configuration needs {expected:?}",
                        found.shape().to_vec()
                    )
                });
                return None;
            }
            let found = found.clone().convert::<f32>();
            if !found.as_slice::<f32>().is_ok_and(|found| found.iter().all(|v| v.is_finite())) {
                fault.get_or_insert_with(|| format!("`{stored}` has values that are not finite"));
                return None;
            }
            Some(if name.is_transposed { transposed(found) } else { found })
        }));
        // Other parts, for example the head of the pre-training, are not needed.
        let first = |name: &str| name.split('.').next().unwrap_or_default().to_string();
        let parts: BTreeSet<_> = used.iter().map(|name| first(name)).collect();
        let is_left = |name: &&String| {
            let is_buffer = BUFFERS.iter().any(|end| name.ends_with(end));
            let is_needed = !is_buffer && !name.contains("pooler.") && parts.contains(&first(name));
            is_needed && !used.contains(name.as_str())
        };
        let left = self.tensors.keys().find(is_left);
        match fault.or_else(|| left.map(|name| format!("`{name}` is not in the configuration"))) {
            None => Ok(model),
            Some(fault) => Err(ModelError::new(&self.path, fault)),
        }
    }

    /// Returns the name in the files, and the values, of a parameter.
    fn find(&self, name: &str) -> Option<(&str, &TensorData)> {
        let encoder = name.split_once('.').map(|(_, rest)| rest).unwrap_or(name);
        [name, encoder].iter().find_map(|name| {
            // Names of norms before 2019.
            let old = match name.rsplit_once("LayerNorm.") {
                Some((module, "weight")) => format!("{module}LayerNorm.gamma"),
                Some((module, "bias")) => format!("{module}LayerNorm.beta"),
                _ => String::new(),
            };
            let found =
                self.tensors.get_key_value(*name).or_else(|| self.tensors.get_key_value(&old));
            found.map(|(name, data)| (name.as_str(), data))
        })
    }
}

fn data(
    tensors: &BTreeMap<String, burn_pack::Tensor>,
) -> Result<BTreeMap<String, TensorData>, String> {
    let data = |(name, tensor): (&String, &burn_pack::Tensor)| {
        let data = bridge::to_data(tensor).map_err(|error| error.to_string())?;
        Ok((name.clone(), data))
    };
    tensors.iter().map(data).collect()
}

/// Transposes a matrix of f32.
pub(super) fn transposed(data: TensorData) -> TensorData {
    let (rows, columns) = (data.shape()[0], data.shape()[1]);
    let values = data.iter::<f32>().collect::<Vec<_>>();
    let values = (0..rows * columns).map(|i| values[(i % rows) * columns + i / rows]);
    TensorData::new(values.collect::<Vec<_>>(), [columns, rows])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::{DType, Device, f16};
    use safetensors::tensor::{Dtype, TensorView};
    use serde_json::json;

    use super::*;
    use crate::weights::{tensors, to_safetensors};
    use crate::{BertClassifier, Config, Gpt2LanguageModel};

    fn golden() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bert-classify")
    }

    fn bert() -> BertClassifier {
        let Config::Bert(config) = Config::read(&golden()).unwrap() else { panic!("no BERT") };
        BertClassifier::new(&config, 3, &Device::flex())
    }

    /// Writes tensors of several types, and reads them.
    fn written(tensors: &BTreeMap<String, TensorData>) -> Weights {
        let views = tensors.iter().map(|(name, data)| {
            let dtype = match data.dtype() {
                DType::F16 => Dtype::F16,
                DType::I64 => Dtype::I64,
                _ => Dtype::F32,
            };
            (name, TensorView::new(dtype, data.shape().to_vec(), data.as_bytes()).unwrap())
        });
        let content = safetensors::serialize(views, None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(SAFETENSORS), content).unwrap();
        Weights::read(folder.path()).unwrap()
    }

    // As in `openai-community/gpt2`.
    #[test]
    fn a_gpt2_without_a_prefix_and_with_its_masks_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/gpt2-generate");
        let Config::Gpt2(config) = Config::read(&folder).unwrap() else { panic!("no GPT-2") };
        let load = |weights: &Weights| {
            let model = Gpt2LanguageModel::new(&config, &Device::flex());
            tensors(&weights.load_into(model, None).unwrap())
        };
        let whole = Weights::read(&folder).unwrap();
        let renamed = whole.tensors().iter().map(|(name, data)| {
            (name.strip_prefix("transformer.").unwrap().to_string(), data.clone())
        });
        let mut renamed: BTreeMap<_, _> = renamed.collect();
        for block in 0..2 {
            let mask = TensorData::new(vec![1.0_f32; 144], [1, 1, 12, 12]);
            renamed.insert(format!("h.{block}.attn.bias"), mask);
            let masked = TensorData::new(vec![-1e4_f32], [1]);
            renamed.insert(format!("h.{block}.attn.masked_bias"), masked);
        }
        assert_eq!(load(&written(&renamed)), load(&whole));
    }

    // As in `google-bert/bert-base-uncased`.
    #[test]
    fn a_bert_with_old_names_of_norms_and_with_positions_is_read() {
        let whole = Weights::read(&golden()).unwrap();
        let renamed = whole.tensors().iter().map(|(name, data)| {
            let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
            (name.replace("LayerNorm.bias", "LayerNorm.beta"), data.clone())
        });
        let mut renamed: BTreeMap<_, _> = renamed.collect();
        assert!(renamed.keys().filter(|name| name.ends_with("gamma")).count() == 5);
        let positions = TensorData::new((0..14_i64).collect::<Vec<_>>(), [1, 14]);
        renamed.insert("bert.embeddings.position_ids".into(), positions);
        renamed.insert("cls.predictions.bias".into(), TensorData::new(vec![0.5_f32; 40], [40]));
        let load = |weights: &Weights| tensors(&weights.load_into(bert(), None).unwrap());
        assert_eq!(load(&written(&renamed)), load(&whole));
    }

    #[test]
    fn a_file_in_half_precision_is_read_in_single_precision() {
        let whole = Weights::read(&golden()).unwrap();
        let halves = whole.tensors().iter();
        let halves = halves.map(|(name, data)| (name.clone(), data.clone().convert::<f16>()));
        let half = tensors(&written(&halves.collect()).load_into(bert(), None).unwrap());
        for (name, expected) in tensors(&whole.load_into(bert(), None).unwrap()) {
            assert_eq!(half[&name].dtype(), DType::F32);
            for (found, expected) in half[&name].iter::<f32>().zip(expected.iter::<f32>()) {
                // Eleven bits.
                let rounding = expected.abs() / 2048.0 + 1e-7;
                assert!((found - expected).abs() <= rounding, "{name}: {found} {expected}");
            }
        }
    }

    #[test]
    fn shards_are_read_like_one_file() {
        let whole = Weights::read(&golden()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut places = serde_json::Map::new();
        for shard in 0..2 {
            let part = whole.tensors().iter().enumerate().filter(|(index, _)| index % 2 == shard);
            let part: BTreeMap<_, _> =
                part.map(|(_, (name, data))| (name.clone(), data.clone())).collect();
            let name = format!("model-{:05}-of-00002.safetensors", shard + 1);
            std::fs::write(folder.path().join(&name), to_safetensors(&part).unwrap()).unwrap();
            places.extend(part.into_keys().map(|tensor| (tensor, json!(name))));
        }
        let index = json!({ "metadata": {}, "weight_map": places });
        std::fs::write(folder.path().join(SHARDS), index.to_string()).unwrap();
        let shards = Weights::read(folder.path()).unwrap();
        assert_eq!(shards.tensors(), whole.tensors());
        std::fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
        let error = Weights::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("model-00002-of-00002.safetensors"), "{error}");
    }

    #[test]
    fn values_that_are_not_finite_and_missing_parameters_are_named() {
        let whole = Weights::read(&golden()).unwrap();
        let name = "bert.pooler.dense.weight";
        let mut damaged = whole.clone();
        let data = damaged.tensors.get_mut(name).unwrap();
        let mut values = data.iter::<f32>().collect::<Vec<_>>();
        values[3] = f32::NAN;
        *data = TensorData::new(values, data.shape().to_vec());
        let error = damaged.load_into(bert(), None).unwrap_err().to_string();
        assert!(error.contains(&format!("`{name}` has values that are not finite")), "{error}");
        let mut other = whole.clone();
        other.tensors.insert(name.into(), TensorData::zeros::<f32, _>([8, 7]));
        let error = other.load_into(bert(), None).unwrap_err().to_string();
        let shapes = "has the shape [8, 7], but the configuration needs [8, 8]";
        assert!(error.contains(shapes), "{error}");
        let mut masked = whole.clone();
        masked.tensors.retain(|name, _| !name.contains("pooler."));
        let error = masked.load_into(bert(), None).unwrap_err().to_string();
        assert!(error.contains("has no parameter `bert.pooler"), "{error}");
        assert!(masked.load_into(bert(), ["bert.pooler"]).is_ok());
    }
}
