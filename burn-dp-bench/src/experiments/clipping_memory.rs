//! The largest batch that fits into a memory limit, under the algorithms of per-example clipping.
//!
//! # References
//!
//! J. Lee, D. Kifer, "Scaling up Differentially Private Deep Learning with Fast Per-Example
//! Gradient Clipping", 2021, section 6.7.

use burn_dp_examples::training::{TrainError, typed};

use super::clipping_time::{FAST, frozen};
use super::figure::{Figure, FigureSeries, Findings, Verdict};
use super::measured::{FigureOptions, Measured};
use crate::bench::{Network, largest_batch, step_peak_mib};

pub(super) const NAME: &str = "clipping-memory";

/// Maximum batch size of a search.
const MOST: usize = 4096;

/// Network, pixels per side and limit in MiB.
type Setting = (Network, usize, f64);

/// The paper uses ResNet-101 at 256 pixels on a GPU with 11 GB.
const QUICK: Setting = (Network::ResNet18, 64, 1024.0);
const PAPER: Setting = (Network::ResNet101, 256, 11.0 * 1024.0);

pub(super) fn run(options: &FigureOptions) -> Result<Figure, TrainError> {
    let mut measured = Measured::open(NAME, options)?;
    let (network, pixels, limit) = if measured.quick() { QUICK } else { PAPER };
    let sizes = frozen(pixels);
    let model = typed(network);
    let (mut series, mut largest) = (Vec::new(), Vec::new());
    for (algorithm, name) in FAST {
        let memory = |batch| {
            let key = format!("{name}, {model}, {pixels} pixels, batch {batch}");
            measured.expect_one();
            let backend = measured.backend;
            measured.measure(&key, |_| step_peak_mib(network, sizes, batch, algorithm, backend))
        };
        let found = largest_batch(limit, MOST, memory)?;
        let points = found.tried.into_iter().map(|(batch, mib)| (batch as f64, mib));
        series.push(FigureSeries::exact(name, points));
        largest.push((name, found.batch as f64));
    }
    let batch_of = |name: &str| {
        largest.iter().find(|(other, _)| *other == name).map_or(f64::NAN, |(_, batch)| *batch)
    };
    let (ordinary, materialize) = (batch_of("NonPrivate"), batch_of("multiLoss"));
    let (reweight, keeping) = (batch_of("ReweightGP"), batch_of("book-keeping"));
    measured.finish(Findings {
        figure: "Fast per-example clipping, section 6.7".into(),
        setting: format!(
            "{model}, {pixels} × {pixels} pixels, frozen BatchNorm, SGD. Largest batch with at \
             most {limit} MiB in the process, to 1/32."
        ),
        labels: ["Peak memory of a step", "batch size", "MiB"].map(String::from),
        series,
        verdicts: vec![
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
        ],
    })
}
