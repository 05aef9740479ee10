//! The log of releases of a program without files, for example in a browser.

use std::error::Error;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use burn_dp_accountant::DpEvent;

use super::log_content::{self, Line};
use super::{DpOptimizerRecord, log_lines};
use crate::DpError;
use crate::optim::DpOptimizer;
use crate::optim::engine::damaged;
use crate::optim::releases::{Appended, Lock, Mark, ReleaseSink, Releases};

/// The name of a store in messages.
const NAME: &str = "the store of releases";

/// The result of [`ReleaseStore::append`].
pub type StoreFuture<'a> =
    Pin<Box<dyn Future<Output = Result<(), Box<dyn Error + Send + Sync>>> + 'a>>;

/// Stores the log of releases of a run where files are not available.
///
/// The log is the concatenation of the appended texts, in order. Pass it to
/// [`DpOptimizer::load_record_from_store`] to continue the run.
///
/// # Privacy
///
/// A release is appended before its noise is drawn. If the store loses a text that it reported as
/// stored, a resumed run restores budget that was spent.
pub trait ReleaseStore: Send {
    /// Appends `text` to the log, completely or not at all. The future completes when the text is
    /// durable.
    ///
    /// # Errors
    ///
    /// Returns an error if it is uncertain whether the text is stored. Nothing more is released
    /// then.
    fn append(&mut self, text: String) -> StoreFuture<'_>;

    /// Returns whether no other program can append to this log. If not, the statement of the run
    /// says so.
    fn is_exclusive(&self) -> bool;
}

/// Writes releases to a [`ReleaseStore`].
struct StoreLog {
    store: Box<dyn ReleaseStore>,
    /// Whether it is uncertain that a text is stored.
    broken: bool,
}

impl StoreLog {
    fn new(store: impl ReleaseStore + 'static) -> Self {
        Self { store: Box::new(store), broken: false }
    }

    async fn append_text(&mut self, text: String) -> Result<(), DpError> {
        if self.broken {
            return Err(DpError::state(
                "a release may not be in the store, and nothing is released after it; resume from \
                 the last record",
            ));
        }
        // Until the store answers, because the future may be dropped.
        self.broken = true;
        self.store.append(text).await.map_err(|source| DpError::Store { source })?;
        self.broken = false;
        Ok(())
    }
}

impl ReleaseSink for StoreLog {
    fn append<'a>(&'a mut self, step: u64, mark: Mark, event: Option<&'a DpEvent>) -> Appended<'a> {
        Box::pin(async move {
            let line = log_lines::line(&Line { step, mark, event: event.cloned() })?;
            self.append_text(line).await
        })
    }

    fn path(&self) -> &Path {
        Path::new(NAME)
    }

    fn lock(&self) -> Lock {
        match self.store.is_exclusive() {
            true => Lock::Held,
            false => Lock::Unsupported,
        }
    }
}

/// Returns the releases of the run with this identity, whose log is `log`. Further releases are
/// appended to `store`.
fn read(log: &[u8], run: u64, store: impl ReleaseStore + 'static) -> Result<Releases, DpError> {
    let (mut releases, end) = log_content::parse(Path::new(NAME), log, Some(run))?;
    if end != log.len() || !log.ends_with(b"\n") {
        let reason = "its last text is cut off, which a store must not do";
        return Err(damaged(Path::new(NAME), reason));
    }
    releases.attach(StoreLog::new(store));
    Ok(releases)
}

