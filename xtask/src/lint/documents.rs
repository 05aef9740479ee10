//! Documents name only files and addresses that exist.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::lexer::{Kind, tokens};
use super::texts::Texts;

/// Addresses that do not exist; the repository has no public address yet.
const DEAD: [&str; 1] = [concat!("github.com/", "burn-dp/")];

/// Endings of files that are written by people, so that a document that names one must be right.
/// Files with other endings are read or made by a command.
const WRITTEN: [&str; 8] = [".lock", ".md", ".py", ".rs", ".sh", ".toml", ".yaml", ".yml"];

/// Returns the addresses in a file that do not exist.
pub(crate) fn dead_addresses(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let dead = lines.filter_map(|(index, line)| {
        let address = DEAD.iter().find(|address| line.contains(*address))?;
        let message = format!("{address} does not exist; leave the address out");
        Some(Finding::new("documents", path, index + 1, message))
    });
    dead.collect()
}

/// Returns the links and file names of a document that lead nowhere.
pub(crate) fn missing_files(
    path: &str,
    text: &str,
    paths: &[String],
    texts: &Texts,
) -> Vec<Finding> {
    let repository = Repository { paths, texts };
    let mut findings = Vec::new();
    let mut in_block = false;
    for (index, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        let mut missing = BTreeSet::new();
        if !in_block && !is_fence {
            let dead = |target: &&str| !repository.has_link(path, target);
            missing.extend(links(line).into_iter().filter(dead).map(|t| format!("link to {t}")));
        }
        let named = if in_block { vec![line] } else { spans(line) };
        for name in named.into_iter().flat_map(file_names) {
            if !repository.has_file(path, name) {
                missing.insert(name.to_string());
            }
        }
        for name in missing {
            let message = format!("{name}: no such file in the repository");
            findings.push(Finding::new("documents", path, index + 1, message));
        }
    }
    findings
}

/// Returns the headings of a list of error messages that no message of the sources contains.
///
/// A heading in a code span is a part of a message; `…` stands for what differs.
pub(crate) fn unknown_messages(path: &str, text: &str, messages: &[String]) -> Vec<Finding> {
    let heading = |line: &str| {
        let heading = line.trim_start_matches('#').trim().strip_prefix('`')?.strip_suffix('`')?;
        Some(heading.to_string())
    };
    let headings = text.lines().enumerate().filter(|(_, line)| line.starts_with('#'));
    let unknown = headings.filter_map(|(index, line)| {
        let heading = heading(line)?;
        let exists = |part: &str| messages.iter().any(|message| message.contains(part));
        let part = heading.split('…').map(str::trim).find(|part| !exists(part))?;
        let message = format!("\"{part}\": no message of the sources contains this");
        Some(Finding::new("documents", path, index + 1, message))
    });
    unknown.collect()
}

/// Returns the strings of the sources, each on one line, to search messages in.
pub(crate) fn messages(texts: &Texts, sources: &[&str]) -> Vec<String> {
    let is_source = |path: &str| sources.iter().any(|source| path.starts_with(source));
    let files = texts.iter().filter(|(path, _)| is_source(path) && path.ends_with(".rs"));
    let strings = files.flat_map(|(_, text)| tokens(text)).filter(|t| t.kind == Kind::Text);
    strings.map(|token| token.text.replace("\\\n", " ")).map(|text| one_line(&text)).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The files that a document can name.
struct Repository<'a> {
    paths: &'a [String],
    texts: &'a Texts,
}

impl Repository<'_> {
    /// Returns whether the target of a link exists.
    fn has_link(&self, document: &str, target: &str) -> bool {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        if file.contains("://") || file.contains("::") || file.starts_with("mailto:") {
            return true;
        }
        // Without a file ending or a folder it is a name of rustdoc.
        if !file.is_empty() && !file.contains(['.', '/']) && !self.has_folder(document, file) {
            return file.starts_with(char::is_uppercase) || file.ends_with(')');
        }
        let file = if file.is_empty() { document.to_string() } else { joined(document, file) };
        match self.texts.get(&file) {
            Some(text) => anchor.is_empty() || has_heading(text, anchor),
            None => self.paths.contains(&file) || self.has_folder("", &file),
        }
    }

    fn has_folder(&self, document: &str, folder: &str) -> bool {
        let folder = format!("{}/", joined(document, folder).trim_end_matches('/'));
        self.paths.iter().any(|path| path.starts_with(&folder))
    }

    /// Returns whether a name in a code span is a file of the repository: by its path from the
    /// document or from the root, or by the end of its path.
    fn has_file(&self, document: &str, name: &str) -> bool {
        let name = name.trim_start_matches("./");
        if name.starts_with("../") {
            return self.paths.contains(&joined(document, name));
        }
        let end = format!("/{name}");
        self.paths.iter().any(|path| path == name || path.ends_with(&end))
    }
}

