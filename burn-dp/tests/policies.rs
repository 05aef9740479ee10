//! Every clipping policy in the private step: sensitivity, thresholds, ledger, checkpoints.
#![allow(clippy::unwrap_used)]

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor, TensorData};
use burn_dp::DpError;
use burn_dp::clipping::{
    AutomaticClipping, Clipping, CountNoise, FlatClipping, GroupedClipping, LayerwiseClipping,
    MultipliedClipping, NoiseSplit, ParameterGroups, PublicNorms, QuantileClipping, QuantileRule,
    QuantileTracker, ScheduledClipping,
};
use burn_dp::grads::PrivateBackward;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::noise::InsecureSeed;
use burn_dp::optim::{Checkpointer, DpOptimizer, PrivacyPlanConfig, SamplingScheme, Schedule};
use burn_dp::sampling::Draw;
use burn_dp_accountant::{Budget, DpEvent, NeighboringRelation, PrivacyLedger, UnitOfPrivacy};

#[derive(Module, Debug)]
struct Net {
    first: Private<Linear>,
    second: Private<Linear>,
}

fn device() -> Device {
    Device::flex().autodiff()
}

impl Net {
    fn new() -> Self {
        let layer = |d_input: usize, d_output: usize, seed: f32| {
            let mut layer = LinearConfig::new(d_input, d_output).init(&device());
            let values: Vec<f32> =
                (0..d_input * d_output).map(|i| (seed + i as f32 * 0.7).sin()).collect();
            let weight = TensorData::new(values, [d_input, d_output]);
            layer.weight =
                layer.weight.map(|_| Tensor::from_data(weight, &device()).require_grad());
            layer.bias = layer.bias.map(|b| b.map(|b| b.zeros_like().require_grad()));
            layer.private()
        };
        Self { first: layer(3, 4, 1.0), second: layer(4, 1, 2.0) }
    }

    fn losses(&self, rows: &[[f32; 3]]) -> Tensor<1> {
        let data = TensorData::new(rows.concat(), [rows.len(), 3]);
        let x = Tensor::<2>::from_data(data, &device());
        let target = x.clone().sum_dim(1);
        let output = self.second.forward(self.first.forward(x).tanh());
        (output - target).powi_scalar(2).reshape([-1])
    }
}

#[derive(Default)]
struct Values(Vec<Vec<f32>>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.val().into_data().try_into_vec().unwrap());
    }
}

/// Values of the parameters: two of the first layer, two of the second.
fn values<M: Module>(model: &M) -> Vec<Vec<f32>> {
    let mut visitor = Values::default();
    model.visit(&mut visitor);
    visitor.0
}

fn rows(count: usize) -> Vec<[f32; 3]> {
    (0..count).map(|i| [0, 1, 2].map(|j| (3 * i + j) as f32).map(f32::cos)).collect()
}

fn layers() -> ParameterGroups {
    ParameterGroups::per_layer(&Net::new()).unwrap()
}

fn public_norms() -> PublicNorms {
    PublicNorms::from_means(layers(), vec![3.0, 1.0]).unwrap()
}

/// The policies with their names.
fn policies() -> Vec<(&'static str, Box<dyn Clipping>)> {
    let quantile = || {
        let clipping = QuantileClipping::new(0.5).unwrap().with_initial(0.5).unwrap();
        clipping.with_count_noise(CountNoise::Std(0.5))
    };
    let tracker = QuantileTracker::alone(layers(), [0.25, 0.75]).unwrap();
    let schedule = Schedule::steps([(0, 0.5)]).unwrap();
    vec![
        ("flat", Box::new(FlatClipping::new(0.5).unwrap())),
        ("automatic", Box::new(AutomaticClipping::new())),
        ("per layer", Box::new(GroupedClipping::equal(layers(), 0.5).unwrap())),
        (
            "per layer, uniform noise",
            Box::new(
                GroupedClipping::new(layers(), vec![0.1, 1.0])
                    .unwrap()
                    .with_noise_split(NoiseSplit::Uniform)
                    .unwrap(),
            ),
        ),
        ("quantile", Box::new(quantile())),
        ("quantile per layer", Box::new(quantile().with_groups(layers()))),
        ("quantile, linear", Box::new(quantile().with_rule(QuantileRule::Linear))),
        ("layerwise", Box::new(LayerwiseClipping::enhanced(0.3, &public_norms()).unwrap())),
        ("zhang", Box::new(LayerwiseClipping::zhang(&public_norms()).unwrap())),
        ("multiplied", Box::new(MultipliedClipping::from_public(0.7, &public_norms()).unwrap())),
        ("scheduled", Box::new(ScheduledClipping::new(FlatClipping::new(0.5).unwrap(), schedule))),
        (
            "tracked",
            Box::new(tracker.beside(FlatClipping::new(0.5).unwrap(), CountNoise::Share(0.1))),
        ),
    ]
}

