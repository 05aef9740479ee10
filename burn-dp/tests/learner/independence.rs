//! Losses that depend on the other examples of their batch, with the learner.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::train::{InferenceStep, RegressionOutput};
use burn_dp::DpError;
use burn_dp::optim::IndependenceCheck;
use burn_dp::optim::PublicSchedule;
use burn_dp::train::PrivateTrainStep;

use crate::fixture::*;

/// Divides its losses by the number of rows, which no gradient shows: from the first step, or as
/// soon as a step changed the model.
#[derive(Module, Debug)]
struct Mixed {
    net: Net,
    from_start: bool,
}

impl PrivateTrainStep for Mixed {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn losses(&self, rows: Tensor<2>) -> (Tensor<1>, RegressionOutput) {
        let number = rows.dims()[0] as f64;
        let (losses, output) = self.net.output(rows);
        // The biases begin at zero.
        let bias = self.net.second.clone().into_inner().bias.unwrap().val();
        let trained = bias.into_scalar::<f32>() != 0.0;
        (if self.from_start || trained { losses / number } else { losses }, output)
    }
}

impl InferenceStep for Mixed {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, rows: Tensor<2>) -> RegressionOutput {
        self.net.output(rows).1
    }
}

/// Returns the number of steps that ran, and the error that ended the training.
fn train(check: IndependenceCheck, from_start: bool) -> (u64, Option<String>) {
    let private = training_config().with_independence_check(check).init(plan()).unwrap();
    let model = private.model(Mixed { net: Net::new(), from_start }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let training = plain(private.supervised(folder.path(), loader(&private), valid()));
    let schedule = PublicSchedule::declared_public(scheduler());
    let result = training.launch(model.learner(optimizer(), schedule));
    let error = private.finish(&result).err().map(|error| {
        let DpError::Training(error) = error else { panic!("{error}") };
        assert!(matches!(*error, DpError::NotPerExample { .. }), "{error}");
        error.to_string()
    });
    assert_eq!(private.ledger().releases(), private.next_step());
    (private.next_step(), error)
}

#[test]
fn a_mixture_without_a_gradient_ends_the_training_before_its_first_release() {
    let (steps, error) = train(IndependenceCheck::FirstStep, true);
    let error = error.unwrap();
    assert!(steps == 0 && error.contains("from its own example alone"), "{steps} {error}");
    // Without the test, nothing else rejects it.
    assert_eq!(train(IndependenceCheck::Never, true), (STEPS, None));
}

#[test]
fn a_mixture_that_begins_during_the_training_is_found_at_the_rate_that_is_set() {
    assert_eq!(train(IndependenceCheck::FirstStep, false), (STEPS, None));
    for rate in [3, 5] {
        let (steps, error) = train(IndependenceCheck::Every(rate), false);
        let error = error.unwrap();
        assert!(error.contains("from its own example alone"), "{error}");
        assert_eq!(steps, rate);
    }
}
