//! The options that describe a training.

use std::path::{Path, PathBuf};

use burn_dp_accountant::{
    AccountantError, DpEvent, LedgerHeader, NeighboringRelation, NoiseProvenance, PrivacyLedger,
    UnitOfPrivacy,
};
use clap::Args;

use crate::output::invalid;
use crate::private_search::SearchOptions;
use crate::sampler::SamplerOptions;
use crate::samplers::{Relation, Sampler};

/// The training: a ledger file, or segments (repeat the three options for several segments).
#[derive(Debug, Args)]
pub(crate) struct Training {
    /// Probability that a unit takes part in a step.
    #[arg(long, visible_alias = "q", value_name = "Q")]
    sampling_probability: Vec<f64>,
    /// Noise standard deviation over the clipping threshold.
    #[arg(long, visible_alias = "sigma", value_name = "S")]
    noise_multiplier: Vec<f64>,
    /// Number of steps.
    #[arg(long, value_name = "T")]
    steps: Vec<u64>,
    #[command(flatten)]
    sampler: SamplerOptions,
    /// Ledger that a training wrote.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "sampling_probability", "noise_multiplier", "steps", "sampler", "relation",
            "dataset_size", "batch_size", "max_batch_size", "parts", "bins", "epochs",
            "participations", "fresh_bins", "separation", "examples_per_unit", "coefficients",
            "strategy",
        ]
    )]
    ledger: Option<PathBuf>,
    /// Neighboring relation of the segments (a ledger has its own). Default: replace-one for
    /// fixed-size, with-replacement, shuffled and shuffled-once, add-or-remove-one for the others.
    #[arg(long, value_enum)]
    relation: Option<Relation>,
    #[command(flatten)]
    search: SearchOptions,
}

/// The events of a training.
pub(crate) struct Events {
    pub(crate) events: Vec<(DpEvent, u64)>,
    pub(crate) relation: NeighboringRelation,
    ledger: Option<PrivacyLedger>,
}

impl Events {
    /// Returns each event with its number of releases.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (&DpEvent, u64)> {
        self.events.iter().map(|(event, n)| (event, *n))
    }

    /// Returns whether the ledger says that its noise can be reproduced.
    pub(crate) fn is_insecure(&self) -> bool {
        self.insecure_reason().is_some()
    }

    /// Returns why the noise can be reproduced, if the ledger says so.
    pub(crate) fn insecure_reason(&self) -> Option<&str> {
        match &self.ledger.as_ref()?.header().noise_source {
            NoiseProvenance::Insecure { reason } => Some(reason),
            NoiseProvenance::Secure => None,
        }
    }

    /// Returns the ledger, or a ledger of the segments.
    pub(crate) fn ledger(&self) -> Result<PrivacyLedger, AccountantError> {
        if let Some(ledger) = &self.ledger {
            return Ok(ledger.clone());
        }
        let header = LedgerHeader::new(UnitOfPrivacy::Example, self.relation);
        let mut ledger = PrivacyLedger::new(header);
        for (event, count) in self.counted() {
            ledger.record_many(event, count)?;
        }
        Ok(ledger)
    }
}

impl Training {
    /// Reads the ledger, or checks the segments.
    pub(crate) fn read(&self) -> Result<Events, AccountantError> {
        if let Some(path) = &self.ledger {
            let ledger = read_ledger(path)?;
            let events =
                ledger.entries().iter().map(|entry| (entry.event.clone(), entry.count)).collect();
            let relation = ledger.header().relation;
            return Ok(Events { events, relation, ledger: Some(ledger) });
        }
        let relation = self.sampler.sampler.relation(self.relation)?.into();
        if self.sampler.sampler != Sampler::Poisson || self.sampler.batch_size.is_some() {
            let events = self.search.of_runs(vec![self.one_segment()?])?;
            return Ok(Events { events, relation, ledger: None });
        }
        self.sampler.refuse_foreign_options()?;
        if let Some(size) = self.sampler.dataset_size {
            return Err(invalid(
                "--dataset-size",
                format!("is not needed with --sampling-probability, got {size}; leave it out"),
            ));
        }
        let (q, sigma, steps) = (&self.sampling_probability, &self.noise_multiplier, &self.steps);
        let given = [
            ("--sampling-probability", q.len()),
            ("--noise-multiplier", sigma.len()),
            ("--steps", steps.len()),
        ];
        let segments = q.len().max(sigma.len()).max(steps.len()).max(1);
        if let Some((name, count)) = given.into_iter().find(|(_, count)| *count < segments) {
            let reason = match count {
                0 => "must be given, or --ledger FILE in place of probability, noise and steps"
                    .into(),
                _ => format!("must be given once for each of the {segments} segments, got {count}"),
            };
            return Err(invalid(name, reason));
        }
        let mut events = Vec::new();
        for ((&q, &sigma), &steps) in q.iter().zip(sigma).zip(steps) {
            let event = self.sampler.poisson_step(q, sigma)?;
            event.validate()?;
            events.push((event, steps));
        }
        let events = self.search.of_runs(events)?;
        Ok(Events { events, relation, ledger: None })
    }

    /// Returns the one segment of a sampler that is not plain Poisson.
    fn one_segment(&self) -> Result<(DpEvent, u64), AccountantError> {
        let (q, sigma, steps) = (&self.sampling_probability, &self.noise_multiplier, &self.steps);
        if sigma.len() != 1 || q.len() > 1 || steps.len() > 1 {
            return Err(invalid(
                "--noise-multiplier",
                format!(
                    "must be given once: this sampler describes one segment, got {} (and {} \
                     probabilities, {} numbers of steps)",
                    sigma.len(),
                    q.len(),
                    steps.len()
                ),
            ));
        }
        self.sampler.event(q.first().copied(), sigma[0], steps.first().copied())
    }
}

/// Reads a ledger. An empty one is an error: ε = 0 of the wrong file would be mistaken for a proof.
pub(crate) fn read_ledger(path: &Path) -> Result<PrivacyLedger, AccountantError> {
    let ledger = PrivacyLedger::load(path)?;
    if ledger.entries().is_empty() {
        return Err(invalid(
            "--ledger",
            format!("must contain at least one release, but {} is empty", path.display()),
        ));
    }
    Ok(ledger)
}
