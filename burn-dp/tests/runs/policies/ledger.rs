//! The ledger records what was done.

use burn::optim::SgdConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::clipping::{Clipping, FlatClipping, QuantileTracker, ScheduledClipping};
use burn_dp::model::ParameterGroups;
use burn_dp::noise::GaussianMechanism;
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::Sampler;
use burn_dp::schedule::Schedule;
use burn_dp_accountant::{Budget, DpEvent, NeighboringRelation, PrivacyLedger, UnitOfPrivacy};

use super::{config, policies, quantile};
use crate::fixtures::{Net, PATHS, UNITS, rows, train_on, values};

// Sharp edges: the counts are in the ledger, and their noise comes from the run's source.
#[test]
fn counts_are_in_the_ledger_and_cost_what_the_formula_says() {
    let run = |config: PrivacyPlanConfig| {
        let mut optim = config.init().unwrap().optimizer(SgdConfig::new().init());
        train_on(&mut optim, Net::new(), 10, 1000);
        optim
    };
    let optim = run(config().with_clipping(quantile()));
    let ledger = optim.ledger();
    let DpEvent::PoissonSampled { event, .. } = &ledger.entries()[0].event else { panic!() };
    let DpEvent::JointGaussian { noise_multipliers } = &**event else { panic!("{event}") };
    assert_eq!(noise_multipliers.len(), 3);
    // A tenth of the cost for two counts: z_Δ = z / √0.9, and 2 σ_b = z √(2 / 0.1).
    assert!((noise_multipliers[0] - 1.0 / 0.9f64.sqrt()).abs() < 1e-12);
    assert!((noise_multipliers[1] - 20f64.sqrt()).abs() < 1e-12);

    let epsilon = |ledger: &PrivacyLedger| ledger.nominal_epsilon(1e-4).unwrap();
    let flat = run(config().with_max_grad_norm(1.0));
    let (with, without) = (epsilon(&optim.ledger()), epsilon(&flat.ledger()));
    assert!((with.estimate / without.estimate - 1.0).abs() < 1e-6, "the same whole");
    // An accountant that ignored the counts would report less.
    let mut forgetful = PrivacyLedger::new(optim.ledger().header().clone());
    forgetful.record_many(&DpEvent::dp_sgd_step(0.1, noise_multipliers[0]), 10).unwrap();
    assert!(epsilon(&forgetful).upper < with.lower);

    // Another seed of the device changes nothing; another key of the run does.
    Device::flex().seed(42);
    let again = run(config().with_clipping(quantile()));
    assert_eq!(again.plan().clipping().adapted(), optim.plan().clipping().adapted());
    let other = run(config().with_clipping(quantile()).with_insecure_seed(InsecureSeed(6)));
    assert_ne!(other.plan().clipping().adapted(), optim.plan().clipping().adapted());
}

// Sharp edge, for the noise itself: a release has the noise of its thresholds.
#[test]
fn the_added_noise_follows_scheduled_thresholds_and_multipliers() {
    let noise = |threshold: f64, multiplier: f64| {
        let schedule = Schedule::steps([(0, threshold)]).unwrap();
        let clipping = ScheduledClipping::new(FlatClipping::new(1.0).unwrap(), schedule);
        let plan = PrivacyPlanConfig::new(200, 0.001)
            .with_steps(1)
            .with_noise_multiplier(1.0)
            .with_noise_schedule(Schedule::steps([(0, multiplier)]).unwrap())
            .with_clipping(clipping)
            .with_insecure_seed(InsecureSeed(5))
            .init()
            .unwrap();
        let draw = plan.sampler().unwrap().draw(0).unwrap();
        assert!(draw.private_indices().is_empty());
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let model = Net::new();
        let before = values(&model).concat();
        let after = values(&optim.step(1e-3, model, draw).unwrap()).concat();
        let snapping = GaussianMechanism::snapping_factor(multiplier, 41).unwrap();
        let expected = threshold * multiplier / 0.001 * snapping;
        assert!((optim.gradient_noise_std("first.bias").unwrap() / expected - 1.0).abs() < 1e-12);
        let moved = before.iter().zip(after).map(|(b, a)| f64::from(b - a)).collect::<Vec<_>>();
        (moved, optim.ledger().entries()[0].event.clone())
    };
    let (whole, event) = noise(1.0, 1.0);
    let (third, third_event) = noise(0.3, 1.0);
    let (double, double_event) = noise(1.0, 2.0);
    // The seed is known and the words are the same, so the noise is the same up to its deviation.
    for ((whole, third), double) in whole.iter().zip(third).zip(double) {
        assert!((third - 0.3 * whole).abs() < 1e-5, "{third} {whole}");
        assert!((double - 2.0 * whole).abs() < 1e-5, "{double} {whole}");
    }
    assert_eq!(event, third_event);
    assert_eq!(double_event, DpEvent::dp_sgd_step(0.001 / 200.0, 2.0));
}

