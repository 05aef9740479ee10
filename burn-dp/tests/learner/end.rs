//! The end of training with a dashboard that drops the outcome.

use burn::train::checkpoint::KeepLastNCheckpoints;
use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{LossMetric, MetricDefinition};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining,
};
use burn::train::{Interrupter, LearnerSummary, LearningResult, SupervisedTraining};
use burn_dp::DpError;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::train::{PrivateModel, PrivateTraining, PrivateTrainingConfig, TrainingEnd};

use crate::budget::{Unreadable, after_two_epochs, seven_steps};
use crate::checkpoints::{config, train};
use crate::fixture::*;

/// Resets the interrupter as soon as the training has ended, as Burn's terminal dashboard does.
struct Forgetful(Interrupter);

impl MetricsRendererTraining for Forgetful {
    fn update_train(&mut self, _: MetricState) {}

    fn update_valid(&mut self, _: MetricState) {}

    fn on_train_end(
        &mut self,
        _: Option<LearnerSummary>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        self.0.reset();
        Ok(())
    }
}

impl MetricsRendererEvaluation for Forgetful {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
}

impl TrainingProgressLogger for Forgetful {
    fn start(&mut self, _: usize, _: usize, _: Option<usize>, _: Option<&str>) {}

    fn update_epoch(&mut self, _: usize) {}

    fn start_split(&mut self, _: &str, _: usize) {}

    fn update_split(&mut self, _: usize) {}

    fn end_split(&mut self) {}

    fn end(&mut self) {}

    fn log_event_training(&mut self, _: String) {}
}

impl EvaluationProgressLogger for Forgetful {
    fn start_global_progress(&mut self, _: usize) {}

    fn start_test(&mut self, _: &str, _: usize) {}

    fn update_test_progress(&mut self, _: usize) {}

    fn end_test(&mut self) {}

    fn end_global_progress(&mut self) {}

    fn log_event_evaluation(&mut self, _: String) {}
}

impl MetricsRenderer for Forgetful {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, _: MetricDefinition) {}
}

type Training = SupervisedTraining<PrivateModel<Net>>;

/// Trains with the forgetful dashboard: nothing is left in Burn's result.
fn forgotten(
    private: &PrivateTraining,
    configure: impl FnOnce(Training) -> Training,
) -> LearningResult<PrivateModel<Net>> {
    let renderer = Forgetful(private.interrupter());
    let result = launch(private, |training| configure(training).renderer(Box::new(renderer)));
    assert!(result.error.is_none() && result.interrupted.is_none());
    result
}

/// The error of a run.
fn failed(private: &PrivateTraining, configure: impl FnOnce(Training) -> Training) -> String {
    let error = private.finish(&forgotten(private, configure)).unwrap_err();
    assert!(matches!(error, DpError::Training(_)), "{error:?}");
    error.to_string()
}

/// The reason for a stop after `expected` steps.
fn stopped(
    private: &PrivateTraining,
    expected: u64,
    configure: impl FnOnce(Training) -> Training,
) -> String {
    let end = private.finish(&forgotten(private, configure)).unwrap();
    let TrainingEnd::Stopped { steps, planned, reason } = end.clone() else { panic!("{end}") };
    assert_eq!((steps, planned), (expected, STEPS));
    assert_eq!(end.to_string(), format!("stopped after {steps} of {planned} steps: {reason}"));
    reason
}

#[test]
fn a_training_to_its_last_step_is_complete() {
    let private = training_config().init(plan()).unwrap();
    let end = private.finish(&forgotten(&private, |training| training)).unwrap();
    assert_eq!(end, TrainingEnd::Complete { steps: STEPS });
    assert_eq!(end.to_string(), "all 12 planned steps were made");
    // More epochs than planned are no reason.
    let private = training_config().init(plan()).unwrap();
    let result = forgotten(&private, |training| training.num_epochs(9));
    assert_eq!(private.finish(&result).unwrap(), TrainingEnd::Complete { steps: STEPS });
}

#[test]
fn the_reason_of_a_stop_survives_the_dashboard() {
    let (plan_of_seven, _) = seven_steps();
    let private = training_config().init(plan_of_seven).unwrap();
    let reason = stopped(&private, 7, |training| training);
    assert!(reason.contains("more than the budget of"), "{reason}");

    let private = training_config().init(plan()).unwrap();
    private.interrupter().stop(Some("enough"));
    assert_eq!(stopped(&private, 1, |training| training), "enough");

    let private = training_config().init(plan()).unwrap();
    let reason = stopped(&private, 2 * STEPS_PER_EPOCH, |training| {
        training.metric_valid_numeric(LossMetric::new()).early_stopping(after_two_epochs())
    });
    assert!(reason.contains("early stopping"), "{reason}");
}

#[test]
fn an_error_survives_the_dashboard() {
    // Data that cannot be read.
    let private = training_config().init(plan()).unwrap();
    let folder = run_folder();
    let loader = private.loader(builder(), Unreadable).unwrap();
    let renderer = Box::new(Forgetful(private.interrupter()));
    let training = plain(private.supervised(folder.path(), loader, valid())).renderer(renderer);
    let result = training.launch(learner(&private));
    assert!(result.error.is_none());
    let error = private.finish(&result).unwrap_err().to_string();
    assert!(error.contains("bad sector"), "{error}");

    // A refused step.
    let private = training_config().init(plan()).unwrap();
    let error = failed(&private, |training| training.grads_accumulation(2));
    assert!(error.contains("`grads_accumulation`"), "{error}");

    // A step that differs from the one that was released before.
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    train(&private, 2);
    drop(private);
    let checkpoint = Checkpointer::new(folder.path()).after(STEPS_PER_EPOCH).unwrap();
    let other = PrivateTrainingConfig::new(7).with_steps_per_epoch(STEPS_PER_EPOCH);
    let private = other.with_checkpoints(folder.path()).resume(plan(), &checkpoint).unwrap();
    let error = failed(&private, |training| training);
    assert!(error.contains("was released before"), "{error}");

    // A checkpoint that cannot be saved.
    let folder = run_folder();
    let private = config(folder.path()).init(plan()).unwrap();
    let error = failed(&private, |training| {
        training.with_checkpointing_strategy(KeepLastNCheckpoints::new(2))
    });
    assert!(error.contains("PrivateTraining::checkpointing"), "{error}");
}

#[test]
fn an_error_of_burn_itself_is_the_error_of_the_training() {
    let private = training_config().init(plan()).unwrap();
    let folder = run_folder();
    let unreadable = burn::data::dataloader::DataLoaderBuilder::new(Rows).build(Unreadable);
    let training = private.supervised(folder.path(), loader(&private), unreadable);
    let result = plain(training).launch(learner(&private));
    assert!(private.error().is_none());
    let error = private.finish(&result).unwrap_err().to_string();
    assert!(
        error.contains("the learner of Burn failed: ") && error.contains("bad sector"),
        "{error}"
    );
}
