//! The largest batch that fits into a memory limit, under the algorithms of per-example clipping.
//!
//! # References
//!
//! J. Lee, D. Kifer, "Scaling up Differentially Private Deep Learning with Fast Per-Example
//! Gradient Clipping", 2021, section 6.7.

use burn_dp_examples::training::{TrainError, typed};

use super::clipping_time::{ALGORITHMS, frozen};
use super::figure::{Figure, FigureSeries, Findings, Preset};
use super::measured::Measured;
use super::verdict::Verdict;
use crate::bench::{Algorithm, Network, largest_batch, step_peak_mib};

pub(super) const NAME: &str = "clipping-memory";

/// Maximum batch size of a search.
const MOST: usize = 4096;

/// Network, pixels per side and limit in MiB.
type Setting = (Network, usize, f64);

/// The paper uses ResNet-101 at 256 pixels on a GPU with 11 GB.
const QUICK: Setting = (Network::ResNet18, 64, 1024.0);
const PAPER: Setting = (Network::ResNet101, 256, 11.0 * 1024.0);

fn setting(preset: Preset) -> Setting {
    if preset == Preset::Quick { QUICK } else { PAPER }
}

pub(super) fn run(measured: &mut Measured) -> Result<Findings, TrainError> {
    let (network, pixels, limit) = setting(measured.preset);
    let sizes = frozen(pixels);
    let model = typed(network);
    let mut series = Vec::new();
    // One backward pass for each example needs no more memory for a larger batch.
    for (algorithm, name) in ALGORITHMS.into_iter().filter(|(one, _)| *one != Algorithm::Nxbp) {
        let memory = |batch| {
            let key = format!("{name}, {model}, {pixels} pixels, batch {batch}");
            measured.expect_one();
            let backend = measured.backend;
            measured.measure(&key, |_| step_peak_mib(network, sizes, batch, algorithm, backend))
        };
        let found = largest_batch(limit, MOST, memory)?;
        let points = found.tried.into_iter().map(|(batch, mib)| (batch as f64, mib));
        series.push(FigureSeries::exact(name, points));
    }
    Ok(Findings {
        figure: "Fast per-example clipping, section 6.7".into(),
        setting: format!(
            "{model}, {pixels} × {pixels} pixels, frozen BatchNorm, SGD. Largest batch with at \
             most {limit} MiB in the process, to 1/32."
        ),
        labels: ["Peak memory of a step", "batch size", "MiB"].map(String::from),
        series,
        facts: Vec::new(),
    })
}

/// Compares the largest batches within the limit.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let (_, _, limit) = setting(figure.preset);
    let batch_of = |name: &str| {
        let tried = figure.line(name);
        let fitting = tried.iter().filter(|point| point.y <= limit).map(|point| point.x);
        if tried.is_empty() { f64::NAN } else { fitting.fold(0.0, f64::max) }
    };
    let (ordinary, materialize) = (batch_of("NonPrivate"), batch_of("multiLoss"));
    let (reweight, keeping) = (batch_of("ReweightGP"), batch_of("book-keeping"));
    vec![
        Verdict::new(
            "ReweightGP takes a batch of at least three quarters of the ordinary one.",
            reweight >= 0.75 * ordinary,
            [("ReweightGP", reweight), ("NonPrivate", ordinary)],
        ),
        Verdict::new(
            "Materialized gradients take half of ReweightGP's batch or less.",
            materialize <= 0.5 * reweight,
            [("multiLoss", materialize), ("ReweightGP", reweight)],
        ),
        Verdict::new(
            "Book-keeping takes at least nine tenths of the ordinary batch.",
            keeping >= 0.9 * ordinary,
            [("book-keeping", keeping), ("NonPrivate", ordinary)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_batches_within_the_limit_are_compared() {
        let names = ["NonPrivate", "multiLoss", "ReweightGP", "book-keeping"];
        let (_, _, limit) = QUICK;
        let judged = |batches: [f64; 4]| {
            // An algorithm fits at its batch size, and not at twice as many examples.
            let lines = names.into_iter().zip(batches).map(|(name, batch)| {
                let tried = [(1.0, 0.5 * limit), (batch, limit), (2.0 * batch, limit + 1.0)];
                FigureSeries::exact(name, tried)
            });
            judge(&Figure::of_lines(lines))
        };
        let held = |batches| judged(batches).iter().map(|one| one.holds).collect::<Vec<_>>();
        assert_eq!(held([100.0, 40.0, 80.0, 95.0]), [true; 3]);
        assert_eq!(held([100.0, 50.0, 70.0, 80.0]), [false; 3]);
        assert_eq!(judged([100.0, 40.0, 80.0, 95.0])[0].numbers["ReweightGP"], 80.0);
    }

    #[test]
    fn what_was_not_measured_holds_for_nothing() {
        let verdicts = judge(&Figure::of_lines([]));
        assert!(verdicts.iter().all(|verdict| !verdict.holds));
    }
}
