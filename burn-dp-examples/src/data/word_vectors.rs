//! Word vectors from a text file, as GloVe is published.
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
    /// Numbers of a vector.
    pub dimension: usize,
    /// One row for each number of the vocabulary; zeros for padding and unknown words.
    pub rows: Vec<f32>,
}

impl WordVectors {
    /// Reads the first `limit` lines of a file, plain or compressed: a word and the numbers of its
    /// vector, separated by spaces.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, holds no vector, or a line has another count of numbers than the
    /// first.
    pub fn read(path: &Path, limit: usize) -> Result<Self, DataError> {
        let damaged = |reason| DataError::Damaged { path: path.into(), reason };
        let reader = BufReader::new(file::open(path)?);
        let (mut words, mut rows, mut dimension) = (Vec::new(), Vec::new(), 0);
        for (index, line) in reader.split(b'\n').take(limit).enumerate() {
            let line = line.map_err(|error| file::unreadable(path, error))?;
            let line = String::from_utf8_lossy(&line);
            let fields: Vec<_> = line.trim_end().split(' ').collect();
            if index == 0 {
                dimension = fields.len() - 1;
            }
            let number = index + 1;
            if dimension == 0 || fields.len() <= dimension {
                let (found, expected) = (fields.len() - 1, dimension.max(1));
                let reason = format!("line {number} has {found} numbers, expected {expected}");
                return Err(damaged(reason));
            }
            // A few words of the largest file hold spaces.
            let (word, vector) = fields.split_at(fields.len() - dimension);
            for field in vector {
                let value = field.parse::<f32>().ok().filter(|value| value.is_finite());
                let reason = || format!("line {number} has `{field}` in place of a number");
                rows.push(value.ok_or_else(|| damaged(reason()))?);
            }
            words.push(word.join(" "));
        }
        if words.is_empty() {
            return Err(damaged("the file holds no word vectors".into()));
        }
        let vocabulary = Vocabulary::listed(words);
        // Padding and unknown words come first; a word that is repeated at the end has no number.
        let mut table = vec![0.0; 2 * dimension];
        table.append(&mut rows);
        table.truncate(vocabulary.len() * dimension);
        Ok(Self { vocabulary, dimension, rows: table })
    }
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
    fn each_word_has_its_row_behind_padding_and_unknown() {
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
    fn a_damaged_line_is_named() {
        let text = read("a 1 2\nb 1\n", 10).unwrap_err().to_string();
        assert!(text.contains("line 2 has 1 numbers, expected 2"), "{text}");
        let text = read("a 1 2\nb 1 x\n", 10).unwrap_err().to_string();
        assert!(text.contains("line 2 has `x` in place of a number"), "{text}");
        assert!(read("", 10).unwrap_err().to_string().contains("holds no word vectors"));
        assert!(read("word\n", 10).unwrap_err().to_string().contains("line 1 has 0 numbers"));
    }
}
