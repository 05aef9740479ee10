//! The file with the key of a run, separate from its checkpoints.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::folder::{create, private_options, remove, sync_parent, write, write_at};
use super::log_content::{CHECKSUM, RUN_DIGITS, fits_byte};
use super::log_lines::{self, checked};
use crate::DpError;
use crate::optim::engine::damaged;
use crate::optim::releases::{KeyStorage, Releases};
use crate::random::Key;

/// Version of the format. Other versions are refused.
const FORMAT: u32 = 1;

/// The name of the file in a folder of checkpoints that records that the key was erased.
pub(super) const ERASED: &str = "key-erased";

/// The file with the key of a run.
///
/// # Privacy
///
/// Whoever reads it can subtract the noise of the run. On Unix it has mode 0600; on Windows it has
/// the access rights of its folder. It is overwritten before it is removed, but a file system with
/// copies (snapshots, a data journal, the blocks of a solid-state disk) may keep the old bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    run: u64,
    key: String,
}

impl Drop for Content {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// What a file with a key contains.
enum Found {
    Nothing,
    /// Part of a key, because writing or erasing it was interrupted.
    CutOff,
    Key(Content),
    /// Anything else. It may belong to another program.
    Other,
}

impl KeyFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    /// Returns the file with the key of the run in `folder`.
    ///
    /// # Arguments
    ///
    /// - `given`: the path that the user gave, if there is one
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if none was given and the folder has no name, and
    /// [`DpError::Io`] if the path is empty or the working directory is unknown.
    pub(super) fn locate(given: Option<&Path>, folder: &Path) -> Result<Self, DpError> {
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(|error| DpError::io(path, error));
        if let Some(path) = given {
            // The program may change its working directory before it erases the key.
            return Ok(Self { path: absolute(path)? });
        }
        let absolute = absolute(folder)?;
        let mut parts = absolute.components();
        let Some(Component::Normal(name)) = parts.next_back() else {
            return Err(DpError::invalid(
                "folder",
                format!(
                    "{} has no name from which the file of the key could be named; give the file \
                     with `Checkpointer::with_key_file`",
                    folder.display()
                ),
            ));
        };
        let mut name = name.to_os_string();
        name.push(".key");
        Ok(Self { path: parts.as_path().join(name) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Records where the key is stored, for the statement.
    pub(super) fn record_storage(self, releases: &mut Releases) {
        let storage = match self.is_exposed() {
            true => KeyStorage::ExposedFile,
            false => KeyStorage::File,
        };
        releases.set_key_storage(storage, Some(self.path));
    }

    /// Stores the key of the run `run`. Returns whether the file is new.
    ///
    /// # Arguments
    ///
    /// - `abandoned`: whether a run is known to have ended before its first checkpoint, so that its
    ///   key has no use
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the file has the key of another run or is not a key, and
    /// [`DpError::Io`] if it cannot be written.
    pub(super) fn store(
        &self,
        run: u64,
        key: &str,
        abandoned: impl FnOnce(u64) -> bool,
    ) -> Result<bool, DpError> {
        match self.read()? {
            Found::Nothing => {}
            Found::CutOff => self.erase()?,
            Found::Key(found) if found.run == run => return Ok(false),
            Found::Key(found) if abandoned(found.run) => self.erase()?,
            Found::Key(_) => {
                return Err(DpError::saved_state(format!(
                    "{} has the key of another run; if the checkpoints of that run were deleted, \
                     delete the key as well (what the run released stays spent); otherwise give \
                     this run another folder, or its own key by `Checkpointer::with_key_file`",
                    self.path.display()
                )));
            }
            Found::Other => return Err(self.not_a_key()),
        }
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            create(folder)?;
        }
        let content = Content { format: FORMAT, run, key: key.to_string() };
        let line = Zeroizing::new(log_lines::line(&content)?);
        if let Err(error) = write(&self.path, line.as_bytes()) {
            // An incomplete key is of no use. A file that another program wrote meanwhile is kept.
            let _ = self.erase_of(run);
            return Err(error);
        }
        sync_parent(&self.path)?;
        Ok(true)
    }

    /// Returns the key of the run `run`, or `None` if it was erased when the run ended.
    ///
    /// # Arguments
    ///
    /// - `folder`: the folder of the checkpoints
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the file is missing or damaged, or has another key.
    pub(super) fn load(
        &self,
        folder: &Path,
        run: u64,
    ) -> Result<Option<Zeroizing<String>>, DpError> {
        match self.read() {
            Ok(Found::Key(mut content)) if content.run == run => {
                Ok(Some(Zeroizing::new(std::mem::take(&mut content.key))))
            }
            _ if erased_run(folder) == Some(run) => Ok(None),
            Ok(Found::Key(_)) => Err(DpError::saved_state(format!(
                "{} has the key of another run; restore the key of this run (a program of your own \
                 can name another file with `Checkpointer::with_key_file`)",
                self.path.display()
            ))),
            Ok(Found::CutOff) => Err(damaged(&self.path, "it is cut off")),
            Ok(Found::Other) => Err(damaged(&self.path, "it is not a key of this version")),
            Ok(Found::Nothing) => Err(DpError::saved_state(format!(
                "the key {} is missing, without which the run cannot continue; restore the file (a \
                 program of your own can name another one with `Checkpointer::with_key_file`)",
                self.path.display()
            ))),
            Err(error) => Err(error),
        }
    }

    /// Erases the key if it is the key of the run `run`, or an incomplete one.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::SavedState`] if the file is not a key, and [`DpError::Io`] if it cannot
    /// be erased.
    pub(super) fn erase_of(&self, run: u64) -> Result<(), DpError> {
        match self.read()? {
            Found::Nothing => Ok(()),
            Found::Key(content) if content.run != run => Ok(()),
            Found::Key(_) | Found::CutOff => self.erase(),
            Found::Other => Err(self.not_a_key()),
        }
    }

    fn not_a_key(&self) -> DpError {
        DpError::saved_state(format!(
            "{} is not a key of this version, and may belong to another program; move it away, or \
             give the run another folder (a program of your own can name another file with \
             `Checkpointer::with_key_file`)",
            self.path.display()
        ))
    }

    /// Overwrites the key and removes the file, if it exists.
    pub(super) fn erase(&self) -> Result<(), DpError> {
        let failed = |error| DpError::io(&self.path, error);
        let length = match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.map_err(failed)?.len(),
        };
        let mut file = private_options().write(true).open(&self.path).map_err(failed)?;
        // Even a full disk has the space of the existing file.
        let overwritten = write_at(&mut file, 0, &vec![0; length as usize]);
        drop(file);
        remove(&self.path)?;
        sync_parent(&self.path)?;
        overwritten.map_err(failed)
    }

    /// Returns whether users other than the owner can read the file.
    fn is_exposed(&self) -> bool {
        #[cfg(unix)]
        if let Ok(found) = fs::metadata(&self.path) {
            return std::os::unix::fs::MetadataExt::mode(&found) & 0o077 != 0;
        }
        false
    }

    fn read(&self) -> Result<Found, DpError> {
        let mut bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
            read => read.map_err(|error| DpError::io(&self.path, error))?,
        };
        let found = parse(&bytes);
        bytes.zeroize();
        Ok(found)
    }
}

