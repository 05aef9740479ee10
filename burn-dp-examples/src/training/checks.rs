//! Checks of options that several programs share, with the same messages.

use std::path::Path;

use super::TrainError;

/// Maximum number of passes over the data.
const MOST_EPOCHS: usize = 1_000_000_000;

/// Maximum number of synthetic digits; they take 30 GiB.
const MOST_DIGITS: usize = 10_000_000;

/// Checks that counts are not zero.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the first count that is zero.
pub fn at_least_one<T: PartialEq + From<u8>>(
    counts: impl IntoIterator<Item = (&'static str, T)>,
) -> Result<(), TrainError> {
    match counts.into_iter().find(|(_, count)| *count == T::from(0)) {
        Some((name, _)) => Err(TrainError::option(name, "must be at least 1, got 0")),
        None => Ok(()),
    }
}

/// Checks that numbers are greater than 0 and finite.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the first other number.
pub fn positive(values: impl IntoIterator<Item = (&'static str, f64)>) -> Result<(), TrainError> {
    let valid = |value: f64| value > 0.0 && value.is_finite();
    in_range(values, valid, "a number greater than 0")
}

/// Checks that numbers satisfy a condition, which `expected` describes.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the first number that does not.
pub(super) fn in_range(
    values: impl IntoIterator<Item = (&'static str, f64)>,
    valid: impl Fn(f64) -> bool,
    expected: &str,
) -> Result<(), TrainError> {
    match values.into_iter().find(|(_, value)| !valid(*value)) {
        Some((name, value)) => {
            Err(TrainError::option(name, format!("must be {expected}, got {value}")))
        }
        None => Ok(()),
    }
}

/// Checks that numbers are at least 0 and less than 1, for a momentum or a decay.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the first other number.
pub(super) fn below_one(
    values: impl IntoIterator<Item = (&'static str, f64)>,
) -> Result<(), TrainError> {
    in_range(values, |value| (0.0..1.0).contains(&value), "at least 0 and less than 1")
}

/// Checks that the steps of this many passes can be counted.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the limit.
pub fn countable(epochs: usize) -> Result<(), TrainError> {
    at_most("--epochs", epochs, MOST_EPOCHS, "")
}

/// Checks that memory can hold this many synthetic digits.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the limit.
pub fn drawable(train_size: Option<usize>, test_size: Option<usize>) -> Result<(), TrainError> {
    at_most("--train-size", train_size.unwrap_or(0), MOST_DIGITS, " synthetic digits")?;
    at_most("--test-size", test_size.unwrap_or(0), MOST_DIGITS, " synthetic digits")
}

/// Checks that memory can hold this many synthetic public digits.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the limit.
pub(super) fn drawable_public(size: Option<usize>) -> Result<(), TrainError> {
    at_most("--public-size", size.unwrap_or(0), MOST_DIGITS, " synthetic digits")
}

/// Checks that a path is a folder or can become one.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if it is a file.
pub fn folder(name: &'static str, path: &Path) -> Result<(), TrainError> {
    if path.exists() && !path.is_dir() {
        let reason = format!("{} is not a folder; give another name", path.display());
        return Err(TrainError::option(name, reason));
    }
    Ok(())
}

/// Checks that a path can name a file to write.
///
/// # Arguments
///
/// - `created`: a folder that need not exist yet
///
/// # Errors
///
/// Returns [`TrainError::Option`] if the path is a folder or is in a folder that does not exist.
pub fn file(name: &'static str, path: &Path, created: Option<&Path>) -> Result<(), TrainError> {
    if path.is_dir() {
        let reason = format!("{} is a folder; give the name of a file", path.display());
        return Err(TrainError::option(name, reason));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent {
        Some(parent) if Some(parent) != created && !parent.is_dir() => {
            let reason = format!("{} does not exist; create the folder first", parent.display());
            Err(TrainError::option(name, reason))
        }
        _ => Ok(()),
    }
}

/// Checks that a count is at most `most`; `what` follows the limit in the message.
///
/// # Errors
///
/// Returns [`TrainError::Option`] with the limit.
pub fn at_most(
    name: &'static str,
    value: usize,
    most: usize,
    what: &str,
) -> Result<(), TrainError> {
    if value <= most {
        return Ok(());
    }
    Err(TrainError::option(name, format!("must be at most {most}{what}, got {value}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_first_impossible_number_is_named() {
        let error = at_least_one([("--a", 1_u32), ("--b", 0), ("--c", 0)]).unwrap_err();
        assert_eq!(error.to_string(), "--b must be at least 1, got 0");
        assert!(at_least_one([("--a", 1_usize)]).is_ok());
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = positive([("--a", 1.0), ("--b", value)]).unwrap_err().to_string();
            assert_eq!(error, format!("--b must be a number greater than 0, got {value}"));
        }
        assert!(positive([("--a", 1e-9)]).is_ok());
        assert!(below_one([("--a", 0.0)]).is_ok() && below_one([("--a", 1.0)]).is_err());
    }
}
