//! Batch clipping and user-level training, from the draw to the updated model.
#![allow(clippy::unwrap_used)]

use burn::data::dataset::InMemDataset;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn::tensor::{Device, Tensor, TensorData};
use burn_dp::DpError;
use burn_dp::clipping::QuantileClipping;
use burn_dp::federated::{FedAvgConfig, FedSgdConfig, FederatedTraining, UserUpdate};
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::noise::InsecureSeed;
use burn_dp::optim::{Checkpointer, DpOptimizer, PrivacyPlanConfig, SamplingScheme};
use burn_dp::units::{LocalTraining, MiniSets, UnitUpdate};
use burn_dp_accountant::{NeighboringRelation, UnitOfPrivacy};

const EXAMPLES: usize = 120;

fn device() -> Device {
    Device::flex().autodiff()
}

/// Two layers whose values follow from their shape.
#[derive(Module, Debug)]
struct Net {
    first: Private<Linear>,
    second: Private<Linear>,
}

fn layer(d_input: usize, d_output: usize) -> Linear {
    let mut layer = LinearConfig::new(d_input, d_output).init(&device());
    let values: Vec<f32> = (0..d_input * d_output).map(|i| (1.0 + i as f32 * 0.7).sin()).collect();
    let weight = TensorData::new(values, [d_input, d_output]);
    layer.weight = layer.weight.map(|_| Tensor::from_data(weight, &device()).require_grad());
    layer.bias = layer.bias.map(|bias| bias.map(|bias| bias.zeros_like().require_grad()));
    layer
}

impl Net {
    fn new() -> Self {
        Self { first: layer(3, 8).private(), second: layer(8, 1).private() }
    }

    fn losses(&self, examples: &[usize]) -> Tensor<1> {
        let x = rows(examples);
        let target = x.clone().sum_dim(1);
        let output = self.second.forward(self.first.forward(x).tanh());
        (output - target).powi_scalar(2).reshape([-1])
    }
}

fn rows(examples: &[usize]) -> Tensor<2> {
    let values: Vec<f32> =
        examples.iter().flat_map(|&i| (0..3).map(move |j| ((i * 3 + j) as f32).cos())).collect();
    Tensor::from_data(TensorData::new(values, [examples.len(), 3]), &device())
}

#[derive(Default)]
struct Values(Vec<f32>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(param.val().into_data().try_into_vec::<f32>().unwrap());
    }
}

fn values<M: Module>(model: &M) -> Vec<f32> {
    let mut visitor = Values::default();
    model.visit(&mut visitor);
    visitor.0
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= tolerance, "{found} {expected}");
    }
}

fn finish(config: PrivacyPlanConfig) -> PrivacyPlanConfig {
    config.with_steps(5).with_noise_multiplier(0.5).with_insecure_seed(InsecureSeed(3))
}

/// DP-SGD as everybody knows it: rows of a batch.
fn by_rows(config: PrivacyPlanConfig) -> Vec<f32> {
    let plan = config.init().unwrap();
    let sampler = plan.sampler().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    for step in 0..5 {
        let draw = sampler.draw(step).unwrap();
        if !draw.private_indices().is_empty() {
            optim.backward(model.losses(draw.private_indices()), &model).unwrap();
        }
        model = optim.step(0.1, model, draw).unwrap();
    }
    values(&model)
}

type Update = dyn Fn(Net, &[usize]) -> Result<UnitUpdate, DpError>;

/// The same draws, with mini-sets as units.
fn by_units(
    sets: &MiniSets,
    config: PrivacyPlanConfig,
    update: &Update,
) -> (Vec<f32>, DpOptimizer) {
    let plan = config.init().unwrap();
    let sampler = plan.sampler().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Net::new();
    for step in 0..5 {
        let draw = sampler.draw(step).unwrap();
        let units = draw.private_indices();
        optim.unit_updates(&model, units, |model, &set| update(model, sets.members(set))).unwrap();
        model = optim.step(0.1, model, draw).unwrap();
    }
    (values(&model), optim)
}

fn mean_gradient(model: Net, members: &[usize]) -> Result<UnitUpdate, DpError> {
    UnitUpdate::gradient(&model, model.losses(members))
}

