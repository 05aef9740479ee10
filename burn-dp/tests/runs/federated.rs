//! User-level training.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use burn::data::dataset::{Dataset, DatasetError, InMemDataset};
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn_dp::checkpoint::Checkpointer;
use burn_dp::clipping::{LayerwiseClipping, PublicNorms, QuantileClipping};
use burn_dp::model::ParameterGroups;
use burn_dp::optim::FederatedTraining;
use burn_dp::optim::{PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::{Distinct, DistinctRecords};
use burn_dp::updates::federated::{FedAvgConfig, FedSgdConfig, UserUpdate};
use burn_dp::updates::public_update_norms;
use burn_dp::{DpError, PublicSource};
use burn_dp_accountant::UnitOfPrivacy;
use burn_dp_accountant::correlated_noise::Strategy;

use crate::fixtures::{Net, assert_same_units, distance, flat};
use crate::mini_sets::{EXAMPLES, by_rows, finish};
use crate::policies::{layers, norms as measured_elsewhere, public_norms};

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
            .round(0.5, model, &users(), |model: &Net, batch| Ok(model.losses_of(&batch)))
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
            let losses = |model: &Net, batch: Vec<usize>| Ok(model.losses_of(&batch));
            model = training.round(0.1, model, &one_each, losses).unwrap();
        }
        assert_same_units(&flat(&model), &expected, 1e-5, 0.1 / 12.0);
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
        .round(0.5, Net::new(), &users(), |model: &Net, batch| Ok(model.losses_of(&batch)))
        .unwrap_err();
    assert!(error.to_string().contains("all 5 planned steps were made"), "{error}");
}

/// Runs all rounds at once, and in two parts with a checkpoint between them.
fn assert_resumes(config: &PrivacyPlanConfig, server: fn() -> ModuleOptimizer) {
    let plan = || config.clone().init().unwrap();
    let start = || FederatedTraining::new(plan().optimizer(server()), fed_avg()).unwrap();
    let mut whole = start();
    let expected = rounds(&mut whole, Net::new(), 5);

    let folder = crate::fixtures::run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    let mut first = start();
    let model = rounds(&mut first, Net::new(), 2);
    checkpointer.save(&model, first.optimizer()).unwrap();
    drop((first, model));

    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let (optim, model) = checkpoint.restore(plan(), server(), Net::new()).unwrap();
    let mut second = FederatedTraining::new(optim, fed_avg()).unwrap();
    let found = rounds(&mut second, model, 3);
    assert_eq!(flat(&found), flat(&expected));
    let ledgers = [second.optimizer().ledger(), whole.optimizer().ledger()];
    assert_eq!(ledgers[0].entries(), ledgers[1].entries());
}

#[test]
fn a_resumed_training_ends_with_the_same_bits() {
    assert_resumes(&user_config(), || SgdConfig::new().init());
    assert_resumes(&user_config(), || AdamConfig::new().init());
}

#[test]
fn a_sampler_that_is_kept_between_rounds_draws_as_a_new_one() {
    // Draws that depend on earlier draws, or on an order of all users.
    let schemes = [
        SamplingScheme::MinSeparation { separation: 2 },
        SamplingScheme::BallsInBins { bins: 4 },
        SamplingScheme::ShuffledOnce,
    ];
    for scheme in schemes {
        assert_resumes(&user_config().with_sampling(scheme), || SgdConfig::new().init());
    }
}

#[test]
fn a_training_with_correlated_noise_resumes_with_the_same_bits() {
    let cyclic = SamplingScheme::CyclicPoisson { parts: 2 };
    let cases = [
        (SamplingScheme::ShuffledOnce, Strategy::tree(5)),
        (SamplingScheme::ShuffledOnce, Strategy::buffered(5, &[0.9, 0.5], &[0.2, 0.1])),
        (cyclic, Strategy::banded_toeplitz(5, &[1.0, 0.5])),
    ];
    for (scheme, strategy) in cases {
        let config = user_config().with_sampling(scheme).with_correlated_noise(strategy.unwrap());
        assert_resumes(&config, || SgdConfig::new().init());
        assert_resumes(&config.with_noise_memory(0), || AdamConfig::new().init());
    }
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
    for (before, after) in flat(&Net::new()).iter().zip(flat(&after)) {
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
        let losses = |model: &Net, batch: Vec<usize>| Ok(model.losses_of(&batch));
        let model = training.round(0.5, Net::new(), users, losses).unwrap();
        (training.optimizer().statistics().reveal().examples, flat(&model))
    };
    let (taking_part, model) = run(&nobody, USERS as f64);
    assert_eq!(taking_part, USERS);
    let before = flat(&Net::new());
    // The noise alone, of deviation 1 / 40 times the learning rate.
    let moved: f64 = before.iter().zip(&model).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let deviation = (moved / before.len() as f64).sqrt();
    assert!((0.5..1.5).contains(&(deviation / (0.5 / 40.0))), "{deviation}");
}

