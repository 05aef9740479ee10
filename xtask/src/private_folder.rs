//! A folder for the files of one process that nobody else can read.

use std::path::{Path, PathBuf};

/// A folder that an environment variable names; removed when dropped.
#[derive(Debug)]
pub(crate) struct PrivateFolder {
    variable: &'static str,
    /// Absent if the variable was set before.
    path: Option<PathBuf>,
}

impl PrivateFolder {
    /// Creates a folder for `variable`, unless the environment sets it.
    ///
    /// # Errors
    ///
    /// Returns a message if the folder cannot be created.
    pub(crate) fn new(variable: &'static str) -> Result<Self, String> {
        if std::env::var_os(variable).is_some() {
            return Ok(Self { variable, path: None });
        }
        let name = format!("burn-dp-{}-{}", variable.to_lowercase(), std::process::id());
        let path = std::env::temp_dir().join(name);
        create(&path).map_err(|error| {
            let path = path.display();
            format!("cannot create {path} for {variable}: {error}; set {variable} to a folder")
        })?;
        Ok(Self { variable, path: Some(path) })
    }

    /// Returns the variable and its value, if the environment does not set it.
    pub(crate) fn variable(&self) -> Option<(&'static str, &Path)> {
        self.path.as_deref().map(|path| (self.variable, path))
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

fn create(path: &Path) -> std::io::Result<()> {
    #[allow(unused_mut)]
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_unset_variable_names_a_private_folder_that_is_removed() {
        let folder = PrivateFolder::new("XTASK_NO_SUCH_VARIABLE").unwrap();
        let (variable, path) = folder.variable().unwrap();
        assert_eq!(variable, "XTASK_NO_SUCH_VARIABLE");
        assert!(path.is_dir());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        let path = path.to_path_buf();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_variable_that_is_set_stays() {
        assert!(PrivateFolder::new("PATH").unwrap().variable().is_none());
    }
}
