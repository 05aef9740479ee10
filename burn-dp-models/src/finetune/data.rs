//! Rows of files.

use std::path::Path;

use burn_dp_examples::data::read_file;
use burn_dp_examples::training::TrainError;
use serde_json::{Map, Value};

use crate::ModelError;

/// The columns that a task reads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Columns<'a> {
    pub(super) text: &'a str,
    pub(super) label: Option<&'a str>,
    pub(super) prompt: Option<&'a str>,
    pub(super) user: Option<&'a str>,
}

/// A row of a file. Columns that were not requested are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct TextRow {
    pub(super) text: String,
    pub(super) label: String,
    pub(super) prompt: String,
    pub(super) user: String,
}

/// Returns the content of a file, unpacked, and its rows.
///
/// # Errors
///
/// Returns [`TrainError::Io`] or [`TrainError::Data`] if the file cannot be read, and the errors of
/// [`rows`].
pub(super) fn read(
    path: &Path,
    columns: Columns<'_>,
) -> Result<(Vec<u8>, Vec<TextRow>), TrainError> {
    let content = read_file(path)?;
    let rows = rows(path, &content, columns)?;
    Ok((content, rows))
}

/// Returns the rows of a file with this content: `.csv` with a header line, or `.jsonl`, optionally
/// followed by `.gz`.
///
/// # Errors
///
/// Returns [`TrainError::Record`] with the file and the row if a row cannot be read, lacks a column
/// or has an empty text.
pub(super) fn rows(
    path: &Path,
    content: &[u8],
    columns: Columns<'_>,
) -> Result<Vec<TextRow>, TrainError> {
    let others = [("class", columns.label), ("prompt", columns.prompt), ("user", columns.user)];
    if let Some((use_of, _)) = others.into_iter().find(|(_, name)| *name == Some(columns.text)) {
        let reason = format!("column `{}` is used for the text and the {use_of}", columns.text);
        return Err(ModelError::new(path, reason).into());
    }
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let name = name.to_ascii_lowercase();
    let rows = match name.trim_end_matches(".gz").rsplit_once('.') {
        Some((_, "csv")) => from_csv(content, columns),
        Some((_, "jsonl")) => from_json_lines(content, columns),
        _ => Err("must be a .csv or a .jsonl file".to_string()),
    };
    let rows = rows.and_then(|rows| match rows.is_empty() {
        true => Err("has no rows".into()),
        false => Ok(rows),
    });
    let rows = rows.map_err(|reason| TrainError::from(ModelError::new(path, reason)))?;
    let fault = rows.iter().enumerate().find_map(|(index, row)| {
        // Rows without a name would all belong to one user.
        let mut needed = [(Some(columns.text), &row.text), (columns.user, &row.user)].into_iter();
        let column = needed.find_map(|(name, value)| name.filter(|_| value.trim().is_empty()))?;
        Some(format!("row {}: `{column}` is empty; fill it in, or remove the row", index + 1))
    });
    match fault {
        None => Ok(rows),
        Some(reason) => Err(ModelError::new(path, reason).into()),
    }
}

impl Columns<'_> {
    /// Returns a row, each column looked up by `value`.
    fn row(self, value: impl Fn(&str) -> Result<String, String>) -> Result<TextRow, String> {
        let optional = |column: Option<&str>| column.map_or(Ok(String::new()), &value);
        Ok(TextRow {
            text: value(self.text)?,
            label: optional(self.label)?,
            prompt: optional(self.prompt)?,
            user: optional(self.user)?.trim().to_string(),
        })
    }
}

fn from_csv(content: &[u8], columns: Columns<'_>) -> Result<Vec<TextRow>, String> {
    let mut reader = csv::Reader::from_reader(content);
    let head = reader.headers().map_err(csv_reason)?.clone();
    let known = || head.iter().collect::<Vec<_>>().join(", ");
    let place = |column: &str| {
        let mut places = (0..head.len()).filter(|&place| &head[place] == column);
        let place = places.next();
        if places.next().is_some() {
            return Err(format!("has two columns `{column}`; rename one of them"));
        }
        place.ok_or_else(|| format!("has no column `{column}`; its columns are {}", known()))
    };
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(csv_reason)?;
        let value = |column: &str| Ok(record[place(column)?].to_string());
        rows.push(columns.row(value)?);
    }
    Ok(rows)
}

/// Returns the line of an error, and the cause.
fn csv_reason(error: csv::Error) -> String {
    let line = error.position().map(|position| format!("line {}: ", position.line()));
    let reason = match error.kind() {
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8; convert the file".into(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => format!(
            "has {len} fields, but the header has {expected_len}; put fields with commas or line \
             breaks in double quotes"
        ),
        _ => return error.to_string(),
    };
    format!("{}{reason}", line.unwrap_or_default())
}

