//! What batch clipping with adaptive layerwise clipping guarantees, as trade-off functions.
//!
//! # References
//!
//! T. N. Nguyen et al.: Batch clipping and adaptive layerwise clipping for differential private
//! stochastic gradient descent, 2023, appendix B.1.

use std::path::PathBuf;

use burn_dp::DpError;
use burn_dp_accountant::{
    CentralLimitEstimate, DpEvent, GaussianDp, NeighboringRelation, PldAccountant,
};
use clap::Args;
use serde::Serialize;

use crate::training::plot::{self, Series};
use crate::training::{TrainError, files, write_json};

/// Privacy losses beyond this are not worth an analysis: no trade-off is left.
const HOPELESS: f64 = 10.0;

/// Points of a curve.
const POINTS: usize = 200;

/// The options of the experiment; the defaults are those of the paper for BN-LeNet-5.
#[derive(Args, Debug, Clone)]
pub struct BatchClippingPrivacyOptions {
    /// Sigmas of the paper: the noise of layer h is 2 C_h sigma.
    #[arg(long, value_delimiter = ',', default_values = ["0.5", "1.5", "2.5"])]
    pub sigma: Vec<f64>,
    /// Layers that are clipped apart.
    #[arg(long, default_value_t = 8)]
    pub layers: u32,
    /// Images in a step.
    #[arg(long, default_value_t = 64)]
    pub batch_size: u64,
    /// Images in the data set.
    #[arg(long, default_value_t = 54_000)]
    pub dataset_size: u64,
    /// Passes over the data.
    #[arg(long, default_value_t = 50)]
    pub epochs: u64,
    /// Probability at which epsilon is meant.
    #[arg(long, default_value_t = 1e-5)]
    pub delta: f64,
    /// Folder for the figures and the plot.
    #[arg(long, value_name = "DIR", default_value = "out/experiment-batch-clipping-privacy")]
    pub output: PathBuf,
}

/// One sigma.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchClippingPrivacy {
    /// The sigma of the paper.
    pub sigma: f64,
    /// What remains of it with all layers: sigma / √layers.
    pub effective_sigma: f64,
    /// h(sigma / √layers) of the paper.
    pub h: f64,
    /// The μ to which the composition tends: an approximation, not a guarantee.
    pub approximate_mu: f64,
    /// Upper bound of ε at the δ of the options; nothing where it is infinite.
    pub epsilon: Option<f64>,
    /// Guaranteed points of the trade-off function: type I error, least type II error.
    pub tradeoff: Vec<(f64, f64)>,
}

/// Prints and plots both: the limit that the paper uses, and what is guaranteed.
///
/// # Errors
///
/// When an option is impossible or a file cannot be written.
pub(super) fn run(
    options: BatchClippingPrivacyOptions,
) -> Result<Vec<BatchClippingPrivacy>, TrainError> {
    if options.layers == 0 {
        return Err(TrainError::option("--layers", "must be at least 1, got 0"));
    }
    files::make_folder(&options.output)?;
    println!(
        "{:>8}{:>12}{:>12}{:>12}{:>14}{:>22}",
        "sigma", "sigma/√L", "h", "mu (limit)", "epsilon <=", "type II at 0.1 >="
    );
    let mut rows = Vec::new();
    for &sigma in &options.sigma {
        let row = analyse(sigma, &options)?;
        let at =
            (row.tradeoff.iter()).find(|(alpha, _)| *alpha >= 0.1).map_or(0.0, |point| point.1);
        println!(
            "{:>8}{:>12.4}{:>12.4e}{:>12.4e}{:>14}{:>22.4}",
            sigma,
            row.effective_sigma,
            row.h,
            row.approximate_mu,
            row.epsilon.map_or("infinite".into(), |epsilon| format!("{epsilon:.4}")),
            at
        );
        rows.push(row);
    }
    let mut series = vec![Series { name: "nothing".into(), points: vec![(0.0, 1.0), (1.0, 0.0)] }];
    for row in &rows {
        let name = format!("sigma {}, guaranteed", row.sigma);
        series.push(Series { name, points: row.tradeoff.clone() });
        if row.approximate_mu.is_finite() {
            let limit = GaussianDp::new(row.approximate_mu).map_err(DpError::from)?;
            let points = alphas().map(|alpha| (alpha, limit.type_two_error(alpha))).collect();
            series.push(Series { name: format!("sigma {}, limit", row.sigma), points });
        }
    }
    let at = |name: &str| options.output.join(name);
    let titles = ["Batch clipping, layerwise", "type I error", "type II error"];
    plot::lines(&at("tradeoff.svg"), titles, &series)?;
    write_json(&at("batch-clipping-privacy.json"), &rows)?;
    println!("files: {}", options.output.display());
    Ok(rows)
}

