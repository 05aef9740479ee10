//! The plays of Shakespeare by speaking role: text that belongs to users.
//!
//! # References
//!
//! S. Caldas et al.: LEAF: a benchmark for federated settings, 2018 (the data set of speaking
//! roles).

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use burn::data::dataset::{Dataset, DatasetError};
use burn_dp::sampling::DistinctRecords;
use burn_dp_accountant::UnitOfPrivacy;
use serde::Deserialize;

use super::{DataError, file};

pub use super::error::ROLE_FILES as FILES;

/// Name of the data set, and of the subfolder that may have it.
pub const NAME: &str = "shakespeare";

/// Token of positions after the end of a text.
pub const PADDING: u16 = 0;

/// Token of everything outside the vocabulary.
pub const UNKNOWN: u16 = 1;

/// One speaking role of one play: a user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Role {
    /// The play and the role, for example `HAMLET/OPHELIA`.
    pub user: String,
    /// The text that the role says.
    pub text: String,
}

/// Returns the file of the roles in a folder or its subfolder `shakespeare`, if there is one.
pub fn file_of(folder: &Path) -> Option<PathBuf> {
    let folders = [folder.to_path_buf(), folder.join(NAME)];
    let all = folders.iter().flat_map(|folder| FILES.map(|name| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// Reads the roles of a folder or its subfolder `shakespeare`, one JSON object per line, plain or
/// compressed.
///
/// # Errors
///
/// Returns [`DataError::NoRoles`] if there is no such file (the message says where the plays are),
/// and [`DataError::Damaged`] if a line is not a role, or if two lines have the same `user`.
///
/// # Privacy
///
/// Each role is one user, so everything that a user wrote must be in one line: a user with two
/// lines would count as two users, with twice the sensitivity.
pub fn from_folder(folder: &Path) -> Result<Vec<Role>, DataError> {
    let Some(path) = file_of(folder) else {
        return Err(DataError::NoRoles { folder: Some(folder.into()) });
    };
    let mut roles: Vec<Role> = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    for (number, line) in (1..).zip(BufReader::new(file::open(&path)?).lines()) {
        let damaged = |reason: String| DataError::Damaged {
            path: path.clone(),
            reason: format!("line {number} is not a role ({reason})"),
        };
        let line = line.map_err(|error| damaged(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let role: Role = serde_json::from_str(&line).map_err(|error| damaged(error.to_string()))?;
        if let Some(first) = lines.insert(role.user.clone(), number) {
            let reason = format!(
                "lines {first} and {number} have the same user {:?}; join the texts of a user in \
                 one line",
                role.user
            );
            return Err(DataError::Damaged { path, reason });
        }
        roles.push(role);
    }
    match roles.is_empty() {
        true => Err(DataError::Damaged { path, reason: "holds no role".into() }),
        false => Ok(roles),
    }
}

/// Conversion of text into tokens.
///
/// # Privacy
///
/// Both forms are public: they do not depend on the private texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tokens {
    /// Printable ASCII and the end of a line.
    Characters,
    /// The words of a public list.
    Words(HashMap<String, u16>),
}

/// Padding and unknown.
const SPECIAL: usize = 2;

impl Tokens {
    /// Reads a list of words from a file, one per line. The rest of a line after a blank is
    /// ignored.
    ///
    /// # Errors
    ///
    /// Returns [`DataError::Io`] if the file cannot be read, and [`DataError::Damaged`] if it holds
    /// no words or too many.
    pub fn words(path: &Path) -> Result<Self, DataError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| DataError::Io { path: path.into(), source })?;
        let mut words = HashMap::new();
        for word in text.lines().filter_map(|line| line.split_whitespace().next()) {
            let number = words.len() + SPECIAL;
            words.entry(word.to_lowercase()).or_insert(number as u16);
        }
        let most = usize::from(u16::MAX) - SPECIAL;
        match words.len() {
            1.. if words.len() <= most => Ok(Self::Words(words)),
            found => Err(DataError::Damaged {
                path: path.into(),
                reason: format!("holds {found} words, and from 1 to {most} can be used"),
            }),
        }
    }

    /// Returns the number of different tokens, padding and unknown included.
    pub fn len(&self) -> usize {
        match self {
            Self::Characters => SPECIAL + 1 + PRINTABLE.len(),
            Self::Words(words) => SPECIAL + words.len(),
        }
    }

    /// Returns false: there is always the unknown token.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the tokens of a text.
    pub fn encode(&self, text: &str) -> Vec<u16> {
        match self {
            Self::Characters => text.chars().map(character).collect(),
            Self::Words(words) => text
                .split(|c: char| !c.is_alphanumeric() && c != '\'')
                .filter(|word| !word.is_empty())
                .map(|word| words.get(&word.to_lowercase()).copied().unwrap_or(UNKNOWN))
                .collect(),
        }
    }
}

const PRINTABLE: std::ops::Range<u32> = 0x20..0x7f;

fn character(c: char) -> u16 {
    match c {
        '\n' => SPECIAL as u16,
        c if PRINTABLE.contains(&u32::from(c)) => {
            (u32::from(c) - PRINTABLE.start) as u16 + SPECIAL as u16 + 1
        }
        _ => UNKNOWN,
    }
}

/// One example: consecutive tokens. The last one is only predicted, the others are also read.
pub type Window = Vec<u16>;

/// Users and their examples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserWindows {
    users: Vec<Vec<Window>>,
}

impl UserWindows {
    /// Cuts the text of each role into consecutive windows of `length` predictions. The last one is
    /// padded.
    pub fn new(roles: &[Role], tokens: &Tokens, length: usize) -> Self {
        let windows = |role: &Role| {
            let text = tokens.encode(&role.text);
            let starts = (0..text.len().saturating_sub(1)).step_by(length);
            let window = |start: usize| {
                let end = text.len().min(start + length + 1);
                let mut window = text[start..end].to_vec();
                window.resize(length + 1, PADDING);
                window
            };
            starts.map(window).collect()
        };
        Self { users: roles.iter().map(windows).collect() }
    }

    /// Returns the examples of each user.
    pub fn users(&self) -> &[Vec<Window>] {
        &self.users
    }
}

impl Dataset<Vec<Window>> for UserWindows {
    fn get(&self, index: usize) -> Result<Vec<Window>, DatasetError> {
        Ok(self.users[index].clone())
    }

    fn len(&self) -> usize {
        self.users.len()
    }
}

/// Every index is a different role, with all of its text.
impl DistinctRecords<Vec<Window>> for UserWindows {
    fn unit(&self) -> Option<UnitOfPrivacy> {
        Some(UnitOfPrivacy::User)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const LINES: &str =
        "{\"user\": \"A/B\", \"text\": \"To be,\\nor\"}\n\n{\"user\": \"A/C\", \"text\": \"\"}\n";

    #[test]
    fn roles_are_read_from_a_plain_and_from_a_compressed_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILES[1]), LINES).unwrap();
        let plain = from_folder(folder.path()).unwrap();
        assert_eq!(plain.len(), 2);
        assert_eq!((plain[0].user.as_str(), plain[0].text.as_str()), ("A/B", "To be,\nor"));
        let file = std::fs::File::create(folder.path().join(FILES[0])).unwrap();
        let mut encoder = GzEncoder::new(file, Compression::fast());
        encoder.write_all(LINES.as_bytes()).unwrap();
        encoder.finish().unwrap();
        std::fs::remove_file(folder.path().join(FILES[1])).unwrap();
        assert_eq!(from_folder(folder.path()).unwrap(), plain);
        let inside = folder.path().join(NAME);
        std::fs::create_dir(&inside).unwrap();
        std::fs::rename(folder.path().join(FILES[0]), inside.join(FILES[0])).unwrap();
        assert_eq!(from_folder(folder.path()).unwrap(), plain);
    }

    #[test]
    fn without_the_file_the_message_says_what_to_download() {
        let folder = tempfile::tempdir().unwrap();
        let text = from_folder(folder.path()).unwrap_err().to_string();
        assert!(text.contains("holds no shakespeare-users.jsonl.gz or"), "{text}");
        assert!(text.contains("gutenberg.org") && text.contains("HAMLET/OPHELIA"), "{text}");
    }

    #[test]
    fn a_line_that_is_not_a_role_is_named_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILES[1]), format!("{LINES}{{\"user\": 3}}")).unwrap();
        let text = from_folder(folder.path()).unwrap_err().to_string();
        assert!(text.contains("line 4 is not a role"), "{text}");
        std::fs::write(folder.path().join(FILES[1]), "").unwrap();
        assert!(from_folder(folder.path()).unwrap_err().to_string().contains("no role"));
    }

    #[test]
    fn a_user_on_two_lines_is_refused_with_both_lines() {
        let folder = tempfile::tempdir().unwrap();
        let again = "{\"user\": \"A/B\", \"text\": \"that is\"}";
        std::fs::write(folder.path().join(FILES[1]), format!("{LINES}{again}")).unwrap();
        let text = from_folder(folder.path()).unwrap_err().to_string();
        assert!(text.contains("lines 1 and 4 have the same user \"A/B\"; join"), "{text}");
    }

    #[test]
    fn characters_have_tokens_of_their_own_and_others_share_one() {
        let tokens = Tokens::Characters;
        assert_eq!(tokens.len(), 98);
        let encoded = tokens.encode("\n ~é");
        assert_eq!(encoded, [2, 3, 97, UNKNOWN]);
        assert!(encoded.iter().all(|&token| usize::from(token) < tokens.len()));
    }

    #[test]
    fn words_are_those_of_the_list_in_any_case() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"the 23135851162\nking 7\nthe 1\n").unwrap();
        let tokens = Tokens::words(file.path()).unwrap();
        assert_eq!(tokens.len(), 4);
        assert_eq!(tokens.encode("The KING, the fool"), [2, 3, 2, UNKNOWN]);
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(Tokens::words(empty.path()).unwrap_err().to_string().contains("holds 0 words"));
    }

    #[test]
    fn every_token_but_the_first_is_predicted_once() {
        let role = |text: &str| Role { user: String::new(), text: text.into() };
        let roles = [role("abcdefg"), role("abc"), role("a"), role("")];
        let windows = UserWindows::new(&roles, &Tokens::Characters, 3);
        let text = Tokens::Characters.encode("abcdefg");
        assert_eq!(windows.get(0).unwrap(), [text[0..4].to_vec(), text[3..7].to_vec()]);
        let short = [&text[0..3], &[PADDING]].concat();
        assert_eq!(windows.get(1).unwrap(), [short]);
        assert!(windows.users()[2].is_empty() && windows.users()[3].is_empty());
        assert_eq!(windows.len(), 4);
    }
}
