//! Noise that is correlated over the steps of a run.

use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use burn_dp::DpError;
use burn_dp::checkpoint::{Checkpointer, DpOptimizerRecord};
use burn_dp::clipping::{
    Clipping, Count, CountNoise, QuantileClipping, QuantileTracker, Thresholds,
};
use burn_dp::model::ParameterGroups;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp::schedule::Schedule;
use burn_dp_accountant::correlated_noise::Strategy;
use burn_dp_accountant::{Budget, DpEvent, PrivacyLedger};

use crate::fixtures::{
    Net, UNITS, batches, config, flat, run, run_folder, train_on, train_with, values,
};

/// Shuffled epochs of four steps, so that a unit takes part every four steps, without noise yet.
fn shuffled_plan() -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(UNITS, 50.0).with_steps(8).with_sampling(SamplingScheme::ShuffledOnce)
}

fn shuffled() -> PrivacyPlanConfig {
    shuffled_plan().with_noise_multiplier(1.0).with_insecure_seed(InsecureSeed(5))
}

fn strategies() -> Vec<Strategy> {
    [
        Strategy::optimal_toeplitz(8),
        Strategy::banded_toeplitz(8, &[1.0, 0.5, 0.2]),
        Strategy::banded_inverse_square_root(8, 3),
        Strategy::buffered(8, &[0.9, 0.5], &[0.2, 0.1]),
        Strategy::tree(8),
    ]
    .map(Result::unwrap)
    .to_vec()
}

/// The change of all parameters in each step of a run whose sums are zero.
fn noise_of_steps(config: PrivacyPlanConfig) -> Vec<Vec<f32>> {
    let plan = config.init().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let (mut model, mut steps) = (Net::new(), Vec::new());
    for _ in 0..8 {
        let before = flat(&model);
        let next = batches(optim.plan()).skip_to(optim.next_step()).unwrap().take(1);
        let losses = |model: &Net, x: Tensor<2>| model.losses(x) * 0.0;
        model = train_with(&mut optim, model, next, 100, losses);
        steps.push(flat(&model).iter().zip(before).map(|(after, before)| after - before).collect());
    }
    steps
}

#[test]
fn a_run_adds_the_noise_of_its_strategy() {
    let independent = noise_of_steps(shuffled());
    for strategy in strategies() {
        let correlated = noise_of_steps(shuffled().with_correlated_noise(strategy.clone()));
        let again = shuffled().with_correlated_noise(strategy.clone()).with_noise_memory(0);
        assert!(noise_of_steps(again) == correlated, "{strategy}");
        for at in 0..independent[0].len() {
            let noising = strategy.noising();
            let mut stream = noising.stream();
            for (independent, correlated) in independent.iter().zip(&correlated) {
                let expected = stream.next(independent[at].into()).unwrap();
                // Parameters are of order one, in single precision.
                assert!((f64::from(correlated[at]) - expected).abs() < 2e-6, "{strategy}");
            }
        }
    }
}

// The oracle: the norm of a row of the inverse, and the noise that a run adds.
#[test]
fn the_deviation_of_the_noise_is_that_of_the_step() {
    // Of norm one, as searches return them: a step has twice the deviation of independent noise.
    let coefficients = [0.6, 0.5, 0.45, 0.43];
    let strategy = Strategy::banded_toeplitz(8, &coefficients).unwrap();
    let independent = noise_of_steps(shuffled());
    let plan = shuffled().with_correlated_noise(strategy.clone()).init().unwrap();
    let (mut optim, mut model) = (plan.optimizer(SgdConfig::new().init()), Net::new());
    let noising = strategy.noising();
    let columns: Vec<Vec<f64>> = (0..8)
        .map(|column| {
            let mut stream = noising.stream();
            let value = |step| stream.next(if step == column { 1.0 } else { 0.0 }).unwrap();
            (0..8).map(value).collect()
        })
        .collect();
    for step in 0..8 {
        let next = batches(optim.plan()).skip_to(optim.next_step()).unwrap().take(1);
        let losses = |model: &Net, x: Tensor<2>| model.losses(x) * 0.0;
        let before = flat(&model);
        model = train_with(&mut optim, model, next, 100, losses);
        let norm = columns.iter().map(|column| column[step].powi(2)).sum::<f64>().sqrt();
        let found = optim.gradient_noise_std("fc1.weight").unwrap() * 50.0;
        assert!((found / norm - 1.0).abs() < 1e-6, "{step}: {found} {norm}");
        // A learning rate of one times the noise over the batch, as independent noise has it.
        let after = flat(&model);
        let added: Vec<f32> =
            after.iter().zip(before).map(|(after, before)| after - before).collect();
        let square = |values: &[f32]| values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        let ratio = square(&added) / square(&independent[step]);
        assert!(step > 0 || (ratio.sqrt() / norm - 1.0).abs() < 1e-3, "{ratio}");
    }
}