fn parse(bytes: &[u8]) -> Found {
    let text = std::str::from_utf8(bytes).ok().map(str::trim_end).and_then(checked);
    let content = text.and_then(|json| serde_json::from_str::<Content>(json).ok());
    match content.filter(|content| content.format == FORMAT) {
        Some(content) => Found::Key(content),
        None if is_cut_off(bytes) => Found::CutOff,
        None => Found::Other,
    }
}

/// Returns whether these bytes are left if writing or erasing a key is interrupted: its line is
/// written from its beginning, and overwritten with zeros from its beginning. Where the machine
/// loses its power, zeros can be in any place, and nothing else.
fn is_cut_off(bytes: &[u8]) -> bool {
    if bytes.iter().all(|&byte| byte == 0) {
        return true;
    }
    let has_zeros = bytes.contains(&0);
    (1..=RUN_DIGITS).any(|digits| {
        let (run, key) = ("*".repeat(digits), "#".repeat(2 * Key::LENGTH));
        let line = format!("{CHECKSUM} {{\"format\":{FORMAT},\"run\":{run},\"key\":\"{key}\"}}\n");
        // A line that only lacks its line break is a key, or damaged.
        let longest = if has_zeros { line.len() } else { line.len() - 2 };
        let mut pairs = bytes.iter().zip(line.as_bytes());
        bytes.len() <= longest && pairs.all(|(&byte, &shape)| byte == 0 || fits_byte(byte, shape))
    })
}