// Sharp edges: sum and counts are one release of a round, and only noisy counts move the threshold,
// between rounds.
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

    let folder = crate::fixtures::run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    checkpointer.save(&model, training.optimizer()).unwrap();
    let expected = rounds(&mut training, model, 2);
    drop(training);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let plan = config().init().unwrap();
    let (optim, model) = checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap();
    let mut second = FederatedTraining::new(optim, fed_avg()).unwrap();
    assert_eq!(flat(&rounds(&mut second, model, 2)), flat(&expected));
}

/// Norms of the updates of public users, computed as in a round.
fn public_updates(update: &UserUpdate, model: &Net) -> PublicNorms {
    let users = vec![vec![900, 901], vec![902, 903], vec![904, 905]];
    let users = PublicSource::consented("users").data(users).unwrap();
    let norms = public_update_norms(layers(), &users, model, |copy, examples| {
        let losses = |model: &Net, batch: Vec<usize>| Ok(model.losses_of(&batch));
        update.of_public_user(&copy, examples.clone(), losses)
    });
    norms.unwrap()
}

#[test]
fn layerwise_thresholds_follow_the_updates_of_public_users() {
    let clipping = LayerwiseClipping::enhanced(0.3, &public_norms()).unwrap();
    let optim = user_config().with_clipping(clipping).init().unwrap();
    let optim = optim.optimizer(SgdConfig::new().init());
    let mut training = FederatedTraining::new(optim, fed_avg()).unwrap();
    let std = |training: &FederatedTraining| {
        ["first.weight", "second.weight"]
            .map(|path| training.optimizer().gradient_noise_std(path).unwrap())
    };
    let model = rounds(&mut training, Net::new(), 1);
    let [first, second] = std(&training);
    assert!((first / second - 3.0).abs() < 1e-9, "as in the first norms");

    let norms = public_updates(training.update(), &model);
    training.learn_from_public(&norms).unwrap();
    rounds(&mut training, model, 1);
    let means = norms.means();
    let [first, second] = std(&training);
    assert!((first / second / (means[0] / means[1]) - 1.0).abs() < 1e-9, "{means:?}");
    assert!((means[0] / means[1] - 3.0).abs() > 1e-3, "{means:?}");

    let whole = measured_elsewhere(ParameterGroups::whole(), [1.0]);
    let error = training.learn_from_public(&whole).unwrap_err().to_string();
    assert!(error.contains("first, second"), "{error}");
}

// Sharp edge: an example-level guarantee where users own many examples.
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
fn another_number_of_users_is_refused_with_the_model() {
    let mut training = training(SgdConfig::new().init(), fed_avg());
    let few = InMemDataset::new(vec![vec![1usize]; 3]);
    let losses = |model: &Net, batch: Vec<usize>| Ok(model.losses_of(&batch));
    let refused = training.round(0.5, Net::new(), &few, losses).unwrap_err();
    assert!(refused.error().to_string().contains("users must be 40"), "{}", refused.error());
    assert_eq!(flat(&refused.into_model()), flat(&Net::new()));
    assert_eq!(training.rounds(), 0);
    // A failure of one user releases nothing, and the round can be repeated.
    let failing = |_: &Net, _: Vec<usize>| {
        Err(DpError::InvalidArgument { name: "losses", reason: "planted".into() })
    };
    let refused = training.round(0.5, Net::new(), &users(), failing).unwrap_err();
    assert_eq!(refused.error().to_string(), "losses planted");
    rounds(&mut training, refused.into_model(), 1);
    assert_eq!(training.rounds(), 1);
}

/// Owners and their examples, at other indices after `calls` calls.
struct Drifting {
    calls: AtomicUsize,
    from: usize,
}

impl Dataset<Vec<(usize, usize)>> for Drifting {
    fn get(&self, index: usize) -> Result<Vec<(usize, usize)>, DatasetError> {
        let moved = usize::from(self.calls.fetch_add(1, Ordering::Relaxed) >= self.from);
        let user = (index + moved) % USERS;
        Ok(vec![(user, 4 * user), (user, 4 * user + 1)])
    }

    fn len(&self) -> usize {
        USERS
    }
}

// Sharp edge: the examples of one user under several indices.
#[test]
fn a_user_whose_examples_change_during_a_round_ends_it_without_a_release() {
    let round = |from: usize| {
        let items = Drifting { calls: AtomicUsize::new(0), from };
        let users = Distinct::by_user(items, |example: &(usize, usize)| example.0).unwrap();
        let mut training = training(SgdConfig::new().init(), fed_avg());
        let losses = |model: &Net, batch: Vec<(usize, usize)>| {
            Ok(model.losses_of(&batch.iter().map(|example| example.1).collect::<Vec<_>>()))
        };
        let made = training.round(0.5, Net::new(), &users, losses);
        (made.map_err(|refused| refused.error().to_string()), training)
    };
    // Every item is loaded twice before the rounds, and the draw has more than two users.
    let (refused, training) = round(2 * USERS + 2);
    let error = refused.unwrap_err();
    assert!(error.contains("changed"), "{error}");
    assert_eq!(training.optimizer().ledger().releases(), 0);

    let (_, training) = round(usize::MAX);
    assert_eq!(training.rounds(), 1);
    let facts = training.optimizer().statement(&[1e-3]).unwrap().facts;
    assert_eq!(facts["identity_of_records"], "all users compared");
}

