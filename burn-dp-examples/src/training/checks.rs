//! Checks that several programs make of their options, in the same words.

use super::TrainError;

/// Most passes over the data.
const MOST_EPOCHS: usize = 1_000_000_000;

/// Most drawn digits; they take 30 GiB.
const MOST_DIGITS: usize = 10_000_000;

/// Refuses a count of zero.
///
/// # Errors
///
/// [`TrainError::Option`] naming the first one.
pub(crate) fn at_least_one<T: PartialEq + From<u8>>(
    counts: impl IntoIterator<Item = (&'static str, T)>,
) -> Result<(), TrainError> {
    match counts.into_iter().find(|(_, count)| *count == T::from(0)) {
        Some((name, _)) => Err(TrainError::option(name, "must be at least 1, got 0")),
        None => Ok(()),
    }
}

/// Refuses a number that is not greater than 0 and finite.
///
/// # Errors
///
/// [`TrainError::Option`] naming the first one and its value.
pub(crate) fn positive(
    values: impl IntoIterator<Item = (&'static str, f64)>,
) -> Result<(), TrainError> {
    match values.into_iter().find(|(_, value)| !(*value > 0.0 && value.is_finite())) {
        Some((name, value)) => {
            let reason = format!("must be a number greater than 0, got {value}");
            Err(TrainError::option(name, reason))
        }
        None => Ok(()),
    }
}

/// Refuses more passes over the data than can be counted in steps.
///
/// # Errors
///
/// [`TrainError::Option`] with the limit.
pub(crate) fn countable(epochs: usize) -> Result<(), TrainError> {
    at_most("--epochs", epochs, MOST_EPOCHS, "")
}

/// Refuses more drawn digits than memory holds.
///
/// # Errors
///
/// [`TrainError::Option`] with the limit.
pub(crate) fn drawable(
    train_size: Option<usize>,
    test_size: Option<usize>,
) -> Result<(), TrainError> {
    at_most("--train-size", train_size.unwrap_or(0), MOST_DIGITS, " drawn digits")?;
    at_most("--test-size", test_size.unwrap_or(0), MOST_DIGITS, " drawn digits")
}

fn at_most(name: &'static str, value: usize, most: usize, what: &str) -> Result<(), TrainError> {
    if value <= most {
        return Ok(());
    }
    Err(TrainError::option(name, format!("must be at most {most}{what}, got {value}")))
}

/// Refuses an option that was given although another choice ignores it.
///
/// # Arguments
///
/// - `options`: each with whether it was given
/// - `choice`: what makes them meaningless, for example `with --clipping flat`
/// - `needed`: what would give them a meaning, for example `--clipping quantile`
///
/// # Errors
///
/// [`TrainError::Option`] naming the first one that was given.
pub(super) fn refuse_foreign(
    options: &[(&'static str, bool)],
    choice: &str,
    needed: &str,
) -> Result<(), TrainError> {
    match options.iter().find(|(_, given)| *given) {
        Some((name, _)) => {
            let reason = format!("has no meaning {choice}; leave it out, or give {needed}");
            Err(TrainError::option(name, reason))
        }
        None => Ok(()),
    }
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
    }
}
