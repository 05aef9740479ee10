//! What a module declares and what it names.

use std::collections::BTreeSet;

use super::code::group;
use super::lexer::{Kind, Token};

/// One name that a `use` declaration brings into scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    /// The segments of the path; a glob has no last name.
    pub(crate) path: Vec<String>,
    /// The name in scope; `*` for a glob, `_` for a trait without a name.
    pub(crate) alias: String,
    /// Whether the name is visible outside the module.
    pub(crate) is_public: bool,
    pub(crate) line: usize,
}

/// The declarations and names of one module.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// Modules in separate files.
    pub(crate) files: Vec<String>,
    /// Modules written in this one.
    pub(crate) inline: Vec<(String, Items)>,
    pub(crate) imports: Vec<Import>,
    /// Names of structs, functions, constants and so on.
    pub(crate) defined: BTreeSet<String>,
    /// Names of traits, which are in [`defined`](Self::defined) too.
    pub(crate) traits: BTreeSet<String>,
    /// Paths of two segments and more outside imports, with their lines.
    pub(crate) paths: Vec<(Vec<String>, usize)>,
    /// Names outside imports, without those after a dot or a path separator.
    pub(crate) names: BTreeSet<String>,
}

impl Items {
    /// Reads the declarations from the code of a module.
    pub(crate) fn new(tokens: &[Token<'_>]) -> Self {
        let mut items = Self::default();
        let (mut at, mut depth) = (0, 0_usize);
        while at < tokens.len() {
            let token = tokens[at];
            let next = tokens.get(at + 1).filter(|next| next.kind == Kind::Ident);
            at += match (token.kind, token.text, next) {
                (Kind::Ident, "use", _) if !tokens.get(at + 1).is_some_and(|t| t.is("<")) => {
                    items.import(&tokens[at..], is_public(&tokens[..at]))
                }
                (Kind::Ident, "mod", Some(name)) => items.module(name.text, &tokens[at..]),
                (Kind::Ident, "macro_rules", _) => {
                    items.define(tokens.get(at + 2));
                    3
                }
                (Kind::Ident, keyword, Some(name)) if depth == 0 && defines(keyword, name.text) => {
                    items.define(Some(name));
                    if keyword == "trait" {
                        items.traits.insert(plain(name.text));
                    }
                    2
                }
                (Kind::Ident, _, _) => items.path(tokens, at),
                (Kind::Punct, "{" | "(" | "[", _) => {
                    depth += 1;
                    1
                }
                (Kind::Punct, "}" | ")" | "]", _) => {
                    depth = depth.saturating_sub(1);
                    1
                }
                _ => 1,
            };
        }
        items
    }

    fn define(&mut self, name: Option<&Token<'_>>) {
        self.defined.extend(name.map(|name| plain(name.text)));
    }

    /// Reads `use …;` and returns its number of tokens.
    fn import(&mut self, tokens: &[Token<'_>], is_public: bool) -> usize {
        let end = tokens.iter().position(|token| token.is(";")).unwrap_or(tokens.len());
        let line = tokens[0].line;
        self.tree(&tokens[1..end], &[], is_public, line);
        end + 1
    }

    /// Reads one branch of a `use` tree below `prefix`.
    fn tree(&mut self, tokens: &[Token<'_>], prefix: &[String], is_public: bool, line: usize) {
        let mut path = prefix.to_vec();
        let mut alias = None;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            if token.is("{") {
                let end = at + group(&tokens[at..]);
                for branch in branches(&tokens[at + 1..end.saturating_sub(1)]) {
                    self.tree(branch, &path, is_public, line);
                }
                return;
            } else if token.is("*") {
                alias = Some("*".to_string());
            } else if token.is("as") {
                alias = tokens.get(at + 1).map(|token| plain(token.text));
                at += 1;
            } else if token.kind == Kind::Ident {
                path.push(plain(token.text));
            }
            at += 1;
        }
        // `use a::{self}` names `a`.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let Some(alias) = alias.or_else(|| path.last().cloned()) else { return };
        self.imports.push(Import { path, alias, is_public, line });
    }

    /// Reads `mod name;` or `mod name { … }` and returns its number of tokens.
    fn module(&mut self, name: &str, tokens: &[Token<'_>]) -> usize {
        if !tokens.get(2).is_some_and(|token| token.is("{")) {
            self.files.push(plain(name));
            return 2;
        }
        let length = group(&tokens[2..]);
        let inner = Self::new(&tokens[3..(2 + length).saturating_sub(1)]);
        self.inline.push((plain(name), inner));
        2 + length
    }

    /// Reads the path at `at` and returns its number of tokens.
    fn path(&mut self, tokens: &[Token<'_>], at: usize) -> usize {
        let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
        let mut path = vec![plain(tokens[at].text)];
        let mut end = at + 1;
        while is(end, ":") && is(end + 1, ":") {
            let Some(next) = tokens.get(end + 2).filter(|next| next.kind == Kind::Ident) else {
                break;
            };
            path.push(plain(next.text));
            end += 3;
        }
        let is_continued =
            at > 0 && (is(at - 1, ".") || is(at - 1, ":") && at > 1 && is(at - 2, ":"));
        if !is_continued {
            self.names.insert(path[0].clone());
            if path.len() > 1 {
                self.paths.push((path, tokens[at].line));
            }
        }
        end - at
    }
}

/// Splits the branches of a `use` tree at their commas.
fn branches<'t, 's>(tokens: &'t [Token<'s>]) -> Vec<&'t [Token<'s>]> {
    let mut depth = 0_usize;
    let split = tokens.split(move |token| {
        depth += usize::from(token.is("{"));
        depth -= usize::from(token.is("}") && depth > 0);
        depth == 0 && token.is(",")
    });
    split.filter(|branch| !branch.is_empty()).collect()
}

/// Returns whether the tokens end with `pub` or `pub(…)`.
fn is_public(before: &[Token<'_>]) -> bool {
    match before.last() {
        Some(last) if last.is("pub") => true,
        Some(last) if last.is(")") => {
            let open = before.iter().rposition(|token| token.is("("));
            open.is_some_and(|open| open > 0 && before[open - 1].is("pub"))
        }
        _ => false,
    }
}

fn defines(keyword: &str, name: &str) -> bool {
    let is_item = matches!(
        keyword,
        "struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static"
    );
    is_item && !matches!(name, "fn" | "unsafe" | "async" | "extern" | "mut")
}

/// Returns the name without the mark of a raw identifier.
fn plain(name: &str) -> String {
    name.strip_prefix("r#").unwrap_or(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::code::code;

    fn items(source: &str) -> Items {
        Items::new(&code(source))
    }

    fn imports(source: &str) -> Vec<String> {
        let shown = |import: &Import| format!("{} = {}", import.alias, import.path.join("::"));
        items(source).imports.iter().map(shown).collect()
    }

    #[test]
    fn a_use_tree_is_read_name_by_name() {
        assert_eq!(
            imports("use crate::{a::{self, B as C, d::*}, e::F as _}; pub use g::H;"),
            ["a = crate::a", "C = crate::a::B", "* = crate::a::d", "_ = crate::e::F", "H = g::H"]
        );
    }

    #[test]
    fn visibility_of_an_import_is_read() {
        let items =
            items("use a::A; pub use b::B; pub(crate) use c::C; pub(in crate::x) use d::D;");
        let public: Vec<_> = items.imports.iter().map(|import| import.is_public).collect();
        assert_eq!(public, [false, true, true, true]);
    }

    #[test]
    fn definitions_are_those_of_the_module_and_not_of_its_bodies() {
        let items = items(
            "pub struct A; impl A { fn method() {} const X: u8 = 0; } trait T { fn f(); } \
             pub const fn g() {} const Y: u8 = 1; macro_rules! m { () => { struct Z; } }",
        );
        let defined: Vec<_> = items.defined.iter().map(String::as_str).collect();
        assert_eq!(defined, ["A", "T", "Y", "g", "m"]);
        assert!(items.traits.contains("T"));
    }

    #[test]
    fn paths_in_code_and_in_macros_are_read() {
        let items =
            items("fn f(x: crate::a::A) { vec![super::b::c(), x.d::<E>(), $crate::g::h!()] }");
        let paths: Vec<_> = items.paths.iter().map(|(path, _)| path.join("::")).collect();
        assert_eq!(paths, ["crate::a::A", "super::b::c", "crate::g::h"]);
        assert!(!items.names.contains("d") && items.names.contains("E"));
    }

    #[test]
    fn modules_are_files_or_inline() {
        let items = items("mod a; pub mod b { use super::c::D; } #[cfg(test)] mod tests;");
        assert_eq!(items.files, ["a"]);
        assert_eq!(items.inline[0].0, "b");
        assert_eq!(items.inline[0].1.imports[0].path.join("::"), "super::c::D");
    }
}