/// Returns a path that is relative to the folder of a document, from the root.
fn joined(document: &str, target: &str) -> String {
    let mut parts: Vec<_> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => document.rsplit_once('/').map_or(vec![], |(folder, _)| folder.split('/').collect()),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the targets of the links of a line, without those inside code spans.
fn links(line: &str) -> Vec<&str> {
    let mut links = Vec::new();
    for text in line.split('`').step_by(2) {
        for after in text.split("](").skip(1) {
            links.extend(after.split([')', ' ']).next());
        }
    }
    links
}

/// Returns the code spans of a line.
fn spans(line: &str) -> Vec<&str> {
    let parts: Vec<_> = line.split('`').collect();
    // A span that continues on the next line is read up to the end of the line.
    parts.into_iter().skip(1).step_by(2).collect()
}

/// Returns the names of written files in code, without placeholders and patterns.
fn file_names(code: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || "._-/*{}<>$~:@".contains(c);
    let words =
        code.split(move |c: char| !is_part(c)).map(|word| word.trim_end_matches(['.', ':']));
    words.filter(|word| is_written(word) && !is_placeholder(word))
}

fn is_written(word: &str) -> bool {
    let stem = WRITTEN.iter().find_map(|ending| word.strip_suffix(ending));
    stem.is_some_and(|stem| stem.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '}'))
}

fn is_placeholder(word: &str) -> bool {
    let is_capitals = |part: &str| {
        part.len() > 1
            && part.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            && part != "README"
    };
    word.contains(['*', '{', '}', '<', '>', '$', '~', ':', '@'])
        || word.starts_with('/')
        || word.starts_with("target/")
        || word.rsplit_once('/').is_some_and(|(folder, _)| folder.split('/').any(is_capitals))
}

/// Returns whether a document has a heading with this anchor.
fn has_heading(text: &str, anchor: &str) -> bool {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.into_iter().any(|line| slug(line) == anchor)
}

/// Returns the anchor of a heading, as GitHub, rustdoc and mdBook make it.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(document: &str, text: &str) -> Vec<String> {
        let paths = ["README.md", "a/README.md", "a/src/rules/linear.rs", "Cargo.toml", "b/x.svg"];
        let paths: Vec<_> = paths.iter().map(|path| path.to_string()).collect();
        let texts: Texts = [
            ("README.md".to_string(), "# One house\n\n## Burn's learner\n".to_string()),
            (document.to_string(), text.to_string()),
        ]
        .into();
        missing_files(document, text, &paths, &texts).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_missing_file_is_found_in_links_spans_and_blocks() {
        let text = "[x](../none.md) and `none.rs`\n```console\n$ python none.py --peers\n```\n";
        assert_eq!(
            found("a/b.md", text),
            [
                "a/b.md:1: link to ../none.md: no such file in the repository [documents]",
                "a/b.md:1: none.rs: no such file in the repository [documents]",
                "a/b.md:3: none.py: no such file in the repository [documents]",
            ]
        );
    }

    #[test]
    fn files_that_exist_pass() {
        let text = "[x](../README.md), [y](README.md), [z](src), `rules/linear.rs`, `Cargo.toml`\n\
                    ![p](../b/x.svg) [q](/b/x.svg) `a/src/rules/linear.rs` [r](https://x.org/a.md)";
        assert!(found("a/b.md", text).is_empty());
    }

    #[test]
    fn headings_of_links_must_exist() {
        assert!(found("a/b.md", "[x](../README.md#burns-learner) [y](#z)\n# Z").is_empty());
        assert_eq!(found("a/b.md", "[x](../README.md#none)").len(), 1);
        assert_eq!(found("a/b.md", "[x](#none)").len(), 1);
    }

    #[test]
    fn placeholders_patterns_and_outputs_pass() {
        let text = "`DIR/x.md`, `train/*.rs`, `{a,b}.rs`, `<name>.rs`, `statement.json`, `.rs`, \
                    `model.bpk`, `--plot curve.svg`, \
                    [`X`](crate::optim::X), [`y`](Self::y), [`Z`](Z)";
        assert!(found("a/b.md", text).is_empty());
    }

    #[test]
    fn a_message_that_does_not_exist_is_found() {
        let source =
            "fn f() { g(format!(\"step {step} was \\\n    released twice\")) }".to_string();
        let texts: Texts = [("a/src/lib.rs".to_string(), source)].into();
        let messages = messages(&texts, &["a/src"]);
        let found = |text: &str| unknown_messages("a.md", text, &messages).len();
        assert_eq!(found("## Steps\n### `was released twice`\n### `step … was released`"), 0);
        assert_eq!(found("### `was released once`"), 1);
        assert_eq!(found("### `step … was lost`"), 1);
    }

    #[test]
    fn addresses_that_do_not_exist_are_found_in_every_file() {
        let text = format!("repository = \"https://{}burn-dp\"", DEAD[0]);
        assert_eq!(dead_addresses("Cargo.toml", &text).len(), 1);
        assert!(dead_addresses("Cargo.toml", "homepage = \"https://burn.dev\"").is_empty());
    }
}
