//! Settings and named tensors as bytes: Burn's own format for records, and a checksum at the end.

use std::collections::BTreeMap;

use burn::tensor::{Bytes, TensorData};
use burn_dp_accountant::strict_json;
use burn_pack::{Error, Reader, Tensor, Writer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::DpError;

/// Version of the content. Other versions are refused.
const VERSION: &str = "1";

/// Size of the largest tensor that burn-pack reads, in bytes.
const LARGEST: usize = if usize::BITS < 64 { 2 << 30 } else { 10 << 30 };

/// Returns a burnpack record with `settings` as JSON and these tensors, followed by its CRC-32.
pub(crate) fn write(
    settings: &impl Serialize,
    tensors: impl IntoIterator<Item = (String, TensorData)>,
) -> Result<Bytes, DpError> {
    let json = serde_json::to_string(settings).map_err(unwritable)?;
    let tensors = tensors.into_iter().map(|(name, data)| {
        let (bytes, shape, dtype) = data.into_parts();
        if bytes.len() > LARGEST {
            let size = bytes.len() >> 30;
            return Err(unwritable(format!(
                "{name} has {size} GiB, more than can be read back; save a checkpoint folder"
            )));
        }
        Ok(Tensor::new(name, dtype, shape, None, bytes))
    });
    let writer = Writer::new(tensors.collect::<Result<_, _>>()?)
        .with_metadata("burn-dp", VERSION)
        .with_metadata("settings", &json);
    let mut bytes = writer.into_bytes().map_err(unwritable)?.to_vec();
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    Ok(Bytes::from_bytes_vec(bytes))
}

/// Returns the settings and the tensors of a record.
///
/// # Errors
///
/// Returns [`DpError::SavedState`] if the bytes are damaged or have another version.
pub(crate) fn read<S: DeserializeOwned>(
    bytes: &[u8],
) -> Result<(S, BTreeMap<String, TensorData>), DpError> {
    let Some((content, sum)) = bytes.split_last_chunk::<4>() else {
        return Err(unreadable("too short"));
    };
    if crc32fast::hash(content) != u32::from_le_bytes(*sum) {
        return Err(unreadable("its content is not what was written"));
    }
    let content = Bytes::from_bytes_vec(content.to_vec());
    let reader = Reader::from_bytes(content).map_err(unreadable)?;
    let metadata = reader.metadata();
    if metadata.get("burn-dp").map(String::as_str) != Some(VERSION) {
        return Err(DpError::saved_state(
            "the record is of another version; read it with the version of burn-dp that wrote it",
        ));
    }
    let settings = metadata.get("settings").map(String::as_str).unwrap_or_default();
    let settings = strict_json::read(settings).map_err(unreadable)?;
    let tensors = reader.into_tensors().map_err(unreadable)?.into_iter().map(|tensor| {
        let (name, dtype, shape, _, bytes) = tensor.into_parts()?;
        Ok((name, TensorData::from_bytes(bytes, shape, dtype)))
    });
    Ok((settings, tensors.collect::<Result<_, Error>>().map_err(unreadable)?))
}

/// The error for a damaged record.
pub(crate) fn unreadable(error: impl std::fmt::Display) -> DpError {
    DpError::saved_state(format!("the record is damaged ({error}); restore it from a backup"))
}

fn unwritable(error: impl std::fmt::Display) -> DpError {
    DpError::encoding("the record", error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde::Serializer;

    use super::*;

    #[test]
    fn a_repeated_setting_is_refused() {
        struct Settings(&'static [(&'static str, f64)]);
        impl Serialize for Settings {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().copied())
            }
        }
        let read = |settings| {
            let tensor = ("t".to_string(), TensorData::from([1.0f32]));
            read::<BTreeMap<String, f64>>(&write(&settings, [tensor]).unwrap())
        };
        assert!(read(Settings(&[("a", 1.0), ("b", 2.0)])).is_ok());
        let error = read(Settings(&[("a", 1.0), ("a", 2.0)])).unwrap_err().to_string();
        assert!(error.contains("`a` is repeated"), "{error}");
    }
}
