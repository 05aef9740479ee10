//! The Vulkan driver that the WGPU backend runs on.

use std::path::Path;

/// Folders of the files that announce drivers on Linux.
const DRIVER_FOLDERS: [&str; 3] =
    ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

/// Device files of a GPU on Linux.
const GPU_FILES: [&str; 3] = ["/dev/dri/renderD128", "/dev/nvidiactl", "/dev/dxg"];

/// The variable without which the software driver prints an error for every adapter.
pub(crate) const RUNTIME_FOLDER: Option<&str> =
    if cfg!(target_os = "linux") { Some("XDG_RUNTIME_DIR") } else { None };

/// Disables the optimization of kernels in Mesa's software driver. It compiles each kernel for the
/// CPU, and a test runs most of them only a few times: optimizing them costs twice as much as it
/// saves.
pub(crate) const QUICK_KERNELS: (&str, &str) = ("GALLIVM_PERF", "nopt");

/// Returns whether the WGPU backend has something to run on.
///
/// On systems other than Linux the graphics API is part of the system.
pub(crate) fn driver_found() -> bool {
    !cfg!(target_os = "linux") || DRIVER_FOLDERS.iter().any(announces_driver)
}

fn announces_driver(folder: impl AsRef<Path>) -> bool {
    std::fs::read_dir(folder).is_ok_and(|entries| {
        entries
            .filter_map(Result::ok)
            .any(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
    })
}

/// Returns whether this machine has a GPU, by its device files.
pub(crate) fn gpu_found() -> bool {
    !cfg!(target_os = "linux") || GPU_FILES.iter().any(|file| Path::new(file).exists())
}

/// Returns the variables that make CubeCL take the software driver on a machine without a GPU.
///
/// A choice that the user made is kept.
pub(crate) fn environment() -> &'static [(&'static str, &'static str)] {
    software_driver(gpu_found() || std::env::var_os("CUBECL_WGPU_DEFAULT_DEVICE").is_some())
}

fn software_driver(chosen: bool) -> &'static [(&'static str, &'static str)] {
    if chosen { &[] } else { &[("CUBECL_WGPU_DEFAULT_DEVICE", "Cpu")] }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_driver_is_a_json_file_in_the_folder() {
        let folder = std::env::temp_dir().join(format!("xtask-vulkan-{}", std::process::id()));
        assert!(!announces_driver(&folder), "a missing folder announces nothing");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("README"), "").unwrap();
        assert!(!announces_driver(&folder));
        std::fs::write(folder.join("lvp_icd.json"), "{}").unwrap();
        let found = announces_driver(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(found);
    }

    #[test]
    fn the_software_driver_is_asked_for_only_without_a_gpu() {
        assert!(software_driver(true).is_empty());
        assert_eq!(software_driver(false), [("CUBECL_WGPU_DEFAULT_DEVICE", "Cpu")]);
    }
}
