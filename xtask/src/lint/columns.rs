//! Lines of at most 100 columns.

use super::finding::Finding;

/// The maximum number of characters in a line.
const COLUMNS: usize = 100;

/// Returns the lines that are too long and could be broken.
pub(crate) fn long_lines(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let long = lines.filter_map(|(index, line)| {
        let columns = line.chars().count();
        (columns > COLUMNS && !is_unbreakable(line)).then(|| {
            let message = format!("{columns} columns, at most {COLUMNS}");
            Finding::new("columns", path, index + 1, message)
        })
    });
    long.collect()
}

/// Returns whether a line is a row of a table, or one word or code span that cannot be broken.
fn is_unbreakable(line: &str) -> bool {
    let comment = ["//!", "///", "//", "#"];
    let line = line.trim();
    let line = comment.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).trim();
    if line.starts_with('|') {
        return true;
    }
    let line = ["- ", "* ", "> "].iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
    let span = line.trim_end_matches(['.', ',', ';']);
    let inner = span.strip_prefix('`').and_then(|span| span.strip_suffix('`'));
    !line.contains(char::is_whitespace) || inner.is_some_and(|inner| !inner.contains('`'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(line: &str) -> usize {
        long_lines("a.rs", line).len()
    }

    #[test]
    fn a_line_of_101_columns_is_found_and_one_of_100_is_not() {
        let line = format!("// {} {}", "a".repeat(48), "é".repeat(49));
        assert_eq!(count(&line), 1);
        assert_eq!(count(&line[1..]), 0);
        let found = long_lines("a.rs", &format!("short\n{line}"));
        assert_eq!(found[0].to_string(), "a.rs:2: 101 columns, at most 100 [columns]");
    }

    #[test]
    fn what_cannot_be_broken_may_be_long() {
        let word = "x".repeat(110);
        for line in [
            format!("| {word} | and more |"),
            format!("//! | {word} | and more |"),
            format!("https://example.org/{word}"),
            format!("/// - <https://example.org/{word}>"),
            format!("- `cargo run {word}`."),
        ] {
            assert_eq!(count(&line), 0, "{line}");
        }
        assert_eq!(count(&format!("see `{word}` and `y`")), 1);
    }
}
