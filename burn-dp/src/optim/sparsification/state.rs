//! The file of a sparsifier in a checkpoint.

use std::collections::BTreeMap;

use super::{Sparsifier, Weights};
use crate::checkpoint::little_endian::Reader;

/// Version of the format. Others are not read.
const FORMAT: u64 = 1;

/// All numbers are little-endian: format, window, factor, steps, number of parameters; for each its
/// path with a length, its number of weights, the noise, means, sums of squares, and fixed values, NaN
/// where a weight is free.
impl Sparsifier {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut number = |value: u64| bytes.extend(value.to_le_bytes());
        number(FORMAT);
        number(self.window);
        number(self.factor.to_bits());
        number(self.steps);
        number(self.weights.len() as u64);
        for (path, weights) in &self.weights {
            bytes.extend((path.len() as u64).to_le_bytes());
            bytes.extend(path.as_bytes());
            bytes.extend((weights.mean.len() as u64).to_le_bytes());
            bytes.extend(weights.noise.to_le_bytes());
            for value in weights.mean.iter().chain(&weights.squares) {
                bytes.extend(value.to_le_bytes());
            }
            for fixed in &weights.fixed {
                // What is fixed hovered around a number, so it is not NaN.
                bytes.extend(fixed.unwrap_or(f32::NAN).to_le_bytes());
            }
        }
        bytes
    }

    /// Nothing for bytes that are not those of a sparsifier.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut read = Reader::new(bytes);
        if read.u64()? != FORMAT {
            return None;
        }
        let (window, factor) = (read.u64()?, read.f64()?);
        let mut sparsifier = Self::new(window, factor).ok()?;
        sparsifier.steps = read.u64().filter(|&steps| steps < window)?;
        let mut weights = BTreeMap::new();
        for _ in 0..read.u64()? {
            let path = read.text()?;
            let count = read.u64()?;
            let noise = read.f64()?;
            let (mean, squares) = (read.f64s(count)?, read.f64s(count)?);
            let fixed = read.f32s(count)?;
            let fixed = fixed.into_iter().map(|value| (!value.is_nan()).then_some(value)).collect();
            weights.insert(path, Weights { mean, squares, fixed, noise });
        }
        sparsifier.weights = weights;
        read.is_at_end().then_some(sparsifier)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_sparsifier_is_read_as_it_was_written_and_damage_is_not_read() {
        let mut sparsifier = Sparsifier::new(3, 1.5).unwrap();
        sparsifier.steps = 2;
        let mut weights = Weights::new(3);
        weights.observe(&[0.1, -7.0, 1e-30], 1, 0.25);
        weights.observe(&[0.1, -6.0, 2e-30], 2, 0.25);
        weights.fixed[1] = Some(-6.5);
        sparsifier.weights.insert("first.weight".into(), weights);
        sparsifier.weights.insert("second.bias".into(), Weights::new(0));
        let bytes = sparsifier.to_bytes();
        assert_eq!(Sparsifier::from_bytes(&bytes).unwrap(), sparsifier);
        for cut in 0..bytes.len() {
            assert_eq!(Sparsifier::from_bytes(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Sparsifier::from_bytes(&[bytes.as_slice(), &[0]].concat()), None);
        let other_format = [&[9], &bytes[1..]].concat();
        assert_eq!(Sparsifier::from_bytes(&other_format), None);
        // A count that no memory could hold.
        let mut huge = bytes.clone();
        huge[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Sparsifier::from_bytes(&huge), None);
    }
}
