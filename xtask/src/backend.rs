//! The backends and the features that select them.

use clap::ValueEnum;

/// A backend of Burn that the programs and tests can run on.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// The CPU backend written for Burn.
    Flex,
    /// The older CPU backend.
    Ndarray,
    /// GPUs through WebGPU; also a CPU through a software driver.
    Wgpu,
    /// NVIDIA GPUs.
    Cuda,
}

impl Backend {
    /// Returns the feature to add to the default features, which include only Flex.
    pub(crate) fn feature(self) -> Option<&'static str> {
        match self {
            Self::Flex => None,
            Self::Ndarray => Some("ndarray"),
            Self::Wgpu => Some("wgpu"),
            Self::Cuda => Some("cuda"),
        }
    }

    /// Returns whether a backend is part of the feature `full`, with which the tests are built.
    pub(crate) fn is_in_full(self) -> bool {
        matches!(self, Self::Flex | Self::Ndarray)
    }

    /// Returns the backend named by `--backend NAME` or `--backend=NAME` among the arguments of a
    /// program.
    ///
    /// The last one counts. Everything after `--` is ignored. A missing name is left to the program
    /// to report.
    ///
    /// # Errors
    ///
    /// Returns a message if the name is no backend.
    pub(crate) fn among(args: &[String]) -> Result<Option<Self>, String> {
        let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
        let named = |name: &str| {
            Self::from_str(name, false)
                .map_err(|_| format!("--backend must be flex, ndarray, wgpu or cuda, got {name:?}"))
        };
        values_of(&args[..end], "--backend").try_fold(None, |_, name| named(name).map(Some))
    }
}

/// Returns the values of an option, which is written as `--option VALUE` or `--option=VALUE`.
pub(crate) fn values_of<'a>(
    words: &'a [String],
    option: &'a str,
) -> impl DoubleEndedIterator<Item = &'a str> {
    words.iter().enumerate().filter_map(move |(at, word)| match word.strip_prefix(option)? {
        "" => words.get(at + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn among(line: &str) -> Result<Option<Backend>, String> {
        Backend::among(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_backend_is_found_in_both_spellings() {
        assert_eq!(among("mnist --backend wgpu --epochs 3"), Ok(Some(Backend::Wgpu)));
        assert_eq!(among("mnist --backend=cuda"), Ok(Some(Backend::Cuda)));
        assert_eq!(among("mnist --epochs 3"), Ok(None));
        assert_eq!(among(""), Ok(None));
    }

    #[test]
    fn the_last_backend_counts() {
        assert_eq!(among("--backend wgpu --backend=ndarray"), Ok(Some(Backend::Ndarray)));
    }

    #[test]
    fn other_options_that_begin_alike_are_left_alone() {
        assert_eq!(among("--backends wgpu"), Ok(None));
        assert_eq!(among("-- --backend wgpu"), Ok(None));
    }

    #[test]
    fn an_unknown_backend_is_named_with_the_choices() {
        let message = among("--backend tpu").unwrap_err();
        assert_eq!(message, "--backend must be flex, ndarray, wgpu or cuda, got \"tpu\"");
    }

    #[test]
    fn a_missing_name_is_left_to_the_program() {
        assert_eq!(among("--backend"), Ok(None));
    }
}
