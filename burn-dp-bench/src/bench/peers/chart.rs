//! The comparison as a picture.

use std::path::Path;

use burn_dp_examples::plot::{self, Bar, BarPanel};
use burn_dp_examples::training::{TrainError, typed};

use super::row::{PeerRow, Subject, subjects};
use super::system::System;

/// Draws a panel for each network, batch size and number of threads. A bar shows the time of a step
/// relative to the ordinary step of PyTorch, or to our ordinary step if PyTorch was not measured.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the file cannot be written.
pub(super) fn draw(path: &Path, rows: &[PeerRow]) -> Result<(), TrainError> {
    let panels: Vec<_> =
        subjects(rows).into_iter().filter_map(|subject| panel(rows, subject)).collect();
    let title = "Time of a training step";
    plot::ratio_bars(path, [title, "times the ordinary step in the title of the panel"], &panels)?;
    Ok(())
}

/// Returns the panel of a subject; `None` if no ordinary step was measured.
fn panel(rows: &[PeerRow], subject: Subject<'_>) -> Option<BarPanel> {
    let rows: Vec<_> = rows.iter().filter(|row| row.subject() == subject).collect();
    let mut references = [System::Torch, System::BurnDp].into_iter();
    let reference = references
        .find_map(|system| rows.iter().find(|row| row.is_ordinary_of(system)).copied())?;
    let mut systems: Vec<&str> = Vec::new();
    let mut bars = Vec::new();
    for row in rows {
        if !systems.contains(&row.system.as_str()) {
            systems.push(&row.system);
        }
        let ratio = row.ms / reference.ms;
        bars.push(Bar {
            name: format!("{}, {}", row.system, row.algorithm),
            value: ratio,
            text: format!("{ratio:.2} × ({:.2} ms)", row.ms),
            kind: systems.iter().position(|name| *name == row.system).unwrap_or(0),
        });
    }
    let (model, batch, threads) = subject;
    let name = if reference.system == typed(System::Torch) { "PyTorch" } else { "burn-dp" };
    let plural = if threads == 1 { "" } else { "s" };
    Some(BarPanel {
        title: format!("{model}, batch {batch}, {threads} thread{plural}, over {name}"),
        bars,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::row::tests::{row, rows};
    use super::*;

    #[test]
    fn bars_are_times_over_the_ordinary_step_of_pytorch_or_ours() {
        let rows = rows();
        let found = panel(&rows, ("mlp", 8, 2)).unwrap();
        assert_eq!(found.title, "mlp, batch 8, 2 threads, over PyTorch");
        let values: Vec<_> = found.bars.iter().map(|bar| bar.value).collect();
        assert_eq!(values, [2.0, 3.0, 4.0, 1.0, 9.0, 6.0]);
        let kinds: Vec<_> = found.bars.iter().map(|bar| bar.kind).collect();
        assert_eq!(kinds, [0, 0, 1, 2, 3, 3]);
        let without = [row("rnn", System::BurnDp, "non-private", 5.0)];
        assert!(panel(&without, ("rnn", 8, 2)).unwrap().title.ends_with("over burn-dp"));
        let none = [row("rnn", System::Opacus, "ghost", 5.0)];
        assert!(panel(&none, ("rnn", 8, 2)).is_none());
    }

    #[test]
    fn the_picture_has_the_names_and_the_milliseconds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers.svg");
        draw(&path, &rows()).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for label in ["mlp, batch 8", "opacus, ghost", "6.00 × (6.00 ms)", "burn-dp, book-keeping"]
        {
            assert!(svg.contains(label), "{label}");
        }
    }
}