#[test]
fn batch_clipping_of_single_examples_is_individual_clipping() {
    for scheme in [SamplingScheme::Poisson, SamplingScheme::FixedSize] {
        let sets = MiniSets::consecutive(EXAMPLES, 1).unwrap();
        let config = finish(PrivacyPlanConfig::for_mini_sets(&sets, 12.0)).with_sampling(scheme);
        let (units, _) = by_units(&sets, config, &mean_gradient);
        let rows = by_rows(finish(PrivacyPlanConfig::new(EXAMPLES, 12.0)).with_sampling(scheme));
        // Sums in another order.
        assert_close(&units, &rows, 1e-5);
    }
}

#[test]
fn general_batch_clipping_with_one_step_of_sgd_is_batch_clipping() {
    let sets = MiniSets::shuffled(EXAMPLES, 8, 1).unwrap();
    let config = || {
        finish(PrivacyPlanConfig::for_mini_sets(&sets, 2.0))
            .with_sampling(SamplingScheme::FixedSize)
    };
    let (mean, _) = by_units(&sets, config(), &mean_gradient);
    let training = LocalTraining::new(SgdConfig::new().init(), 1.0).unwrap();
    let step = move |model: Net, members: &[usize]| {
        training.run(model, [members.to_vec()], |model, batch| Ok(model.losses(&batch)))
    };
    let (general, _) = by_units(&sets, config(), &step);
    // `w - (w - g)` is g rounded to the places of w.
    assert_close(&general, &mean, 1e-5);
}

#[test]
fn a_mini_set_moves_the_model_by_its_clipped_mean_gradient() {
    let sets = MiniSets::consecutive(EXAMPLES, EXAMPLES).unwrap();
    let config = PrivacyPlanConfig::for_mini_sets(&sets, 1.0)
        .with_sampling(SamplingScheme::FixedSize)
        .with_steps(1)
        .with_noise_multiplier(1e-6)
        .with_max_grad_norm(0.01)
        .with_insecure_seed(InsecureSeed(1));
    let plan = config.init().unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let before = Net::new();
    let units = draw.private_indices();
    optim.unit_updates(&before, units, |m: Net, &set| mean_gradient(m, sets.members(set))).unwrap();
    assert_eq!(optim.statistics().reveal().examples, 0);
    let after = optim.step(1.0, before.clone(), draw).unwrap();
    assert_eq!(optim.statistics().reveal().examples, 1);
    let moved: f64 = values(&before)
        .iter()
        .zip(values(&after))
        .map(|(before, after)| f64::from(before - after).powi(2))
        .sum();
    assert!((moved.sqrt() - 0.01).abs() < 1e-5, "{}", moved.sqrt());
}

#[test]
fn the_ledger_has_one_release_a_step_and_the_statement_says_what_is_protected() {
    let sets = MiniSets::shuffled(EXAMPLES, 8, 1).unwrap();
    let config = finish(PrivacyPlanConfig::for_mini_sets(&sets, 2.0));
    let (_, optim) = by_units(&sets, config.clone(), &mean_gradient);
    assert_eq!(optim.ledger().releases(), 5);
    assert_eq!(optim.plan().unit(), &UnitOfPrivacy::MiniSet);
    let statement = optim.statement(&[1e-3]).unwrap();
    assert_eq!(statement.facts["mini_set_size"], "8");
    assert!(statement.to_string().contains("one mini-set removed and another added"));

    let fixed = config.with_sampling(SamplingScheme::FixedSize);
    let (_, optim) = by_units(&sets, fixed, &mean_gradient);
    assert_eq!(optim.plan().unit(), &UnitOfPrivacy::Example);
    assert_eq!(optim.plan().relation(), NeighboringRelation::ReplaceOne);
    assert!(!optim.statement(&[1e-3]).unwrap().to_string().contains("another added"));
}

#[test]
fn a_unit_that_is_left_out_or_given_twice_is_refused() {
    let plan = || finish(PrivacyPlanConfig::new(EXAMPLES, 12.0)).init().unwrap();
    for copies in [0, 2] {
        let plan = plan();
        let draw = plan.sampler().unwrap().draw(0).unwrap();
        let mut optim = plan.optimizer(SgdConfig::new().init());
        let model = Net::new();
        for _ in 0..copies {
            let units = draw.private_indices();
            optim.unit_updates(&model, units, |m: Net, &i| mean_gradient(m, &[i])).unwrap();
        }
        let error = optim.step(0.1, model, draw).unwrap_err().to_string();
        assert!(error.contains("not one for each drawn unit"), "{error}");
    }
}

#[derive(Module, Debug)]
struct Normed {
    fc: Linear,
    norm: BatchNorm,
}

