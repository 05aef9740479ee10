//! An experiment with verdicts.

use burn_dp_examples::training::TrainError;

use super::figure::{Figure, Findings};
use super::measured::{FigureOptions, Measured};
use super::verdict::Verdict;

/// An experiment with a verdict.
pub(super) struct FigureExperiment {
    /// Name of the subcommand and of the files.
    pub(super) name: &'static str,
    /// What it measures.
    pub(super) about: &'static str,
    /// Measures the lines and the facts.
    run: fn(&mut Measured) -> Result<Findings, TrainError>,
    /// Computes the verdicts from the lines and the facts of a figure.
    pub(super) judge: fn(&Figure) -> Vec<Verdict>,
}

impl FigureExperiment {
    /// Measures the figure, and writes it.
    pub(super) fn run(&self, options: &FigureOptions) -> Result<Figure, TrainError> {
        let mut measured = Measured::open(self.name, options)?;
        let findings = (self.run)(&mut measured)?;
        measured.finish(findings, self.judge)
    }
}

/// Creates an experiment.
pub(super) const fn figure(
    name: &'static str,
    run: fn(&mut Measured) -> Result<Findings, TrainError>,
    judge: fn(&Figure) -> Vec<Verdict>,
    about: &'static str,
) -> FigureExperiment {
    FigureExperiment { name, about, run, judge }
}
