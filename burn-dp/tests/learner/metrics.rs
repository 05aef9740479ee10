//! The values on the dashboard.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use burn::data::dataset::{Dataset, DatasetError};
use burn::lr_scheduler::constant::ConstantLr;
use burn::optim::SgdConfig;
use burn::tensor::TensorReadError;
use burn::train::logger::{FileMetricLogger, MetricLogger};
use burn::train::metric::store::Split;
use burn::train::metric::{
    LossMetric, Metric, MetricMetadata, MetricName, NumericEntry, SerializedEntry,
};
use burn::train::{Interrupter, Learner};
use burn_dp::clipping::{GroupedClipping, NoiseSplit, QuantileClipping};
use burn_dp::model::ParameterGroups;
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp::sampling::DistinctRecords;
use burn_dp::schedule::Schedule;
use burn_dp::train::{PrivateTrainingConfig, StepRelease};
use burn_dp_accountant::correlated_noise::Strategy;
use burn_dp_accountant::{Budget, DpEvent, PrivacyLedger};

use crate::fixture::*;

/// Keeps the ledger of every step that the dashboard sees.
#[derive(Clone, Default)]
struct Ledgers(Arc<Mutex<Vec<PrivacyLedger>>>);

impl Metric for Ledgers {
    type Input = Option<Arc<StepRelease>>;

    fn name(&self) -> MetricName {
        Arc::new("Ledgers".into())
    }

    fn update(
        &mut self,
        item: &Self::Input,
        _: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        let item = item.as_ref().unwrap();
        let printed = format!("{item:?}");
        assert!(printed.contains("noise_multiplier"), "{printed}");
        for private in ["examples", "clipped", "non_finite", "statistics"] {
            assert!(!printed.contains(private), "a printed release shows numbers of its batch");
        }
        self.0.lock().unwrap().push(item.ledger().unwrap());
        self.compute()
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(SerializedEntry::new("seen".into(), "seen".into()))
    }

    fn clear(&mut self) {}
}

fn secret_plan() -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(UNITS, 15.0).with_steps(STEPS).with_noise_multiplier(1.0)
}

/// The values that Burn's logger stored for an epoch.
fn entries(folder: &std::path::Path, name: &str, epoch: usize) -> Vec<NumericEntry> {
    FileMetricLogger::new(folder).read_numeric(name, epoch, &Split::Train).unwrap()
}

/// Returns the values of the steps, without the last one, which repeats as the value of the epoch.
fn logged(folder: &std::path::Path, name: &str, epoch: usize) -> Vec<f64> {
    let entries = entries(folder, name, epoch);
    let steps = entries.iter().filter(|entry| !matches!(entry, NumericEntry::Final(_)));
    steps.map(NumericEntry::current).collect()
}

