//! Errors of reading a data set.

use std::fmt;
use std::path::PathBuf;

/// Names of the file with the plays of Shakespeare by speaking role.
pub const ROLE_FILES: [&str; 2] = ["shakespeare-users.jsonl.gz", "shakespeare-users.jsonl"];

/// A data set that cannot be read; the message names the file and a remedy.
#[non_exhaustive]
pub enum DataError {
    /// No file with one of the expected names exists.
    Missing {
        /// The folder that was searched.
        folder: PathBuf,
        /// The names that were tried.
        tried: Vec<String>,
        /// What the folder should hold.
        wanted: &'static str,
    },
    /// The content of a file does not follow its format.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The actual and the expected content.
        reason: String,
    },
    /// The number of labels differs from the number of images.
    CountMismatch {
        /// File of the images.
        images: PathBuf,
        /// File of the labels.
        labels: PathBuf,
        /// Number of images, and of labels.
        counts: [usize; 2],
    },
    /// The file with the plays by speaking role is missing.
    NoRoles {
        /// The folder that was searched, if one was given.
        folder: Option<PathBuf>,
    },
    /// An item of a data set could not be read.
    Item {
        /// The cause.
        reason: String,
    },
    /// A folder or file does not have the layout of the data set.
    Layout {
        /// The folder or file.
        path: PathBuf,
        /// The actual layout, and a remedy.
        reason: String,
    },
    /// This program was built without the Cargo feature that the data set needs.
    FeatureMissing {
        /// What cannot be done.
        task: &'static str,
        /// The feature.
        feature: &'static str,
        /// A remedy.
        remedy: &'static str,
    },
    /// MNIST could not be downloaded.
    Download {
        /// The cause, if it is a message for people.
        cause: Option<String>,
    },
    /// A file could not be read.
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// The message, because a `main` that returns the error prints it.
impl fmt::Debug for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { folder, tried, wanted } => {
                let found = match (folder.exists(), folder.is_dir()) {
                    (false, _) => "does not exist".to_string(),
                    (true, false) => "is not a folder".to_string(),
                    (true, true) => format!("holds none of {}", tried.join(", ")),
                };
                write!(f, "{} {found}; give the folder with {wanted}", folder.display())
            }
            Self::Damaged { path, reason } => {
                let remedy = "repair the file, or download it again";
                write!(f, "{}: {reason}; {remedy}", path.display())
            }
            Self::CountMismatch { images, labels, counts: [n_images, n_labels] } => write!(
                f,
                "{} holds {n_images} images but {} holds {n_labels} labels; take both from the \
                 same data set",
                images.display(),
                labels.display()
            ),
            Self::NoRoles { folder } => f.write_str(&missing_roles(folder.as_ref())),
            Self::Layout { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Item { reason } => write!(f, "an item cannot be read: {reason}"),
            Self::FeatureMissing { task, feature, remedy } => {
                write!(
                    f,
                    "{task} needs the feature `{feature}`, which is not in this build; {remedy}"
                )
            }
            Self::Download { cause } => {
                let cause = cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default();
                write!(
                    f,
                    "MNIST could not be downloaded{cause}; check the network, delete the folder \
                     burn-dataset/mnist in your cache folder if a download was interrupted, or \
                     give the folder with the four IDX files by --data-dir DIR or BURN_DP_DATA"
                )
            }
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for DataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Returns the message for missing plays, with their source.
fn missing_roles(folder: Option<&PathBuf>) -> String {
    let place = match folder {
        Some(folder) => format!("{} holds no {}", folder.display(), ROLE_FILES.join(" or ")),
        None => "no folder with the plays of Shakespeare is given".into(),
    };
    format!(
        "{place}; give --data-dir DIR (or BURN_DP_DATA) with the file {}: download the plays \
         (public domain, for example https://www.gutenberg.org/ebooks/100) and write one line per \
         speaking role, {{\"user\": \"HAMLET/OPHELIA\", \"text\": \"...\"}}",
        ROLE_FILES[1]
    )
}
