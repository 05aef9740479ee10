//! Import circles between the files of a crate, and between its top-level modules.
//!
//! A re-export is transparent: a name counts as imported from the file that defines it. A `mod.rs`
//! that re-exports its children therefore does not form a circle with a child that names a sibling.

use std::collections::{BTreeMap, BTreeSet};

use super::circles::{self, Graph};
use super::finding::Finding;
use super::modules::{Target, Tree};

/// Maximum number of names shown for an arrow.
const SHOWN: usize = 4;

/// The names that one file takes from another, and the first line that does.
#[derive(Debug, Default)]
struct Arrow {
    names: BTreeSet<String>,
    line: usize,
}

/// Arrows by the file that imports and the file that defines.
type Arrows = BTreeMap<(String, String), Arrow>;

/// Returns the circles of imports among the files and among the top-level modules of a crate.
pub(crate) fn circles(source: &str, tree: &Tree) -> Vec<Finding> {
    let by_file = arrows(tree);
    let by_module = merged(source, &by_file);
    let mut findings = report("files import each other", &by_file, |file| file.into());
    findings.extend(report("modules import each other", &by_module, |module| {
        let first = by_file.keys().find(|(from, _)| top_module(source, from) == module);
        first.map_or_else(|| source.into(), |(from, _)| from.clone())
    }));
    findings
}

fn report(what: &str, arrows: &Arrows, path: impl Fn(&str) -> String) -> Vec<Finding> {
    let mut graph = Graph::new();
    for (from, to) in arrows.keys() {
        graph.entry(from.clone()).or_default().insert(to.clone());
    }
    let finding = |circle: Vec<String>| {
        let mut text = format!("{what}: {}", circle[0]);
        for (at, from) in circle.iter().enumerate() {
            let to = &circle[(at + 1) % circle.len()];
            let names = arrows.get(&(from.clone(), to.clone())).map(shown).unwrap_or_default();
            text.push_str(&format!(" → {to} ({names})"));
        }
        let first = arrows.get(&(circle[0].clone(), circle[1 % circle.len()].clone()));
        Finding::new("imports", &path(&circle[0]), first.map_or(1, |arrow| arrow.line), text)
    };
    circles::circles(&graph).into_iter().map(finding).collect()
}

