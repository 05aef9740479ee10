//! One line about the first build, which takes minutes.

use std::path::Path;

use crate::workspace::{self, BASE, PARTS, Part};

/// What a process builds before it does anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announcement {
    what: String,
    parts: Vec<Part>,
    /// The folder of the build in the target folder.
    folder: &'static str,
}

/// The folder of builds for this machine.
const HERE: &str = "debug";

impl Announcement {
    /// Returns the announcement of a build of Burn with some features.
    pub(crate) fn new(what: &str, features: &[&str]) -> Self {
        let chosen = |part: &&Part| features.contains(&part.feature);
        let parts = [&BASE].into_iter().chain(PARTS.iter().filter(chosen)).copied().collect();
        Self { what: what.into(), parts, folder: HERE }
    }

    /// Returns the announcement of a build that does not need Burn.
    pub(crate) fn of_part(what: &str, part: Part) -> Self {
        Self { what: what.into(), parts: vec![part], folder: HERE }
    }

    /// Sets the folder of the build, in the target folder.
    pub(crate) fn in_folder(self, folder: &'static str) -> Self {
        Self { folder, ..self }
    }

    /// Prints the announcement, if there is something to announce.
    pub(crate) fn print(&self) {
        if let Some(line) = self.line(&workspace::target()) {
            eprintln!("{line}");
        }
    }

    /// Returns the line to print, or nothing if all parts were built before in `target`.
    fn line(&self, target: &Path) -> Option<String> {
        let built = built(&target.join(self.folder));
        let is_missing = |part: &&Part| !built.iter().any(|name| is_of(name, part.witness));
        let missing: Vec<_> = self.parts.iter().filter(is_missing).collect();
        if missing.is_empty() {
            return None;
        }
        let crates: usize = missing.iter().map(|part| part.crates).sum();
        let minutes: usize = missing.iter().map(|part| part.minutes).sum();
        let unit = if minutes == 1 { "minute" } else { "minutes" };
        Some(format!(
            "building {} for the first time: about {crates} crates, {minutes} {unit} on two cores; \
             later builds take seconds",
            self.what
        ))
    }
}

/// Returns the names of the crates that were built in `folder`, with cargo's hashes.
fn built(folder: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(folder.join(".fingerprint")).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Returns whether `name` is `package` followed by one of cargo's hashes.
fn is_of(name: &str, package: &str) -> bool {
    let hash = name.strip_prefix(package).and_then(|rest| rest.strip_prefix('-'));
    hash.is_some_and(|hash| !hash.is_empty() && hash.chars().all(|c| c.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn with_built<T>(name: &str, crates: &[&str], check: impl FnOnce(&Path) -> T) -> T {
        let target = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        for built in crates {
            let folder =
                target.join("debug/.fingerprint").join(format!("{built}-0123456789abcdef"));
            std::fs::create_dir_all(folder).unwrap();
        }
        let result = check(&target);
        let _ = std::fs::remove_dir_all(&target);
        result
    }

    #[test]
    fn the_first_build_is_announced_with_its_length() {
        let line = Announcement::new("burn-dp-examples", &[]).line(Path::new("/nowhere")).unwrap();
        assert!(line.starts_with("building burn-dp-examples for the first time: about 210"));
        assert!(line.ends_with("later builds take seconds"), "{line}");
    }

    #[test]
    fn a_later_build_is_not_announced() {
        with_built("later", &["burn-core"], |target| {
            assert_eq!(Announcement::new("burn-dp-examples", &[]).line(target), None);
        });
    }

    #[test]
    fn a_feature_that_was_not_built_is_announced_alone() {
        with_built("feature", &["burn-core"], |target| {
            let line = Announcement::new("burn-dp-examples", &["wgpu"]).line(target).unwrap();
            assert!(line.contains("about 110 crates"), "{line}");
        });
        with_built("both", &["burn-core", "burn-wgpu"], |target| {
            assert_eq!(Announcement::new("burn-dp-examples", &["wgpu"]).line(target), None);
        });
    }

    #[test]
    fn a_build_for_another_machine_is_announced_by_its_own_folder() {
        with_built("folder", &["burn-core"], |target| {
            let announcement = Announcement::new("the page", &[]).in_folder("web/debug");
            assert!(announcement.line(target).is_some());
        });
    }

    #[test]
    fn a_crate_whose_name_begins_alike_is_no_witness() {
        assert!(is_of("image-0123456789abcdef", "image"));
        assert!(!is_of("image-webp-0123456789abcdef", "image"));
        assert!(!is_of("image", "image"));
    }
}