// Sharp edge: rounding to the grid moves the released sums of neighbors apart.
#[test]
fn the_noise_of_a_step_covers_the_rounding_to_the_grid() {
    // The noise is so large that the grid is coarse; sums of counts and values are in one release.
    let (multiplier, batch) = (1e6, 20.0);
    // Others have counts with too little noise for this multiplier.
    let affordable = |policy: &dyn Clipping| {
        let thresholds = policy.thresholds(0).unwrap();
        thresholds.releases_sum() && thresholds.noise(multiplier, batch).is_ok()
    };
    let policies: Vec<_> =
        policies().into_iter().filter(|(_, policy)| affordable(&**policy)).collect();
    assert!(policies.len() > 10, "{}", policies.len());
    for (name, policy) in policies {
        let config = config().with_noise_multiplier(multiplier).with_clipping(policy.clone());
        let mut optim = config.init().unwrap().optimizer(SgdConfig::new().init());
        train_on(&mut optim, Net::new(), 1, 1000);
        let thresholds = policy.thresholds(0).unwrap();
        let plain = thresholds.noise(multiplier, batch).unwrap();
        // In units of the deviations: the difference between neighbors, and the effect of rounding.
        let mut rounding = thresholds.counts().len() as f64 * 2f64.powi(-80);
        let mut shrunk = f64::INFINITY;
        for (path, values) in PATHS.iter().zip([24.0, 8.0, 8.0, 1.0]) {
            let std = optim.gradient_noise_std(path).unwrap() * batch;
            let grid = GaussianMechanism::new(std, 1.0).unwrap().grid();
            rounding += values * (grid / std).powi(2);
            let group = thresholds.groups().index_of(path).unwrap();
            shrunk = shrunk.min(std / plain.group_stds[group]);
        }
        let moved = 1.0 / (multiplier * shrunk) + rounding.sqrt();
        assert!(moved <= 1.0 / multiplier, "{name}: {moved:e}");
        assert!(rounding.sqrt() > 1e-7 / multiplier, "{name}: a gap to close");
    }
}

// Sharp edge: a count without noise, or with less than the ledger records.
#[test]
fn counts_have_the_noise_that_the_ledger_is_told() {
    const COUNTS: usize = 400;
    let quantiles = vec![0.5; COUNTS];
    let tracker = QuantileTracker::new(ParameterGroups::whole(), quantiles).unwrap();
    let batch = 0.01;
    let plan = PrivacyPlanConfig::new(UNITS, batch)
        .with_steps(1)
        .with_noise_multiplier(1e-3)
        .with_clipping(tracker)
        .with_insecure_seed(InsecureSeed(5))
        .init()
        .unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    assert!(draw.private_indices().is_empty());
    let mut optim = plan.optimizer(SgdConfig::new().init());
    optim.step(1.0, Net::new(), draw).unwrap();
    // Nobody was counted: an estimate moved from 0.1 only by the noise, at a rate of 0.2.
    let adapted = optim.plan().clipping().adapted();
    let noise: Vec<f64> = adapted.iter().map(|(_, at)| -(at / 0.1).ln() / 0.2 * batch).collect();
    let ledger = optim.ledger();
    let DpEvent::PoissonSampled { event, .. } = &ledger.entries()[0].event else { panic!() };
    let DpEvent::JointGaussian { noise_multipliers } = &**event else { panic!("{event}") };
    assert_eq!((noise.len(), noise_multipliers.len()), (COUNTS, COUNTS));
    // A count has sensitivity one half.
    let expected = 0.5 * noise_multipliers[0];
    let variance = noise.iter().map(|noise| noise * noise).sum::<f64>() / COUNTS as f64;
    // Five deviations of the variance, √(2/400) each.
    assert!((variance / (expected * expected) - 1.0).abs() < 0.36, "{variance} {expected}");
}

