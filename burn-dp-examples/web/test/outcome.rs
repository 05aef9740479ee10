//! The outcome of a check.

use std::error::Error;

pub(super) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}