fn shown(arrow: &Arrow) -> String {
    let names: Vec<_> = arrow.names.iter().take(SHOWN).map(String::as_str).collect();
    let more = if arrow.names.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

/// Returns the arrows between files.
fn arrows(tree: &Tree) -> Arrows {
    let mut arrows = Arrows::new();
    for (number, module) in tree.modules() {
        let mut add = |target: Target, name: &str, line: usize| {
            let Target::Item { file, .. } = target else { return };
            if file != module.file {
                let arrow = arrows.entry((module.file.clone(), file)).or_default();
                arrow.line = if arrow.names.is_empty() { line } else { arrow.line.min(line) };
                arrow.names.insert(name.into());
            }
        };
        let items = &module.items;
        for import in &items.imports {
            let target = tree.resolve(number, &import.path);
            if import.alias == "*" {
                let Target::Module(globbed) = target else {
                    add(target, "*", import.line);
                    continue;
                };
                for name in items.names.iter().filter(|name| !items.defined.contains(*name)) {
                    if let Some(target) = tree.in_scope(globbed, name) {
                        add(target, name, import.line);
                    }
                }
                continue;
            }
            // A re-export that the module does not use itself is not an import.
            let is_trait = matches!(target, Target::Item { is_trait: true, .. });
            if items.names.contains(&import.alias) || is_trait && !import.is_public {
                let name = import.path.last().map_or("", String::as_str);
                add(target, name, import.line);
            }
        }
        for (path, line) in &items.paths {
            let is_relative = matches!(path[0].as_str(), "crate" | "self" | "super");
            let is_module = || matches!(tree.in_scope(number, &path[0]), Some(Target::Module(_)));
            if is_relative || is_module() {
                add(tree.resolve(number, path), path.last().map_or("", String::as_str), *line);
            }
        }
    }
    arrows
}

/// Returns the arrows between top-level modules; a name is shown with the files that it joins.
fn merged(source: &str, by_file: &Arrows) -> Arrows {
    let mut arrows = Arrows::new();
    for ((from, to), arrow) in by_file {
        let key = (top_module(source, from), top_module(source, to));
        if key.0 == key.1 {
            continue;
        }
        let inside = |file: &str| file.strip_prefix(source).unwrap_or(file).to_string();
        let merged: &mut Arrow = arrows.entry(key).or_default();
        merged.line = if merged.names.is_empty() { arrow.line } else { merged.line };
        let names = arrow.names.iter().cloned().collect::<Vec<_>>().join(" ");
        merged.names.insert(format!("{}: {names}", inside(from).trim_start_matches('/')));
    }
    arrows
}

/// Returns the top-level module of a file.
fn top_module(source: &str, file: &str) -> String {
    let inside = file.strip_prefix(source).unwrap_or(file).trim_start_matches('/');
    let first = inside.split('/').next().unwrap_or(inside);
    first.strip_suffix(".rs").unwrap_or(first).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::texts::Texts;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let texts: Texts =
            files.iter().map(|(path, text)| (format!("src/{path}"), text.to_string())).collect();
        let tree = Tree::new("src/lib.rs", &texts);
        circles("src", &tree).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_planted_circle_of_files_is_reported_with_its_names() {
        let found = found(&[
            ("lib.rs", "mod m;"),
            ("m/mod.rs", "mod a; mod b; mod c;"),
            ("m/a.rs", "\nuse super::b::B;\npub struct A(B);"),
            ("m/b.rs", "pub struct B(crate::m::c::C);"),
            ("m/c.rs", "use crate::m::a::A; pub struct C(Box<A>);"),
        ]);
        assert_eq!(
            found,
            ["src/m/a.rs:2: files import each other: src/m/a.rs → src/m/b.rs (B) \
                 → src/m/c.rs (C) \
              → src/m/a.rs (A) [imports]"]
        );
    }

    #[test]
    fn the_twin_without_the_circle_passes() {
        let files = [
            ("lib.rs", "mod m;"),
            ("m/mod.rs", "mod a; mod b; mod c;"),
            ("m/a.rs", "use super::b::B; pub struct A(B);"),
            ("m/b.rs", "pub struct B(crate::m::c::C);"),
            ("m/c.rs", "/// Used by [`A`](crate::m::a::A).\npub struct C;"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn modules_can_circle_where_files_do_not() {
        let found = found(&[
            ("lib.rs", "pub mod a; pub mod b;"),
            ("a/mod.rs", "mod x; mod y; pub use x::X; pub use y::Y;"),
            ("a/x.rs", "use crate::b::B; pub struct X(B);"),
            ("a/y.rs", "pub struct Y;"),
            ("b.rs", "use crate::a::Y; pub struct B(Y);"),
        ]);
        let wanted = "modules import each other: a → b (a/x.rs: B) → a (b.rs: Y)";
        assert!(found.len() == 1 && found[0].contains(wanted), "{found:?}");
    }

    #[test]
    fn a_re_export_of_children_is_no_import() {
        let files = [
            ("lib.rs", "mod m; pub use m::A;"),
            ("m/mod.rs", "mod a; mod b; pub use a::A; use b::B;"),
            ("m/a.rs", "use super::B; pub struct A(B);"),
            ("m/b.rs", "pub struct B;"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn a_parent_that_uses_a_child_which_uses_the_parent_is_a_circle() {
        let found = found(&[
            ("lib.rs", "mod m;"),
            ("m/mod.rs", "mod a; pub use a::A; pub struct M; fn f(a: A) {}"),
            ("m/a.rs", "use super::M; pub struct A(M);"),
        ]);
        assert!(
            found.len() == 1 && found[0].contains("src/m/a.rs → src/m/mod.rs (M)"),
            "{found:?}"
        );
    }

    #[test]
    fn a_module_as_a_name_counts_by_what_is_taken_from_it() {
        let files = |use_of_a: &'static str| {
            [
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", use_of_a),
                ("b.rs", "use crate::a; pub fn f() { a::g() }"),
            ]
        };
        assert_eq!(found(&files("pub fn g() { crate::b::f() }")).len(), 2);
        assert!(found(&files("pub fn g() {}")).is_empty());
    }

    #[test]
    fn globs_and_unnamed_traits_count() {
        let globs = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::*; pub struct A(B);"),
            ("b.rs", "use super::*; pub struct B(a::A);"),
        ];
        assert_eq!(found(&globs).len(), 2);
        let traits = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::T as _; pub struct A;"),
            ("b.rs", "use crate::a::A; pub trait T { fn f(a: A); }"),
        ];
        assert_eq!(found(&traits).len(), 2);
    }

    #[test]
    fn what_only_tests_import_is_no_circle() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; fn f(b: B) {} }"),
            ("b.rs", "use crate::a::A; pub struct B(A);"),
        ];
        assert!(found(&files).is_empty());
    }
}
