//! Kills real processes at random points and checks that nothing is lost.
//!
//! A run is started in a child process, which is ended by a signal at a random moment, aborts
//! before a random file operation, or finds the disk full from a random operation on. It is resumed
//! and disturbed again until it finishes normally. After every fault and at the end, these
//! invariants are checked:
//!
//! - every release that the child reported is in the log on disk;
//! - every result file is absent or complete: ledgers, statements and figures can be read;
//! - the model and the statement equal an undisturbed run's, bit for bit, and so do the releases of
//!   the ledger;
//! - the key is erased.

mod cycle;
#[cfg(feature = "train")]
mod learner;
mod options;
mod random;
mod releases;
mod report;
mod subject;
mod tiny;

pub use options::SoakOptions;
pub use subject::Subject;

use std::collections::BTreeMap;
use std::time::Instant;

use burn_dp_examples::training::checks;

use cycle::{Reference, cycle};
use random::Random;
use report::Report;

/// Runs the soak, or a child of it.
///
/// # Errors
///
/// Returns the first invariant that does not hold, with the seed that reproduces it, and the error
/// of a child that is rejected.
pub fn run(options: SoakOptions) -> Result<(), String> {
    if let Some(folder) = &options.child {
        return options.subject.unwrap_or(Subject::Loop).run(folder);
    }
    if let Some(path) = &options.json {
        checks::file("--json", path, None).map_err(|error| error.to_string())?;
    }
    let subjects = match options.subject {
        Some(subject) => vec![subject],
        None => Subject::all(),
    };
    let mut references = BTreeMap::new();
    for &subject in &subjects {
        references.insert(subject, Reference::of(subject, !options.no_signals)?);
    }
    let mut report = Report::new(options.seed);
    let began = Instant::now();
    for number in 0.. {
        if report.kills >= options.kills {
            break;
        }
        // Each run has its own seed, so that it can be repeated alone.
        let seed = options.seed.wrapping_add(number);
        let mut random = Random::new(seed);
        let subject = subjects[random.below(subjects.len() as u64) as usize];
        cycle(&references[&subject], &mut random, &mut report)
            .map_err(|broken| format!("--seed {seed}: {broken}"))?;
        if number % 20 == 19 {
            eprintln!("{} kills in {} runs", report.kills, report.runs);
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    println!("{report}");
    match &options.json {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}