/// Returns the items of twice as many users.
struct Doubled(InMemDataset<Vec<usize>>);

impl Dataset<Vec<usize>> for Doubled {
    fn get(&self, index: usize) -> Result<Vec<usize>, DatasetError> {
        self.0.get(index)
    }

    fn get_many(&self, indices: Vec<usize>) -> Result<Vec<Vec<usize>>, DatasetError> {
        self.0.get_many(indices.repeat(2))
    }

    fn len(&self) -> usize {
        USERS
    }
}

impl DistinctRecords<Vec<usize>> for Doubled {}

#[test]
fn a_data_set_that_returns_other_items_than_users_is_refused() {
    let mut training = training(SgdConfig::new().init(), fed_avg());
    let losses = |model: &Net, batch: Vec<usize>| Ok(model.losses_of(&batch));
    let refused = training.round(0.5, Net::new(), &Doubled(users()), losses).unwrap_err();
    let error = refused.error().to_string();
    assert!(error.contains("one item for each index"), "{error}");
    assert_eq!(training.optimizer().ledger().releases(), 0);
}

/// Runs a future that reads from devices.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

// The updates of the users were in the sum of the step when it was refused.
#[test]
fn a_round_that_is_refused_before_its_release_can_be_repeated() {
    let losses = |model: &Net, batch: Vec<usize>| Ok(model.losses_of(&batch));
    let expected = rounds(&mut training(SgdConfig::new().init(), fed_avg()), Net::new(), 1);
    for asynchronous in [false, true] {
        let mut training = training(SgdConfig::new().init(), fed_avg());
        let mut round = |lr: f64, model: Net| match asynchronous {
            true => wait(training.round_async(lr, model, &users(), losses)),
            false => training.round(lr, model, &users(), losses),
        };
        let refused = round(f64::NAN, Net::new()).unwrap_err();
        assert!(refused.error().to_string().contains("finite"), "{}", refused.error());
        let model = round(0.5, refused.into_model()).unwrap();
        assert_eq!(flat(&model), flat(&expected), "{asynchronous}");
    }
}

/// The change of the model in a round with all these users, times the number of users; the noise
/// comes from a fixed seed.
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
        let losses = model.losses_of(&batch);
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
    let moved = flat(&Net::new()).into_iter().zip(flat(&model));
    moved.map(|(before, after)| f64::from(before) - f64::from(after)).collect()
}

// Sharp edges: the noise of the smallest multiplier is far below the tolerance.
#[test]
fn a_neighboring_user_moves_the_release_by_at_most_the_sensitivity() {
    let users: Vec<Vec<usize>> = (0..6).map(|u| vec![u, u + 7, u + 50]).collect();
    for clip in [0.05, 0.5] {
        let tolerance = clip * 1e-3 + 1e-5;
        for removed in 0..users.len() {
            // The last user is removed, because the random order of a user's examples depends on
            // the place in the list.
            let mut with = users.clone();
            with[removed..].rotate_left(1);
            let whole = released(&with, SamplingScheme::Poisson, clip);
            let without = released(&with[..users.len() - 1], SamplingScheme::Poisson, clip);
            let moved = distance(&whole, &without);
            assert!(moved <= clip + tolerance, "{moved} {clip}");
            assert!(moved > 0.1 * clip, "{moved} {clip}");
        }
        let whole = released(&users, SamplingScheme::FixedSize, clip);
        // Huge, NaN, infinite, no data, and a different one.
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

#[test]
fn rounds_with_correlated_noise_are_one_run_of_each_user() {
    let strategy = Strategy::banded_toeplitz(100, &[1.0, 0.5]).unwrap();
    let config = user_config().with_sampling(SamplingScheme::ShuffledOnce);
    let config = || config.clone().with_correlated_noise(strategy.clone());
    let server = || SgdConfig::new().init();
    let start = |config: PrivacyPlanConfig| {
        FederatedTraining::new(config.init().unwrap().optimizer(server()), fed_avg()).unwrap()
    };
    let mut training = start(config());
    let model = rounds(&mut training, Net::new(), 2);
    let ledger = training.optimizer().ledger().clone();
    let [entry] = ledger.entries() else { panic!("{:?}", ledger.entries()) };
    assert_eq!(entry.count, 2);
    assert!(ledger.header().facts["correlated_noise"].contains("banded"));
    // The second round has other noise than independent rounds, the first one the same.
    let independent = || user_config().with_sampling(SamplingScheme::ShuffledOnce);
    let mut other = start(independent());
    let first = rounds(&mut other, Net::new(), 1);
    let mut again = start(config());
    assert_eq!(flat(&rounds(&mut again, Net::new(), 1)), flat(&first));
    assert_ne!(flat(&rounds(&mut other, first, 1)), flat(&model));
}
