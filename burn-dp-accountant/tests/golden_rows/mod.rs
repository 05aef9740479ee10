//! The rows of a golden table, of one kind.

#[path = "../golden_folder/mod.rs"]
mod golden_folder;

use serde_json::Value;

/// Returns the copied rows, then the rows of the table in `file` of one kind.
pub(crate) fn rows(copied: Value, file: &str, kind: &str) -> Vec<Value> {
    let mut rows = copied.as_array().unwrap().clone();
    match golden_folder::folder() {
        Some(folder) => {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            let json: Value = serde_json::from_str(&text).unwrap();
            let table = json["rows"].as_array().unwrap();
            rows.extend(table.iter().filter(|row| row["kind"] == kind).cloned());
        }
        None => eprintln!("no folder of golden tables: only the copied rows are checked"),
    }
    rows
}

/// Returns a number of a row.
pub(crate) fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"))
}
