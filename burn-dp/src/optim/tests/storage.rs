//! What the statement says about where a run is stored.

use std::path::Path;

use burn::optim::SgdConfig;
use burn_dp_accountant::DpEvent;

use crate::device_read::wait;
use crate::optim::engine::{EngineState, LostSteps, RunSource};
use crate::optim::releases::{Appended, Lock, Mark, ReleaseSink, Releases};
use crate::optim::{DpOptimizer, PrivacyPlanConfig};

/// A log on a file system with or without locks.
struct Log(Lock);

impl ReleaseSink for Log {
    fn append<'a>(&'a mut self, _: u64, _: Mark, _: Option<&'a DpEvent>) -> Appended<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn path(&self) -> &Path {
        Path::new("releases.log")
    }

    fn lock(&self) -> Lock {
        self.0
    }
}

fn optimizer() -> DpOptimizer {
    let config = PrivacyPlanConfig::new(100, 10.0).with_steps(2).with_noise_multiplier(1.0);
    config.init().unwrap().optimizer(SgdConfig::new().init())
}

// Sharp edge: a process that ends takes the only record of its releases with it.
#[test]
fn a_run_without_a_log_of_releases_is_in_the_statement() {
    let optim = optimizer();
    let said = || {
        let statement = optim.statement(&[1e-3]).unwrap();
        statement.not_covered.iter().any(|line| line.contains("no log of releases"))
    };
    assert!(said());
    optim.engine.releases().unwrap().attach(Log(Lock::Held));
    assert!(!said());
}

// Sharp edge: a lock that only some file systems enforce.
#[test]
fn a_file_system_without_locks_is_in_the_statement() {
    for (lock, stated) in [(Lock::Held, false), (Lock::Unsupported, true)] {
        let optim = optimizer();
        optim.engine.releases().unwrap().attach(Log(lock));
        let statement = optim.statement(&[1e-3]).unwrap();
        let found = statement.not_covered.iter().any(|line| line.contains("has no locks"));
        assert_eq!(found, stated, "{statement}");
    }
}

#[test]
fn a_run_that_had_no_lock_states_it_wherever_it_is_resumed() {
    for (lock, stated) in [(Lock::Held, false), (Lock::Unsupported, true)] {
        let optim = optimizer();
        optim.engine.releases().unwrap().attach(Log(lock));
        let state = wait(EngineState::of(&optim.engine)).unwrap();
        let open = |run| {
            let mut releases = Releases::new(run);
            releases.attach(Log(Lock::Held));
            Ok(releases)
        };
        let (name, log) = (Path::new("privacy.json"), Path::new("releases.log"));
        let source = RunSource { name, log, open, lost: LostSteps::Repeat };
        let resumed = state.resume(optimizer().engine, source).unwrap();
        let statement = resumed.statement(&[1e-3]).unwrap();
        let found = statement.not_covered.iter().any(|line| line.contains("has no locks"));
        assert_eq!(found, stated, "{statement}");
        assert_eq!(statement.facts.contains_key("release_log"), stated, "{statement}");
    }
}
