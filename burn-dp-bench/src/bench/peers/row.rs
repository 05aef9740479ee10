//! The figures of the comparison, and the ratios computed from them.

use comfy_table::Table;
use serde::{Deserialize, Serialize};

use super::system::{ORDINARY, OURS, System};
use crate::bench::report::mib;
use burn_dp_examples::training::typed;

/// A step of a system on one network, batch size and number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerRow {
    /// Name of the network.
    pub model: String,
    /// Number of examples in a step.
    pub batch: usize,
    /// Number of threads.
    pub threads: usize,
    /// Name of the system.
    pub system: String,
    /// Name of the algorithm.
    pub algorithm: String,
    /// Name of our backend; the other frameworks run on the GPU with `cuda`.
    pub backend: String,
    /// Median time of a step, in milliseconds.
    pub ms: f64,
    /// Shortest time of a step, in milliseconds.
    pub ms_min: f64,
    /// CPU time of a step on all threads, in milliseconds; `None` where the system does not report
    /// it.
    pub cpu_ms: Option<f64>,
    /// Peak memory of the process in MiB, including the program and its libraries; `None` where the
    /// system does not report it.
    pub peak_mib: Option<f64>,
    /// Memory in MiB that the allocator of the device holds; `None` where there is none, or the
    /// system does not report it.
    pub device_mib: Option<f64>,
}

/// A network, a batch size and a number of threads.
pub(super) type Subject<'a> = (&'a str, usize, usize);

impl PeerRow {
    /// Returns what was trained.
    pub(super) fn subject(&self) -> Subject<'_> {
        (&self.model, self.batch, self.threads)
    }

    /// Returns whether this is the ordinary step of a system.
    pub(super) fn is_ordinary_of(&self, system: System) -> bool {
        self.system == typed(system) && self.algorithm == ORDINARY
    }
}

/// Returns each subject once, in the order of the rows.
pub(super) fn subjects(rows: &[PeerRow]) -> Vec<Subject<'_>> {
    let mut subjects = Vec::new();
    for row in rows {
        if !subjects.contains(&row.subject()) {
            subjects.push(row.subject());
        }
    }
    subjects
}

/// Our private step relative to other steps, on one subject.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ratios {
    /// Over the ordinary step of PyTorch, the fastest step of Opacus, the ordinary step of our
    /// layers and the ordinary step of stock Burn layers.
    time: [Option<f64>; 4],
    /// CPU time over the CPU time of the ordinary step of our layers.
    cpu: Option<f64>,
}

/// Returns the fastest step that satisfies a condition.
fn fastest(rows: &[&PeerRow], is: impl Fn(&PeerRow) -> bool) -> Option<f64> {
    rows.iter().filter(|row| is(row)).map(|row| row.ms).min_by(f64::total_cmp)
}

fn ratios(rows: &[PeerRow], subject: Subject<'_>) -> Ratios {
    let rows: Vec<_> = rows.iter().filter(|row| row.subject() == subject).collect();
    let is_ours = |row: &PeerRow| row.system == typed(System::BurnDp) && row.algorithm == OURS;
    let ours = rows.iter().find(|row| is_ours(row));
    let over = |other: Option<f64>| Some(ours?.ms / other?);
    let ordinary = rows.iter().find(|row| row.is_ordinary_of(System::BurnDp));
    Ratios {
        time: [
            over(fastest(&rows, |row| row.is_ordinary_of(System::Torch))),
            over(fastest(&rows, |row| row.system == typed(System::Opacus))),
            over(ordinary.map(|row| row.ms)),
            over(fastest(&rows, |row| row.is_ordinary_of(System::Burn))),
        ],
        cpu: ours.zip(ordinary).and_then(|(ours, ordinary)| Some(ours.cpu_ms? / ordinary.cpu_ms?)),
    }
}

/// Returns the geometric mean; `None` if there are no values.
fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<_> = values.map(f64::ln).collect();
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    (!logarithms.is_empty()).then(|| mean.exp())
}

fn text(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.2}")).unwrap_or_default()
}

/// Returns the figures as a table.
pub(super) fn figures(rows: &[PeerRow]) -> String {
    let mut table = Table::new();
    table.set_header([
        "model",
        "batch",
        "threads",
        "system",
        "algorithm",
        "ms",
        "ms min",
        "CPU ms",
        "peak MiB",
        "device MiB",
    ]);
    for row in rows {
        table.add_row([
            row.model.clone(),
            row.batch.to_string(),
            row.threads.to_string(),
            row.system.clone(),
            row.algorithm.clone(),
            format!("{:.2}", row.ms),
            format!("{:.2}", row.ms_min),
            text(row.cpu_ms),
            mib(row.peak_mib),
            mib(row.device_mib),
        ]);
    }
    table.to_string()
}

