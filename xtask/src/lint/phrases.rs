//! Words and phrases to avoid; the list and its format are in `phrases.txt`.

use std::sync::LazyLock;

use super::finding::Finding;
use super::words::{self, Passage, Word};

/// Endings of a verb whose stem is British.
const ENDINGS: [&str; 9] = ["e", "ed", "er", "ers", "es", "ing", "able", "ation", "ations"];

/// Words that make a person the subject of the verb after them.
const PERSONS: [&str; 22] = [
    "who",
    "attacker",
    "adversary",
    "anybody",
    "anyone",
    "nobody",
    "everybody",
    "everyone",
    "somebody",
    "someone",
    "user",
    "users",
    "person",
    "people",
    "reader",
    "observer",
    "analyst",
    "curator",
    "you",
    "we",
    "they",
    "one",
];

/// What is searched for.
#[derive(Debug)]
enum Pattern {
    /// Words in their order; the flag allows any ending.
    Phrase(Vec<(String, bool)>),
    /// A British stem.
    Stem(String),
    /// A British word; the flag allows any ending.
    Spelling(String, bool),
    /// The start of a line of documentation.
    Start(String),
    /// Words that only a person is the subject of.
    Person(Vec<(String, bool)>),
}

/// A pattern, as it is written in the list, and the words to use in its place.
#[derive(Debug)]
struct Entry {
    pattern: Pattern,
    written: String,
    advice: String,
}

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| entries(include_str!("phrases.txt")));

fn entries(list: &str) -> Vec<Entry> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entry = |line: &str| {
        let (written, advice) = line.rsplit_once(" = ").unwrap_or((line, ""));
        let ending = |word: &str| match word.strip_suffix('*') {
            Some(word) => (word.to_lowercase(), true),
            None => (word.to_lowercase(), false),
        };
        let phrase = |text: &str| text.split(' ').map(ending).collect();
        let pattern = match written.split_at_checked(1) {
            Some(("~", stem)) => Pattern::Stem(stem.into()),
            Some(("=", word)) => {
                let (word, any) = ending(word);
                Pattern::Spelling(word, any)
            }
            Some(("^", text)) => Pattern::Start(text.into()),
            Some(("!", text)) => Pattern::Person(phrase(text)),
            _ => Pattern::Phrase(phrase(written)),
        };
        let written = written.trim_start_matches(['~', '=', '^', '!']).into();
        Entry { pattern, written, advice: advice.into() }
    };
    lines.map(entry).collect()
}

/// Returns the banned words and phrases of a file.
pub(crate) fn banned(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |line: usize, found: &str, entry: &Entry| {
        let message = format!("\"{found}\": {}", entry.advice);
        findings.push(Finding::new("words", path, line, message));
    };
    let is_rust = path.ends_with(".rs");
    let names = if is_rust { words::names(text) } else { Vec::new() };
    let passages = words::passages(path, text);
    for entry in ENTRIES.iter() {
        for word in names.iter().filter(|word| entry.pattern.spells(&word.text)) {
            add(word.line, &word.text, entry);
        }
        for passage in &passages {
            for (line, found) in entry.pattern.matches(passage) {
                add(line, found.unwrap_or(&entry.written), entry);
            }
        }
    }
    findings
}

impl Pattern {
    /// Returns whether a word is a British spelling by this pattern.
    fn spells(&self, word: &str) -> bool {
        match self {
            Self::Stem(stem) => word.strip_prefix(stem).is_some_and(|end| ENDINGS.contains(&end)),
            Self::Spelling(spelling, any) => is(word, spelling, *any),
            _ => false,
        }
    }

