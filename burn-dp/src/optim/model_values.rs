//! The values of a model, and what a saved run keeps of them.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::{Bool, DType, Int, Tensor};
use serde::{Deserialize, Serialize};

use crate::DpError;
use crate::device_read::read;

/// The values of a model, by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    /// Those that are not trained.
    pub(super) stored: BTreeMap<String, Stored>,
    /// The paths of those that are trained, or were.
    pub(super) trained: BTreeSet<String>,
}

/// A value of any rank, as `[num_values]`, without autodiff.
#[derive(Clone, Debug)]
pub(super) enum Stored {
    Float(Tensor<1>),
    Int(Tensor<1, Int>),
    Bool(Tensor<1, Bool>),
    /// The hash of the stored bytes.
    Packed(blake3::Hash),
}

/// The values of a model in a saved run, by path.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedValues {
    /// A digest of each value that is not trained.
    pub(super) stored: BTreeMap<String, String>,
    /// The paths of those that are trained, or were.
    pub(super) trained: BTreeSet<String>,
}

/// The beginning of the digest of a packed value.
pub(super) const PACKED: &str = "packed ";

impl SavedValues {
    /// Returns whether the run had a value at this path.
    pub(super) fn has(&self, path: &String) -> bool {
        self.stored.contains_key(path) || self.trained.contains(path)
    }

    /// Drops the values that are known.
    pub(super) fn without(mut self, known: &Values) -> Self {
        self.stored.retain(|path, _| !known.stored.contains_key(path));
        self
    }

    /// Returns an error unless the run had all these values.
    pub(super) async fn check(&self, found: &Values) -> Result<(), DpError> {
        found.check_known(|path| self.has(path))?;
        self.check_where(found, |_| true).await
    }

    /// Returns an error if the digest of one of these values differs. Values that were trained have
    /// none.
    pub(super) async fn check_where(
        &self,
        found: &Values,
        is_checked: impl Fn(&str) -> bool,
    ) -> Result<(), DpError> {
        for (path, value) in &found.stored {
            if let Some(saved) = self.stored.get(path).filter(|digest| is_checked(digest))
                && *saved != value.digest().await?
            {
                return Err(DpError::ChangedBuffer { path: path.clone() });
            }
        }
        Ok(())
    }
}

impl Values {
    /// Returns an error if there is another value. What a trained value begins with would be
    /// published without noise, too.
    pub(super) fn check_known(&self, is_known: impl Fn(&String) -> bool) -> Result<(), DpError> {
        let mut paths = self.stored.keys().chain(&self.trained);
        match paths.find(|path| !is_known(path)) {
            Some(path) => Err(DpError::ChangedBuffer { path: path.clone() }),
            None => Ok(()),
        }
    }
}

impl Stored {
    /// Returns a digest of the numbers, which is the same on every device and for numbers in half
    /// and in single precision.
    pub(super) async fn digest(&self) -> Result<String, DpError> {
        let what = "a value that is not trained";
        let data = match self {
            Self::Packed(hash) => return Ok(format!("{PACKED}{hash}")),
            Self::Float(value) => read(value.clone(), what).await?,
            Self::Int(value) => read(value.clone(), what).await?.convert::<i64>(),
            Self::Bool(value) => read(value.clone(), what).await?.convert::<u8>(),
        };
        let data = match data.dtype() {
            DType::F16 | DType::BF16 => data.convert::<f32>(),
            _ => data,
        };
        Ok(blake3::hash(data.as_bytes()).to_string())
    }

    /// Returns the bytes of the value.
    pub(super) async fn bytes(&self) -> Result<Vec<u8>, DpError> {
        let what = "a value that is not trained";
        let data = match self {
            Self::Float(value) => read(value.clone(), what).await?,
            Self::Int(value) => read(value.clone(), what).await?,
            Self::Bool(value) => read(value.clone(), what).await?,
            Self::Packed(hash) => return Ok(hash.as_bytes().to_vec()),
        };
        Ok(data.as_bytes().to_vec())
    }
}
