//! The record of a sparsifier.

use std::collections::BTreeMap;

use burn::tensor::{Bytes, TensorData};
use serde::{Deserialize, Serialize};

use super::{Sparsifier, Weights};
use crate::DpError;
use crate::optim::pack;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    window: u64,
    factor: f64,
    steps: u64,
    /// The noise of each parameter, by path.
    noise: BTreeMap<String, f64>,
}

impl Sparsifier {
    /// Returns the sparsifier as a burnpack record: for each parameter the means, the sums of
    /// squares, and the fixed values, with NaN for a weight that is not fixed.
    pub(crate) fn to_bytes(&self) -> Result<Bytes, DpError> {
        let noise = self.weights.iter().map(|(path, weights)| (path.clone(), weights.noise));
        let settings = Settings {
            window: self.window,
            factor: self.factor,
            steps: self.steps,
            noise: noise.collect(),
        };
        let tensors = self.weights.iter().flat_map(|(path, weights)| {
            let count = [weights.mean.len()];
            // A fixed value is the average of finite values, so it is not NaN.
            let fixed = weights.fixed.iter().map(|fixed| fixed.unwrap_or(f32::NAN));
            [
                (format!("mean {path}"), TensorData::new(weights.mean.clone(), count)),
                (format!("squares {path}"), TensorData::new(weights.squares.clone(), count)),
                (format!("fixed {path}"), TensorData::new(fixed.collect::<Vec<_>>(), count)),
            ]
        });
        pack::write(&settings, tensors)
    }

    /// Returns the sparsifier of a record.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the record is damaged or has another version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, DpError> {
        let (settings, mut tensors): (Settings, _) = pack::read(bytes)?;
        let mut sparsifier = Self::new(settings.window, settings.factor)?;
        if settings.steps >= settings.window {
            return Err(pack::unreadable("the window ended"));
        }
        sparsifier.steps = settings.steps;
        for (path, noise) in settings.noise {
            let mut take = |name: &str| {
                let data = tensors.remove(&format!("{name} {path}"));
                data.ok_or_else(|| pack::unreadable(format!("no {name} of {path}")))
            };
            let mean = take("mean")?.try_into_vec::<f64>().map_err(wrong_type)?;
            let squares = take("squares")?.try_into_vec::<f64>().map_err(wrong_type)?;
            let fixed = take("fixed")?.try_into_vec::<f32>().map_err(wrong_type)?;
            if squares.len() != mean.len() || fixed.len() != mean.len() {
                return Err(pack::unreadable(format!("the lengths of {path} differ")));
            }
            let fixed = fixed.into_iter().map(|value| (!value.is_nan()).then_some(value)).collect();
            sparsifier.weights.insert(path, Weights { mean, squares, fixed, noise });
        }
        match tensors.is_empty() {
            true => Ok(sparsifier),
            false => Err(pack::unreadable("a tensor too many")),
        }
    }
}

fn wrong_type(error: impl std::fmt::Debug) -> DpError {
    pack::unreadable(format!("{error:?}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_sparsifier_survives_its_record_and_damage_is_refused() {
        let mut sparsifier = Sparsifier::new(3, 1.5).unwrap();
        sparsifier.steps = 2;
        let mut weights = Weights::new(3);
        weights.observe(&[0.1, -7.0, 1e-30], 1, 0.25);
        weights.observe(&[0.1, -6.0, 2e-30], 2, 0.25);
        weights.fixed[1] = Some(-6.5);
        sparsifier.weights.insert("first.weight".into(), weights);
        sparsifier.weights.insert("second.bias".into(), Weights::new(1));
        let bytes = sparsifier.to_bytes().unwrap();
        assert_eq!(Sparsifier::from_bytes(&bytes).unwrap(), sparsifier);
        let refused = |bytes: &[u8]| Sparsifier::from_bytes(bytes).unwrap_err().to_string();
        for cut in 0..bytes.len() {
            assert!(refused(&bytes[..cut]).contains("damaged"), "cut at {cut}");
        }
        assert!(refused(&[&bytes[..], &[0]].concat()).contains("damaged"));
        // Complete, but with lists of different lengths.
        for lengths in [[2, 1, 2], [2, 2, 1]] {
            let noise = BTreeMap::from([("bias".to_string(), 0.0)]);
            let settings = Settings { window: 3, factor: 1.0, steps: 0, noise };
            let [mean, squares, fixed] = lengths;
            let tensors = [
                ("mean bias".to_string(), TensorData::zeros::<f64, _>([mean])),
                ("squares bias".to_string(), TensorData::zeros::<f64, _>([squares])),
                ("fixed bias".to_string(), TensorData::zeros::<f32, _>([fixed])),
            ];
            let error = refused(&pack::write(&settings, tensors).unwrap());
            assert!(error.contains("the lengths of bias differ"), "{error}");
        }
        // Complete, but with another version.
        let text = b"burn-dp\x611";
        let at = bytes.windows(text.len()).position(|part| part == text).unwrap();
        let mut other = bytes[..bytes.len() - 4].to_vec();
        other[at + text.len() - 1] = b'9';
        other.extend(crc32fast::hash(&other).to_le_bytes());
        assert!(refused(&other).contains("another version"));
    }
}
