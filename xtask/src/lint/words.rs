//! The words of comments, documentation, strings and documents, in reading order.

use super::lexer::{Kind, Token, tokens};

/// A word in lower case, and the line on which it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    /// Lower case; one character of punctuation stands for itself.
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A text that is read in one go, across its line breaks.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) words: Vec<Word>,
    /// The lines of documentation, without their marks; empty for other texts.
    pub(crate) doc_lines: Vec<(usize, String)>,
}

/// Returns the passages of a file by the ending of its name.
pub(crate) fn passages(path: &str, text: &str) -> Vec<Passage> {
    if path.ends_with(".rs") {
        return of_rust(text);
    }
    let mut passage = Passage::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start_matches(['#', '>', ' ']);
        passage.words.extend(words(line, index + 1));
    }
    vec![passage]
}

/// Returns the words of the names in a Rust file: of its identifiers, split at underscores and
/// capital letters.
pub(crate) fn names(text: &str) -> Vec<Word> {
    let idents = tokens(text).into_iter().filter(|token| token.kind == Kind::Ident);
    idents.flat_map(|token| parts(token.text, token.line)).collect()
}

fn of_rust(text: &str) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    // The kind and the last line of the comment that the next one may continue.
    let mut open: Option<(Kind, usize)> = None;
    for token in tokens(text) {
        match token.kind {
            Kind::Doc | Kind::Comment => {
                let is_continued = open == Some((token.kind, token.line.saturating_sub(1)));
                open = Some((token.kind, token.last_line()));
                let passage = comment(&token);
                match passages.last_mut().filter(|_| is_continued) {
                    Some(last) => {
                        last.words.extend(passage.words);
                        last.doc_lines.extend(passage.doc_lines);
                    }
                    None => passages.push(passage),
                }
            }
            Kind::Text => {
                open = None;
                let lines = token.text.lines().enumerate();
                let words = lines.flat_map(|(index, line)| words(line, token.line + index));
                // A backslash at the end of a line joins it with the next one.
                let words = words.filter(|word| word.text != "\\").collect();
                passages.push(Passage { words, doc_lines: Vec::new() });
            }
            _ => open = None,
        }
    }
    passages
}

fn comment(token: &Token<'_>) -> Passage {
    let mut passage = Passage::default();
    for (index, line) in token.text.lines().enumerate() {
        let line = line.trim().trim_start_matches(['/', '!', '*']).trim_end_matches("*/").trim();
        passage.words.extend(words(line, token.line + index));
        if token.kind == Kind::Doc {
            passage.doc_lines.push((token.line + index, line.into()));
        }
    }
    passage
}

/// Splits a line into words and single characters of punctuation.
fn words(line: &str, number: usize) -> Vec<Word> {
    let mut found: Vec<Word> = Vec::new();
    let mut word = String::new();
    let flush = |word: &mut String, found: &mut Vec<Word>| {
        if !word.is_empty() {
            found.extend(parts(&std::mem::take(word), number));
        }
    };
    for c in line.chars() {
        if c.is_alphanumeric() || c == '\'' || c == '’' {
            word.push(if c == '’' { '\'' } else { c });
            continue;
        }
        flush(&mut word, &mut found);
        if !c.is_whitespace() {
            found.push(Word { text: c.to_string(), line: number });
        }
    }
    flush(&mut word, &mut found);
    found
}

/// Splits a name at underscores and before capital letters.
fn parts(name: &str, line: usize) -> Vec<Word> {
    let mut parts = vec![String::new()];
    let mut before_is_lower = false;
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && before_is_lower {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().into_iter().for_each(|part| part.extend(c.to_lowercase()));
        }
        before_is_lower = c.is_lowercase();
    }
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.map(|text| Word { text, line }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(path: &str, text: &str) -> Vec<String> {
        let join = |passage: &Passage| {
            passage.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
        };
        passages(path, text).iter().map(join).collect()
    }

    #[test]
    fn a_comment_is_read_across_its_lines() {
        let text = "/// One thing\n/// and more.\nfn a() {} // side\n\n// other\n// lines";
        assert_eq!(joined("a.rs", text), ["one thing and more .", "side", "other lines"]);
    }

    #[test]
    fn strings_are_read_and_code_is_not() {
        let text = "fn code() { f(\"a long \\\n   message\") }";
        assert_eq!(joined("a.rs", text), ["\" a long message \""]);
        let names: Vec<_> = names("fn red_box(RedBox: u8)").into_iter().map(|w| w.text).collect();
        assert_eq!(names, ["fn", "red", "box", "red", "box", "u8"]);
    }

    #[test]
    fn documents_are_read_as_one_text() {
        assert_eq!(joined("a.md", "# Title\n\nOne's `two_three`"), ["title one's ` two _ three `"]);
    }
}