impl Normed {
    fn new() -> Self {
        Self { fc: layer(3, 4), norm: BatchNormConfig::new(4).init(&device()) }
    }

    fn losses(&self, examples: &[usize]) -> Tensor<1> {
        let output = self.norm.forward(self.fc.forward(rows(examples)));
        (output.powi_scalar(3) - 1.0).powi_scalar(2).mean_dim(1).flatten(0, 1)
    }

    fn running(&self) -> Vec<f32> {
        self.norm.running_mean.value_sync().into_data().try_into_vec().unwrap()
    }
}

// Sharp edge: the running statistics of a BatchNorm are private data.
#[test]
fn a_model_with_batch_norm_trains_and_its_running_statistics_stay_as_they_were() {
    let sets = MiniSets::shuffled(EXAMPLES, 10, 0).unwrap();
    let config = finish(PrivacyPlanConfig::for_mini_sets(&sets, 2.0))
        .with_sampling(SamplingScheme::FixedSize)
        .with_noise_multiplier(0.01);
    let plan = config.init().unwrap();
    let sampler = plan.sampler().unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let mut model = Normed::new();
    let all: Vec<usize> = (0..EXAMPLES).collect();
    let loss = |model: &Normed| model.clone().losses(&all).mean().into_scalar::<f64>();
    let copy = burn_dp::units::private_copy(&model);
    let before = loss(&copy);
    for step in 0..5 {
        let draw = sampler.draw(step).unwrap();
        let units = draw.private_indices();
        optim
            .unit_updates(&model, units, |model: Normed, &set| {
                UnitUpdate::gradient(&model, model.losses(sets.members(set)))
            })
            .unwrap();
        model = optim.step(0.3, model, draw).unwrap();
    }
    assert_eq!(model.running(), [0.0; 4]);
    assert!(loss(&burn_dp::units::private_copy(&model)) < 0.9 * before);
    let statement = optim.statement(&[1e-3]).unwrap();
    assert!(statement.facts["running_statistics"].starts_with("not learned"), "{statement}");
}

