//! Failed downloads of `burn-dataset`, which reports them by a panic.

use std::panic::{self, UnwindSafe};

use super::DataError;

/// Returns what `read` returns, and turns a panic into an error.
///
/// # Errors
///
/// Returns [`DataError::Download`] if `read` panics, with its message if that is a short one.
pub(super) fn caught<T>(read: impl FnOnce() -> T + UnwindSafe) -> Result<T, DataError> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(read);
    panic::set_hook(hook);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        DataError::Download { cause: text.filter(|text| is_message(text)).map(String::from) }
    })
}

/// Returns whether a panic's text is a short message, not the debug output of a value.
fn is_message(text: &str) -> bool {
    text.len() <= 100 && !text.contains(['\n', '{', '(', '`'])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_failed_download_is_one_sentence_with_the_way_out() {
        let error = caught::<()>(|| panic!("no route to host")).unwrap_err().to_string();
        assert!(error.contains("downloaded (no route to host); check"), "{error}");
        assert!(error.contains("--data-dir DIR or BURN_DP_DATA"), "{error}");
        let debug = || panic!("called `Result::unwrap()` on an `Err` value: Error {{ kind: Dns }}");
        let error = caught::<()>(debug).unwrap_err().to_string();
        assert!(error.starts_with("MNIST could not be downloaded; check"), "{error}");
        assert_eq!(caught(|| 7).unwrap(), 7);
    }
}