    /// Returns the lines on which a passage matches, with the word where the pattern has several.
    fn matches<'p>(&self, passage: &'p Passage) -> Vec<(usize, Option<&'p str>)> {
        let words = &passage.words;
        match self {
            Self::Stem(_) | Self::Spelling(..) => {
                let found = words.iter().filter(|word| self.spells(&word.text));
                found.map(|word| (word.line, Some(word.text.as_str()))).collect()
            }
            Self::Phrase(phrase) => {
                places(words, phrase).map(|at| (words[at].line, None)).collect()
            }
            Self::Person(phrase) => {
                let is_person =
                    |at: usize| at > 0 && PERSONS.contains(&words[at - 1].text.as_str());
                let places = places(words, phrase).filter(|at| !is_person(*at));
                places.map(|at| (words[at].line, None)).collect()
            }
            Self::Start(start) => {
                let lines = passage.doc_lines.iter();
                lines
                    .filter(|(_, text)| text.starts_with(start))
                    .map(|(at, _)| (*at, None))
                    .collect()
            }
        }
    }
}

fn is(word: &str, wanted: &str, any_ending: bool) -> bool {
    if any_ending { word.starts_with(wanted) } else { word == wanted }
}

/// Returns the places at which the words of a phrase follow one another.
fn places(words: &[Word], phrase: &[(String, bool)]) -> impl Iterator<Item = usize> {
    let matches = move |window: &[Word]| {
        window.iter().zip(phrase).all(|(word, (wanted, any))| is(&word.text, wanted, *any))
    };
    let windows = words.windows(phrase.len().max(1)).enumerate();
    windows.filter(move |(_, window)| matches(window)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins the parts, so that this file does not contain what it searches.
    fn found(path: &str, parts: &[&str]) -> Vec<String> {
        banned(path, &parts.concat()).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_phrase_is_found_across_a_line_break_and_in_any_case() {
        let text = ["/// The run is Gone", " on\n/// with by the next.\nfn a() {}"];
        let wanted = concat!("a.rs:1: \"gone", " on with\": continued by [words]");
        assert_eq!(found("a.rs", &text), [wanted]);
        assert!(found("a.rs", &["/// The run is gone. On with it.\nfn a() {}"]).is_empty());
    }

    #[test]
    fn comments_strings_and_documents_are_read() {
        assert_eq!(found("a.rs", &["// in the", " mean"]).len(), 1);
        assert_eq!(found("a.rs", &["const A: &str = \"in the", " mean\";"]).len(), 1);
        assert_eq!(found("a.md", &["in the", "\nmean"]).len(), 1);
        assert!(found("a.md", &["in the meantime"]).is_empty());
    }

    #[test]
    fn british_spellings_are_found_in_names_too() {
        assert_eq!(found("a.rs", &["fn normal", "ised_colo", "urs() {}"]).len(), 2);
        assert_eq!(found("a.rs", &["fn normalized_colors(NeighboringRelation: u8) {}"]).len(), 0);
        assert_eq!(found("a.md", &["The `neighb", "ours_of` it."]).len(), 1);
        let message = found("a.toml", &["# optim", "isation"]);
        assert!(message[0].starts_with("a.toml:1: \"optim"), "{message:?}");
    }

    #[test]
    fn words_that_only_look_british_pass() {
        let text = "optimism, minimal, analysis, analyses, realism, emphasis, organism, license";
        assert!(found("a.md", &[text]).is_empty());
    }

    #[test]
    fn documentation_starts_with_a_verb_of_what_is_returned() {
        assert_eq!(found("a.rs", &["/// Refu", "ses it.\nfn a() {}"]).len(), 1);
        assert_eq!(
            found("a.rs", &["/// # Errors\n///\n/// As", " [`f`](Self::f).\nfn a() {}"]).len(),
            1
        );
        assert!(found("a.rs", &["/// It refu", "ses.\n// Refu", "ses\nfn a() {}"]).is_empty());
    }

    #[test]
    fn people_may_know_and_code_may_not() {
        assert_eq!(found("a.md", &["The optimizer kno", "ws it."]).len(), 1);
        assert!(found("a.md", &["An attacker who knows it."]).is_empty());
    }

    #[test]
    fn every_entry_has_advice() {
        assert!(ENTRIES.len() > 80);
        for entry in ENTRIES.iter() {
            assert!(!entry.written.is_empty() && !entry.advice.is_empty(), "{entry:?}");
        }
    }
}