/// Returns the run in `folder` whose key was erased, if there is one.
pub(super) fn erased_run(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join(ERASED)).ok()?;
    u64::from_str_radix(text.trim_end(), 16).ok()
}

/// Writes in `folder` that the key of the run `run` was erased.
pub(super) fn mark_erased(folder: &Path, run: u64) -> Result<(), DpError> {
    if erased_run(folder) == Some(run) {
        return Ok(());
    }
    let path = folder.join(ERASED);
    remove(&path)?;
    write(&path, format!("{run:016x}\n").as_bytes())?;
    sync_parent(&path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(run: u64) -> Vec<u8> {
        let content = Content { format: FORMAT, run, key: "ab".repeat(Key::LENGTH) };
        log_lines::line(&content).unwrap().into_bytes()
    }

    #[test]
    fn every_part_that_writing_or_erasing_leaves_is_cut_off() {
        for run in [0, 7, u64::MAX] {
            let whole = line(run);
            for end in 0..=whole.len() {
                for erased in 0..=end {
                    let mut left = whole[..end].to_vec();
                    left[..erased].fill(0);
                    // The key is complete without its line break.
                    let is_key = erased == 0 && end + 1 >= whole.len();
                    match parse(&left) {
                        Found::Key(found) => assert!(is_key && found.run == run, "{end} {erased}"),
                        Found::CutOff => assert!(!is_key, "{end} {erased}"),
                        Found::Nothing | Found::Other => panic!("{run} {end} {erased}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_key_that_is_cut_off_is_replaced_and_erased() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.key");
        let (file, whole) = (KeyFile::new(&path), line(7));
        let half = whole.len() / 2;
        let mut half_erased = whole.clone();
        half_erased[..half].fill(0);
        let zeros = vec![0; whole.len()];
        for left in [Vec::new(), whole[..half].to_vec(), half_erased, zeros] {
            fs::write(&path, &left).unwrap();
            assert!(file.store(8, &"ab".repeat(Key::LENGTH), |_| false).unwrap());
            assert_eq!(fs::read(&path).unwrap(), line(8));
            fs::write(&path, &left).unwrap();
            file.erase_of(8).unwrap();
            assert!(!path.exists());
        }
    }

    // Sharp edge: a token or a key of another program has the name of the file.
    #[test]
    fn a_file_of_others_in_place_of_a_key_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.key");
        let file = KeyFile::new(&path);
        let zeros_and = |count: usize, rest: &[u8]| [vec![0; count], rest.to_vec()].concat();
        let whole = line(7);
        let mut flipped = whole.clone();
        flipped[whole.len() - 4] ^= 1;
        let mut foreign = vec![
            b"secret".to_vec(),
            b"secret\n".to_vec(),
            b"0123456789abcdef".to_vec(),
            zeros_and(1, b"secret"),
            zeros_and(40, b"secret\n"),
            zeros_and(5_000, b"a long text\n"),
            [&whole[..whole.len() / 2], b"\n"].concat(),
            [&whole[..], b"and more"].concat(),
            flipped.clone(),
            flipped[..flipped.len() - 1].to_vec(),
        ];
        // As from `openssl rand 32`.
        for seed in 0..20_u64 {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            };
            let mut random: Vec<u8> = (0..32).map(|_| next()).collect();
            foreign.push([random.clone(), b"\n".to_vec()].concat());
            foreign.push(random.clone());
            random[0] = 0;
            foreign.push(random);
        }
        for content in foreign {
            fs::write(&path, &content).unwrap();
            let stored = file.store(8, &"ab".repeat(Key::LENGTH), |_| true).map(|_| ());
            for refused in [stored, file.erase_of(7)] {
                let error = refused.unwrap_err().to_string();
                assert!(error.contains("model.key") && error.contains("move it away"), "{error}");
            }
            assert_eq!(fs::read(&path).unwrap(), content);
        }
    }

    // Sharp edge: the blocks of the file are overwritten, not only its name removed.
    #[test]
    fn an_erased_key_is_overwritten_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["run.key", "other-name"].map(|name| folder.path().join(name));
        let file = KeyFile::new(&path);
        assert!(file.store(7, &"ab".repeat(32), |_| false).unwrap());
        fs::hard_link(&path, &other).unwrap();
        let before = fs::read(&other).unwrap();
        file.erase_of(8).unwrap();
        assert_eq!(fs::read(&other).unwrap(), before);
        file.erase_of(7).unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read(&other).unwrap(), vec![0; before.len()]);
    }
}
