//! A public and a private half of a file, for experiments.

use std::collections::HashMap;
use std::path::Path;

use burn_dp_examples::training::{TrainError, files};
use serde_json::json;

use super::data::{self, Columns, TextRow};
use crate::ModelError;

/// The columns of a file that is halved.
#[derive(Debug, Clone, Copy)]
pub struct HalvedColumns<'a> {
    /// Text.
    pub text: &'a str,
    /// Class.
    pub label: Option<&'a str>,
    /// User.
    pub user: Option<&'a str>,
    /// The group that stays in one half: the value up to its first `/`. Without it, each text is a
    /// group.
    pub group: Option<&'a str>,
}

/// Writes the rows of a `.csv` or `.jsonl` file to two files of JSON lines with the columns `text`,
/// `label` and `user`. A checksum of its group determines the half of a row.
///
/// # Arguments
///
/// - `halves`: the file of the public and of the private rows
///
/// # Errors
///
/// Returns [`TrainError::Data`](TrainError) or [`TrainError::Record`] if the file cannot be read or
/// a half is empty or a user is in both, and [`TrainError::Io`] if a half cannot be written.
pub fn write_halves(
    path: &Path,
    columns: HalvedColumns<'_>,
    halves: [&Path; 2],
) -> Result<(), TrainError> {
    let HalvedColumns { text, label, user, group } = columns;
    let (_, rows) = data::read(path, Columns { text, label, prompt: group, user })?;
    let mut texts = [String::new(), String::new()];
    let mut halves_of_users = HashMap::new();
    for row in &rows {
        let key = if group.is_some() { row.prompt.split('/').next() } else { None };
        // All rows of a user are in one half: the public half would show what the other protects.
        let own = if user.is_some() { &row.user } else { &row.text };
        let key = key.unwrap_or(own);
        let hash = crc32fast::hash(key.as_bytes());
        // The last digit decides which users of the private half are evaluated.
        let half = if user.is_some() && key == own { hash >> 31 } else { hash % 2 };
        if user.is_some() && *halves_of_users.entry(&row.user).or_insert(half) != half {
            let reason = "has a user with rows in groups of both halves; give a group that holds \
                          users as a whole, or none";
            return Err(ModelError::new(path, reason).into());
        }
        let TextRow { text, label, user, .. } = row;
        texts[half as usize] +=
            &format!("{}\n", json!({"text": text, "label": label, "user": user}));
    }
    for (path_of_half, text) in halves.into_iter().zip(texts) {
        if text.is_empty() {
            let reason = "has one group only: nothing is left for the other half";
            return Err(ModelError::new(path, reason).into());
        }
        files::write_text(path_of_half, &text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_group_is_in_one_half_and_every_row_in_one_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let row = |index: usize| {
            let user = format!("play {}/role {index}", index / 10);
            format!("{}\n", json!({"words": format!("line {index}"), "who": user}))
        };
        std::fs::write(at("all.jsonl"), (0..200).map(row).collect::<String>()).unwrap();
        let halved = |group| {
            let columns = HalvedColumns { text: "words", label: None, user: Some("who"), group };
            write_halves(&at("all.jsonl"), columns, [&at("a.jsonl"), &at("b.jsonl")])?;
            let columns = Columns { text: "text", user: Some("user"), ..Columns::default() };
            let read = |name| data::read(&at(name), columns).unwrap().1;
            Ok::<_, TrainError>([read("a.jsonl"), read("b.jsonl")])
        };
        let [public, private] = halved(Some("who")).unwrap();
        assert_eq!(public.len() + private.len(), 200);
        let play = |row: &TextRow| row.user.split('/').next().unwrap().to_string();
        assert!(public.iter().all(|row| private.iter().all(|other| play(row) != play(other))));
        let [public, private] = halved(None).unwrap();
        assert_eq!(public.len() + private.len(), 200);
        assert!(public.iter().any(|row| private.iter().any(|other| play(row) == play(other))));
        // Some users of each half are evaluated by their last digit.
        for half in [public, private] {
            let is_even = |row: &TextRow| crc32fast::hash(row.user.as_bytes()).is_multiple_of(2);
            let even = half.iter().filter(|row| is_even(row)).count();
            assert!(even > half.len() / 4 && even < 3 * half.len() / 4, "{even} of {}", half.len());
        }
        std::fs::write(at("all.jsonl"), row(0)).unwrap();
        assert!(halved(Some("who")).unwrap_err().to_string().contains("one group only"));
    }

    #[test]
    fn a_user_in_groups_of_both_halves_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let row = |index: usize| {
            let play = format!("play {index}/role");
            format!("{}\n", json!({"words": format!("line {index}"), "who": "a", "play": play}))
        };
        std::fs::write(at("all.jsonl"), (0..200).map(row).collect::<String>()).unwrap();
        let columns =
            HalvedColumns { text: "words", label: None, user: Some("who"), group: Some("play") };
        let error = write_halves(&at("all.jsonl"), columns, [&at("a.jsonl"), &at("b.jsonl")]);
        assert!(error.unwrap_err().to_string().contains("groups of both halves"));
        assert!(!at("a.jsonl").exists());
        // Without users to protect, the rows may be in any half.
        let columns = HalvedColumns { user: None, ..columns };
        write_halves(&at("all.jsonl"), columns, [&at("a.jsonl"), &at("b.jsonl")]).unwrap();
    }
}
