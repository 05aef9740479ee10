//! The releases of a run, in order.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use burn_dp_accountant::{DpEvent, PrivacyLedger};
use serde::{Deserialize, Serialize};

use crate::DpError;

/// Identifies the content of a release without revealing it: two different releases of one step
/// have different marks. See [`NoiseStep::content_mark`](crate::random::NoiseStep::content_mark).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark(pub(crate) [u8; 16]);

/// Stores every release before its noise is drawn.
///
/// # Privacy
///
/// A release that is stored first is accounted for, whatever happens to the process afterwards.
pub(crate) trait ReleaseSink: Send {
    /// Stores one release durably.
    ///
    /// # Arguments
    ///
    /// - `event`: `None` if it continues the event of the previous step
    fn append<'a>(&'a mut self, step: u64, mark: Mark, event: Option<&'a DpEvent>) -> Appended<'a>;

    /// Returns the path of the stored releases.
    fn path(&self) -> &Path;

    /// Returns whether other processes are locked out of the store.
    fn lock(&self) -> Lock;
}

/// The result of [`ReleaseSink::append`].
pub(crate) type Appended<'a> = Pin<Box<dyn Future<Output = Result<(), DpError>> + 'a>>;

/// Whether a log of releases locks other processes out of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Held,
    /// The file system has no locks.
    Unsupported,
}

/// Where the key of a run is stored, apart from the memory of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeyStorage {
    #[default]
    Nowhere,
    /// In a file that only its owner can read.
    File,
    /// In a file that other users can read.
    ExposedFile,
}

/// The released events, run-length encoded. Clones share one list, which only grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<(DpEvent, u64)>>>);

impl Events {
    fn with<T>(&self, use_list: impl FnOnce(&mut Vec<(DpEvent, u64)>) -> T) -> T {
        use_list(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn push(&self, event: &DpEvent) {
        self.with(|list| match list.last_mut() {
            Some((first, count)) if first.advanced(*count) == *event => *count += 1,
            _ => list.push((event.clone(), 1)),
        });
    }

    /// Returns the event that continues the last one: equal to it, or the next step with
    /// correlated noise.
    pub(crate) fn following(&self) -> Option<DpEvent> {
        self.with(|list| list.last().map(|(first, count)| first.advanced(*count)))
    }

    /// Returns the first `releases` events, run-length encoded.
    pub(crate) fn first(&self, releases: u64) -> Vec<(DpEvent, u64)> {
        let mut left = releases;
        self.with(|list| {
            let parts = list.iter().map(|(event, count)| {
                let taken = left.min(*count);
                left -= taken;
                (event.clone(), taken)
            });
            parts.take_while(|(_, count)| *count > 0).collect()
        })
    }

    pub(crate) fn all(&self) -> Vec<(DpEvent, u64)> {
        self.first(u64::MAX)
    }
}

/// Every release of a run: in memory, and in a [`ReleaseSink`] from the first checkpoint on.
///
/// # Privacy
///
/// A resumed run may repeat steps that were released after its checkpoint. A repeated step is
/// allowed only if it has the mark of the earlier release, so that nothing new is released.
pub(crate) struct Releases {
    /// Identifies the key of the run.
    run: u64,
    marks: Vec<Mark>,
    events: Events,
    sink: Option<Box<dyn ReleaseSink>>,
    /// Where the key of the run is stored, and its file. Set with
    /// [`set_key_storage`](Self::set_key_storage).
    pub(crate) key: (KeyStorage, Option<PathBuf>),
    /// Whether other users could read the file of the key at some time.
    pub(crate) key_was_exposed: bool,
    /// Whether records of the run, which the program stores, have the key.
    pub(crate) in_records: bool,
}

/// Returns what else can be done about a lost step whose repetition differs.
fn way_out(event: &DpEvent) -> &'static str {
    match event {
        DpEvent::CorrelatedGaussian { strategy, .. } if strategy.bands() > 1 => {
            "begin a new run with a budget of its own: correlated noise of later steps contains \
             the noise of this one, so the step cannot be skipped"
        }
        _ => "with `Checkpoint::skip_lost_steps`, which continues after the last release",
    }
}

impl Releases {
    pub(crate) fn new(run: u64) -> Self {
        Self {
            run,
            marks: Vec::new(),
            events: Events::default(),
            sink: None,
            key: Default::default(),
            key_was_exposed: false,
            in_records: false,
        }
    }

    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Returns the number of released steps.
    pub(crate) fn len(&self) -> u64 {
        self.marks.len() as u64
    }

    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Records the release of `step`. Returns `false` if the same release took place before.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the step was released before with different content, or
    /// if it does not follow the last release, and [`DpError::Io`] if the sink cannot store it.
    pub(crate) async fn record(
        &mut self,
        step: u64,
        event: &DpEvent,
        mark: Mark,
    ) -> Result<bool, DpError> {
        if let Some(before) = usize::try_from(step).ok().and_then(|step| self.marks.get(step)) {
            return match *before == mark {
                true => Ok(false),
                false => Err(DpError::state(format!(
                    "step {step} was released before the run was resumed, and its repetition \
                     differs from that release: the data, the program or the order of a sum \
                     changed, and a second release from the same draw would cost more than the \
                     ledger states; resume without the change, or {}",
                    way_out(event)
                ))),
            };
        }
        if step != self.len() {
            return Err(DpError::state(format!(
                "step {step} cannot follow {} releases; make the steps in order",
                self.len()
            )));
        }
        let is_new = self.events.following().is_none_or(|following| following != *event);
        if let Some(sink) = &mut self.sink {
            sink.append(step, mark, is_new.then_some(event)).await?;
        }
        self.push(mark, event);
        Ok(true)
    }

