//! The figures of the step benchmark.

use comfy_table::Table;
use serde::Serialize;

/// One algorithm on one model and batch size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the network.
    pub model: String,
    /// Number of images in a step.
    pub batch: usize,
    /// Name of the algorithm.
    pub algorithm: String,
    /// Name of the backend.
    pub backend: String,
    /// Number of threads.
    pub threads: usize,
    /// Median time of a step, in milliseconds.
    pub ms: f64,
    /// Shortest time of a step, in milliseconds.
    pub ms_min: f64,
    /// CPU time of a step on all threads, in milliseconds; `None` where the system does not report
    /// it.
    pub cpu_ms: Option<f64>,
    /// Median time divided by the median time of the ordinary step, measured in alternation with
    /// it.
    pub ratio: f64,
    /// Peak memory in MiB of a process that only runs such steps; `None` where the system does not
    /// report it.
    pub peak_mib: Option<f64>,
    /// Memory in MiB that the allocator of the device held after the last step; `None` on a CPU.
    pub device_mib: Option<f64>,
}

/// Returns the figures as a table.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.set_header([
        "model",
        "batch",
        "threads",
        "algorithm",
        "ms",
        "ms min",
        "CPU ms",
        "ratio",
        "peak MiB",
        "device MiB",
    ]);
    for row in rows {
        table.add_row([
            row.model.clone(),
            row.batch.to_string(),
            row.threads.to_string(),
            row.algorithm.clone(),
            format!("{:.2}", row.ms),
            format!("{:.2}", row.ms_min),
            row.cpu_ms.map(|ms| format!("{ms:.2}")).unwrap_or_default(),
            format!("{:.2}", row.ratio),
            mib(row.peak_mib),
            mib(row.device_mib),
        ]);
    }
    table.to_string()
}

/// Returns whole MiB as text; nothing where there is no figure.
pub(super) fn mib(value: Option<f64>) -> String {
    value.map(|mib| format!("{mib:.0}")).unwrap_or_default()
}

/// Returns the median and the minimum of the times; zeros for no times.
pub(super) fn median_and_minimum(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    times.first().map_or((0.0, 0.0), |minimum| (quantile(&times, 0.5), *minimum))
}

/// Returns a quantile of sorted values, linear between two of them; NaN without values.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let at = |place: f64| sorted.get(place as usize).copied().unwrap_or(f64::NAN);
    at(place) + (at(place.ceil()) - at(place)) * place.fract()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(median_and_minimum(vec![3.0, 1.0, 9.0]), (3.0, 1.0));
        assert_eq!(median_and_minimum(vec![8.0, 1.0, 2.0, 4.0]), (3.0, 1.0));
        assert_eq!(median_and_minimum(vec![5.0]), (5.0, 5.0));
        assert_eq!(median_and_minimum(vec![]), (0.0, 0.0));
    }

    #[test]
    fn a_row_has_exactly_the_fields_that_scripts_read() {
        let row = Row {
            model: "mlp".into(),
            batch: 32,
            algorithm: "book-keeping".into(),
            backend: "flex".into(),
            threads: 2,
            ms: 1.0,
            ms_min: 0.5,
            cpu_ms: Some(2.0),
            ratio: 1.5,
            peak_mib: None,
            device_mib: Some(3.0),
        };
        let value = serde_json::to_value(&row).unwrap();
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
            "ratio",
            "threads",
        ];
        assert_eq!(names, expected);
        assert!(table(&[row]).contains("book-keeping"));
    }
}
