//! What the dashboard shows.

use std::sync::{Arc, Mutex};

use burn::tensor::TensorReadError;
use burn::train::logger::{FileMetricLogger, MetricLogger};
use burn::train::metric::store::Split;
use burn::train::metric::{
    LossMetric, Metric, MetricMetadata, MetricName, NumericEntry, SerializedEntry,
};
use burn_dp::clipping::QuantileClipping;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::train::StepRelease;
use burn_dp_accountant::PrivacyLedger;

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
        self.0.lock().unwrap().push(item.as_ref().unwrap().ledger().clone());
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

/// The values that Burn's logger stored for the steps of an epoch, without the last one that it repeats
/// as that of the epoch.
fn logged(folder: &std::path::Path, name: &str, epoch: usize) -> Vec<f64> {
    let mut logger = FileMetricLogger::new(folder);
    let entries = logger.read_numeric(name, epoch, &Split::Train).unwrap();
    let steps = entries.iter().filter(|entry| !matches!(entry, NumericEntry::Final(_)));
    steps.map(NumericEntry::current).collect()
}

#[test]
fn the_epsilon_of_the_dashboard_is_that_of_the_ledger_after_every_step() {
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
    assert_eq!(ledgers.last().unwrap(), &private.ledger());
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

#[test]
fn metrics_of_private_data_exist_only_where_they_are_asked_for_and_say_what_they_are() {
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