#[test]
fn an_update_that_leaves_private_statistics_in_the_model_is_refused() {
    let plan = finish(PrivacyPlanConfig::new(EXAMPLES, 60.0)).init().unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = Normed::new();
    let outside = model.clone();
    let units = draw.private_indices();
    let error = optim.unit_updates(&model, units, |_: Normed, &i| {
        // Not the copy that it was given.
        UnitUpdate::gradient(&outside, outside.losses(&[i, i + 1]))
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("norm.running") && error.contains("published without noise"), "{error}");
}

const USERS: usize = 40;

/// User u owns u % 4 examples.
fn users() -> InMemDataset<Vec<usize>> {
    InMemDataset::new((0..USERS).map(|u| (0..u % 4).map(|i| 4 * u + i).collect()).collect())
}

fn user_config() -> PrivacyPlanConfig {
    finish(PrivacyPlanConfig::new(USERS, 10.0).with_unit(UnitOfPrivacy::User))
}

/// With counts that are cheap enough for so few users.
fn counted_user_config() -> PrivacyPlanConfig {
    user_config().with_noise_multiplier(0.3)
}

fn fed_avg() -> UserUpdate {
    FedAvgConfig::new(0.1)
        .with_epochs(2)
        .with_batch_size(2)
        .with_max_examples(3)
        .init(SgdConfig::new().init())
        .unwrap()
}

fn training(server: ModuleOptimizer, update: UserUpdate) -> FederatedTraining {
    FederatedTraining::new(user_config().init().unwrap().optimizer(server), update).unwrap()
}

fn rounds(training: &mut FederatedTraining, mut model: Net, rounds: usize) -> Net {
    for _ in 0..rounds {
        model = training
            .round(0.5, model, &users(), |model: &Net, batch| Ok(model.losses(&batch)))
            .unwrap();
    }
    model
}

#[test]
fn federated_sgd_of_users_with_one_example_is_dp_sgd_with_the_same_draws() {
    let one_each = InMemDataset::new((0..EXAMPLES).map(|i| vec![i]).collect());
    let config = || finish(PrivacyPlanConfig::new(EXAMPLES, 12.0)).with_unit(UnitOfPrivacy::User);
    let local = [
        FedSgdConfig::new(1).init().unwrap(),
        FedAvgConfig::new(1.0).with_batch_size(1).init(SgdConfig::new().init()).unwrap(),
    ];
    let expected = by_rows(config());
    for update in local {
        let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
        let mut training = FederatedTraining::new(optim, update).unwrap();
        let mut model = Net::new();
        for _ in 0..5 {
            let losses = |model: &Net, batch: Vec<usize>| Ok(model.losses(&batch));
            model = training.round(0.1, model, &one_each, losses).unwrap();
        }
        assert_close(&values(&model), &expected, 1e-5);
    }
}

#[test]
fn every_round_is_one_release_for_the_user() {
    let mut training = training(SgdConfig::new().init(), fed_avg());
    rounds(&mut training, Net::new(), 5);
    let optim = training.optimizer();
    assert_eq!((optim.ledger().releases(), training.rounds()), (5, 5));
    assert_eq!(optim.ledger().entries().len(), 1);
    let statement = optim.statement(&[1e-3]).unwrap();
    assert_eq!(statement.unit, UnitOfPrivacy::User);
    assert!(statement.facts["user_update"].starts_with("federated averaging: 2 local epochs"));
    assert!(!statement.to_string().contains("A person with several examples"));
    let error = training
        .round(0.5, Net::new(), &users(), |model: &Net, batch| Ok(model.losses(&batch)))
        .unwrap_err();
    assert!(error.to_string().contains("all 5 planned steps were made"), "{error}");
}

#[test]
fn a_resumed_training_ends_with_the_same_bits() {
    for server in
        [|| SgdConfig::new().init(), || AdamConfig::new().init()] as [fn() -> ModuleOptimizer; 2]
    {
        let mut whole = training(server(), fed_avg());
        let expected = rounds(&mut whole, Net::new(), 5);

        let folder = tempfile::tempdir().unwrap();
        let checkpointer = Checkpointer::new(folder.path());
        let mut first = training(server(), fed_avg());
        let model = rounds(&mut first, Net::new(), 2);
        checkpointer.save(&model, first.optimizer()).unwrap();
        drop((first, model));

        let checkpoint = checkpointer.latest().unwrap().unwrap();
        let plan = user_config().init().unwrap();
        let (optim, model) = checkpoint.restore(plan, server(), Net::new()).unwrap();
        let mut second = FederatedTraining::new(optim, fed_avg()).unwrap();
        let found = rounds(&mut second, model, 3);
        assert_eq!(values(&found), values(&expected));
        let ledgers = [second.optimizer().ledger(), whole.optimizer().ledger()];
        assert_eq!(ledgers[0].to_json().unwrap(), ledgers[1].to_json().unwrap());
    }
}

#[test]
fn other_mini_sets_are_refused_on_resumption() {
    let config = |seed| {
        let sets = MiniSets::shuffled(EXAMPLES, 8, seed).unwrap();
        finish(PrivacyPlanConfig::for_mini_sets(&sets, 2.0)).init().unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    let optim = config(1).optimizer(SgdConfig::new().init());
    checkpointer.save(&Net::new(), &optim).unwrap();
    drop(optim);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let restore = |seed| checkpoint.restore(config(seed), SgdConfig::new().init(), Net::new());
    assert!(restore(1).is_ok());
    let error = restore(2).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("mini_sets was 120 examples in sets of 8"), "{error}");
}

#[test]
fn a_round_without_users_is_noise_and_costs_as_much() {
    let config = PrivacyPlanConfig::new(USERS, 1e-6)
        .with_unit(UnitOfPrivacy::User)
        .with_steps(2)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(9));
    let optim = config.init().unwrap().optimizer(SgdConfig::new().init());
    let mut training = FederatedTraining::new(optim, fed_avg()).unwrap();
    let after = rounds(&mut training, Net::new(), 2);
    assert_eq!(training.optimizer().ledger().releases(), 2);
    for (before, after) in values(&Net::new()).iter().zip(values(&after)) {
        assert_ne!(*before, after);
    }
}

#[test]
fn users_without_examples_take_part_and_contribute_nothing() {
    let nobody = InMemDataset::new(vec![Vec::<usize>::new(); USERS]);
    let run = |users: &InMemDataset<Vec<usize>>, q: f64| {
        let config = PrivacyPlanConfig::new(USERS, q)
            .with_unit(UnitOfPrivacy::User)
            .with_steps(1)
            .with_noise_multiplier(1.0)
            .with_insecure_seed(InsecureSeed(9));
        let optim = config.init().unwrap().optimizer(SgdConfig::new().init());
        let mut training = FederatedTraining::new(optim, fed_avg()).unwrap();
        let losses = |model: &Net, batch: Vec<usize>| Ok(model.losses(&batch));
        let model = training.round(0.5, Net::new(), users, losses).unwrap();
        (training.optimizer().statistics().reveal().examples, values(&model))
    };
    let (taking_part, model) = run(&nobody, USERS as f64);
    assert_eq!(taking_part, USERS);
    let before = values(&Net::new());
    // The noise alone, of deviation 1 / 40 times the learning rate.
    let moved: f64 = before.iter().zip(&model).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let deviation = (moved / before.len() as f64).sqrt();
    assert!((0.5..1.5).contains(&(deviation / (0.5 / 40.0))), "{deviation}");
}