#[test]
fn the_ledger_follows_a_noise_schedule_calibrated_as_a_whole() {
    let budget = Budget::new(2.0, 1e-4).unwrap();
    let schedule = Schedule::exponential(0.8, 4).unwrap();
    let plan = PrivacyPlanConfig::new(200, 20.0)
        .with_steps(10)
        .with_budget(budget)
        .with_noise_schedule(schedule)
        .with_clipping(quantile())
        .with_insecure_seed(InsecureSeed(5))
        .init()
        .unwrap();
    let planned = plan.epsilon_at_end(1e-4).unwrap();
    assert!(planned <= 2.0 && planned > 1.99, "{planned}");
    let mut optim = plan.optimizer(SgdConfig::new().init());
    train_on(&mut optim, Net::new(), 10, 1000);
    let counts: Vec<u64> = optim.ledger().entries().iter().map(|entry| entry.count).collect();
    assert_eq!(counts, [4, 4, 2]);
    let spent = optim.ledger().nominal_epsilon(1e-4).unwrap().upper;
    assert_eq!(spent, planned);
    let multipliers: Vec<f64> = optim
        .ledger()
        .entries()
        .iter()
        .map(|entry| match &entry.event {
            DpEvent::PoissonSampled { event, .. } => match &**event {
                DpEvent::JointGaussian { noise_multipliers } => noise_multipliers[0],
                _ => panic!(),
            },
            _ => panic!(),
        })
        .collect();
    assert!((multipliers[1] / multipliers[0] - 0.8).abs() < 1e-12, "{multipliers:?}");
}

#[test]
fn the_budget_stops_a_scheduled_run_in_time() {
    let plan = config()
        .with_noise_schedule(Schedule::exponential(0.5, 3).unwrap())
        .with_budget(Budget::new(4.0, 1e-4).unwrap())
        .init()
        .unwrap();
    assert!(plan.epsilon_at_end(1e-4).unwrap() > 4.0);
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    let data = rows(200);
    let refused = loop {
        let draw = optim.plan().sampler().unwrap().draw(optim.next_step()).unwrap();
        let losses = |model: &Net, units: Vec<usize>| {
            let rows: Vec<_> = units.iter().map(|&unit| data[unit]).collect();
            model.losses_of_rows(&rows)
        };
        optim.backward(&model, &draw, losses).unwrap();
        match optim.step(0.1, model, draw) {
            Ok(next) => model = next,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused.error(), DpError::BudgetExhausted { .. }), "{}", refused.error());
    assert!(optim.next_step() > 1);
    assert!(optim.ledger().nominal_epsilon(1e-4).unwrap().upper <= 4.0);
}

// Sharp edges: relation and unit are in the statement, and never mixed.
#[test]
fn the_statement_names_the_relation_the_unit_and_the_policy() {
    for (scheme, relation) in [
        (SamplingScheme::Poisson, NeighboringRelation::AddOrRemoveOne),
        (SamplingScheme::FixedSize, NeighboringRelation::ReplaceOne),
    ] {
        for unit in [UnitOfPrivacy::Example, UnitOfPrivacy::User] {
            let config = config().with_sampling(scheme).with_unit(unit.clone());
            let mut optim =
                config.with_clipping(quantile()).init().unwrap().optimizer(SgdConfig::new().init());
            train_on(&mut optim, Net::new(), 2, 1000);
            let ledger = optim.ledger();
            let header = ledger.header();
            assert_eq!((header.relation, &header.unit), (relation, &unit));
            let text = optim.statement(&[1e-4]).unwrap().to_string();
            for words in [&relation.to_string(), &unit.to_string(), "0.5 quantile of the norms"] {
                assert!(text.contains(words), "{words} is not in {text}");
            }
        }
    }
    // The same noise hides a replaced unit less well than an added one.
    let epsilon = |scheme| {
        let plan = config().with_clipping(quantile()).with_sampling(scheme).init().unwrap();
        plan.epsilon_at_end(1e-4).unwrap()
    };
    assert!(epsilon(SamplingScheme::FixedSize) > epsilon(SamplingScheme::Poisson));
}