/// What one step releases: the sums of the layers, and what the policy adapted.
struct Released {
    layers: [Vec<f64>; 2],
    adapted: Vec<(String, f64)>,
}

/// One step on the units of `data` that are drawn, with noise that is almost none and fixed.
fn release(
    policy: &dyn Clipping,
    scheme: SamplingScheme,
    seed: u64,
    data: &[[f32; 3]],
    physical: usize,
) -> (Released, Draw) {
    let batch = data.len() as f64 / 4.0;
    let plan = PrivacyPlanConfig::new(data.len(), batch)
        .with_steps(1)
        .with_noise_multiplier(1e-4)
        .with_sampling(scheme)
        .with_clipping(policy.clone_clipping())
        .with_insecure_seed(InsecureSeed(seed))
        .init()
        .unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Net::new();
    for units in draw.private_indices().chunks(physical) {
        let rows: Vec<[f32; 3]> = units.iter().map(|&unit| data[unit]).collect();
        optim.backward(model.losses(&rows), &model).unwrap();
    }
    let before = values(&model);
    let after = values(&optim.step(1.0, model, draw.clone()).unwrap());
    let sums = |parameters: std::ops::Range<usize>| {
        let moved = before[parameters.clone()].iter().zip(&after[parameters]);
        moved
            .flat_map(|(before, after)| before.iter().zip(after))
            .map(|(before, after)| f64::from(before - after) * batch)
            .collect()
    };
    let adapted = optim.plan().clipping().adapted();
    (Released { layers: [sums(0..2), sums(2..4)], adapted }, draw)
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// Differences of f32 parameters of size 1, times the batch size.
const ROUNDING: f64 = 3e-5;

/// Checks that two releases differ by no more than the thresholds allow, layer by layer and as a whole.
fn check_sensitivity(
    context: &str,
    policy: &dyn Clipping,
    relation: NeighboringRelation,
    [first, second]: [&Released; 2],
    batches: [f64; 2],
) {
    let thresholds = policy.thresholds(0).unwrap();
    let noise = thresholds.noise(1e-4, batches[0]).unwrap();
    let factor = relation.sensitivity();
    let moved: Vec<f64> =
        (0..2).map(|layer| distance(&first.layers[layer], &second.layers[layer])).collect();
    if let [a, b] = thresholds.norms() {
        assert!(moved[0] <= factor * a + ROUNDING, "{context}: {moved:?} with {a}");
        assert!(moved[1] <= factor * b + ROUNDING, "{context}: {moved:?} with {b}");
    }
    // In units of the noise, the whole release moves by no more than the accountant is told.
    let std = |layer: usize| *noise.group_stds.get(layer).unwrap_or(&noise.group_stds[0]);
    let whole = (0..2).map(|layer| (moved[layer] / std(layer)).powi(2)).sum::<f64>().sqrt();
    let slack = ROUNDING / std(0).min(std(1));
    assert!(whole <= factor / 1e-4 * (1.0 + 1e-5) + slack, "{context}: {whole}");

    // Counts: what moves a threshold is Σ(b - ½), of sensitivity ½. The noise is the same.
    for ((name, first), (_, second)) in first.adapted.iter().zip(&second.adapted) {
        if !context.contains("quantile") && !context.contains("tracked") {
            continue;
        }
        let start = policy.adapted().iter().find(|(known, _)| known == name).unwrap().1;
        let target = match context {
            _ if name.ends_with("0.25") => 0.25,
            _ if name.ends_with("0.75") => 0.75,
            _ => 0.5,
        };
        let balance = |value: f64, batch: f64| {
            let moved = match context.contains("linear") {
                true => start - value,
                false => (start / value).ln(),
            };
            (moved / 0.2 + target - 0.5) * batch
        };
        let moved = (balance(*first, batches[0]) - balance(*second, batches[1])).abs();
        assert!(moved <= 0.5 * factor + 1e-9, "{context}: a count moved by {moved}");
    }
}

const ADVERSARIES: [[f32; 3]; 5] =
    [[1e25, -1e25, 1e20], [f32::NAN, 0.0, 1.0], [0.0; 3], [1e-30; 3], [3.0, -5.0, 9.0]];

// Sharp edges, for every policy.
#[test]
fn neighbours_by_adding_or_removing_a_unit_differ_by_no_more_than_the_sensitivity() {
    const UNITS: usize = 40;
    for (name, policy) in policies() {
        for (index, adversary) in ADVERSARIES.into_iter().enumerate() {
            let (mut data, policy) = (rows(UNITS - 1), &*policy);
            // A seed whose first draw has the last unit.
            let scheme = SamplingScheme::Poisson;
            data.push(adversary);
            let (with, draw, seed) = (10 * index as u64..)
                .map(|seed| (release(policy, scheme, seed, &data, 1000), seed))
                .find(|((_, draw), _)| draw.private_indices().contains(&(UNITS - 1)))
                .map(|((released, draw), seed)| (released, draw, seed))
                .unwrap();
            for physical in [1, 3, 1000] {
                let context = format!("{name}, {adversary:?}, physical {physical}");
                let (without, less) = release(policy, scheme, seed, &data[..UNITS - 1], physical);
                let expected = draw.private_indices().split_last().unwrap().1;
                assert_eq!(less.private_indices(), expected, "the draw of the others is the same");
                let batches = [UNITS as f64 / 4.0, (UNITS - 1) as f64 / 4.0];
                let relation = NeighboringRelation::AddOrRemoveOne;
                check_sensitivity(&context, policy, relation, [&with, &without], batches);
            }
        }
    }
}

#[test]
fn neighbours_by_replacing_a_unit_differ_by_no_more_than_twice_the_sensitivity() {
    const UNITS: usize = 40;
    for (name, policy) in policies() {
        let (data, policy) = (rows(UNITS), &*policy);
        for scheme in [SamplingScheme::FixedSize, SamplingScheme::Shuffled] {
            let (before, draw) = release(policy, scheme, 7, &data, 1000);
            let unit = draw.private_indices()[2];
            for (adversary, physical) in ADVERSARIES.into_iter().zip([1, 2, 3, 7, 1000]) {
                let context = format!("{name}, {scheme:?}, {adversary:?}, physical {physical}");
                let mut replaced = data.clone();
                replaced[unit] = adversary;
                let (after, same) = release(policy, scheme, 7, &replaced, physical);
                assert!(same == draw);
                let relation = NeighboringRelation::ReplaceOne;
                let batches = [UNITS as f64 / 4.0; 2];
                check_sensitivity(&context, policy, relation, [&before, &after], batches);
            }
        }
    }
}

// Sharp edge: the units are clipped, never the sum of a physical batch.
#[test]
fn the_size_of_the_virtual_batches_changes_no_policy() {
    for (name, policy) in policies() {
        let data = rows(40);
        let (whole, _) = release(&*policy, SamplingScheme::Poisson, 3, &data, 1000);
        for physical in [1, 2, 5] {
            let (parts, _) = release(&*policy, SamplingScheme::Poisson, 3, &data, physical);
            for (whole, parts) in whole.layers.iter().zip(&parts.layers) {
                assert!(distance(whole, parts) < ROUNDING, "{name}");
            }
            assert_eq!(whole.adapted, parts.adapted, "{name}");
        }
    }
}

// Sharp edge: the copies of a unit are averaged before its norm is taken.
#[test]
fn swapping_all_copies_of_a_unit_moves_the_sum_by_no_more_than_one_unit() {
    for (name, policy) in policies().into_iter().filter(|(name, _)| !name.contains("quantile")) {
        let step = |copies: &[[f32; 3]]| {
            let plan = PrivacyPlanConfig::new(2, 2.0)
                .with_steps(1)
                .with_noise_multiplier(1e-4)
                .with_sampling(SamplingScheme::FixedSize)
                .with_clipping(policy.clone())
                .with_insecure_seed(InsecureSeed(1))
                .init()
                .unwrap();
            let draw = plan.sampler().unwrap().draw(0).unwrap();
            let mut optim = plan
                .optimizer(SgdConfig::new().init())
                .with_backward(PrivateBackward::new().with_group_size(3));
            let model = Net::new();
            let rows = [copies, &rows(3)].concat();
            optim.backward(model.losses(&rows), &model).unwrap();
            values(&optim.step(1.0, model, draw).unwrap()).concat()
        };
        let first = step(&[[1.0, 2.0, 3.0], [1.1, 2.0, 3.0], [1.0, 2.1, 3.0]]);
        for adversary in ADVERSARIES {
            let second = step(&[adversary; 3]);
            let moved: f64 =
                first.iter().zip(&second).map(|(a, b)| f64::from(2.0 * (a - b)).powi(2)).sum();
            let allowed = policy.thresholds(0).unwrap();
            let allowed = allowed.sensitivity(NeighboringRelation::ReplaceOne);
            assert!(moved.sqrt() <= allowed + ROUNDING, "{name} {adversary:?} {}", moved.sqrt());
        }
    }
}

fn quantile() -> QuantileClipping {
    QuantileClipping::new(0.5)
        .unwrap()
        .with_groups(layers())
        .with_count_noise(CountNoise::Share(0.1))
}

fn config() -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(200, 20.0)
        .with_steps(10)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(5))
}

