//! A resumed run keeps the state of its policy.

use burn::optim::SgdConfig;
use burn_dp::checkpoint::Checkpointer;
use burn_dp::clipping::{Clipping, CountNoise, FlatClipping, QuantileRule};
use burn_dp::schedule::Schedule;

use super::{config, policies, quantile};
use crate::fixtures::{Net, train_on, values};

// Sharp edges: thresholds, draws and noise continue.
#[test]
fn a_resumed_run_has_the_thresholds_of_the_run_bit_for_bit() {
    for (name, policy) in policies() {
        let config = || config().with_noise_multiplier(0.2).with_clipping(policy.clone());
        let begin = || config().init().unwrap().optimizer(SgdConfig::new().init());
        let mut whole = begin();
        let expected = train_on(&mut whole, Net::new(), 10, 7);

        let folder = crate::fixtures::run_folder();
        let checkpointer = Checkpointer::new(folder.path());
        let mut first = begin();
        let model = train_on(&mut first, Net::new(), 4, 7);
        checkpointer.save(&model, &first).unwrap();
        let adapted = first.plan().clipping().adapted();
        drop(first);
        let checkpoint = checkpointer.latest().unwrap().unwrap();
        let inner = SgdConfig::new().init();
        let (mut second, model) =
            checkpoint.restore(config().init().unwrap(), inner, Net::new()).unwrap();
        assert_eq!(second.plan().clipping().adapted(), adapted);
        let found = train_on(&mut second, model, 6, 7);
        assert_eq!(values(&found), values(&expected), "{name}");
        assert_eq!(second.plan().clipping().adapted(), whole.plan().clipping().adapted());
        assert_eq!(second.ledger().entries(), whole.ledger().entries());
    }
}

#[test]
fn a_checkpoint_does_not_resume_with_another_policy() {
    let folder = crate::fixtures::run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let mut optim =
        config().with_clipping(quantile()).init().unwrap().optimizer(SgdConfig::new().init());
    let model = train_on(&mut optim, Net::new(), 2, 1000);
    checkpointer.save(&model, &optim).unwrap();
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let others: Vec<Box<dyn Clipping>> = vec![
        Box::new(FlatClipping::new(1.0).unwrap()),
        Box::new(quantile().with_rule(QuantileRule::Linear)),
        Box::new(quantile().with_learning_rate(0.1).unwrap()),
        Box::new(quantile().with_count_noise(CountNoise::Share(0.2))),
        Box::new(quantile().with_initial(0.2).unwrap()),
    ];
    for other in others {
        let plan = config().with_clipping(other).init().unwrap();
        let restored = checkpoint.restore(plan, SgdConfig::new().init(), Net::new());
        let error = restored.unwrap_err().to_string();
        assert!(error.contains("clipping was per group"), "{error}");
    }
    let schedule = Schedule::exponential(0.5, 5).unwrap();
    let plan = config().with_clipping(quantile()).with_noise_schedule(schedule).init().unwrap();
    let restored = checkpoint.restore(plan, SgdConfig::new().init(), Net::new());
    assert!(restored.unwrap_err().to_string().contains("noise_schedule was constant"));
}