// Sharp edges: sum and counts are one release of a round, and the threshold moves by
// noisy counts alone, between rounds.
#[test]
fn the_updates_of_users_adapt_their_clipping_threshold() {
    let clipping = QuantileClipping::new(0.5).unwrap().with_initial(1e-4).unwrap();
    let config = || counted_user_config().with_clipping(clipping.clone());
    let optim = config().init().unwrap().optimizer(SgdConfig::new().init());
    let mut training = FederatedTraining::new(optim, fed_avg()).unwrap();
    let model = rounds(&mut training, Net::new(), 3);
    let adapted = training.optimizer().plan().clipping().adapted();
    // Every update with an example is longer than the threshold.
    assert!(adapted[0].1 > 1e-4, "{adapted:?}");
    assert_eq!(training.optimizer().ledger().releases(), 3);
    let event = format!("{:?}", training.optimizer().ledger().entries()[0].event);
    assert!(event.contains("JointGaussian"), "{event}");

    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    checkpointer.save(&model, training.optimizer()).unwrap();
    let expected = rounds(&mut training, model, 2);
    drop(training);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let plan = config().init().unwrap();
    let (optim, model) = checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap();
    let mut second = FederatedTraining::new(optim, fed_avg()).unwrap();
    assert_eq!(values(&rounds(&mut second, model, 2)), values(&expected));
}

// Sharp edge: the guarantee of an example where users own many.
#[test]
fn a_plan_for_examples_does_not_train_users() {
    let optim = finish(PrivacyPlanConfig::new(USERS, 10.0))
        .init()
        .unwrap()
        .optimizer(SgdConfig::new().init());
    let error = FederatedTraining::new(optim, fed_avg()).unwrap_err().to_string();
    assert!(error.contains("unit must be the user") && error.contains("with_unit"), "{error}");
}

#[test]
fn another_number_of_users_than_planned_is_refused_and_the_model_comes_back() {
    let mut training = training(SgdConfig::new().init(), fed_avg());
    let few = InMemDataset::new(vec![vec![1usize]; 3]);
    let losses = |model: &Net, batch: Vec<usize>| Ok(model.losses(&batch));
    let refused = training.round(0.5, Net::new(), &few, losses).unwrap_err();
    assert!(refused.error().to_string().contains("users must be 40"), "{}", refused.error());
    assert_eq!(values(&refused.into_model()), values(&Net::new()));
    assert_eq!(training.rounds(), 0);
    // A failure of one user releases nothing, and the round can be made again.
    let failing = |_: &Net, _: Vec<usize>| {
        Err(DpError::InvalidArgument { name: "losses", reason: "planted".into() })
    };
    let refused = training.round(0.5, Net::new(), &users(), failing).unwrap_err();
    assert_eq!(refused.error().to_string(), "losses planted");
    rounds(&mut training, refused.into_model(), 1);
    assert_eq!(training.rounds(), 1);
}

