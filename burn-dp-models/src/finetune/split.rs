//! Rows to train on, and rows of the evaluation.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use burn_dp_examples::training::TrainError;

use super::data::{self, Columns, TextRow};
use super::options::Texts;
use crate::ModelError;

/// Without a file for the evaluation, about one of this many rows or users is evaluated.
const TEST_EVERY: u32 = 10;

/// Samples by their use.
#[derive(Debug, Clone)]
pub(super) struct Split<S> {
    /// Samples with their units: the index of the user, or of the sample.
    pub(super) train: Vec<(usize, S)>,
    /// Samples of the evaluation.
    pub(super) test: Vec<S>,
    /// Number of rows or users of the data that are held out for the evaluation, and therefore not
    /// protected.
    pub(super) held_out: usize,
    /// Checksum of the file that is trained on. A resumed run repeats noise, so it must have the
    /// same data.
    pub(super) checksum: u32,
}

impl<S> Split<S> {
    /// Reads the files and converts their rows.
    ///
    /// # Privacy
    ///
    /// Without a file for the evaluation, a checksum of a row, or of the name of its user, decides
    /// whether it is trained on: adding or removing a row or user does not move any other. Equal
    /// rows are numbered.
    ///
    /// # Errors
    ///
    /// Returns the errors of reading, [`TrainError::Record`] with the row if it cannot be
    /// converted, and [`TrainError::Option`] if there are too few rows or users to evaluate some of
    /// them, or if both files have the same rows.
    pub(super) fn read(
        texts: &Texts,
        columns: Columns<'_>,
        sample: impl Fn(&TextRow) -> Result<S, String>,
    ) -> Result<Self, TrainError> {
        let sample = |path: &Path, index: usize, row: &TextRow| {
            let named = |reason| ModelError::new(path, format!("row {}: {reason}", index + 1));
            sample(row).map_err(|reason| TrainError::from(named(reason)))
        };
        let (content, rows) = data::read(&texts.data, columns)?;
        let checksum = crc32fast::hash(&content);
        let mut users: HashMap<&str, usize> = HashMap::new();
        let units = rows.iter().enumerate().map(|(index, row)| match columns.user {
            None => index,
            Some(_) => {
                let next = users.len();
                *users.entry(&row.user).or_insert(next)
            }
        });
        let units = units.collect::<Vec<_>>();
        let mut equal: HashMap<&TextRow, u32> = HashMap::new();
        let (mut train, mut test, mut held_out) = (Vec::new(), Vec::new(), HashSet::new());
        for (index, (unit, row)) in units.into_iter().zip(&rows).enumerate() {
            let key = match columns.user {
                Some(_) => row.user.clone(),
                None => {
                    let number = equal.entry(row).or_default();
                    *number += 1;
                    format!("{}\n{}\n{}\n{number}", row.text, row.prompt, row.label)
                }
            };
            let is_test = crc32fast::hash(key.as_bytes()).is_multiple_of(TEST_EVERY);
            match texts.test.is_none() && is_test {
                true => {
                    held_out.insert(unit);
                    test.push(sample(&texts.data, index, row)?);
                }
                false => train.push((unit, sample(&texts.data, index, row)?)),
            }
        }
        if let Some(path) = &texts.test {
            let columns = Columns { user: None, ..columns };
            let (_, public) = data::read(path, columns)?;
            // Also a copy of the file, or the same rows in the other format.
            if public.iter().map(content_of).eq(rows.iter().map(content_of)) {
                let reason = format!(
                    "{} is also the training file, or a copy of it. Evaluation results are \
                     published, so they must not come from private rows. Omit --test to hold out \
                     part of the data",
                    path.display()
                );
                return Err(TrainError::option("--test", reason));
            }
            let rows = public.iter().enumerate();
            test = rows.map(|(index, row)| sample(path, index, row)).collect::<Result<_, _>>()?;
        }
        if test.is_empty() {
            let reason = format!(
                "is required: about one in {TEST_EVERY} rows (or users) is held out, and none of \
                 the {} rows was selected",
                rows.len()
            );
            return Err(TrainError::option("--test", reason));
        }
        Ok(Self { train, test, held_out: held_out.len(), checksum })
    }

    /// Creates a split of samples that were read elsewhere; each has its own unit.
    pub(super) fn new(train: Vec<(usize, S)>, test: Vec<S>) -> Self {
        Self { train, test, held_out: 0, checksum: 0 }
    }

