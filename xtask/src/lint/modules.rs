//! The modules of a crate, and the file in which a name is defined.

use std::collections::BTreeMap;

use super::code::code;
use super::items::Items;
use super::texts::Texts;

/// A module of a crate.
#[derive(Debug)]
pub(crate) struct Module {
    /// The path of its file.
    pub(crate) file: String,
    pub(crate) items: Items,
    parent: usize,
    children: BTreeMap<String, usize>,
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A module of the crate.
    Module(usize),
    /// An item that is defined in a file of the crate.
    Item { file: String, is_trait: bool },
    /// Something from another crate.
    External,
}

/// The modules of one crate that are compiled without its tests.
#[derive(Debug)]
pub(crate) struct Tree {
    modules: Vec<Module>,
}

/// Returns the root files of the crates below the folder `source`: library, programs and examples.
pub(crate) fn roots(source: &str, texts: &Texts) -> Vec<String> {
    let is_root = |path: &&String| {
        let Some(rest) = path.strip_prefix(source).and_then(|rest| rest.strip_prefix('/')) else {
            return false;
        };
        let parts: Vec<_> = rest.split('/').collect();
        let is_examples = source.ends_with("/examples");
        matches!(parts[..], ["lib.rs" | "main.rs"] | ["bin", _, "main.rs"])
            || matches!(parts[..], ["bin", program] if program.ends_with(".rs"))
            || is_examples && matches!(parts[..], [_, "src", "main.rs"])
            || is_examples && matches!(parts[..], [program] if program.ends_with(".rs"))
    };
    texts.keys().filter(is_root).cloned().collect()
}

impl Tree {
    /// Reads the modules, starting from their root file.
    pub(crate) fn new(root: &str, texts: &Texts) -> Self {
        let mut tree = Self { modules: Vec::new() };
        if let Some(text) = texts.get(root) {
            let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
            tree.add(root, folder, Items::new(&code(text)), 0, texts);
        }
        tree
    }

    /// Adds a module whose children are files in `folder`, and returns its number.
    fn add(
        &mut self,
        file: &str,
        folder: &str,
        mut items: Items,
        parent: usize,
        texts: &Texts,
    ) -> usize {
        let number = self.modules.len();
        let files = items.files.clone();
        let inline = std::mem::take(&mut items.inline);
        let children = BTreeMap::new();
        self.modules.push(Module { file: file.into(), items, parent, children });
        let mut children = BTreeMap::new();
        for name in files {
            let paths = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
            let found = paths.iter().find_map(|path| Some((path, texts.get(path)?)));
            if let Some((path, text)) = found {
                let inner = Items::new(&code(text));
                let folder = format!("{folder}/{name}");
                children.insert(name, self.add(path, &folder, inner, number, texts));
            }
        }
        for (name, inner) in inline {
            let folder = format!("{folder}/{name}");
            children.insert(name, self.add(file, &folder, inner, number, texts));
        }
        self.modules[number].children = children;
        number
    }

