//! Events that end training.

use burn::train::metric::store::{Aggregate, Direction, Split};
use burn::train::metric::{LossMetric, Metric};
use burn::train::{MetricEarlyStoppingStrategy, StoppingCondition};
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig};
use burn_dp_accountant::{Budget, DpEvent};

use crate::fixture::*;

/// A plan whose budget allows seven of its steps, the last in the second epoch, and ε of these.
pub(crate) fn seven_steps() -> (PrivacyPlan, f64) {
    let config =
        || PrivacyPlanConfig::new(UNITS, 15.0).with_steps(STEPS).with_noise_multiplier(2.0);
    let ledger = training_config().init(config().init().unwrap()).unwrap().ledger();
    let event = DpEvent::dp_sgd_step(0.125, 2.0);
    let epsilon = ledger.epsilon_after(&event, 7, 1e-5).unwrap().upper;
    let budget = Budget::new(epsilon * 1.001, 1e-5).unwrap();
    (config().with_budget(budget).init().unwrap(), epsilon)
}

/// Stops after two epochs: no loss is higher in the second, because it falls.
pub(crate) fn after_two_epochs() -> MetricEarlyStoppingStrategy {
    MetricEarlyStoppingStrategy::new(
        &LossMetric::new(),
        Aggregate::Mean,
        Direction::Highest,
        Split::Valid,
        StoppingCondition::NoImprovementSince { n_epochs: 1 },
    )
}

#[test]
fn the_budget_stops_the_training_in_time() {
    let (plan, epsilon) = seven_steps();
    let private = training_config().init(plan).unwrap();

    let result = launch(&private, |training| training);
    assert!(result.error.is_none(), "{:?}", result.error);
    let reason = result.interrupted.unwrap().reason.unwrap();
    assert!(reason.contains("more than the budget of"), "{reason}");
    assert_eq!(private.stopped().unwrap(), reason);
    assert_eq!(private.ledger().releases(), 7);
    assert_eq!(private.privacy_spent(1e-5).unwrap().upper, epsilon);
}

#[test]
fn more_epochs_than_planned_stop_with_the_reason() {
    let private = training_config().init(plan()).unwrap();
    let result = launch(&private, |training| training.num_epochs(9));
    assert_eq!(private.next_step(), STEPS);
    assert!(private.stopped().unwrap().contains("all 12 planned steps were made"));
    assert_eq!(values(result.model.inner()), values(&custom_loop(plan(), 4).0));
}

#[test]
fn gradient_accumulation_is_refused_unless_it_accumulates_nothing() {
    let private = training_config().init(plan()).unwrap();
    let result = launch(&private, |training| training.grads_accumulation(2));
    assert!(result.error.is_some());
    let error = private.error().unwrap().to_string();
    assert!(error.contains("`grads_accumulation`"), "{error}");
    assert_eq!(private.ledger().releases(), 0);

    let private = training_config().init(plan()).unwrap();
    let result = launch(&private, |training| training.grads_accumulation(1));
    assert_same_run(&private, &result, &custom_loop(plan(), 4));
}

#[test]
fn the_interrupter_stops_between_two_steps() {
    let private = training_config().init(plan()).unwrap();
    private.interrupter().stop(Some("enough"));
    let result = launch(&private, |training| training);
    assert_eq!(result.interrupted.unwrap().reason.unwrap(), "enough");
    // The step in progress is completed: it is in the ledger and used.
    assert_eq!(private.ledger().releases(), 1);
}

#[test]
fn early_stopping_ends_the_run_and_leaves_budget_unspent() {
    let private = training_config().init(plan()).unwrap();
    assert_eq!(LossMetric::new().name().as_str(), "Loss");
    let result = launch(&private, |training| {
        training.metric_valid_numeric(LossMetric::new()).early_stopping(after_two_epochs())
    });
    assert!(result.error.is_none());
    assert_eq!(private.ledger().releases(), 2 * STEPS_PER_EPOCH);
}

#[test]
fn an_error_of_a_step_ends_the_training_and_releases_nothing() {
    let private = training_config().init(plan_config().with_steps(STEPS).init().unwrap()).unwrap();
    let folder = run_folder();
    // A dependence between the examples: losses that are not one for each row.
    let loader = private.loader(builder(), Unreadable).unwrap();
    let result =
        plain(private.supervised(folder.path(), loader, valid())).launch(learner(&private));
    let error = result.error.unwrap().to_string();
    assert!(error.contains("bad sector"), "{error}");
    assert_eq!(private.ledger().releases(), 0);
    assert!(private.error().unwrap().to_string().contains("bad sector"));
}

pub(crate) struct Unreadable;

impl burn_dp::sampling::DistinctRecords<usize> for Unreadable {}

impl burn::data::dataset::Dataset<usize> for Unreadable {
    fn get(&self, _: usize) -> Result<usize, burn::data::dataset::DatasetError> {
        let error = std::io::Error::other("bad sector");
        Err(burn::data::dataset::DatasetError::new(error))
    }

    fn len(&self) -> usize {
        UNITS
    }
}
