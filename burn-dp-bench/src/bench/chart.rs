//! The step benchmark as a picture: the cost of privacy here and in other frameworks.

use std::path::Path;

use burn_dp_examples::plot::{self, Bar, BarPanel};
use burn_dp_examples::training::{TrainError, typed};

use super::Algorithm;
use super::peer_lines::Peer;
use super::report::Row;

/// Draws a panel for each network and batch size. A bar shows the time of a private step divided by
/// the time of the ordinary step of the same framework.
///
/// Measurements of other frameworks are skipped for networks and batch sizes that were not measured
/// here. Their number is printed to standard error.
///
/// # Errors
///
/// Returns [`TrainError::Io`] if the file cannot be written.
pub(super) fn draw(path: &Path, rows: &[Row], peers: &[Peer]) -> Result<(), TrainError> {
    let panels = panels(rows, peers);
    let drawn: usize = panels.iter().map(|panel| panel.bars.len()).sum();
    let own = rows.iter().filter(|row| is_private(row)).count();
    let left_out = peers.len() - (drawn - own);
    if left_out > 0 {
        eprintln!(
            "not drawn: {left_out} of the lines of --peers, for networks or batch sizes that are \
             not in --models and --batch"
        );
    }
    let backend = rows.first().map_or("", |row| &row.backend);
    let title = format!("Time of a private step over an ordinary step (burn-dp on {backend})");
    plot::ratio_bars(path, [&title, "times the ordinary step of the same framework"], &panels)?;
    Ok(())
}

fn panels(rows: &[Row], peers: &[Peer]) -> Vec<BarPanel> {
    let mut subjects: Vec<(&str, usize)> = Vec::new();
    for row in rows {
        if !subjects.contains(&(&row.model, row.batch)) {
            subjects.push((&row.model, row.batch));
        }
    }
    let mut frameworks: Vec<&str> = Vec::new();
    for peer in peers {
        if !frameworks.contains(&peer.framework.as_str()) {
            frameworks.push(&peer.framework);
        }
    }
    let has_one_count = rows.iter().all(|row| row.threads == rows[0].threads);
    let panel = |(model, batch): (&str, usize)| {
        let own = rows.iter().filter(|row| (row.model.as_str(), row.batch) == (model, batch));
        let own = own.filter(|row| is_private(row)).map(|row| Bar {
            name: if has_one_count {
                format!("burn-dp, {}", row.algorithm)
            } else {
                format!("burn-dp, {}, threads: {}", row.algorithm, row.threads)
            },
            value: row.ratio,
            text: text(row.ratio, row.ms),
            kind: 0,
        });
        let others =
            peers.iter().filter(|peer| (peer.model.as_str(), peer.batch) == (model, batch));
        let others = others.map(|peer| Bar {
            name: format!("{}, {}", peer.framework, peer.algorithm),
            value: peer.ratio,
            text: text(peer.ratio, peer.ms),
            kind: 1 + frameworks.iter().position(|name| *name == peer.framework).unwrap_or(0),
        });
        BarPanel { title: format!("{model}, batch {batch}"), bars: own.chain(others).collect() }
    };
    subjects.into_iter().map(panel).collect()
}

fn is_private(row: &Row) -> bool {
    ![Algorithm::NonPrivate, Algorithm::Burn].map(typed).contains(&row.algorithm)
}

/// Returns the ratio and both times in milliseconds.
fn text(ratio: f64, ms: f64) -> String {
    let ordinary = ms / ratio;
    format!("{ratio:.2} × ({ms:.2} ms, ordinary {ordinary:.2} ms)")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn row(model: &str, algorithm: &str, ms: f64) -> Row {
        Row {
            model: model.into(),
            batch: 8,
            algorithm: algorithm.into(),
            backend: "flex".into(),
            threads: 2,
            ms,
            ms_min: ms,
            cpu_ms: None,
            ratio: ms / 2.0,
            peak_mib: None,
            device_mib: None,
        }
    }

    fn peer(model: &str, batch: usize, framework: &str) -> Peer {
        Peer {
            framework: framework.into(),
            model: model.into(),
            batch,
            algorithm: "ghost".into(),
            ms: 9.0,
            ms_min: 8.0,
            ratio: 1.5,
        }
    }

    #[test]
    fn bars_of_a_network_are_ours_and_then_the_peers_of_the_same_batch() {
        let rows = [
            row("mlp", "non-private", 2.0),
            row("mlp", "book-keeping", 2.5),
            row("cnn", "non-private", 2.0),
            row("cnn", "nxbp", 50.0),
        ];
        let peers = [peer("cnn", 8, "torch"), peer("mlp", 8, "jax"), peer("mlp", 9, "torch")];
        let panels = panels(&rows, &peers);
        let titles: Vec<_> = panels.iter().map(|panel| panel.title.as_str()).collect();
        assert_eq!(titles, ["mlp, batch 8", "cnn, batch 8"]);
        let bars = |index: usize| {
            let bars = panels[index].bars.iter();
            bars.map(|bar| (bar.name.as_str(), bar.value, bar.kind)).collect::<Vec<_>>()
        };
        assert_eq!(bars(0), [("burn-dp, book-keeping", 1.25, 0), ("jax, ghost", 1.5, 2)]);
        assert_eq!(bars(1), [("burn-dp, nxbp", 25.0, 0), ("torch, ghost", 1.5, 1)]);
    }

    #[test]
    fn the_number_of_threads_is_named_where_there_are_several() {
        let one = Row { threads: 1, ..row("mlp", "book-keeping", 3.0) };
        let rows = [row("mlp", "book-keeping", 2.0), one, row("mlp", "burn", 1.0)];
        let panels = panels(&rows, &[]);
        let names: Vec<_> = panels[0].bars.iter().map(|bar| bar.name.as_str()).collect();
        let expected = ["burn-dp, book-keeping, threads: 2", "burn-dp, book-keeping, threads: 1"];
        assert_eq!(names, expected);
    }

    #[test]
    fn the_picture_has_the_labels_and_the_milliseconds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("steps.svg");
        let rows = [row("mlp", "non-private", 2.0), row("mlp", "book-keeping", 2.5)];
        draw(&path, &rows, &[peer("mlp", 8, "torch")]).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for label in [
            "mlp, batch 8",
            "burn-dp, book-keeping",
            "torch, ghost",
            "1.25 × (2.50 ms, ordinary 2.00 ms)",
            "1.50 × (9.00 ms, ordinary 6.00 ms)",
        ] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
        assert!(!svg.contains("non-private"), "{svg}");
    }
}
