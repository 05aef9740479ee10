//! Word vectors from a text file, in the format of GloVe, or with the first line of word2vec and
//! fastText.
//!
//! # References
//!
//! J. Pennington, R. Socher, C. Manning: GloVe: global vectors for word representation, 2014;
//! <https://nlp.stanford.edu/projects/glove/>.

use std::io::{BufRead, BufReader};
use std::path::Path;

use super::{DataError, Vocabulary, file};

/// Words and their vectors, from a public source.
#[derive(Debug, Clone, PartialEq)]
pub struct WordVectors {
    /// The words of the file.
    pub vocabulary: Vocabulary,
    /// Length of a vector.
    pub dimension: usize,
    /// One row for each number of the vocabulary; zeros for padding and unknown words.
    pub rows: Vec<f32>,
}

impl WordVectors {
    /// Reads the first `limit` vectors of a file, plain or compressed. Each line holds a word and
    /// the numbers of its vector, separated by spaces. A first line of two integers, as in word2vec
    /// and fastText, is not a vector: it contains the number of vectors and their length.
    ///
    /// # Errors
    ///
    /// Returns [`DataError::Io`] if the file cannot be read, and [`DataError::Damaged`] if it holds
    /// no vector, a line has a different number of values than the first, or the first line is
    /// wrong.
    pub fn read(path: &Path, limit: usize) -> Result<Self, DataError> {
        let damaged = |reason| DataError::Damaged { path: path.into(), reason };
        let reader = BufReader::new(file::open(path)?);
        let (mut words, mut rows) = (Vec::new(), Vec::new());
        let (mut promised, mut dimension, mut source) = (None, 0, "");
        for (line, number) in reader.split(b'\n').zip(1_usize..) {
            if words.len() == limit {
                break;
            }
            let line = line.map_err(|error| file::unreadable(path, error))?;
            let line = String::from_utf8_lossy(&line);
            let fields: Vec<_> = line.trim_end().split(' ').collect();
            let found = fields.len() - 1;
            if number == 1 {
                if let Some(header) = header(&fields) {
                    (promised, dimension, source) = (Some(header.0), header.1, ", as line 1 says");
                    continue;
                }
                dimension = found;
            }
            // A few words of the largest file hold spaces, but none has a number after a space.
            let in_word = fields.get(1..fields.len().saturating_sub(dimension)).unwrap_or_default();
            if dimension == 0 || found < dimension || in_word.iter().any(|f| finite(f).is_some()) {
                let expected = dimension.max(1);
                let reason =
                    format!("line {number} has {found} numbers, expected {expected}{source}");
                return Err(damaged(reason));
            }
            let (word, vector) = fields.split_at(fields.len() - dimension);
            for field in vector {
                let reason = || format!("line {number} has `{field}` in place of a number");
                rows.push(finite(field).ok_or_else(|| damaged(reason()))?);
            }
            words.push(word.join(" "));
        }
        if words.is_empty() {
            return Err(damaged("the file holds no word vectors".into()));
        }
        if let Some(promised) = promised
            && promised.min(limit) != words.len()
        {
            let reason = format!("line 1 says {promised} vectors, but {} follow", words.len());
            return Err(damaged(reason));
        }
        let vocabulary = Vocabulary::listed(words);
        // Padding and unknown words come first; a word that is repeated at the end has no number.
        let mut table = vec![0.0; 2 * dimension];
        table.append(&mut rows);
        table.truncate(vocabulary.len() * dimension);
        Ok(Self { vocabulary, dimension, rows: table })
    }
}

/// Returns number and length of the vectors, from the first line of word2vec and fastText: two
/// integers and nothing else.
fn header(fields: &[&str]) -> Option<(usize, usize)> {
    match fields {
        [words, dimension] => Some((words.parse().ok()?, dimension.parse().ok()?)),
        _ => None,
    }
}

fn finite(field: &str) -> Option<f32> {
    field.parse::<f32>().ok().filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(content: &str, limit: usize) -> Result<WordVectors, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.txt");
        std::fs::write(&path, content).unwrap();
        WordVectors::read(&path, limit)
    }

    #[test]
    fn each_word_has_its_row_after_padding_and_unknown() {
        let vectors = read("good 1 0.5\n. . . 7 8\nbad -1 -2e-1\n", 10).unwrap();
        assert_eq!(vectors.dimension, 2);
        assert_eq!(vectors.vocabulary.encode("bad good odd"), [4, 2, 1]);
        assert_eq!(vectors.rows, [0.0, 0.0, 0.0, 0.0, 1.0, 0.5, 7.0, 8.0, -1.0, -0.2]);
        assert_eq!(vectors.rows.len(), vectors.vocabulary.len() * 2);
        assert_eq!(read("good 1 0.5\nbad 1 2\n", 1).unwrap().vocabulary.len(), 3);
    }

    #[test]
    fn a_repeated_word_keeps_rows_and_numbers_together() {
        let vectors = read("a 1\nb 2\na 3\nc 4\na 5\n", 10).unwrap();
        assert_eq!(vectors.vocabulary.encode("a b c"), [2, 3, 5]);
        assert_eq!(vectors.rows, [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn the_first_line_of_word2vec_and_fasttext_is_not_a_vector() {
        let plain = read("good 1 0.5\nbad -1 2\n", 10).unwrap();
        assert_eq!(read("1 2\n. . 7 8\n", 10).unwrap().rows[4..], [7.0, 8.0]);
        // fastText ends its lines with a space.
        for text in ["2 2\ngood 1 0.5\nbad -1 2\n", "2 2\ngood 1 0.5 \nbad -1 2 \n"] {
            assert_eq!(read(text, 10).unwrap(), plain);
            assert_eq!(read(text, 2).unwrap(), plain);
            assert_eq!(read(text, 1).unwrap(), read("good 1 0.5\n", 1).unwrap());
        }
        for (text, limit, expected) in [
            ("2 3\ngood 1 0.5\n", 10, "line 2 has 2 numbers, expected 3, as line 1 says"),
            ("2 1\ngood 1 0.5\n", 10, "line 2 has 2 numbers, expected 1, as line 1 says"),
            ("3 2\ngood 1 0.5\nbad 1 2\n", 10, "line 1 says 3 vectors, but 2 follow"),
            ("1 2\ngood 1 0.5\nbad 1 2\n", 10, "line 1 says 1 vectors, but 2 follow"),
            ("400000 300\n", 10, "holds no word vectors"),
        ] {
            let error = read(text, limit).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn numbers_are_not_taken_for_a_part_of_a_word() {
        let text = read("a 1 2\nb 1 2 3\n", 10).unwrap_err().to_string();
        assert!(text.contains("line 2 has 3 numbers, expected 2"), "{text}");
        let vectors = read("a 1 2\n10 % 3 4\n1984 5 6\nnot nan 7 8\n", 10).unwrap();
        assert_eq!(vectors.rows[4..], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    }

    #[test]
    fn a_damaged_line_is_named() {
        let text = read("a 1 2\nb 1\n", 10).unwrap_err().to_string();
        assert!(text.contains("line 2 has 1 numbers, expected 2"), "{text}");
        let text = read("a 1 2\nb 1 x\n", 10).unwrap_err().to_string();
        assert!(text.contains("line 2 has `x` in place of a number"), "{text}");
        assert!(read("", 10).unwrap_err().to_string().contains("holds no word vectors"));
        assert!(read("word\n", 10).unwrap_err().to_string().contains("line 1 has 0 numbers"));
    }
}