// Sharp edge: noise that is cut off does not cancel in later steps.
#[test]
fn a_strategy_whose_noise_grows_is_refused_by_the_plan() {
    let config = |coefficients: &[f64]| {
        let strategy = Strategy::banded_toeplitz(60, coefficients).unwrap();
        shuffled().with_steps(60).with_correlated_noise(strategy)
    };
    // The noise oscillates with a growing amplitude.
    let error = config(&[1.0, -3.0 * 0.2f64.cos(), 2.25]).init().unwrap_err().to_string();
    assert!(error.contains("the noise of earlier steps can add up to"), "{error}");
    config(&[1.0, -(0.2f64.cos()), 0.25]).init().unwrap();
}

/// Counts from a step on.
#[derive(Clone, Debug)]
struct CountsLater(u64);

impl Clipping for CountsLater {
    fn thresholds(&self, step: u64) -> Result<Thresholds, DpError> {
        let thresholds = Thresholds::whole(1.0)?;
        match step < self.0 {
            true => Ok(thresholds),
            false => thresholds.with_counts(vec![Count::whole(1.0)], CountNoise::Share(0.1)),
        }
    }

    fn describe(&self) -> String {
        "counts later".into()
    }
}

// Sharp edge: a step is released that the ledger cannot record.
#[test]
fn counts_that_change_within_one_release_are_refused_before_it() {
    for config in [shuffled_plan(), shuffled_plan().with_correlated_noise(strategies().remove(0))] {
        let config = config.with_noise_multiplier(1.0).with_clipping(CountsLater(2));
        let folder = run_folder();
        let log = folder.path().join("log");
        let begin = || config.clone().init().unwrap().optimizer(SgdConfig::new().init());
        let mut optim = begin().with_release_log(&log).unwrap();
        let model = train_on(&mut optim, Net::new(), 2, 17);
        let draw = optim.plan().sampler().unwrap().draw(2).unwrap();
        optim.backward(&model, &draw, |model, units| model.losses_of(&units)).unwrap();
        let refused = optim.step(0.1, model, draw).unwrap_err().error().to_string();
        assert!(refused.contains("releases other counts"), "{refused}");
        assert_eq!(optim.ledger().releases(), 2);
        optim.discard();
        // Nothing was recorded that a resumed run could not read.
        let bytes = optim.to_record().unwrap().to_bytes().unwrap();
        drop(optim);
        let record = DpOptimizerRecord::from_bytes(&bytes, &log).unwrap();
        assert_eq!(begin().load_record(record).unwrap().ledger().releases(), 2);
    }
    // With Poisson sampling every step has its own event.
    let poisson = shuffled_plan().with_sampling(SamplingScheme::Poisson);
    let poisson = poisson.with_noise_multiplier(1.0).with_clipping(CountsLater(2));
    let mut optim = poisson.init().unwrap().optimizer(SgdConfig::new().init());
    train_on(&mut optim, Net::new(), 8, 17);
    assert_eq!(optim.ledger().releases(), 8);
}