/// What a round of all these users added to the model, times the number of users; the noise is that of
/// a fixed seed.
fn released(users: &[Vec<usize>], scheme: SamplingScheme, clip: f64) -> Vec<f64> {
    // The number of units that the sum is divided by is public; here all take part.
    let config = PrivacyPlanConfig::new(users.len(), users.len() as f64)
        .with_unit(UnitOfPrivacy::User)
        .with_sampling(scheme)
        .with_steps(1)
        .with_noise_multiplier(1e-7)
        .with_max_grad_norm(clip)
        .with_insecure_seed(InsecureSeed(2));
    let optim = config.init().unwrap().optimizer(SgdConfig::new().init());
    let mut training = FederatedTraining::new(optim, fed_avg()).unwrap();
    let losses = |model: &Net, batch: Vec<usize>| {
        let losses = model.losses(&batch);
        Ok(match batch.iter().max() {
            Some(1000) => losses * 1e15,
            Some(1001) => losses * f32::NAN,
            Some(1002) => losses * f32::INFINITY,
            _ => losses,
        })
    };
    let rate = users.len() as f64;
    let model =
        training.round(rate, Net::new(), &InMemDataset::new(users.to_vec()), losses).unwrap();
    let moved = values(&Net::new()).into_iter().zip(values(&model));
    moved.map(|(before, after)| f64::from(before) - f64::from(after)).collect()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

// Sharp edges: the noise of the smallest multiplier is far below the tolerance.
#[test]
fn a_neighbouring_user_moves_what_is_released_by_the_sensitivity_and_no_more() {
    let users: Vec<Vec<usize>> = (0..6).map(|u| vec![u, u + 7, u + 50]).collect();
    for clip in [0.05, 0.5] {
        let tolerance = clip * 1e-3 + 1e-5;
        for removed in 0..users.len() {
            // The last user goes: the random order of a user's examples follows the place in the list.
            let mut with = users.clone();
            with[removed..].rotate_left(1);
            let whole = released(&with, SamplingScheme::Poisson, clip);
            let without = released(&with[..users.len() - 1], SamplingScheme::Poisson, clip);
            let moved = distance(&whole, &without);
            assert!(moved <= clip + tolerance, "{moved} {clip}");
            assert!(moved > 0.1 * clip, "{moved} {clip}");
        }
        let whole = released(&users, SamplingScheme::FixedSize, clip);
        // Huge, not a number, infinite, no data, and another one.
        for other in [vec![1000], vec![1001], vec![1002], vec![], vec![99, 98, 97, 96, 95]] {
            let mut replaced = users.clone();
            replaced[2] = other;
            let replaced = released(&replaced, SamplingScheme::FixedSize, clip);
            assert!(replaced.iter().all(|value| value.is_finite()));
            let moved = distance(&whole, &replaced);
            assert!(moved <= 2.0 * clip + tolerance, "{moved} {clip}");
        }
    }
}

/// The sum of clipped mini-sets of these examples, noise far below the tolerance.
fn released_sets(examples: &[usize], size: usize, sets: usize, clip: f64) -> Vec<f64> {
    let partition = MiniSets::consecutive(examples.len(), size).unwrap();
    assert_eq!(partition.len(), sets);
    let plan = PrivacyPlanConfig::for_mini_sets(&partition, sets as f64)
        .with_sampling(SamplingScheme::FixedSize)
        .with_steps(1)
        .with_noise_multiplier(1e-7)
        .with_max_grad_norm(clip)
        .with_insecure_seed(InsecureSeed(2))
        .init()
        .unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let before = Net::new();
    let units = draw.private_indices();
    optim
        .unit_updates(&before, units, |model: Net, &set| {
            let members: Vec<usize> = partition.members(set).iter().map(|&i| examples[i]).collect();
            let losses = model.losses(&members);
            let losses = match members.iter().max() {
                Some(1000) => losses * 1e15,
                Some(1001) => losses * f32::NAN,
                _ => losses,
            };
            UnitUpdate::gradient(&model, losses)
        })
        .unwrap();
    let after = optim.step(sets as f64, before.clone(), draw).unwrap();
    let moved = values(&before).into_iter().zip(values(&after));
    moved.map(|(before, after)| f64::from(before) - f64::from(after)).collect()
}

// Sharp edge: the table of `MiniSets`.
#[test]
fn one_example_moves_a_mini_set_and_a_mini_set_the_sum_as_the_relation_says() {
    let clip = 0.2;
    let tolerance = clip * 1e-3 + 1e-5;
    let examples: Vec<usize> = (0..40).collect();
    let whole = released_sets(&examples, 10, 4, clip);
    let moved = |other: &[f64]| distance(&whole, other);
    // One example replaced, also by an adversarial one, changes one mini-set: 2 C.
    for other in [77, 1000, 1001] {
        let mut replaced = examples.clone();
        replaced[13] = other;
        assert!(moved(&released_sets(&replaced, 10, 4, clip)) <= 2.0 * clip + tolerance);
    }
    // One example less makes a mini-set another one: 2 C.
    assert!(moved(&released_sets(&examples[..39], 10, 4, clip)) <= 2.0 * clip + tolerance);
    // One mini-set less: C.
    let without = moved(&released_sets(&examples[..30], 10, 3, clip));
    assert!(without <= clip + tolerance && without > 0.5 * clip, "{without}");
}
