//! Splits Rust source into identifiers, literals, comments and punctuation.
//!
//! A parser such as `syn` drops comments and leaves the bodies of macros unread; the checks need
//! both.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or a keyword.
    Ident,
    /// One character of punctuation.
    Punct,
    /// A string, raw or not.
    Text,
    /// A number or a character.
    Literal,
    /// A lifetime or a label.
    Lifetime,
    /// A documentation comment.
    Doc,
    /// Any other comment.
    Comment,
}

/// A token and the line, counted from 1, on which it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

impl Token<'_> {
    /// Returns whether the token is this punctuation or identifier.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Punct | Kind::Ident) && self.text == text
    }

    /// Returns the line on which the token ends.
    pub(crate) fn last_line(&self) -> usize {
        self.line + self.text.matches('\n').count()
    }
}

/// Splits `source` into tokens; a literal or comment without an end reaches the end of the file.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        let (kind, length) = match first {
            c if c.is_whitespace() => (None, c.len_utf8()),
            '/' if rest.starts_with("//") => (Some(comment(rest)), end_of_line(rest)),
            '/' if rest.starts_with("/*") => (Some(comment(rest)), end_of_block(rest)),
            '"' => (Some(Kind::Text), end_of_string(rest, 0)),
            '\'' => quote(rest),
            c if c.is_ascii_digit() => (Some(Kind::Literal), end_of_number(rest)),
            c if c == '_' || c.is_alphabetic() => word(rest),
            c => (Some(Kind::Punct), c.len_utf8()),
        };
        let (text, after) = rest.split_at(length);
        if let Some(kind) = kind {
            tokens.push(Token { kind, text, line });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

fn comment(rest: &str) -> Kind {
    let is_doc = |outer: &str, inner: &str, longer: &str| {
        rest.starts_with(inner) || rest.starts_with(outer) && !rest.starts_with(longer)
    };
    if is_doc("///", "//!", "////") || is_doc("/**", "/*!", "/***") && !rest.starts_with("/**/") {
        Kind::Doc
    } else {
        Kind::Comment
    }
}

fn end_of_line(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

fn end_of_block(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let step = if rest[at..].starts_with("/*") {
            depth += 1;
            2
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// Returns the end of a string with escapes whose opening quote is at `open`.
fn end_of_string(rest: &str, open: usize) -> usize {
    let mut escaped = false;
    for (at, c) in rest[open + 1..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return open + 1 + at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character or a lifetime.
fn quote(rest: &str) -> (Option<Kind>, usize) {
    let mut after = rest[1..].chars();
    let (first, second) = (after.next(), after.next());
    if first == Some('\\') {
        let close = rest[3.min(rest.len())..].find('\'');
        return (Some(Kind::Literal), close.map_or(rest.len(), |at| 3 + at + 1));
    }
    match (first, second) {
        (Some(c), Some('\'')) => (Some(Kind::Literal), 2 + c.len_utf8()),
        _ => (Some(Kind::Lifetime), 1 + end_of_word(&rest[1..])),
    }
}

fn end_of_word(rest: &str) -> usize {
    rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len())
}

fn end_of_number(rest: &str) -> usize {
    let mut end = end_of_word(rest);
    let fraction = rest[end..].strip_prefix('.');
    if fraction.is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit())) {
        end += 1;
        end += end_of_word(&rest[end..]);
    }
    end
}

/// An identifier, or a literal with a prefix.
fn word(rest: &str) -> (Option<Kind>, usize) {
    let end = end_of_word(rest);
    let (prefix, after) = rest.split_at(end);
    if matches!(prefix, "b" | "c") && after.starts_with('"') {
        return (Some(Kind::Text), end_of_string(rest, end));
    }
    if prefix == "b" && after.starts_with('\'') {
        let (_, length) = quote(after);
        return (Some(Kind::Literal), end + length);
    }
    if matches!(prefix, "r" | "br" | "cr") {
        let hashes = after.len() - after.trim_start_matches('#').len();
        if after[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = end + hashes + 1;
            let length = rest[body..].find(&close).map_or(rest.len(), |at| body + at + close.len());
            return (Some(Kind::Text), length);
        }
        if prefix == "r" && hashes == 1 {
            return (Some(Kind::Ident), end + 1 + end_of_word(&after[1..]));
        }
    }
    (Some(Kind::Ident), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, source: &str) -> Vec<&str> {
        tokens(source).into_iter().filter(|token| token.kind == kind).map(|t| t.text).collect()
    }

    #[test]
    fn comments_end_where_rust_ends_them() {
        let source = "a // one\n/* two /* nested */ */ b /// doc\n//! inner\n//// rule";
        assert_eq!(of(Kind::Comment, source), ["// one", "/* two /* nested */ */", "//// rule"]);
        assert_eq!(of(Kind::Doc, source), ["/// doc", "//! inner"]);
        assert_eq!(of(Kind::Ident, source), ["a", "b"]);
    }

    #[test]
    fn strings_hide_what_looks_like_code() {
        let source = r####"f("use \" x", r#"a "quoted" // text"#, b"c", 'd', '\'', 'a: loop)"####;
        assert_eq!(
            of(Kind::Text, source),
            [r#""use \" x""#, r##"r#"a "quoted" // text"#"##, "b\"c\""]
        );
        assert_eq!(of(Kind::Literal, source), ["'d'", r"'\''"]);
        assert_eq!(of(Kind::Lifetime, source), ["'a"]);
        assert_eq!(of(Kind::Ident, source), ["f", "loop"]);
    }

    #[test]
    fn numbers_stop_at_ranges_and_methods() {
        assert_eq!(
            of(Kind::Literal, "0..10 1.5e3 2.max(3) 0xff_u8"),
            ["0", "10", "1.5e3", "2", "3", "0xff_u8"]
        );
    }

    #[test]
    fn lines_are_counted_from_one() {
        let source = "a\n\"x\ny\"\nb";
        let lines: Vec<_> = tokens(source).iter().map(|t| (t.line, t.last_line())).collect();
        assert_eq!(lines, [(1, 1), (2, 3), (4, 4)]);
    }

    #[test]
    fn raw_identifiers_are_identifiers() {
        assert_eq!(of(Kind::Ident, "r#type r"), ["r#type", "r"]);
    }
}
