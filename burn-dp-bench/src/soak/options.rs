//! The command line.

use std::path::PathBuf;

use clap::Parser;

use super::subject::Subject;

/// Kills runs at random points and resumes them.
#[derive(Parser, Debug, Clone)]
#[command(name = "cargo xtask soak", bin_name = "cargo xtask soak", version)]
pub struct SoakOptions {
    /// Number of processes to kill.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub kills: u64,
    /// Seed of the kill points. The moments of signals depend on the machine as well.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Kill only at operations on files, whose moments depend on nothing but the seed.
    #[arg(long)]
    pub no_signals: bool,
    /// Only this kind of run.
    #[arg(long, value_enum)]
    pub subject: Option<Subject>,
    /// File for the figures as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Run one process in this folder; used by the soak itself.
    #[arg(long, hide = true)]
    pub child: Option<PathBuf>,
}