    /// Returns the modules with their numbers.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (usize, &Module)> {
        self.modules.iter().enumerate()
    }

    /// Returns the paths of the files, each once, in the order of the modules.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files: Vec<String> = Vec::new();
        for module in &self.modules {
            if !files.contains(&module.file) {
                files.push(module.file.clone());
            }
        }
        files
    }

    /// Returns what `path` leads to from a module, through re-exports to the definition.
    pub(crate) fn resolve(&self, from: usize, path: &[String]) -> Target {
        self.resolve_guarded(from, path, &mut Vec::new())
    }

    /// Returns what a name in the scope of a module stands for; nothing if it is not in scope.
    pub(crate) fn in_scope(&self, module: usize, name: &str) -> Option<Target> {
        self.lookup(module, name, false, &mut Vec::new())
    }

    fn resolve_guarded(
        &self,
        from: usize,
        path: &[String],
        visited: &mut Vec<(usize, String)>,
    ) -> Target {
        let mut current = from;
        for (index, segment) in path.iter().enumerate() {
            let is_last = index + 1 == path.len();
            current = match segment.as_str() {
                "crate" if index == 0 => 0,
                "self" if index == 0 => current,
                "super" => self.modules[current].parent,
                name => match self.lookup(current, name, !is_last, visited) {
                    Some(Target::Module(module)) => module,
                    Some(target) => return target,
                    None if index == 0 => return Target::External,
                    None => return self.undeclared(current),
                },
            };
        }
        Target::Module(current)
    }

    /// What a name is that a module of the crate does not declare: of another crate if the module
    /// re-exports everything of one, else made by a macro in the module's file.
    fn undeclared(&self, module: usize) -> Target {
        let module_items = &self.modules[module].items;
        let mut globs = module_items.imports.iter().filter(|import| import.alias == "*");
        if globs.any(|glob| self.resolve(module, &glob.path) == Target::External) {
            return Target::External;
        }
        Target::Item { file: self.modules[module].file.clone(), is_trait: false }
    }

    fn lookup(
        &self,
        module: usize,
        name: &str,
        prefers_module: bool,
        visited: &mut Vec<(usize, String)>,
    ) -> Option<Target> {
        let key = (module, format!("{prefers_module} {name}"));
        if visited.contains(&key) {
            return None;
        }
        visited.push(key);
        let Module { file, items, children, .. } = &self.modules[module];
        let child = children.get(name).map(|child| Target::Module(*child));
        if prefers_module && child.is_some() {
            return child;
        }
        if items.defined.contains(name) {
            let is_trait = items.traits.contains(name);
            return Some(Target::Item { file: file.clone(), is_trait });
        }
        if child.is_some() {
            return child;
        }
        let (globs, named): (Vec<_>, Vec<_>) =
            items.imports.iter().partition(|import| import.alias == "*");
        // A function and a module can have one name; the rest of a path is in the module.
        let mut item = None;
        for import in named.into_iter().filter(|import| import.alias == name) {
            match self.resolve_guarded(module, &import.path, visited) {
                target @ Target::Item { .. } if prefers_module => item = Some(target),
                target => return Some(target),
            }
        }
        if item.is_some() {
            return item;
        }
        globs.into_iter().find_map(|glob| match self.resolve_guarded(module, &glob.path, visited) {
            Target::Module(inner) if inner != module => {
                self.lookup(inner, name, prefers_module, visited)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let texts = files.iter().map(|(path, text)| (format!("src/{path}"), text.to_string()));
        Tree::new("src/lib.rs", &texts.collect())
    }

    fn file_of(tree: &Tree, path: &str) -> String {
        let path: Vec<_> = path.split("::").map(String::from).collect();
        match tree.resolve(0, &path) {
            Target::Item { file, .. } => file,
            Target::Module(module) => format!("module {}", tree.modules[module].file),
            Target::External => "external".into(),
        }
    }

    #[test]
    fn a_re_export_leads_to_the_file_of_the_definition() {
        let tree = tree(&[
            ("lib.rs", "mod a; pub use a::B as Renamed; pub use a::c::*; pub use std::fmt;"),
            ("a/mod.rs", "mod b; pub mod c; pub use b::B; pub use burn::X; pub fn own() {}"),
            ("a/b.rs", "pub struct B;"),
            ("a/c.rs", "pub enum D { E }"),
        ]);
        assert_eq!(file_of(&tree, "crate::a::B"), "src/a/b.rs");
        assert_eq!(file_of(&tree, "a::B::new"), "src/a/b.rs");
        assert_eq!(file_of(&tree, "crate::Renamed"), "src/a/b.rs");
        assert_eq!(file_of(&tree, "crate::D::E"), "src/a/c.rs");
        assert_eq!(file_of(&tree, "self::a::own"), "src/a/mod.rs");
        assert_eq!(file_of(&tree, "crate::a::c"), "module src/a/c.rs");
        assert_eq!(file_of(&tree, "crate::a::made_by_macro"), "src/a/mod.rs");
        assert_eq!(file_of(&tree, "crate::a::X"), "external");
        assert_eq!(file_of(&tree, "crate::fmt::Debug"), "external");
        assert_eq!(file_of(&tree, "std::fmt"), "external");
    }

    #[test]
    fn a_module_and_a_function_of_one_name_are_two_things() {
        let tree = tree(&[
            ("lib.rs", "mod explain; pub use explain::explain;"),
            ("explain.rs", "pub fn explain() {} pub struct Explained;"),
        ]);
        assert_eq!(file_of(&tree, "crate::explain::Explained"), "src/explain.rs");
        assert_eq!(file_of(&tree, "crate::explain::explain"), "src/explain.rs");
    }

    #[test]
    fn re_exports_in_a_ring_end() {
        let tree = tree(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub use crate::b::*;"),
            ("b.rs", "pub use crate::a::*;"),
        ]);
        assert_eq!(file_of(&tree, "crate::a::X"), "src/a.rs");
    }

    #[test]
    fn files_of_tests_are_no_modules() {
        let tree = tree(&[
            ("lib.rs", "mod a { mod b; } #[cfg(test)] mod tests;"),
            ("a/b.rs", ""),
            ("tests.rs", "use crate::a;"),
        ]);
        assert_eq!(tree.files(), ["src/lib.rs", "src/a/b.rs"]);
    }

    #[test]
    fn library_and_programs_are_roots() {
        let paths = ["lib.rs", "a.rs", "bin/x.rs", "bin/y/main.rs", "bin/y/z.rs"];
        let texts = paths.iter().map(|path| (format!("c/src/{path}"), String::new())).collect();
        assert_eq!(
            roots("c/src", &texts),
            ["c/src/bin/x.rs", "c/src/bin/y/main.rs", "c/src/lib.rs"]
        );
        assert!(roots("other/src", &texts).is_empty());
        let paths = ["a.rs", "x/src/main.rs", "x/src/data.rs"];
        let texts = paths.iter().map(|path| (format!("c/examples/{path}"), String::new()));
        let found = roots("c/examples", &texts.collect());
        assert_eq!(found, ["c/examples/a.rs", "c/examples/x/src/main.rs"]);
    }
}
