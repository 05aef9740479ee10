//! The code of a file: its tokens without comments and without tests.

use super::lexer::{Kind, Token, tokens};

/// Keywords that begin an item.
const ITEMS: [&str; 15] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "pub",
    "static",
    "struct",
    "trait",
    "type",
    "unsafe",
    "use",
];

/// Items that end with a semicolon, regardless of the brackets they contain.
const STATEMENTS: [&str; 5] = ["const", "let", "static", "type", "use"];

/// Returns the tokens that are compiled into the library: no comments, no `#[cfg(test)]` items.
pub(crate) fn code(source: &str) -> Vec<Token<'_>> {
    let comments = |token: &Token<'_>| !matches!(token.kind, Kind::Doc | Kind::Comment);
    let all: Vec<_> = tokens(source).into_iter().filter(comments).collect();
    let mut kept = Vec::with_capacity(all.len());
    let mut at = 0;
    while at < all.len() {
        match attribute(&all[at..]) {
            Some((true, Of::File, _)) => return Vec::new(),
            Some((true, Of::Item, length)) => at += length + item(&all[at + length..]),
            Some((false, _, length)) => {
                kept.extend_from_slice(&all[at..at + length]);
                at += length;
            }
            None => {
                kept.push(all[at]);
                at += 1;
            }
        }
    }
    kept
}

/// What an attribute applies to.
enum Of {
    File,
    Item,
}

/// Returns whether an attribute selects tests, what it applies to and its number of tokens.
fn attribute(tokens: &[Token<'_>]) -> Option<(bool, Of, usize)> {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
    let (of, open) = match (is(0, "#"), is(1, "!")) {
        (true, true) => (Of::File, 2),
        (true, false) => (Of::Item, 1),
        _ => return None,
    };
    if !is(open, "[") {
        return None;
    }
    let length = open + group(&tokens[open..]);
    let inside = &tokens[open + 1..length];
    let has = |name: &str| inside.iter().any(|token| token.is(name));
    let is_test = has("test") && (has("cfg") && !has("any") && !has("not") || inside.len() == 2);
    Some((is_test, of, length))
}

/// Returns the number of tokens of the bracketed group at the start.
pub(crate) fn group(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        if token.kind == Kind::Punct {
            match token.text {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
    }
    tokens.len()
}

/// Returns the number of tokens of the item, statement, field or arm at the start.
fn item(tokens: &[Token<'_>]) -> usize {
    let mut at = 0;
    while let Some((_, Of::Item, length)) = attribute(&tokens[at..]) {
        at += length;
    }
    let mut words = tokens[at..].iter().filter(|t| t.kind == Kind::Ident && t.text != "pub");
    let keyword = words.next().map_or("", |token| token.text);
    let next = words.next().map_or("", |token| token.text);
    let is_statement = STATEMENTS.contains(&keyword) && !(keyword == "const" && next == "fn");
    let is_item = tokens.get(at).is_some_and(|token| ITEMS.contains(&token.text));
    while let Some(token) = tokens.get(at) {
        let punct = if token.kind == Kind::Punct { token.text } else { "" };
        match punct {
            ";" => return at + 1,
            "," if !is_item && keyword != "let" => return at + 1,
            ")" | "]" | "}" => return at,
            "{" if !is_statement => return at + group(&tokens[at..]),
            "(" | "[" | "{" => at += group(&tokens[at..]),
            _ => at += 1,
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &str) -> String {
        code(source).iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tests_and_comments_are_no_code() {
        let source = "//! Doc.\nfn a() {}\n#[cfg(test)]\nmod tests { use super::*; }\nfn b() {}";
        assert_eq!(shown(source), "fn a ( ) { } fn b ( ) { }");
    }

    #[test]
    fn every_kind_of_test_item_is_left_out() {
        for item in [
            "mod tests;",
            "use a::{b, c};",
            "#[allow(x)] pub(crate) fn f<A, B>(a: A) -> B { {} }",
            "const X: [u8; 2] = [{ 1 }, 2];",
            "pub const fn f() {}",
            "struct A(u8);",
            "let x = { 1 };",
        ] {
            assert_eq!(
                shown(&format!("#[cfg(test)] {item} fn b() {{}}")),
                "fn b ( ) { }",
                "{item}"
            );
        }
        assert_eq!(shown("struct A { #[cfg(test)] a: u8, b: u8 }"), "struct A { b : u8 }");
        assert_eq!(shown("struct A { b: u8, #[cfg(test)] a: u8 }"), "struct A { b : u8 , }");
        assert_eq!(shown("#[test] fn a() {} fn b() {}"), "fn b ( ) { }");
    }

    #[test]
    fn a_file_of_tests_has_no_code() {
        assert_eq!(shown("#![cfg(test)] fn a() {}"), "");
    }

    #[test]
    fn other_conditions_are_code() {
        for condition in ["feature = \"test\"", "any(test, unix)", "not(test)"] {
            let source = format!("#[cfg({condition})] fn a() {{}}");
            assert!(shown(&source).contains("fn a"), "{condition}");
        }
    }
}