fn from_json_lines(content: &[u8], columns: Columns<'_>) -> Result<Vec<TextRow>, String> {
    let content = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(content);
    let text = std::str::from_utf8(content).map_err(|error| {
        let line = content[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        format!("line {}: is not UTF-8; convert the file", line + 1)
    })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let row = |(index, line): (usize, &str)| {
        let at = |reason: String| format!("line {}: {reason}", index + 1);
        let object: Map<String, Value> = serde_json::from_str(line).map_err(|error| {
            let column = error.column();
            let reason = error.to_string();
            // Each line is parsed by itself.
            let reason = reason.trim_end_matches(&format!(" at line 1 column {column}"));
            at(format!("is not a JSON object: {reason} at column {column}"))
        })?;
        let value = |column: &str| match object.get(column) {
            Some(Value::String(text)) => Ok(text.clone()),
            // 1 and 1.0 would be two users.
            Some(Value::Number(number)) if Some(column) == columns.user && number.is_f64() => {
                Err(at(format!("`{column}` is {number}; a user is a text or a whole number")))
            }
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
            Some(_) => Err(at(format!("`{column}` is neither a text nor a number"))),
            None => {
                let known = object.keys().cloned().collect::<Vec<_>>().join(", ");
                Err(at(format!("has no column `{column}`; its columns are {known}")))
            }
        };
        columns.row(value)
    };
    lines.map(row).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const COLUMNS: Columns<'_> =
        Columns { text: "body", label: Some("stars"), prompt: None, user: Some("author") };

    fn read_text(name: &str, content: &str) -> Result<Vec<TextRow>, String> {
        rows(Path::new(name), content.as_bytes(), COLUMNS).map_err(|error| error.to_string())
    }

    #[test]
    fn both_formats_give_the_same_rows() {
        let csv = "author,body,stars\nann,\"a \"\"quoted\"\", text\",5\nbo,\"two\nlines\",1\n";
        let jsonl = "\u{feff}{\"author\":\"ann \",\"body\":\"a \\\"quoted\\\", text\",\
                     \"stars\":5}\n\n{\"author\":\"bo\",\"body\":\"two\\nlines\",\"stars\":\"1\"}\n";
        let rows = read_text("a.csv", csv).unwrap();
        assert_eq!(rows, read_text("a.jsonl", jsonl).unwrap());
        // Letters of either case.
        assert_eq!(rows, read_text("A.CSV", csv).unwrap());
        assert_eq!(rows, read_text("A.JSONL.GZ", jsonl).unwrap());
        assert_eq!((rows[0].text.as_str(), rows[1].user.as_str()), ("a \"quoted\", text", "bo"));
    }

    #[test]
    fn a_column_with_two_uses_is_refused() {
        for (columns, expected) in [
            (Columns { label: Some("body"), ..COLUMNS }, "for the text and the class"),
            (Columns { user: Some("body"), ..COLUMNS }, "for the text and the user"),
        ] {
            let error = rows(Path::new("a.csv"), b"body\na\n", columns).unwrap_err().to_string();
            assert!(error.contains("column `body` is used") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_text_that_is_not_utf_8_is_named_with_its_line() {
        for (name, content) in [
            ("a.csv", b"author,body,stars\na,b,1\na,\xff,1\n".as_slice()),
            ("a.jsonl", b"{\"author\":1,\"body\":1,\"stars\":1}\n\n{\"body\":\"\xff\"}"),
        ] {
            let error = rows(Path::new(name), content, COLUMNS).unwrap_err().to_string();
            assert!(error.contains("line 3: is not UTF-8; convert the file"), "{error}");
        }
    }

    #[test]
    fn a_bad_file_is_named_with_its_row_and_the_way_out() {
        for (name, content, expected) in [
            ("a.txt", "", ".csv or a .jsonl"),
            ("a.csv", "author,body,stars\n", "has no rows"),
            ("a.csv", "author,text,stars\na,b,1\n", "no column `body`; its columns are author"),
            ("a.csv", "author,body,stars,body\na,b,1,c\n", "two columns `body`"),
            (
                "a.csv",
                "author,body,stars\na,b,1\na,b\n",
                "line 3: has 2 fields, but the header has 3",
            ),
            ("a.csv", "author,body,stars\na,b,1\na, ,1\n", "row 2: `body` is empty"),
            (
                "a.jsonl",
                "\n{\"body\":\"x\"\n",
                "line 2: is not a JSON object: EOF while parsing an object at column 11",
            ),
            ("a.jsonl", "[1]", "line 1: is not a JSON object: invalid type: sequence"),
            ("a.jsonl", "{\"body\":\"x\",\"stars\":1}", "no column `author`"),
            ("a.jsonl", "{\"body\":[],\"stars\":1,\"author\":1}", "neither a text nor"),
            ("a.csv", "author,body,stars\na,b,1\n ,b,1\n", "row 2: `author` is empty; fill it in"),
            ("a.jsonl", "{\"body\":\"x\",\"stars\":1,\"author\":1.0}", "`author` is 1.0; a user"),
        ] {
            let error = read_text(name, content).unwrap_err();
            assert!(error.contains(expected) && error.contains(name), "{error}");
        }
    }
}