#[test]
fn the_dashboard_shows_the_epsilon_of_the_ledger() {
    let private = training_config().init(secret_plan().init().unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let seen = Ledgers::default();
    let training = supervised(&private, folder.path())
        .metric_train(seen.clone())
        .metric_train_numeric(private.epsilon_metric(1e-5).unwrap().with_interval(1));
    let result = training.launch(learner(&private));
    assert!(result.error.is_none(), "{:?}", result.error);

    let ledgers = seen.0.lock().unwrap();
    let epsilons: Vec<f64> =
        ledgers.iter().map(|ledger| ledger.epsilon(1e-5).unwrap().upper).collect();
    let shown: Vec<f64> = (1..=3).flat_map(|epoch| logged(folder.path(), EPSILON, epoch)).collect();
    assert_eq!(shown, epsilons);
    assert_eq!(ledgers.last().unwrap().entries(), private.ledger().entries());
    assert_eq!(*epsilons.last().unwrap(), private.privacy_spent(1e-5).unwrap().upper);
    let counts: Vec<u64> = ledgers.iter().map(PrivacyLedger::releases).collect();
    assert_eq!(counts, (1..=STEPS).collect::<Vec<_>>());
}

const EPSILON: &str = "Epsilon (delta 1e-5)";

#[test]
fn within_a_block_the_epsilon_of_its_end_is_shown() {
    let private = training_config().init(secret_plan().init().unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let metric = private.epsilon_metric(1e-5).unwrap().with_interval(3);
    let training = supervised(&private, folder.path()).metric_train_numeric(metric);
    training.launch(learner(&private));
    let event = private.ledger().entries()[0].event.clone();
    let after = |steps: u64| {
        let mut ledger = PrivacyLedger::new(private.ledger().header().clone());
        ledger.record_many(&event, steps).unwrap();
        ledger.epsilon(1e-5).unwrap().upper
    };
    let shown = logged(folder.path(), EPSILON, 1);
    assert_eq!(shown, [after(3), after(3), after(3), after(4)]);
}

#[test]
fn with_correlated_noise_a_block_is_the_continuation_of_the_steps_before_it() {
    // The noise of every step is in all later ones, so steps of a run cost more than a new run.
    let strategy = Strategy::optimal_toeplitz(STEPS).unwrap();
    for scheme in [SamplingScheme::MinSeparation { separation: 2 }, SamplingScheme::ShuffledOnce] {
        let plan = secret_plan().with_sampling(scheme).with_correlated_noise(strategy.clone());
        let private = training_config().init(plan.init().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let seen = Ledgers::default();
        let metric = private.epsilon_metric(1e-5).unwrap().with_interval(3);
        let training = supervised(&private, folder.path())
            .metric_train(seen.clone())
            .metric_train_numeric(metric);
        training.launch(learner(&private));
        let ledgers = seen.0.lock().unwrap();
        let spent: Vec<f64> =
            ledgers.iter().map(|ledger| ledger.epsilon(1e-5).unwrap().upper).collect();
        let shown: Vec<f64> =
            (1..=3).flat_map(|epoch| logged(folder.path(), EPSILON, epoch)).collect();
        let per_epoch = spent.len() / 3;
        for (step, shown) in shown.iter().enumerate() {
            let end =
                (step - step % per_epoch % 3 + 2).min(step - step % per_epoch + per_epoch - 1);
            assert_eq!(*shown, spent[end], "{scheme:?} {step}: {shown:?} {spent:?}");
        }
    }
}

/// The event in the seventh step.
enum Event {
    /// Nothing: the budget is spent.
    Budget,
    Interruption(Interrupter),
    Error,
}

/// One call loads the units of one step.
struct Ending {
    event: Event,
    calls: AtomicU64,
}

impl DistinctRecords<usize> for Ending {}

impl Dataset<usize> for Ending {
    fn get(&self, index: usize) -> Result<usize, DatasetError> {
        Ok(index)
    }

    fn get_many(&self, indices: Vec<usize>) -> Result<Vec<usize>, DatasetError> {
        match (self.calls.fetch_add(1, Ordering::SeqCst), &self.event) {
            (6, Event::Interruption(interrupter)) => interrupter.stop(Some("enough")),
            (6, Event::Error) => {
                return Err(DatasetError::new(std::io::Error::other("bad sector")));
            }
            _ => {}
        }
        Ok(indices)
    }

    fn len(&self) -> usize {
        UNITS
    }
}

// Sharp edge: a block is computed in advance as if all of its steps had the noise of its first one.
#[test]
fn noise_that_falls_in_the_last_step_of_a_block_is_in_the_last_epsilon() {
    let schedule = Schedule::steps([(STEPS_PER_EPOCH - 1, 0.5)]).unwrap();
    let plan = secret_plan().with_noise_schedule(schedule);
    let private = training_config().init(plan.init().unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let metric = private.epsilon_metric(1e-5).unwrap().with_interval(STEPS_PER_EPOCH);
    supervised(&private, folder.path()).metric_train_numeric(metric).launch(learner(&private));
    let run = private.ledger();
    let mut first_epoch = PrivacyLedger::new(run.header().clone());
    first_epoch.record_many(&run.entries()[0].event, STEPS_PER_EPOCH - 1).unwrap();
    first_epoch.record_many(&run.entries()[1].event, 1).unwrap();
    let shown = entries(folder.path(), EPSILON, 1).pop().unwrap().current();
    assert_eq!(shown, first_epoch.epsilon(1e-5).unwrap().upper);
}

// Sharp edge: training ends in the middle of the second block, which has steps 5 to 8.
#[test]
fn the_last_epsilon_equals_the_ledger_wherever_training_stops() {
    let free = training_config().init(secret_plan().init().unwrap()).unwrap().ledger();
    let event = DpEvent::dp_sgd_step(0.125, 1.0);
    let after = |steps| free.epsilon_after(&event, steps, 1e-5).unwrap().upper;
    let budget = Budget::new(after(6) * 1.0001, 1e-5).unwrap();
    // Releases, the values shown before the end, and how often, including the rejected step.
    for (kind, releases, within, times) in
        [("budget", 6, 6, 2), ("interrupter", 7, 8, 3), ("error", 6, 8, 3)]
    {
        let config = match kind {
            "budget" => secret_plan().with_budget(budget),
            _ => secret_plan(),
        };
        // All units of a step fit into one physical batch, and nothing else is loaded, no padding
        // either.
        let private = PrivateTrainingConfig::new(UNITS)
            .with_steps_per_epoch(STEPS_PER_EPOCH)
            .with_independence_check(false);
        let private = private.init(config.init().unwrap()).unwrap();
        let event = match kind {
            "budget" => Event::Budget,
            "interrupter" => Event::Interruption(private.interrupter()),
            _ => Event::Error,
        };
        let dataset = Ending { event, calls: AtomicU64::new(0) };
        let loader = private.loader(builder().without_padding(), dataset).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let metric = private.epsilon_metric(1e-5).unwrap().with_interval(STEPS_PER_EPOCH);
        plain(private.supervised(folder.path(), loader, valid()))
            .metric_train_numeric(metric)
            .launch(learner(&private));

        assert_eq!(private.ledger().releases(), releases, "{kind}");
        assert_eq!(logged(folder.path(), EPSILON, 1), [after(4); 4], "{kind}");
        let shown = logged(folder.path(), EPSILON, 2);
        assert_eq!(shown, vec![after(within); times], "{kind}");
        let last = entries(folder.path(), EPSILON, 2).pop().unwrap();
        assert!(matches!(last, NumericEntry::Final(_)));
        assert_eq!(last.current(), private.privacy_spent(1e-5).unwrap().upper, "{kind}");
        assert_eq!(last.current(), after(releases), "{kind}");
    }
}

#[test]
fn a_delta_that_allows_to_publish_a_unit_is_not_shown() {
    let private = training_config().init(plan()).unwrap();
    assert!(private.epsilon_metric(0.1).unwrap_err().to_string().contains("1 / dataset_size"));
}

#[test]
fn an_insecure_run_shows_an_infinite_epsilon() {
    let private = training_config().init(plan()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let metric = private.epsilon_metric(1e-5).unwrap();
    supervised(&private, folder.path()).metric_train_numeric(metric).launch(learner(&private));
    assert!(logged(folder.path(), EPSILON, 1).iter().all(|value| value.is_infinite()));
}

#[test]
fn thresholds_and_signal_to_noise_are_shown_and_change_nothing() {
    let plan = || {
        let clipping = QuantileClipping::new(0.5).unwrap();
        plan_config().with_clipping(clipping).init().unwrap()
    };
    let private = training_config().init(plan()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let result = supervised(&private, folder.path())
        .metric_train_numeric(private.clipping_norm_metric())
        .metric_train_numeric(private.signal_to_noise_metric())
        .launch(learner(&private));
    assert_same_run(&private, &result, &custom_loop(plan(), 4));
    let norms = logged(folder.path(), "Clipping norm", 1);
    assert!(norms.windows(2).any(|pair| pair[0] != pair[1]), "{norms:?}");
    let ratios = logged(folder.path(), "Signal to noise", 1);
    assert!(ratios.iter().all(|&ratio| (0.0..100.0).contains(&ratio)), "{ratios:?}");
}

// The oracle: the released gradient, which SGD applies unchanged, and the noise of each parameter.
#[test]
fn signal_to_noise_is_computed_from_the_released_gradient() {
    let plan = || {
        let groups = ParameterGroups::per_layer(&Net::new()).unwrap();
        let clipping = GroupedClipping::new(groups, vec![0.2, 2.0]).unwrap();
        let clipping = clipping.with_noise_split(NoiseSplit::Shares(vec![1.0, 4.0])).unwrap();
        plan_config().with_clipping(clipping).init().unwrap()
    };
    let private = training_config().init(plan()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let model = private.model(Net::new()).unwrap();
    let learner = Learner::new(model, SgdConfig::new().init(), ConstantLr::from(0.1));
    let result = supervised(&private, folder.path())
        .metric_train_numeric(private.signal_to_noise_metric())
        .launch(learner);
    assert!(result.error.is_none(), "{:?}", result.error);
    let shown = (1..=3).flat_map(|epoch| logged(folder.path(), "Signal to noise", epoch));
    let shown: Vec<f64> = shown.collect();

    let mut optim = plan().optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    let batches = optim.plan().batches(dataset(), Rows, &device()).unwrap();
    let mut expected = Vec::new();
    for batch in batches {
        let batch = batch.unwrap();
        optim.backward_batch(&model, &batch, 4, |model, rows| model.output(rows).0).unwrap();
        let before = values(&model);
        model = optim.step(0.1, model, batch).unwrap();
        let (mut square, mut variance) = (0.0, 0.0);
        let paths = ["first.weight", "first.bias", "second.weight", "second.bias"];
        for (path, (before, after)) in paths.iter().zip(before.iter().zip(values(&model))) {
            let gradient = before.iter().zip(&after).map(|(a, b)| f64::from(a - b) / 0.1);
            square += gradient.map(|value| value.powi(2)).sum::<f64>();
            variance += before.len() as f64 * optim.gradient_noise_std(path).unwrap().powi(2);
        }
        expected.push(((square - variance).max(0.0) / variance).sqrt());
    }
    assert_eq!(shown.len(), expected.len());
    assert!(expected.iter().any(|&ratio| ratio > 0.5), "{expected:?}");
    for (shown, expected) in shown.iter().zip(&expected) {
        assert!((shown - expected).abs() < 1e-3 * expected.max(1.0), "{shown} {expected}");
    }
}

#[test]
fn metrics_of_private_data_are_opt_in_and_named_not_private() {
    let private = training_config().init(plan()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let result = supervised(&private, folder.path())
        .metric_train_numeric(private.non_private_metric(LossMetric::new()))
        .metric_train_numeric(private.clipped_share_metric())
        .metric_valid_numeric(LossMetric::new())
        .launch(learner(&private));
    assert_same_run(&private, &result, &custom_loop(plan(), 4));
    let losses = logged(folder.path(), "Loss (not private)", 1);
    assert!(losses.iter().any(|&loss| loss > 0.0), "{losses:?}");
    let shares = logged(folder.path(), "Clipped share (not private)", 1);
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert!(logged(folder.path(), "Loss", 1).is_empty());
}