// Sharp edge: the rounding of correlated noise reveals a sum.
#[test]
fn the_noise_of_a_run_covers_the_rounding_in_all_of_its_steps() {
    // The noise is so large that the grid is coarse.
    let (multiplier, batch, threshold, values) = (1e6, 50.0, 1.0, 41.0f64);
    for strategy in strategies() {
        let Some(coefficients) = strategy.coefficients() else { continue };
        let config = shuffled_plan()
            .with_noise_multiplier(multiplier)
            .with_insecure_seed(InsecureSeed(5))
            .with_max_grad_norm(threshold)
            .with_correlated_noise(strategy.clone());
        let mut optim = config.init().unwrap().optimizer(SgdConfig::new().init());
        train_on(&mut optim, Net::new(), 1, 1000);
        let std = optim.gradient_noise_std("fc1.weight").unwrap() * batch;
        // In standard deviations: four units of the grid for each value and step, as far as the
        // strategy can spread them.
        let spread = coefficients.iter().map(|c| c.abs()).sum::<f64>() / coefficients[0];
        let rounding = 4.0 * (8.0 * values).sqrt() * spread * 2f64.powi(-40);
        let sensitivity = strategy.smallest_diagonal();
        let moved = sensitivity * threshold / std + rounding;
        assert!(moved <= sensitivity / multiplier, "{strategy}: {moved:e}");
        assert!(rounding > 1e-6 * sensitivity / multiplier, "{strategy}: a gap to close");
    }
}

#[test]
fn the_steps_of_a_run_are_one_entry_of_the_ledger() {
    let strategy = Strategy::banded_toeplitz(8, &[1.0, 0.5, 0.2]).unwrap();
    let config = shuffled().with_correlated_noise(strategy.clone());
    let (_, optim) = run(config, SgdConfig::new().init(), 17);
    let ledger = optim.ledger();
    let [entry] = ledger.entries() else { panic!("{:?}", ledger.entries()) };
    assert_eq!(entry.count, 8);
    // Two participations, four steps apart: columns that do not overlap.
    let sensitivity = strategy.sensitivity(2, 4).unwrap();
    assert!((sensitivity - (2.0f64 * 1.29).sqrt()).abs() < 1e-12, "{sensitivity}");
    let mut one = PrivacyLedger::new(optim.ledger().header().clone());
    one.record(&DpEvent::gaussian(1.0 / sensitivity)).unwrap();
    let epsilon = |ledger: &PrivacyLedger| ledger.nominal_epsilon(1e-3).unwrap().upper;
    let (found, expected) = (epsilon(&optim.ledger()), epsilon(&one));
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    let text = optim.statement(&[1e-5]).unwrap().to_string();
    assert!(text.contains("correlated noise"), "{text}");
}

/// Continues a run of four steps from a record and compares it with the run itself.
fn goes_on(config: &PrivacyPlanConfig) {
    let begin = || config.clone().init().unwrap().optimizer(SgdConfig::new().init());
    let folder = run_folder();
    let log = folder.path().join("log");
    let mut first = begin().with_release_log(&log).unwrap();
    let model = train_on(&mut first, Net::new(), 4, 17);
    let bytes = first.to_record().unwrap().to_bytes().unwrap();
    let expected = train_on(&mut first, model.clone(), 4, 17);
    drop(first);
    let record = DpOptimizerRecord::from_bytes(&bytes, &log).unwrap();
    let mut second = begin().load_record(record).unwrap();
    assert_eq!(second.ledger().releases(), 8);
    let found = train_on(&mut second, model, 4, 17);
    assert_eq!(values(&found), values(&expected));
    assert_eq!(second.ledger().releases(), 8);
}

#[test]
fn a_resumed_run_is_the_run_bit_for_bit() {
    for strategy in strategies() {
        let config = shuffled().with_correlated_noise(strategy.clone());
        goes_on(&config);
        goes_on(&config.with_noise_memory(0));
        // Also with a key from the operating system, whose noise is bound to the sums.
        let secure = shuffled_plan().with_noise_multiplier(1.0).with_correlated_noise(strategy);
        goes_on(&secure);
        goes_on(&secure.with_noise_memory(0));
    }
}

