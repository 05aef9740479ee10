//! The page of sharp edges.

/// The page, from the root of the repository.
pub(crate) const PAGE: &str = "burn-dp/docs/sharp-edges.md";

/// An entry: a bold sentence, and the tests that it names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The bold sentence, in one line.
    pub(crate) name: String,
    /// The tests after `Tests:`.
    pub(crate) tests: Vec<String>,
}

/// Returns the entries of a page.
pub(crate) fn entries(page: &str) -> Vec<Entry> {
    let items = page.split("\n- **").skip(1);
    items.filter_map(|item| entry(item.split("\n\n").next()?)).collect()
}

fn entry(item: &str) -> Option<Entry> {
    let (name, text) = item.split_once("**")?;
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let tests = text.split_once("Tests:").map(|(_, tests)| tests).unwrap_or_default();
    Some(Entry { name, tests: tests.split('`').skip(1).step_by(2).map(String::from).collect() })
}

/// Returns the names of the tests in a Rust file.
pub(crate) fn tests_of(text: &str) -> impl Iterator<Item = &str> {
    let tests = text.split("#[test]").skip(1);
    tests.filter_map(|test| test.split("fn ").nth(1)?.split('(').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_a_sentence_and_tests() {
        let page = "Text.\n\n- **A long\n  name.** Text. Tests:\n  `one`,\n  `two`.\n\
                    - **Other.** Use `three`.\n\nMore `four`.";
        let entry = |name: &str, tests: &[&str]| Entry {
            name: name.into(),
            tests: tests.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(entries(page), [entry("A long name.", &["one", "two"]), entry("Other.", &[])]);
    }

    #[test]
    fn tests_are_functions_after_their_attribute() {
        let text = "fn a() {} #[test] fn b() {} #[test]\n#[ignore]\nfn c(x: u8) {}";
        assert_eq!(tests_of(text).collect::<Vec<_>>(), ["b", "c"]);
    }
}
