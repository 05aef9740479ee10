//! What all samplers have in common.

use crate::DpError;
use crate::random::Key;

/// Maximum number of units: far beyond any list of units, and small enough for the positions in the
/// random stream.
const MAX_SIZE: u64 = 1 << 48;

/// The units that a sampler draws from, the public size of a draw, and the key of all draws.
#[derive(Clone, Debug)]
pub struct Population {
    size: usize,
    expected_batch_size: f64,
    key: Key,
}

impl Population {
    /// Returns a population with a new key from the operating system.
    pub(super) fn new(size: usize, expected_batch_size: f64) -> Result<Self, DpError> {
        check_size(size)?;
        Ok(Self { size, expected_batch_size, key: Key::from_os()? })
    }

    /// Returns a population for draws of `batch_size` units.
    pub(super) fn with_batch_size(size: usize, batch_size: usize) -> Result<Self, DpError> {
        check_size(size)?;
        check_number("batch_size", batch_size, size)?;
        Self::new(size, batch_size as f64)
    }

    /// Returns a population for draws of `expected_batch_size` units on average, and the
    /// probability of each unit.
    pub(super) fn with_probability(
        size: usize,
        expected_batch_size: f64,
    ) -> Result<(Self, f64), DpError> {
        check_size(size)?;
        let probability = expected_batch_size / size as f64;
        if !(probability > 0.0 && expected_batch_size <= size as f64) {
            return Err(DpError::invalid(
                "expected_batch_size",
                format!(
                    "must be positive and at most dataset_size = {size}, got {expected_batch_size}"
                ),
            ));
        }
        Ok((Self::new(size, expected_batch_size)?, probability))
    }

    pub(super) fn with_key(self, key: Key) -> Self {
        Self { key, ..self }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn expected_batch_size(&self) -> f64 {
        self.expected_batch_size
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }
}

/// Returns an error unless the number `value` of parts, bins or units is from 1 to `size`.
pub(super) fn check_number(name: &'static str, value: usize, size: usize) -> Result<(), DpError> {
    match (1..=size).contains(&value) {
        true => Ok(()),
        false => Err(DpError::invalid(
            name,
            format!("must be from 1 to dataset_size = {size}, got {value}"),
        )),
    }
}

/// Returns an error unless a sampler can draw from `size` units.
pub(super) fn check_size(size: usize) -> Result<(), DpError> {
    match size as u64 {
        0 => Err(DpError::invalid("dataset_size", "must be at least 1, got 0")),
        size if size > MAX_SIZE => {
            Err(DpError::invalid("dataset_size", format!("must be at most {MAX_SIZE}, got {size}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_batch_size_outside_of_the_data_set_is_refused_by_name() {
        for size in [0, 11] {
            let error = Population::with_batch_size(10, size).unwrap_err().to_string();
            assert!(
                error.contains("batch_size") && error.contains(&format!("got {size}")),
                "{error}"
            );
        }
        for size in [0, usize::MAX] {
            let error = Population::with_batch_size(size, 1).unwrap_err().to_string();
            assert!(error.contains("dataset_size"), "{error}");
        }
    }
}