/// Returns the ratios as a table, with the geometric means for each number of threads at the end.
pub(super) fn ratio_table(rows: &[PeerRow]) -> String {
    let mut table = Table::new();
    table.set_header([
        "model",
        "batch",
        "threads",
        "/ PyTorch, ordinary",
        "/ Opacus, fastest",
        "/ ours, ordinary",
        "/ Burn, ordinary",
        "CPU / ours, ordinary",
    ]);
    let subjects = subjects(rows);
    for &(model, batch, threads) in &subjects {
        let Ratios { time, cpu } = ratios(rows, (model, batch, threads));
        let mut cells = vec![model.to_string(), batch.to_string(), threads.to_string()];
        cells.extend(time.into_iter().chain([cpu]).map(text));
        table.add_row(cells);
    }
    let mut counts: Vec<_> = subjects.iter().map(|subject| subject.2).collect();
    counts.sort_unstable();
    counts.dedup();
    for threads in counts {
        let same = || subjects.iter().filter(|subject| subject.2 == threads);
        let of = |column: usize| {
            let value = |subject: &Subject<'_>| {
                let Ratios { time, cpu } = ratios(rows, *subject);
                time.get(column).copied().unwrap_or(cpu)
            };
            geometric_mean(same().filter_map(value))
        };
        let mut cells = vec!["geometric mean".to_string(), String::new(), threads.to_string()];
        cells.extend((0..5).map(of).map(text));
        table.add_row(cells);
    }
    table.to_string()
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    pub(crate) fn row(model: &str, system: System, algorithm: &str, ms: f64) -> PeerRow {
        PeerRow {
            model: model.into(),
            batch: 8,
            threads: 2,
            system: typed(system),
            algorithm: algorithm.into(),
            backend: "flex".into(),
            ms,
            ms_min: ms,
            cpu_ms: Some(2.0 * ms),
            peak_mib: None,
            device_mib: None,
        }
    }

    pub(crate) fn rows() -> Vec<PeerRow> {
        vec![
            row("mlp", System::BurnDp, ORDINARY, 2.0),
            row("mlp", System::BurnDp, OURS, 3.0),
            row("mlp", System::Burn, ORDINARY, 4.0),
            row("mlp", System::Torch, ORDINARY, 1.0),
            row("mlp", System::Opacus, "materialize", 9.0),
            row("mlp", System::Opacus, "ghost", 6.0),
            row("cnn", System::BurnDp, OURS, 12.0),
            row("cnn", System::Torch, ORDINARY, 1.0),
        ]
    }

    #[test]
    fn ratios_are_our_private_step_over_the_steps_of_others() {
        let rows = rows();
        let found = ratios(&rows, ("mlp", 8, 2));
        let time = [Some(3.0), Some(0.5), Some(1.5), Some(0.75)];
        assert_eq!(found, Ratios { time, cpu: Some(1.5) });
        let found = ratios(&rows, ("cnn", 8, 2));
        assert_eq!(found, Ratios { time: [Some(12.0), None, None, None], cpu: None });
    }

    #[test]
    fn the_table_ends_with_the_geometric_mean_of_what_was_measured() {
        let table = ratio_table(&rows());
        let last = table.lines().rfind(|line| line.contains("geometric mean")).unwrap();
        let cells: Vec<_> = last.split('|').map(str::trim).collect();
        // The square root of 3 times 12, and the ratios of one network.
        assert_eq!(cells[3..9], ["2", "6.00", "0.50", "1.50", "0.75", "1.50"]);
        assert!(figures(&rows()).contains("materialize"));
        assert_eq!(geometric_mean(std::iter::empty()), None);
    }

    #[test]
    fn a_row_has_exactly_the_fields_that_scripts_read() {
        let value = serde_json::to_value(&rows()[0]).unwrap();
        let mut names: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        names.sort();
        let expected = [
            "algorithm",
            "backend",
            "batch",
            "cpu_ms",
            "device_mib",
            "model",
            "ms",
            "ms_min",
            "peak_mib",
            "system",
            "threads",
        ];
        assert_eq!(names, expected);
    }
}