#[test]
fn a_run_with_bands_and_cyclic_poisson_resumes_bit_for_bit() {
    let banded = Strategy::banded_toeplitz(8, &[1.0, 0.5, 0.2]).unwrap();
    let inverse = Strategy::banded_inverse_square_root(8, 3).unwrap();
    // The inverse has a column of eight steps, so no unit may take part twice.
    for (parts, strategy) in [(3, banded.clone()), (5, banded), (8, inverse)] {
        let plan = || {
            let scheme = SamplingScheme::CyclicPoisson { parts };
            let config = PrivacyPlanConfig::new(UNITS, 20.0).with_steps(8).with_sampling(scheme);
            config.with_noise_multiplier(1.0).with_correlated_noise(strategy.clone())
        };
        let seeded = plan().with_insecure_seed(InsecureSeed(5));
        for config in [seeded, plan()] {
            goes_on(&config);
            goes_on(&config.with_noise_memory(0));
        }
    }
}

#[test]
fn a_finished_run_is_restored_after_its_key_was_erased() {
    for strategy in strategies() {
        let config = shuffled().with_correlated_noise(strategy.clone());
        let plan = || config.clone().init().unwrap();
        let begin = || plan().optimizer(SgdConfig::new().init());
        let folder = run_folder();
        let checkpointer = Checkpointer::new(folder.path());
        let mut optim = begin();
        let trained = train_on(&mut optim, Net::new(), 8, 17);
        checkpointer.save(&trained, &optim).unwrap();
        optim.forget_key().unwrap();
        drop(optim);
        for _ in 0..2 {
            let checkpoint = checkpointer.latest().unwrap().unwrap();
            let inner = SgdConfig::new().init();
            let (optim, model) = checkpoint.restore(plan(), inner, Net::new()).unwrap();
            assert_eq!(values(&model), values(&trained), "{strategy}");
            assert_eq!(optim.ledger().releases(), 8);
            checkpointer.save(&model, &optim).unwrap();
        }
        // A record that is created after the erasure has no memory.
        let log = folder.outside().join("log");
        let mut optim = begin().with_release_log(&log).unwrap();
        train_on(&mut optim, Net::new(), 8, 17);
        optim.forget_key().unwrap();
        let bytes = optim.to_record().unwrap().to_bytes().unwrap();
        drop(optim);
        let record = DpOptimizerRecord::from_bytes(&bytes, &log).unwrap();
        assert_eq!(begin().load_record(record).unwrap().ledger().releases(), 8, "{strategy}");
    }
}

