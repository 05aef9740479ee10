//! What can go wrong with the files of a data set.

use std::fmt;
use std::path::PathBuf;

/// A data set that cannot be read; the message names the file and the way out.
#[derive(Debug)]
#[non_exhaustive]
pub enum DataError {
    /// None of the names under which a file is looked for exists.
    Missing {
        /// Where it was looked for.
        folder: PathBuf,
        /// The names that were tried.
        tried: Vec<String>,
        /// What the folder should hold.
        wanted: &'static str,
    },
    /// A file with other content than its format demands.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found, and what was expected.
        reason: String,
    },
    /// The number of labels is not the number of images.
    CountMismatch {
        /// File of the images.
        images: PathBuf,
        /// File of the labels.
        labels: PathBuf,
        /// Number of each.
        counts: [usize; 2],
    },
    /// The plays by speaking role are not there.
    NoRoles {
        /// Where they were looked for, if anywhere.
        folder: Option<PathBuf>,
    },
    /// An item of a data set could not be taken from it.
    Item {
        /// The cause.
        reason: String,
    },
    /// A folder or file that does not have the layout of the data set.
    Layout {
        /// The folder or file.
        path: PathBuf,
        /// What was found, and the way out.
        reason: String,
    },
    /// The data could not be downloaded.
    Download {
        /// The cause.
        reason: String,
    },
    /// A file could not be read.
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { folder, tried, wanted } => write!(
                f,
                "{} holds none of {}; give the folder with {wanted}",
                folder.display(),
                tried.join(", ")
            ),
            Self::Damaged { path, reason } => {
                write!(f, "{}: {reason}; download the file again", path.display())
            }
            Self::CountMismatch { images, labels, counts: [n_images, n_labels] } => write!(
                f,
                "{} holds {n_images} images but {} holds {n_labels} labels; take both from the \
                 same data set",
                images.display(),
                labels.display()
            ),
            Self::NoRoles { folder } => f.write_str(&super::shakespeare::missing(folder.as_ref())),
            Self::Layout { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Item { reason } => write!(f, "an item cannot be read: {reason}"),
            Self::Download { reason } => write!(
                f,
                "MNIST could not be downloaded ({reason}); give a folder with the four files by \
                 --data-dir or BURN_DP_DATA"
            ),
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
