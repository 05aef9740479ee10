//! The results: a line for each test, a file, and a summary.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::catalog::{Edge, Guard};
use super::run::Outcome;

/// One test without one guard.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    edge: String,
    guard: String,
    test: String,
    outcome: Outcome,
    seconds: f64,
}

impl Row {
    /// Creates a row.
    pub(crate) fn new(
        edge: &Edge,
        guard: &Guard,
        test: &str,
        (outcome, duration): (Outcome, Duration),
    ) -> Self {
        Self {
            edge: edge.name.clone(),
            guard: guard.id.clone(),
            test: test.into(),
            outcome,
            seconds: (duration.as_secs_f64() * 1e3).round() / 1e3,
        }
    }
}

/// Returns the line of a test.
pub(crate) fn line(guard: &str, test: &str, outcome: Outcome) -> String {
    let outcome = match outcome {
        Outcome::Noticed => "noticed",
        Outcome::Passed => "NOT NOTICED",
        Outcome::TimedOut => "TIMED OUT",
    };
    format!("{guard:<40} {outcome:<12} {test}")
}

/// Returns the description of a guard.
pub(crate) fn listed(edge: &Edge, guard: &Guard) -> String {
    format!("{}: {}\n    {}", guard.id, edge.name, guard.tests.join("\n    "))
}

/// Writes all rows as JSON.
///
/// # Errors
///
/// Returns a message if the file cannot be written.
pub(crate) fn write(path: &Path, rows: &[Row]) -> Result<(), String> {
    let json = serde_json::to_string_pretty(rows).map_err(|error| error.to_string())?;
    std::fs::write(path, json + "\n").map_err(|error| format!("{}: {error}", path.display()))
}

/// Prints how many guards and tests there were.
///
/// # Errors
///
/// Returns a message with what was not noticed.
pub(crate) fn summary(rows: &[Row]) -> Result<(), String> {
    let count = |name: fn(&Row) -> &String| {
        let mut names: Vec<_> = rows.iter().map(name).collect();
        names.sort();
        names.dedup();
        names.len()
    };
    let (guards, tests) = (count(|row| &row.guard), count(|row| &row.test));
    println!("{guards} guards, {tests} tests, {} runs", rows.len());
    let missed: Vec<String> = rows
        .iter()
        .filter(|row| row.outcome != Outcome::Noticed)
        .map(|row| line(&row.guard, &row.test, row.outcome))
        .collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("not noticed:\n{}", missed.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outcome: Outcome) -> Row {
        let (edge, guard, test) = ("Edge.".into(), "a".into(), "b::c".into());
        Row { edge, guard, test, outcome, seconds: 0.5 }
    }

    #[test]
    fn only_failures_count_as_noticed() {
        assert!(summary(&[row(Outcome::Noticed)]).is_ok());
        for outcome in [Outcome::Passed, Outcome::TimedOut] {
            let missed = summary(&[row(Outcome::Noticed), row(outcome)]);
            assert!(missed.is_err_and(|message| message.lines().count() == 2));
        }
    }
}