/// Saving and loading without files.
impl DpOptimizer {
    /// Writes every release to `store` from now on, before its noise is drawn. A
    /// [record](Self::to_record_async) requires such a log. The releases so far are appended first.
    /// It is the counterpart of [`with_release_log`](Self::with_release_log) for programs without
    /// files.
    ///
    /// # Arguments
    ///
    /// - `store`: a store without a log
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidState`] if the run has another log, and [`DpError::Store`] if the
    /// store fails.
    pub async fn with_release_store(
        self,
        store: impl ReleaseStore + 'static,
    ) -> Result<Self, DpError> {
        if let Some(attached) = self.engine.release_log()? {
            return Err(DpError::state(format!(
                "the releases of the run are in {}, and a second log would fall behind",
                attached.display()
            )));
        }
        let text = log_content::written(&*self.engine.releases()?)?;
        let mut log = StoreLog::new(store);
        log.append_text(text).await?;
        self.engine.releases()?.attach(log);
        Ok(self)
    }

    /// Continues the run of a record whose log of releases is in a store; otherwise like
    /// [`load_record`](Self::load_record).
    ///
    /// # Arguments
    ///
    /// - `record`: from [`DpOptimizerRecord::from_stored_bytes`]
    /// - `log`: the texts of the store, in order
    /// - `store`: the store, for further releases
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load_record`](Self::load_record).
    pub fn load_record_from_store(
        self,
        record: DpOptimizerRecord,
        log: &[u8],
        store: impl ReleaseStore + 'static,
    ) -> Result<Self, DpError> {
        let optim = record.resume(self, Path::new(NAME), |run| read(log, run, store))?;
        optim.engine.releases()?.in_records = true;
        Ok(optim)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::pin::pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll, Waker};

    use burn::module::Module;
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn::optim::momentum::MomentumConfig;
    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::checkpoint::model_to_bytes_async;
    use crate::device_read::wait;
    use crate::nn::{IntoPrivate, Private};
    use crate::optim::{PrivacyPlanConfig, RefusedStep};
    use crate::random::InsecureSeed;

    /// What the next append does.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Next {
        Stores,
        Fails,
        Hangs,
    }

    #[derive(Clone)]
    struct Memory(Arc<Mutex<(String, Next)>>);

    impl Memory {
        fn new() -> Self {
            Self(Arc::new(Mutex::new((String::new(), Next::Stores))))
        }

        fn next(&self, next: Next) {
            self.0.lock().unwrap().1 = next;
        }

        fn log(&self) -> Vec<u8> {
            self.0.lock().unwrap().0.clone().into_bytes()
        }

        fn lines(&self) -> usize {
            self.log().split(|&byte| byte == b'\n').count() - 1
        }
    }

    impl ReleaseStore for Memory {
        fn append(&mut self, text: String) -> StoreFuture<'_> {
            Box::pin(async move {
                let next = self.0.lock().unwrap().1;
                match next {
                    Next::Stores => {
                        // Like a store that waits for another service.
                        let mut asked = false;
                        std::future::poll_fn(|context| {
                            context.waker().wake_by_ref();
                            match std::mem::replace(&mut asked, true) {
                                true => Poll::Ready(()),
                                false => Poll::Pending,
                            }
                        })
                        .await;
                        self.0.lock().unwrap().0.push_str(&text);
                        Ok(())
                    }
                    Next::Fails => Err("the quota is exceeded".into()),
                    Next::Hangs => std::future::pending().await,
                }
            })
        }

        fn is_exclusive(&self) -> bool {
            true
        }
    }

    fn device() -> Device {
        Device::flex().autodiff()
    }

    fn model() -> Private<Linear> {
        let mut layer = LinearConfig::new(2, 2).with_bias(false).init(&device());
        layer.weight = layer.weight.map(|weight| weight.ones_like().require_grad());
        layer.private()
    }

    fn optimizer() -> DpOptimizer {
        let config = PrivacyPlanConfig::new(12, 8.0).with_steps(9).with_noise_multiplier(1.0);
        let plan = config.with_insecure_seed(InsecureSeed(3)).init().unwrap();
        let momentum = MomentumConfig::new().with_momentum(0.9);
        plan.optimizer(SgdConfig::new().with_momentum(Some(momentum)).init())
    }

    type Made = Result<Private<Linear>, Box<RefusedStep<Private<Linear>>>>;

    /// Runs the next step, on values derived from `scale`.
    async fn step(optim: &mut DpOptimizer, model: Private<Linear>, scale: f32) -> Made {
        let draw = optim.plan().sampler().unwrap().draw(optim.next_step()).unwrap();
        let clipped = optim.backward_async(&model, &draw, |model, units| {
            let values: Vec<f32> = units.iter().flat_map(|&unit| [scale, unit as f32]).collect();
            let x = Tensor::<1>::from_floats(values.as_slice(), &device());
            model.forward(x.reshape([units.len(), 2])).powi_scalar(2).sum_dim(1).reshape([-1])
        });
        clipped.await.unwrap();
        optim.step_async(0.1, model, draw).await
    }

    fn steps(optim: &mut DpOptimizer, mut model: Private<Linear>, steps: usize) -> Private<Linear> {
        for _ in 0..steps {
            model = wait(step(optim, model, 1.0)).unwrap();
        }
        model
    }

    fn weights(model: &Private<Linear>) -> Vec<u8> {
        wait(model_to_bytes_async(&model.clone().no_grad())).unwrap().to_vec()
    }

    fn begun(store: &Memory) -> DpOptimizer {
        wait(optimizer().with_release_store(store.clone())).unwrap()
    }

    /// A run of two steps, its record, its model, and two further steps.
    fn interrupted() -> (Memory, Vec<u8>, Private<Linear>) {
        let store = Memory::new();
        let mut optim = begun(&store);
        let model = steps(&mut optim, model(), 2);
        let record = wait(optim.to_record_async()).unwrap().to_bytes().unwrap().to_vec();
        steps(&mut optim, model.clone(), 2);
        (store, record, model)
    }

    fn resumed(store: &Memory, record: &[u8], skip: bool) -> Result<DpOptimizer, DpError> {
        let record = DpOptimizerRecord::from_stored_bytes(record)?;
        let record = if skip { record.skip_lost_steps() } else { record };
        optimizer().load_record_from_store(record, &store.log(), store.clone())
    }

    #[test]
    fn a_run_resumed_from_a_store_repeats_lost_steps_free_and_bit_for_bit() {
        let (store, record, model) = interrupted();
        assert_eq!(store.lines(), 1 + 4);
        let mut optim = resumed(&store, &record, false).unwrap();
        assert_eq!((optim.next_step(), optim.ledger().releases()), (2, 4));
        let model = steps(&mut optim, model, 2);
        assert_eq!((store.lines(), optim.ledger().releases()), (1 + 4, 4));
        let model = steps(&mut optim, model, 1);
        assert_eq!((store.lines(), optim.ledger().releases()), (1 + 5, 5));

        let whole = steps(&mut optimizer(), super::tests::model(), 5);
        let weights_only = |model: &Private<Linear>| model.inner.weight.val().into_data();
        assert_eq!(weights_only(&model), weights_only(&whole));
        assert!(optim.statement(&[1e-3]).unwrap().to_string().contains("in records"));
    }

    #[test]
    fn a_different_repetition_is_refused_and_skipped_steps_stay_paid() {
        let (store, record, model) = interrupted();
        let mut optim = resumed(&store, &record, false).unwrap();
        let refused = wait(step(&mut optim, model, 2.0)).unwrap_err();
        assert!(refused.to_string().contains("step 2 was released before"), "{refused}");
        let model = refused.into_model();
        drop(optim);

        let mut optim = resumed(&store, &record, true).unwrap();
        assert_eq!((optim.next_step(), optim.ledger().releases()), (4, 4));
        let _ = wait(step(&mut optim, model, 2.0)).unwrap();
        assert_eq!((store.lines(), optim.ledger().releases()), (1 + 5, 5));
    }

    #[test]
    fn nothing_is_released_that_the_store_does_not_have() {
        let store = Memory::new();
        let mut optim = begun(&store);
        let before = model();
        let expected = weights(&before);
        store.next(Next::Fails);
        let refused = wait(step(&mut optim, before, 1.0)).unwrap_err();
        assert!(refused.to_string().contains("the quota is exceeded"), "{refused}");
        let model = refused.into_model();
        assert_eq!(weights(&model), expected);
        assert_eq!((store.lines(), optim.ledger().releases()), (1, 0));
        store.next(Next::Stores);
        optim.discard();
        assert!(wait(step(&mut optim, model, 1.0)).is_err(), "the store may have the release");
    }

    #[test]
    fn a_step_that_is_dropped_within_its_store_ends_the_run() {
        let (store, record, model) = interrupted();
        let mut optim = resumed(&store, &record, true).unwrap();
        store.next(Next::Hangs);
        {
            let mut made = pin!(step(&mut optim, model.clone(), 1.0));
            let mut context = Context::from_waker(Waker::noop());
            assert!(made.as_mut().poll(&mut context).is_pending());
        }
        store.next(Next::Stores);
        optim.discard();
        let error = wait(step(&mut optim, model, 1.0)).unwrap_err().to_string();
        assert!(error.contains("noise") || error.contains("may not be in the store"), "{error}");
        assert_eq!(optim.ledger().releases(), 4);
    }

    #[test]
    fn logs_that_lost_a_release_are_refused() {
        let (store, record, _) = interrupted();
        let log = store.log();
        let header = log.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        let refused = |log: &[u8]| {
            let record = DpOptimizerRecord::from_stored_bytes(&record).unwrap();
            let loaded = optimizer().load_record_from_store(record, log, Memory::new());
            loaded.unwrap_err().to_string()
        };
        assert!(refused(&log[..header]).contains("older than the checkpoint"));
        assert!(refused(&[]).contains("no header"));
        for end in header + 1..log.len() {
            // A log without its last lines cannot be distinguished from the log of a shorter run.
            if log[end - 1] != b'\n' {
                let error = refused(&log[..end]);
                assert!(error.contains("cut off"), "{end}: {error}");
            }
        }
    }

    #[test]
    fn records_and_logs_of_files_and_stores_are_not_mixed_up() {
        let (_, record, _) = interrupted();
        let record = DpOptimizerRecord::from_stored_bytes(&record).unwrap();
        let error = optimizer().load_record(record).unwrap_err().to_string();
        assert!(error.contains("load_record_from_store"), "{error}");
        let store = Memory::new();
        let error = wait(begun(&store).with_release_store(Memory::new())).unwrap_err().to_string();
        assert!(error.contains("a second log would fall behind"), "{error}");
        let error = optimizer().to_record().unwrap_err().to_string();
        assert!(error.contains("with_release_store"), "{error}");
    }
}