    /// Adds samples to train on: of one new user, or each a unit of its own.
    pub(super) fn insert(&mut self, samples: Vec<S>, is_user: bool) {
        let first = self.train.iter().map(|(unit, _)| unit + 1).max().unwrap_or(0);
        let unit = |index| if is_user { first } else { first + index };
        let added = samples.into_iter().enumerate().map(|(index, sample)| (unit(index), sample));
        self.train.extend(added);
    }

    /// Returns the number of units to train on.
    pub(super) fn units(&self) -> usize {
        let mut units = self.train.iter().map(|(unit, _)| *unit).collect::<Vec<_>>();
        units.sort_unstable();
        units.dedup();
        units.len()
    }

    /// Converts the samples; each result belongs to the sample of its index.
    pub(super) fn map<T>(self, convert: impl Fn(Vec<S>) -> Vec<T>) -> Split<T> {
        let (units, samples): (Vec<_>, Vec<_>) = self.train.into_iter().unzip();
        Split {
            train: units.into_iter().zip(convert(samples)).collect(),
            test: convert(self.test),
            held_out: self.held_out,
            checksum: self.checksum,
        }
    }
}

/// Returns the columns of a row, without the user.
fn content_of(row: &TextRow) -> [&str; 3] {
    [&row.text, &row.label, &row.prompt]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn split(user: Option<&str>, rows: usize) -> Result<Split<String>, TrainError> {
        split_without(user, rows, rows)
    }

    /// Without the rows of one user: two rows each.
    fn split_without(
        user: Option<&str>,
        rows: usize,
        removed: usize,
    ) -> Result<Split<String>, TrainError> {
        let kept = (0..rows).filter(|index| index / 2 != removed);
        let lines = kept.map(|index| format!("{index},{}\n", index / 2));
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data.csv");
        std::fs::write(&data, format!("text,user\n{}", lines.collect::<String>())).unwrap();
        let texts = Texts {
            data,
            test: None,
            text: "text".into(),
            user: user.map(String::from),
            user_rows: 1,
            max_length: None,
        };
        let columns = Columns { text: "text", user, ..Columns::default() };
        Split::read(&texts, columns, |row| Ok(row.text.clone()))
    }

    #[test]
    fn no_row_of_a_user_of_the_evaluation_is_trained_on() {
        let user_of = |text: &String| text.parse::<usize>().unwrap() / 2;
        let users = split(Some("user"), 400).unwrap();
        let tested: HashSet<_> = users.test.iter().map(user_of).collect();
        assert!((10..30).contains(&tested.len()), "{}", tested.len());
        assert!(users.train.iter().all(|(_, text)| !tested.contains(&user_of(text))));
        assert_eq!(
            (users.units(), users.train.len()),
            (200 - tested.len(), 400 - 2 * tested.len())
        );
        assert_eq!(users.held_out, tested.len());
        let rows = split(None, 400).unwrap();
        assert_eq!((rows.units(), rows.test.len()), (rows.train.len(), 400 - rows.train.len()));
        assert_eq!(rows.held_out, rows.test.len());
        assert!((20..60).contains(&rows.test.len()), "{}", rows.test.len());
        assert!(split(None, 1).unwrap_err().to_string().starts_with("--test is required"));
    }

    #[test]
    fn inserted_rows_are_units_or_one_new_user() {
        for (user, added) in [(None, 3), (Some("user"), 1)] {
            let mut split = split(user, 400).unwrap();
            let (units, rows) = (split.units(), split.train.len());
            split.insert(vec!["made up".into(); 3], user.is_some());
            assert_eq!((split.units(), split.train.len()), (units + added, rows + 3));
        }
    }

    // Privacy: neighboring data have neighboring training sets.
    #[test]
    fn a_row_or_a_user_that_is_removed_moves_no_other() {
        for user in [None, Some("user")] {
            let texts = |split: Split<String>| -> [HashSet<String>; 2] {
                let train = split.train.into_iter().map(|(_, text)| text);
                [train.collect(), split.test.into_iter().collect()]
            };
            let all = texts(split(user, 400).unwrap());
            for removed in [0, 7, 100, 199] {
                let rest = texts(split_without(user, 400, removed).unwrap());
                let gone = |text: &String| text.parse::<usize>().unwrap() / 2 == removed;
                for (all, rest) in all.iter().zip(&rest) {
                    assert!(all.symmetric_difference(rest).all(gone), "{user:?} {removed}");
                }
            }
        }
    }
}