    /// Adds a release that is already stored.
    pub(crate) fn push(&mut self, mark: Mark, event: &DpEvent) {
        self.marks.push(mark);
        self.events.push(event);
    }

    /// Returns where the releases are stored, if they are.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.sink.as_ref().map(|sink| sink.path().to_path_buf())
    }

    /// Returns whether other processes are locked out of the run, if its releases are stored.
    pub(crate) fn lock(&self) -> Option<Lock> {
        self.sink.as_ref().map(|sink| sink.lock())
    }

    /// Sets where the key of the run is stored.
    pub(crate) fn set_key_storage(&mut self, storage: KeyStorage, file: Option<PathBuf>) {
        self.key_was_exposed |= storage == KeyStorage::ExposedFile;
        self.key = (storage, file);
    }

    /// Stores all further releases in `sink`, which has the previous ones.
    pub(crate) fn attach(&mut self, sink: impl ReleaseSink + 'static) {
        self.sink = Some(Box::new(sink));
    }

    /// Returns the ledger of all releases, with the header of `empty`.
    pub(crate) fn ledger(&self, mut empty: PrivacyLedger) -> Result<PrivacyLedger, DpError> {
        for (event, count) in self.events.all() {
            empty.record_many(&event, count)?;
        }
        Ok(empty)
    }
}

opaque_debug!(Releases, |this| releases: this.len());

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::device_read::wait;

    fn event(sigma: f64) -> DpEvent {
        DpEvent::dp_sgd_step(0.01, sigma)
    }

    #[test]
    fn a_repeated_step_is_free_if_it_is_the_same_and_refused_otherwise() {
        let mut releases = Releases::new(7);
        for step in 0..3 {
            assert!(wait(releases.record(step, &event(1.0), Mark([step as u8; 16]))).unwrap());
        }
        assert!(!wait(releases.record(1, &event(1.0), Mark([1; 16]))).unwrap());
        let error = wait(releases.record(2, &event(1.0), Mark([9; 16]))).unwrap_err().to_string();
        assert!(error.contains("step 2") && error.contains("skip_lost_steps"), "{error}");
        let error = wait(releases.record(4, &event(1.0), Mark([4; 16]))).unwrap_err().to_string();
        assert!(error.contains("step 4 cannot follow 3 releases"), "{error}");
    }

    #[test]
    fn the_first_events_are_those_of_the_ledger_at_that_time() {
        let events = Events::default();
        for (sigma, count) in [(1.0, 3), (2.0, 2), (1.0, 1)] {
            (0..count).for_each(|_| events.push(&event(sigma)));
        }
        assert_eq!(events.first(0), []);
        assert_eq!(events.first(2), [(event(1.0), 2)]);
        assert_eq!(events.first(4), [(event(1.0), 3), (event(2.0), 1)]);
        assert_eq!(events.first(6), events.all());
        assert_eq!(events.all().len(), 3);
    }
    /// Keeps the events that it receives.
    struct Stored(Arc<Mutex<Vec<Option<DpEvent>>>>);

    impl ReleaseSink for Stored {
        fn append<'a>(&'a mut self, _: u64, _: Mark, event: Option<&'a DpEvent>) -> Appended<'a> {
            self.0.lock().unwrap().push(event.cloned());
            Box::pin(std::future::ready(Ok(())))
        }

        fn path(&self) -> &Path {
            Path::new("releases.log")
        }

        fn lock(&self) -> Lock {
            Lock::Held
        }
    }

    #[test]
    fn every_event_that_differs_from_the_one_before_is_stored() {
        let stored = Arc::default();
        let mut releases = Releases::new(7);
        releases.attach(Stored(Arc::clone(&stored)));
        for (step, sigma) in (0..).zip([1.0, 1.0, 2.0, 2.0, 1.0]) {
            assert!(wait(releases.record(step, &event(sigma), Mark([step as u8; 16]))).unwrap());
        }
        let (first, second) = (Some(event(1.0)), Some(event(2.0)));
        assert_eq!(*stored.lock().unwrap(), [first.clone(), None, second, None, first]);
    }
}