#[test]
fn a_folder_has_the_memory_of_the_noise_encrypted() {
    let strategy = Strategy::tree(8).unwrap();
    let config = shuffled().with_correlated_noise(strategy);
    let begin = || config.clone().init().unwrap().optimizer(SgdConfig::new().init());
    let folder = run_folder();
    let mut first = begin();
    let model = train_on(&mut first, Net::new(), 4, 17);
    first.save(folder.path(), &model).unwrap();
    let expected = train_on(&mut first, model, 4, 17);
    drop(first);
    let (mut second, model) = begin().load(folder.path(), Net::new()).unwrap();
    let found = train_on(&mut second, model, 4, 17);
    assert_eq!(values(&found), values(&expected));
    drop(second);
    // One changed bit is detected.
    let path = folder.path().join("checkpoint-00000000000000000004/noise.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = begin().load(folder.path(), Net::new()).unwrap_err().to_string();
    assert!(error.contains("noise.bin is damaged"), "{error}");
}

#[test]
fn lost_steps_of_correlated_noise_cannot_be_skipped() {
    let config = shuffled().with_correlated_noise(Strategy::tree(8).unwrap());
    let begin = || config.clone().init().unwrap().optimizer(SgdConfig::new().init());
    let folder = run_folder();
    let mut first = begin().with_release_log(folder.path().join("log")).unwrap();
    let model = train_on(&mut first, Net::new(), 2, 17);
    let record = first.to_record().unwrap();
    train_on(&mut first, model, 2, 17);
    drop(first);
    let error = begin().load_record(record.skip_lost_steps()).unwrap_err().to_string();
    assert!(error.contains("cannot skip") && error.contains("skip_lost_steps"), "{error}");
}

#[test]
fn whole_epochs_of_bins_are_counted_whatever_is_lost() {
    for scheme in [
        SamplingScheme::BallsInBins { bins: 4 },
        SamplingScheme::RandomAllocation { bins: 4 },
        SamplingScheme::MinSeparation { separation: 4 },
    ] {
        let batch = if matches!(scheme, SamplingScheme::MinSeparation { .. }) { 5.0 } else { 50.0 };
        let config = PrivacyPlanConfig::new(UNITS, batch).with_steps(8).with_sampling(scheme);
        let config = config.with_noise_multiplier(2.0);
        goes_on(&config);
        let begin = || config.clone().init().unwrap().optimizer(SgdConfig::new().init());
        let epsilon = |ledger: &PrivacyLedger| ledger.nominal_epsilon(1e-3).unwrap().upper;
        let of_steps = |steps: u64| {
            let mut ledger = PrivacyLedger::new(begin().ledger().header().clone());
            ledger.record_many(&begin().plan().event(), steps).unwrap();
            epsilon(&ledger)
        };
        // Sampling amplifies: far below the participations of a unit.
        let mut known = PrivacyLedger::new(begin().ledger().header().clone());
        known.record_many(&DpEvent::gaussian(2.0), 2).unwrap();
        assert!(of_steps(8) < 0.85 * epsilon(&known), "{} {}", of_steps(8), epsilon(&known));
        let folder = run_folder();
        let log = folder.path().join("log");
        let mut first = begin().with_release_log(&log).unwrap();
        let model = train_on(&mut first, Net::new(), 2, 17);
        let bytes = first.to_record().unwrap().to_bytes().unwrap();
        train_on(&mut first, model.clone(), 3, 17);
        assert_eq!(epsilon(&first.ledger()), of_steps(5));
        drop(first);
        // The record is of step 2 and the log of step 5: repeated, then skipped.
        let record = || DpOptimizerRecord::from_bytes(&bytes, &log).unwrap();
        let mut repeats = begin().load_record(record()).unwrap();
        train_on(&mut repeats, model.clone(), 3, 17);
        assert_eq!((repeats.ledger().releases(), repeats.ledger().entries().len()), (5, 1));
        assert_eq!(epsilon(&repeats.ledger()), of_steps(5));
        drop(repeats);
        let mut skips = begin().load_record(record().skip_lost_steps()).unwrap();
        assert_eq!((skips.next_step(), epsilon(&skips.ledger())), (5, of_steps(5)));
        train_on(&mut skips, model, 3, 17);
        assert_eq!((skips.ledger().releases(), skips.ledger().entries().len()), (8, 1));
        assert_eq!(epsilon(&skips.ledger()), of_steps(8));
        // A run that ends within an epoch costs the whole epoch.
        if let SamplingScheme::BallsInBins { .. } | SamplingScheme::RandomAllocation { .. } = scheme
        {
            assert_eq!((of_steps(1), of_steps(5)), (of_steps(4), of_steps(8)));
        }
    }
}

#[test]
fn what_the_strategy_does_not_cover_is_refused() {
    let strategy = |bands: &[f64]| Strategy::banded_toeplitz(8, bands).unwrap();
    let three = || strategy(&[1.0, 0.5, 0.2]);
    let refused = |config: PrivacyPlanConfig| match config.init() {
        Err(error @ (DpError::InvalidArgument { .. } | DpError::Accountant(_))) => {
            error.to_string()
        }
        other => panic!("{other:?}"),
    };
    let error = refused(config().with_correlated_noise(three()));
    assert!(error.contains("Poisson sampling") && error.contains("cyclic"), "{error}");
    let fixed = config().with_sampling(SamplingScheme::FixedSize);
    let error = refused(fixed.with_correlated_noise(three()));
    assert!(error.contains("take part in every step"), "{error}");
    let error = refused(shuffled().with_correlated_noise(Strategy::tree(7).unwrap()));
    assert!(error.contains("at least the 8 steps") && error.contains("got 7"), "{error}");
    let cyclic = |parts| config().with_sampling(SamplingScheme::CyclicPoisson { parts });
    let error = refused(cyclic(2).with_correlated_noise(three()));
    assert!(error.contains("parts") && error.contains("bands"), "{error}");
    assert!(cyclic(3).with_correlated_noise(three()).init().is_ok());
    let counts = QuantileClipping::new(0.5).unwrap();
    assert!(shuffled().with_correlated_noise(three()).with_clipping(counts.clone()).init().is_ok());
    // Without correlation, counts and sum are one release.
    assert!(shuffled().with_clipping(counts).init().is_ok());
    // Slack has the noise of an independent release.
    let slack = QuantileClipping::by_slack(0.3).unwrap();
    let error = refused(shuffled().with_correlated_noise(three()).with_clipping(slack.clone()));
    assert!(error.contains("slack"), "{error}");
    assert!(shuffled().with_clipping(slack).init().is_ok());
    let tracker = QuantileTracker::new(ParameterGroups::whole(), [0.5]).unwrap();
    let error = refused(shuffled().with_correlated_noise(three()).with_clipping(tracker));
    assert!(error.contains("counts alone"), "{error}");
    let schedule = Schedule::steps([(3, 2.0)]).unwrap();
    let scheduled = shuffled().with_noise_schedule(schedule);
    let error = refused(scheduled.with_correlated_noise(three()));
    assert!(error.contains("noise_schedule must be constant"), "{error}");
}

#[test]
fn counts_beside_correlated_noise_cost_at_most_their_share() {
    let counts = || QuantileClipping::new(0.5).unwrap().with_count_noise(CountNoise::Share(0.2));
    for strategy in strategies() {
        let config = shuffled().with_correlated_noise(strategy.clone()).with_clipping(counts());
        let plan = config.clone().init().unwrap();
        // The run as one release: the strategy for the sums, the identity for the counts.
        let sensitivity = strategy.sensitivity(2, 4).unwrap();
        let (of_sums, of_counts): (f64, f64) = (0.8 * sensitivity.powi(2), 0.2 * 2.0);
        let mut exact =
            PrivacyLedger::new(plan.optimizer(SgdConfig::new().init()).ledger().header().clone());
        exact.record(&DpEvent::gaussian((of_sums + of_counts).powf(-0.5))).unwrap();
        let (_, optim) = run(config, SgdConfig::new().init(), 17);
        let epsilon = |ledger: &PrivacyLedger| ledger.nominal_epsilon(1e-3).unwrap().upper;
        let (found, truth) = (epsilon(&optim.ledger()), epsilon(&exact));
        assert!(
            found >= truth * (1.0 - 1e-9) && found < 1.4 * truth,
            "{strategy}: {found} {truth}"
        );
        goes_on(&shuffled().with_correlated_noise(strategy).with_clipping(counts()));
    }
}

#[test]
fn a_budget_is_met_by_the_run_as_a_whole() {
    let budget = Budget::new(3.0, 1e-3).unwrap();
    let plan = |config: PrivacyPlanConfig| config.with_budget(budget).init().unwrap();
    let independent = plan(shuffled_plan()).noise_multiplier();
    for strategy in strategies() {
        let config = shuffled_plan().with_correlated_noise(strategy.clone());
        let sensitivity = strategy.sensitivity(2, 4).unwrap();
        let whole = plan(config);
        let spent = whole.epsilon_at_end(1e-3).unwrap();
        assert!(spent <= 3.0 && spent > 2.99, "{strategy} {spent}");
        // Two participations of independent noise cost √2.
        let expected = independent * sensitivity / 2f64.sqrt();
        assert!((whole.noise_multiplier() / expected - 1.0).abs() < 1e-3, "{strategy}");
        // The run takes all of its steps, and no more.
        let mut optim: DpOptimizer = whole.optimizer(SgdConfig::new().init());
        train_on(&mut optim, Net::new(), 8, 17);
        assert!(optim.privacy_spent(1e-3).unwrap().upper <= 3.0);
        assert_eq!(optim.next_step(), 8);
    }
}