fn train(optim: &mut DpOptimizer, mut model: Net, steps: u64, physical: usize) -> Net {
    let data = rows(200);
    for _ in 0..steps {
        let draw = optim.plan().sampler().unwrap().draw(optim.next_step()).unwrap();
        for units in draw.private_indices().chunks(physical) {
            let rows: Vec<[f32; 3]> = units.iter().map(|&unit| data[unit]).collect();
            optim.backward(model.losses(&rows), &model).unwrap();
        }
        model = optim.step(0.1, model, draw).unwrap();
    }
    model
}

// Sharp edges: virtual batches make one release, with one set of thresholds.
#[test]
fn a_logical_step_is_one_release_with_thresholds_that_stay_until_it_is_made() {
    let mut optim =
        config().with_clipping(quantile()).init().unwrap().optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    let data = rows(200);
    let mut path = Vec::new();
    for step in 0..5 {
        let draw = optim.plan().sampler().unwrap().draw(step).unwrap();
        let thresholds = optim.thresholds().unwrap();
        for &unit in draw.private_indices() {
            optim.backward(model.losses(&[data[unit]]), &model).unwrap();
            assert_eq!(optim.thresholds().unwrap(), thresholds);
            // Nothing may move them in between.
            let error = optim.learn_from_public(&public_norms()).unwrap_err().to_string();
            assert!(error.contains("stay as they are until the step is made"), "{error}");
        }
        path.push(thresholds.norms().to_vec());
        model = optim.step(0.1, model, draw).unwrap();
        assert_eq!(optim.ledger().releases(), step + 1);
    }
    assert!(path.windows(2).all(|pair| pair[0] != pair[1]), "{path:?}");
    assert_eq!(optim.ledger().entries().len(), 1, "every step has the same event");
}

