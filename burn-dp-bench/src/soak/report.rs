//! What was killed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Serialize;

/// The figures of a soak.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) seed: u64,
    /// Processes that were ended by a signal or that aborted.
    pub(super) kills: u64,
    /// Processes that ended with an error because their disk was full.
    pub(super) full_disks: u64,
    /// Runs, all of which ended as if they had never been disturbed.
    pub(super) runs: u64,
    /// Kills by the kind of the run.
    pub(super) kills_by_subject: BTreeMap<String, u64>,
    /// Kills by the phase that the process was in.
    pub(super) kills_by_phase: BTreeMap<String, u64>,
    /// The most releases that the log of a run had when a process of it was dead, by the kind of
    /// the run.
    pub(super) releases_in_log: BTreeMap<String, u64>,
    pub(super) seconds: f64,
}

impl Report {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(super) fn count_kill(&mut self, subject: &str, phase: &str) {
        self.kills += 1;
        *self.kills_by_subject.entry(subject.into()).or_default() += 1;
        *self.kills_by_phase.entry(phase.into()).or_default() += 1;
    }

    pub(super) fn count_releases(&mut self, subject: &str, releases: u64) {
        let most = self.releases_in_log.entry(subject.into()).or_default();
        *most = releases.max(*most);
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} kills and {} full disks in {} runs, {:.0} s: no budget lost, no file incomplete, \
             every run equal to the undisturbed one",
            self.kills, self.full_disks, self.runs, self.seconds
        )?;
        let list = |counts: &BTreeMap<String, u64>| {
            let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
            counts.collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "by kind of run: {}", list(&self.kills_by_subject))?;
        writeln!(f, "most releases in a log: {}", list(&self.releases_in_log))?;
        write!(f, "by what had begun: {}", list(&self.kills_by_phase))
    }
}
