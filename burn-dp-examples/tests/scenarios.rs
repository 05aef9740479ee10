//! The scenarios in the folder `examples` run and do what their READMEs say.
//!
//! Their keys and weights differ from run to run. A band of accuracies ends about five standard
//! deviations or more from the mean of twenty runs: a normal value is outside about once in a
//! million runs.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

use burn::tensor::Device;

#[path = "../examples/batch-clipping/src/main.rs"]
mod batch_clipping;
#[path = "../examples/federated/src/main.rs"]
mod federated;
#[path = "../examples/fine-tuning/src/main.rs"]
mod fine_tuning;
#[path = "../examples/mnist/src/main.rs"]
mod mnist;
#[path = "../examples/resume/src/main.rs"]
mod resume;
#[path = "../examples/text/src/main.rs"]
mod text;

#[test]
fn mnist_learns_and_writes_model_and_statement() {
    let folder = tempfile::tempdir().unwrap();
    let config = mnist::training::TrainingConfig::new();
    let accuracy = mnist::training::run(&config, None, folder.path(), &Device::flex()).unwrap();
    // Guessing gives 0.1. Twenty runs gave 0.52 to 0.59, with a mean of 0.56 and a standard
    // deviation of 0.017.
    assert!((0.4..0.75).contains(&accuracy), "accuracy {accuracy}");
    let statement = std::fs::read_to_string(folder.path().join("privacy.txt")).unwrap();
    assert!(statement.contains("one example"), "{statement}");
    assert!(folder.path().join("model.bpk").is_file());
}

#[test]
fn text_learns_at_its_budget() {
    let config = text::training::TrainingConfig::new();
    let accuracy = text::training::run(&config, &Device::flex()).unwrap();
    // Guessing gives 0.5. Twenty runs made no mistake in 200 texts; forty are allowed.
    assert!(accuracy > 0.8, "accuracy {accuracy}");
}

#[test]
fn federated_training_protects_users() {
    let training = federated::training::run(3, &Device::flex().autodiff()).unwrap();
    let statement = training.optimizer().statement(&[federated::training::DELTA]).unwrap();
    assert!(statement.to_string().contains("one user, with all of their examples"));
    assert!(statement.epsilons[0].upper <= 8.0);
}

#[test]
fn batch_clipping_trains_batch_norm() {
    let (accuracy, optim) = batch_clipping::training::run(3).unwrap();
    // Guessing gives 0.1. Twenty runs gave 0.26 to 0.38, with a mean of 0.32 and a standard
    // deviation of 0.033.
    assert!((0.15..0.55).contains(&accuracy), "accuracy {accuracy}");
    assert_eq!(optim.ledger().releases(), 30);
}

#[test]
fn a_killed_run_resumes_without_a_second_payment() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    resume::training::run(&run, Some(60)).unwrap();
    let optim = resume::training::run(&run, Some(70)).unwrap();
    assert_eq!(optim.ledger().releases(), 70);
}

#[test]
fn fine_tuning_leaves_the_backbone_as_it_was() {
    let (_, optim) = fine_tuning::training::run(1.0).unwrap();
    assert_eq!(optim.ledger().releases(), 20);
    assert!(optim.privacy_spent(fine_tuning::training::DELTA).unwrap().upper <= 1.0);
}