fn alphas() -> impl Iterator<Item = f64> {
    (0..=POINTS).map(|point| point as f64 / POINTS as f64)
}

fn analyse(
    sigma: f64,
    options: &BatchClippingPrivacyOptions,
) -> Result<BatchClippingPrivacy, TrainError> {
    let effective_sigma = sigma / f64::from(options.layers).sqrt();
    let q = options.batch_size as f64 / options.dataset_size as f64;
    let steps = (options.epochs * options.dataset_size).div_ceil(options.batch_size);
    let limit = CentralLimitEstimate::fixed_size(q, effective_sigma, steps);
    let approximate_mu = limit.map_err(DpError::from)?.mu();
    let h = approximate_mu / (2f64.sqrt() * q * (steps as f64).sqrt());
    // The accountant's multiplier is over the norm C, the paper's sigma over the sensitivity 2 C.
    let event = DpEvent::SampledWithoutReplacement {
        dataset_size: options.dataset_size,
        sample_size: options.batch_size,
        event: Box::new(DpEvent::gaussian(2.0 * effective_sigma)),
    };
    let (epsilon, tradeoff) = if approximate_mu < HOPELESS {
        let accountant = PldAccountant::new([(&event, steps)], NeighboringRelation::ReplaceOne)
            .map_err(DpError::from)?;
        let curve = accountant.tradeoff(1_000).map_err(DpError::from)?;
        let epsilon = accountant.epsilon(options.delta).map_err(DpError::from)?.upper;
        (epsilon, alphas().map(|alpha| (alpha, curve.type_two_error(alpha))).collect())
    } else {
        (f64::INFINITY, alphas().map(|alpha| (alpha, 0.0)).collect())
    };
    Ok(BatchClippingPrivacy {
        sigma,
        effective_sigma,
        h,
        approximate_mu,
        epsilon: epsilon.is_finite().then_some(epsilon),
        tradeoff,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn options(folder: &std::path::Path) -> BatchClippingPrivacyOptions {
        BatchClippingPrivacyOptions {
            sigma: vec![2.5, 1.5, 0.5],
            layers: 8,
            batch_size: 64,
            dataset_size: 54_000,
            epochs: 50,
            delta: 1e-5,
            output: folder.join("out"),
        }
    }

    #[test]
    fn the_figures_of_appendix_b_1_come_out_beside_what_is_guaranteed() {
        let folder = tempfile::tempdir().unwrap();
        let rows = run(options(folder.path())).unwrap();
        // The paper: h = 1.513 (1.5142 in more digits) and G_0.52 at sigma 2.5, h = 5.783 and G_1.99 at sigma 1.5.
        for (row, h, mu) in [(&rows[0], 1.513, 0.52), (&rows[1], 5.783, 1.99)] {
            assert!((row.h - h).abs() < 2e-3, "{}", row.h);
            assert!((row.approximate_mu - mu).abs() < 5e-3, "{}", row.approximate_mu);
            // A guarantee lies on the safe side of the limit, up to what the limit is wrong by.
            let limit = GaussianDp::new(row.approximate_mu).unwrap();
            let (alpha, beta) = row.tradeoff[20];
            assert!(beta < limit.type_two_error(alpha) + 0.02, "{alpha} {beta}");
            assert!(row.epsilon.unwrap() > limit.epsilon(1e-5).unwrap() * 0.9);
        }
        assert_eq!(rows[2].epsilon, None);
        assert!(folder.path().join("out/tradeoff.svg").exists());
    }
}