// Sharp edge: a sum with the thresholds of another step is refused.
#[test]
fn a_sum_with_the_thresholds_of_an_earlier_step_is_refused() {
    let mut optim =
        config().with_clipping(quantile()).init().unwrap().optimizer(SgdConfig::new().init());
    let model = Net::new();
    let old = optim.thresholds().unwrap();
    let model = train(&mut optim, model, 1, 1000);
    let grads = PrivateBackward::new().run(model.losses(&rows(2)), &model).unwrap();
    let error = optim.accumulate(old.clip(grads).unwrap()).unwrap_err().to_string();
    assert!(error.contains("must be that of the logical step"), "{error}");
}

// Sharp edges: the counts are in the ledger, and their noise is of the run's source.
#[test]
fn counts_are_in_the_ledger_and_cost_what_the_formula_says() {
    let run = |config: PrivacyPlanConfig| {
        let mut optim = config.init().unwrap().optimizer(SgdConfig::new().init());
        train(&mut optim, Net::new(), 10, 1000);
        optim
    };
    let optim = run(config().with_clipping(quantile()));
    let DpEvent::PoissonSampled { event, .. } = &optim.ledger().entries()[0].event else {
        panic!()
    };
    let DpEvent::JointGaussian { noise_multipliers } = &**event else { panic!("{event}") };
    assert_eq!(noise_multipliers.len(), 3);
    // A tenth of the cost for two counts: z_Δ = z / √0.9, and 2 σ_b = z √(2 / 0.1).
    assert!((noise_multipliers[0] - 1.0 / 0.9f64.sqrt()).abs() < 1e-12);
    assert!((noise_multipliers[1] - 20f64.sqrt()).abs() < 1e-12);

    let epsilon = |ledger: &PrivacyLedger| ledger.nominal_epsilon(1e-4).unwrap();
    let flat = run(config().with_max_grad_norm(1.0));
    let (with, without) = (epsilon(optim.ledger()), epsilon(flat.ledger()));
    assert!((with.estimate / without.estimate - 1.0).abs() < 1e-6, "the same whole");
    // An accountant that forgot the counts would say less.
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

// Sharp edges: thresholds, draws and noise go on where they were.
#[test]
fn a_resumed_run_has_the_thresholds_of_the_run_bit_for_bit() {
    for (name, policy) in policies() {
        let config = || config().with_noise_multiplier(0.2).with_clipping(policy.clone());
        let begin = || config().init().unwrap().optimizer(SgdConfig::new().init());
        let mut whole = begin();
        let expected = train(&mut whole, Net::new(), 10, 7);

        let folder = tempfile::tempdir().unwrap();
        let checkpointer = Checkpointer::new(folder.path());
        let mut first = begin();
        let model = train(&mut first, Net::new(), 4, 7);
        checkpointer.save(&model, &first).unwrap();
        let adapted = first.plan().clipping().adapted();
        drop(first);
        let checkpoint = checkpointer.latest().unwrap().unwrap();
        let inner = SgdConfig::new().init();
        let (mut second, model) =
            checkpoint.restore(config().init().unwrap(), inner, Net::new()).unwrap();
        assert_eq!(second.plan().clipping().adapted(), adapted);
        let found = train(&mut second, model, 6, 7);
        assert_eq!(values(&found), values(&expected), "{name}");
        assert_eq!(second.plan().clipping().adapted(), whole.plan().clipping().adapted());
        assert_eq!(second.ledger().to_json().unwrap(), whole.ledger().to_json().unwrap());
    }
}

#[test]
fn a_checkpoint_does_not_go_on_with_another_policy() {
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    let mut optim =
        config().with_clipping(quantile()).init().unwrap().optimizer(SgdConfig::new().init());
    let model = train(&mut optim, Net::new(), 2, 1000);
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

// Sharp edge, for the noise itself: what is released has the noise of its thresholds.
#[test]
fn the_noise_that_is_added_follows_a_scheduled_threshold_and_a_scheduled_multiplier() {
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
        let expected = threshold * multiplier / 0.001;
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

#[test]
fn the_ledger_follows_a_schedule_of_the_noise_and_the_budget_is_that_of_the_whole() {
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
    train(&mut optim, Net::new(), 10, 1000);
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
fn a_budget_stops_a_scheduled_run_before_the_step_that_would_break_it() {
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
        let rows: Vec<_> = draw.private_indices().iter().map(|&unit| data[unit]).collect();
        optim.backward(model.losses(&rows), &model).unwrap();
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
            train(&mut optim, Net::new(), 2, 1000);
            let header = optim.ledger().header();
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

// Sharp edge: one unit twice in a batch.
#[test]
fn a_unit_that_is_given_twice_is_refused_under_every_policy() {
    for (name, policy) in policies() {
        let plan = config().with_noise_multiplier(0.2).with_clipping(policy).init().unwrap();
        let draw = plan.sampler().unwrap().draw(0).unwrap();
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let model = Net::new();
        let data = rows(200);
        let drawn: Vec<_> = draw.private_indices().iter().map(|&unit| data[unit]).collect();
        optim.backward(model.losses(&drawn), &model).unwrap();
        optim.backward(model.losses(&drawn[..1]), &model).unwrap();
        let error = optim.step(0.1, model, draw).unwrap_err().error().to_string();
        assert!(error.contains("exactly once"), "{name}: {error}");
        assert_eq!(optim.ledger().releases(), 0);
    }
}

#[test]
fn a_parameter_that_joins_later_has_no_group_and_the_step_is_refused_before_any_release() {
    let model = Net::new();
    let frozen = Net { first: model.first.clone().no_grad(), ..model.clone() };
    let groups = ParameterGroups::per_layer(&frozen).unwrap();
    assert_eq!(groups.names(), ["second"]);
    let clipping = GroupedClipping::equal(groups, 1.0).unwrap();
    let config = config().with_clipping(clipping);
    let begin = || config.clone().init().unwrap().optimizer(SgdConfig::new().init());
    let mut optim = begin();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let drawn: Vec<_> = draw.private_indices().iter().map(|&unit| rows(200)[unit]).collect();
    let error = begin().backward(model.losses(&drawn), &model).unwrap_err().to_string();
    assert!(error.contains("`first.") && error.contains("no clipping group"), "{error}");
    optim.backward(frozen.losses(&drawn), &frozen).unwrap();
    let error = optim.step(0.1, model, draw).unwrap_err().error().to_string();
    assert!(error.contains("`first.") && error.contains("no clipping group"), "{error}");
    assert_eq!(optim.ledger().releases(), 0);
}

/// A model whose gradient on `x` is `x`.
fn identity() -> Private<Linear> {
    let device = device();
    let mut layer = LinearConfig::new(1, 1).with_bias(false).init(&device);
    layer.weight = layer.weight.map(|w| w.zeros_like().require_grad());
    layer.private()
}

/// Quantile `p` of an exponential distribution with mean 1.
fn exponential(p: f64) -> f64 {
    -(1.0 - p).ln()
}

/// Follows the norms of exponentially distributed gradients; the estimates after each round.
fn follow(clipping: impl Clipping + 'static, rounds: u64, sigma: f64, lr: f64) -> Vec<Vec<f64>> {
    const UNITS: usize = 2000;
    let plan = PrivacyPlanConfig::new(UNITS, 200.0)
        .with_steps(rounds)
        .with_noise_multiplier(sigma)
        .with_clipping(clipping)
        .with_insecure_seed(InsecureSeed(11))
        .init()
        .unwrap();
    let sampler = plan.sampler().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = identity();
    let norms: Vec<f32> =
        (0..UNITS).map(|i| exponential((i as f64 + 0.5) / UNITS as f64) as f32).collect();
    let mut path = Vec::new();
    for step in 0..rounds {
        let draw = sampler.draw(step).unwrap();
        let rows: Vec<f32> = draw.private_indices().iter().map(|&unit| norms[unit]).collect();
        let x = Tensor::<2>::from_data(
            TensorData::new(rows, [draw.private_indices().len(), 1]),
            &device(),
        );
        optim.backward(model.forward(x).reshape([-1]), &model).unwrap();
        model = optim.step(lr, model, draw).unwrap();
        path.push(optim.plan().clipping().adapted().into_iter().map(|(_, value)| value).collect());
    }
    assert_eq!(optim.ledger().releases(), rounds);
    path
}

/// Fraction of the distribution below the estimate.
fn fraction(value: f64) -> f64 {
    1.0 - (-value).exp()
}

#[test]
fn the_geometric_rule_finds_the_median_from_three_orders_of_magnitude_off_in_100_rounds() {
    for start in [1e-3, 1e3] {
        let truth = exponential(0.5);
        let clipping = QuantileClipping::new(0.5).unwrap().with_initial(start * truth).unwrap();
        let path = follow(clipping, 200, 1.0, 0.0);
        let found = path[99][0];
        assert!((fraction(found) - 0.5).abs() < 0.1, "from {start}: {found} after 100 rounds");
        // Afterwards it stays: the mean over 100 rounds is within three percent of the units.
        let mean = path[100..].iter().map(|at| fraction(at[0])).sum::<f64>() / 100.0;
        assert!((mean - 0.5).abs() < 0.03, "from {start}: {mean}");
    }
}

#[test]
fn both_rules_follow_any_quantile_with_noisy_counts() {
    for rule in [QuantileRule::Geometric, QuantileRule::Linear] {
        for target in [0.1, 0.5, 0.9] {
            let clipping = QuantileClipping::new(target).unwrap().with_initial(1.0).unwrap();
            let path = follow(clipping.with_rule(rule), 400, 1.0, 0.0);
            let mean = path[200..].iter().map(|at| fraction(at[0])).sum::<f64>() / 200.0;
            assert!((mean - target).abs() < 0.03, "{rule:?} {target}: {mean}");
        }
    }
}

#[test]
fn a_tracker_alone_estimates_many_quantiles_and_leaves_the_model_as_it_is() {
    let quantiles = [0.1, 0.5, 0.9];
    let tracker = QuantileTracker::alone(ParameterGroups::whole(), quantiles).unwrap();
    let path = follow(tracker, 300, 5.0, 1.0);
    for (index, target) in quantiles.into_iter().enumerate() {
        let mean = path[150..].iter().map(|at| fraction(at[index])).sum::<f64>() / 150.0;
        assert!((mean - target).abs() < 0.03, "{target}: {mean}");
    }
    let mut optim = PrivacyPlanConfig::new(200, 20.0)
        .with_steps(3)
        .with_noise_multiplier(1.0)
        .with_clipping(QuantileTracker::alone(layers(), [0.5]).unwrap())
        .with_insecure_seed(InsecureSeed(5))
        .init()
        .unwrap()
        .optimizer(SgdConfig::new().init());
    let before = values(&Net::new());
    let model = train(&mut optim, Net::new(), 3, 7);
    assert_eq!(values(&model), before);
    assert_eq!(optim.ledger().releases(), 3);
    assert!(optim.gradient_noise_std("first.bias").is_err());
}

#[test]
fn thresholds_from_public_norms_change_between_two_steps_and_take_effect() {
    let clipping = LayerwiseClipping::enhanced(0.3, &public_norms()).unwrap();
    let mut optim =
        config().with_clipping(clipping).init().unwrap().optimizer(SgdConfig::new().init());
    let model = train(&mut optim, Net::new(), 1, 1000);
    let std = |optim: &DpOptimizer| optim.gradient_noise_std("first.weight").unwrap();
    let before = std(&optim);
    let mut norms = PublicNorms::new(layers());
    norms.add(model.losses(&rows(5)), &model).unwrap();
    let means = norms.means().unwrap();
    optim.learn_from_public(&norms).unwrap();
    train(&mut optim, model, 1, 1000);
    let largest = means[0].max(means[1]);
    let expected = (means[0] / largest).max(1e-3) / 1.0;
    assert!((std(&optim) / before / expected - 1.0).abs() < 1e-9);
    let whole = PublicNorms::from_means(ParameterGroups::whole(), vec![1.0]).unwrap();
    assert!(optim.learn_from_public(&whole).unwrap_err().to_string().contains("first, second"));
}
