//! Units that were not drawn or are added twice, and records under several indices.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::transform::SamplerDataset;
use burn::data::dataset::{Dataset, DatasetError, InMemDataset};
use burn::optim::SgdConfig;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::audit::{CanaryCoins, CanaryDataset};
use burn_dp::checkpoint::Checkpointer;
use burn_dp::clipping::ClippedSum;
use burn_dp::grads::PrivateBackward;
use burn_dp::optim::{DpOptimizer, PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp::sampling::{
    Distinct, DistinctRecords, Draw, DrawPart, LogicalBatch, LogicalBatches, OwnedExamples,
    PrivateDataLoaderBuilder, RecordIdentity, Sampler, UserDataset,
};
use burn_dp::updates::{MiniSets, UnitUpdate};
use burn_dp_accountant::UnitOfPrivacy;

use crate::fixtures::{Net, Rows, UNITS, batches, config, device, train_on};

fn optimizer() -> DpOptimizer {
    config().init().unwrap().optimizer(SgdConfig::new().init())
}

fn draw(optim: &DpOptimizer, step: u64) -> Draw {
    optim.plan().sampler().unwrap().draw(step).unwrap()
}

fn losses(model: &Net, units: Vec<usize>) -> burn::tensor::Tensor<1> {
    model.losses_of(&units)
}

fn sum(optim: &mut DpOptimizer, units: &[usize]) -> ClippedSum {
    let model = Net::new();
    let grads = PrivateBackward::new().run(model.losses_of(units), &model).unwrap();
    ClippedSum::from_gradients(grads, &optim.thresholds().unwrap()).unwrap()
}

/// Passes a part in each way that an optimizer accepts; each must reject it with these words.
fn refused(optim: &mut DpOptimizer, part: impl Fn() -> DrawPart, words: &[&str]) {
    let model = Net::new();
    let update = |model: Net, unit| UnitUpdate::gradient(&model, model.losses_of(&[unit]));
    let sum = sum(optim, part().private_indices());
    let errors = [
        optim.backward(&model, part(), losses),
        optim.unit_updates(&model, part(), update),
        optim.backward_each(&model, part(), |model, unit| model.losses_of(&[unit])),
        optim.accumulate(part(), sum),
    ];
    for error in errors {
        let error = error.unwrap_err().to_string();
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
    }
}

// Sharp edge: one physical batch in place of another of the same size.
#[test]
fn a_physical_batch_that_is_given_twice_is_refused_by_its_unit() {
    let mut optim = optimizer();
    let draw = draw(&optim, 0);
    let first = || draw.parts(3).unwrap().next().unwrap();
    optim.backward(&Net::new(), first(), losses).unwrap();
    let unit = format!("unit {} of step 0 was given twice", draw.private_indices()[0]);
    refused(&mut optim, first, &[&unit]);
    // Overlapping parts of other sizes share a unit.
    let unit = format!("unit {} of step 0 was given twice", draw.private_indices()[2]);
    refused(&mut optim, || draw.parts(2).unwrap().nth(1).unwrap(), &[&unit]);
    refused(&mut optim, || DrawPart::from(&draw), &["given twice"]);
}

#[test]
fn physical_batches_of_a_batch_that_is_loaded_again_are_refused() {
    let mut optim = optimizer();
    let batch = batches(optim.plan()).next().unwrap().unwrap();
    let model = Net::new();
    let mut load = || {
        let mut physical = batch.physical_batches(5).unwrap();
        optim.backward(&model, physical.next().unwrap().unwrap(), Net::losses)
    };
    load().unwrap();
    assert!(load().unwrap_err().to_string().contains("was given twice"));
    optim.discard();
    let after = step_of(&mut optim, batch);
    assert!(after.is_ok());
}

fn step_of(
    optim: &mut DpOptimizer,
    batch: LogicalBatch<burn::tensor::Tensor<2>>,
) -> Result<Net, DpError> {
    let model = Net::new();
    for physical_batch in batch.physical_batches(5)? {
        optim.backward(&model, physical_batch?, Net::losses)?;
    }
    Ok(optim.step(0.1, model, batch)?)
}

#[test]
fn a_physical_batch_of_another_step_is_refused() {
    let mut optim = optimizer();
    let (earlier, later) = (draw(&optim, 0), draw(&optim, 1));
    refused(&mut optim, || DrawPart::from(&later), &["step 1", "step 0"]);
    let model = train_on(&mut optim, Net::new(), 1, 7);
    refused(&mut optim, || DrawPart::from(&earlier), &["step 0", "step 1"]);
    optim.backward(&model, &later, losses).unwrap();
    optim.step(0.1, model, later).unwrap();
}

#[test]
fn a_physical_batch_of_another_run_or_sampler_is_refused() {
    let mut optim = optimizer();
    let other = config().with_insecure_seed(InsecureSeed(6)).init().unwrap();
    let other = other.sampler().unwrap().draw(0).unwrap();
    refused(&mut optim, || DrawPart::from(&other), &["a key that is not the plan's"]);
    let fixed = config().with_sampling(burn_dp::optim::SamplingScheme::FixedSize).init().unwrap();
    let fixed = fixed.sampler().unwrap().draw(0).unwrap();
    refused(&mut optim, || DrawPart::from(&fixed), &["not what the plan accounts for"]);
}

// The count of units agrees, and the key is the same, but not the data set.
#[test]
fn two_draws_of_one_step_are_not_mixed() {
    let mut optim = optimizer();
    let mine = draw(&optim, 0);
    let larger = burn_dp::optim::PrivacyPlanConfig::new(2 * UNITS, 40.0)
        .with_steps(8)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(5))
        .init()
        .unwrap();
    let other = larger.sampler().unwrap().draw(0).unwrap();
    assert_eq!(other.mechanism(), mine.mechanism());
    let model = Net::new();
    optim.backward(&model, mine.parts(1).unwrap().next().unwrap(), losses).unwrap();
    refused(&mut optim, || other.parts(1).unwrap().nth(1).unwrap(), &["two different draws"]);
    for part in mine.parts(1).unwrap().skip(1) {
        optim.backward(&model, part, losses).unwrap();
    }
    let refused = optim.step(0.1, model, other).unwrap_err();
    assert!(refused.error().to_string().contains("two different draws"), "{}", refused.error());
    optim.step(0.1, refused.into_model(), mine).unwrap();
}

#[test]
fn a_physical_batch_that_is_left_out_is_refused_by_its_unit() {
    let mut optim = optimizer();
    let draw = draw(&optim, 0);
    let mut model = Net::new();
    let left_out = draw.private_indices()[3];
    for (turn, part) in draw.parts(1).unwrap().enumerate() {
        if turn != 3 {
            optim.backward(&model, part, losses).unwrap();
        }
    }
    let refused = optim.step(0.1, model, draw.clone()).unwrap_err();
    let error = refused.error().to_string();
    assert!(error.contains(&format!("unit {left_out} of step 0 was drawn, but never")), "{error}");
    assert_eq!(optim.ledger().releases(), 0);
    model = refused.into_model();
    optim.backward(&model, draw.parts(1).unwrap().nth(3).unwrap(), losses).unwrap();
    optim.step(0.1, model, draw).unwrap();
    assert_eq!(optim.ledger().releases(), 1);
}

#[test]
fn losses_and_sums_of_another_number_of_units_are_refused() {
    let mut optim = optimizer();
    let draw = draw(&optim, 0);
    let part = || draw.parts(3).unwrap().next().unwrap();
    let units = part().private_indices().to_vec();
    for count in [2, 4] {
        let own: Vec<usize> = (0..count).collect();
        let model = Net::new();
        let error = optim.backward(&model, part(), |model, _| model.losses_of(&own)).unwrap_err();
        let words = format!("there are {count} losses, or groups of losses, for 3 rows");
        assert!(error.to_string().contains(&words), "{error}");
        let other = sum(&mut optim, &own);
        let error = optim.accumulate(part(), other).unwrap_err().to_string();
        assert!(error.contains(&format!("got {count} units for 3")), "{error}");
    }
    let exact = sum(&mut optim, &units);
    optim.accumulate(part(), exact).unwrap();
}

// A loader compared the records, but not what the program clipped.
#[test]
fn the_statement_says_that_sums_came_from_the_program() {
    let said = |own_sums: bool| {
        let mut optim = optimizer();
        let compared = Distinct::by_key(records(), |record| *record).unwrap();
        let batches = optim.plan().batches(compared, Rows, &device()).unwrap();
        let batch = batches.into_iter().next().unwrap().unwrap();
        let model = Net::new();
        let draw = batch.draw().clone();
        for physical in batch.physical_batches(4).unwrap() {
            let physical = physical.unwrap();
            let units = physical.part().private_indices().to_vec();
            if own_sums {
                let sum = sum(&mut optim, &units);
                optim.accumulate(physical.into_parts().1, sum).unwrap();
            } else {
                optim.backward(&model, physical, |model: &Net, _| model.losses_of(&units)).unwrap();
            }
        }
        optim.step(0.1, model, draw).unwrap();
        let statement = optim.statement(&[1e-3]).unwrap();
        let is_named = statement.not_covered.iter().any(|text| text.starts_with("Clipped sums"));
        (statement.facts["identity_of_records"].clone(), is_named)
    };
    assert_eq!(said(false), ("all records compared".to_string(), false));
    assert_eq!(said(true), ("not checked".to_string(), true));
}

/// Returns every unit twice.
struct Doubled;

impl Batcher<usize, Vec<usize>> for Doubled {
    fn batch(&self, units: Vec<usize>, _: &Device) -> Vec<usize> {
        units.repeat(2)
    }
}

#[test]
fn a_batcher_that_returns_another_number_of_units_is_refused() {
    let mut optim = optimizer();
    let batches = optim.plan().batches(records(), Doubled, &device()).unwrap();
    let batch = batches.into_iter().next().unwrap().unwrap();
    let doubled = batch.physical_batches(3).unwrap().next().unwrap().unwrap();
    let update = |model: Net, unit| UnitUpdate::gradient(&model, model.losses_of(&[unit]));
    let error = optim.unit_updates(&Net::new(), doubled, update).unwrap_err().to_string();
    assert!(error.contains("got 6 items for 3 rows"), "{error}");
}

fn records() -> InMemDataset<usize> {
    InMemDataset::new((0..UNITS).collect())
}

/// A data set that repeats one record.
struct First;

impl Dataset<usize> for First {
    fn get(&self, _: usize) -> Result<usize, DatasetError> {
        Ok(0)
    }

    fn len(&self) -> usize {
        UNITS
    }
}

/// One step on a data set; returns the optimizer.
fn stepped(dataset: impl DistinctRecords<usize> + 'static) -> Result<DpOptimizer, DpError> {
    let mut optim = optimizer();
    let batch = optim.plan().batches(dataset, Rows, &device())?.next().unwrap()?;
    step_of(&mut optim, batch)?;
    Ok(optim)
}

// Sharp edge: one record under several indices.
#[test]
fn a_record_behind_several_indices_is_refused_or_stated() {
    let error = Distinct::<_, usize>::new(First).unwrap_err().to_string();
    assert!(error.contains("items 0 and 1 are the same"), "{error}");

    let said = |optim: DpOptimizer| {
        let statement = optim.statement(&[1e-5]).unwrap();
        (statement.facts["identity_of_records"].clone(), statement.not_covered.join(" "))
    };
    let (identity, not_covered) = said(stepped(Distinct::assume(First)).unwrap());
    assert_eq!(identity, "declared by the type of the data set");
    assert!(not_covered.contains("One record under several indices"), "{not_covered}");

    let (identity, not_covered) = said(stepped(Distinct::new(records()).unwrap()).unwrap());
    assert_eq!(identity, "all records compared");
    assert!(!not_covered.contains("One record under several indices"), "{not_covered}");

    let mut optim = optimizer();
    let (draw, model) = (draw(&optim, 0), Net::new());
    optim.backward(&model, &draw, losses).unwrap();
    optim.step(0.1, model, draw).unwrap();
    assert_eq!(said(optim).0, "not checked");
}

#[test]
fn the_weakest_identity_of_the_parts_of_a_step_is_stated() {
    for first_compared in [true, false] {
        let mut optim = optimizer();
        let load = |compared: bool| {
            let dataset = match compared {
                true => Distinct::new(records()).unwrap(),
                false => Distinct::assume(records()),
            };
            optim.plan().batches(dataset, Rows, &device()).unwrap().next().unwrap().unwrap()
        };
        let (first, rest) = (load(first_compared), load(!first_compared));
        let parts = |batch: &LogicalBatch<_>| batch.physical_batches(5).unwrap();
        let mixed = parts(&first).take(1).chain(parts(&rest).skip(1));
        let model = Net::new();
        for part in mixed {
            optim.backward(&model, part.unwrap(), Net::losses).unwrap();
        }
        optim.step(0.1, model, rest).unwrap();
        let facts = optim.statement(&[1e-5]).unwrap().facts;
        let expected = "declared by the type of the data set";
        assert_eq!(facts["identity_of_records"], expected, "{first_compared}");
    }
}

/// Returns other records after `calls` calls.
struct Drifting {
    calls: std::sync::atomic::AtomicUsize,
    from: usize,
}

impl Dataset<usize> for Drifting {
    fn get(&self, index: usize) -> Result<usize, DatasetError> {
        let call = self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(if call < self.from { index } else { index + 1 })
    }

    fn len(&self) -> usize {
        UNITS
    }
}

#[test]
fn a_record_that_changes_during_the_run_is_refused_before_its_step() {
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let drifting = Distinct::new(Drifting { calls, from: 2 * UNITS + 5 }).unwrap();
    let error = stepped(drifting).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("changed"), "{error}");
}

// No test compares declared records. The values of the first step are compared in several batches,
// each of which is loaded again.
#[test]
fn declared_records_that_are_drawn_again_are_refused_in_the_first_step() {
    let step = |dataset: Distinct<_, usize>| {
        let mut optim = optimizer();
        let batch = optim.plan().batches(dataset, Rows, &device()).unwrap().next().unwrap();
        optim.backward_batch(&Net::new(), &batch.unwrap(), 64, Net::losses)
    };
    let drawn = SamplerDataset::with_replacement(records(), UNITS);
    let error = step(Distinct::assume(drawn)).unwrap_err().to_string();
    assert!(error.contains("when the same batch is computed again"), "{error}");
    let once = SamplerDataset::without_replacement(records(), UNITS);
    let error = step(Distinct::assume(once)).unwrap_err().to_string();
    assert!(error.contains("when the same batch is computed again"), "{error}");
}

/// The first backward pass on a data set, in batches of this size.
fn first_pass(
    dataset: impl DistinctRecords<usize> + 'static,
    batch_size: f64,
) -> Result<(), DpError> {
    let plan = PrivacyPlanConfig::new(UNITS, batch_size).with_sampling(SamplingScheme::FixedSize);
    let plan = plan.with_steps(1).with_noise_multiplier(1.0).init()?;
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let batch = optim.plan().batches(dataset, Rows, &device())?.next().unwrap()?;
    optim.backward_batch(&Net::new(), &batch, 64, Net::losses)
}

// Only a batch of at least 32 compared units says something about equal records.
#[test]
fn a_declared_record_behind_every_index_is_refused_in_the_first_step() {
    let error = first_pass(Distinct::assume(First), 40.0).unwrap_err().to_string();
    assert!(error.contains("all 35 compared examples have the same loss"), "{error}");
    first_pass(Distinct::assume(First), 30.0).unwrap();
    first_pass(Distinct::assume(records()), 40.0).unwrap();
}

/// Checks that a data set of these records passes the checks of `inner` on, for its first item.
fn passes_on<I: Clone>(dataset: impl DistinctRecords<I>, others: &[I]) {
    assert_eq!(RecordIdentity::of(&dataset), RecordIdentity::Compared);
    let first = dataset.get(0).unwrap();
    dataset.check_record(0, &first).unwrap();
    for other in others {
        assert!(dataset.check_record(0, other).is_err());
    }
}

#[test]
fn data_sets_of_compared_records_compare_them_too() {
    let compared = || Distinct::<_, usize>::new(records()).unwrap();
    passes_on(Box::new(compared()), &[1]);
    passes_on(std::sync::Arc::new(compared()), &[1]);
    // The seed is one whose selection leaves the first example out.
    let owners = || (0..UNITS).map(|example| vec![example / 2]);
    let shuffled = |seed| OwnedExamples::shuffled(owners(), 1, seed).unwrap();
    let selection = (0..).map(shuffled).find(|found| found.selected()[0] == 1).unwrap();
    let owner = |example: &usize| vec![example / 2];
    passes_on(selection.dataset(compared(), owner).unwrap(), &[0, 2]);
    let sets = MiniSets::consecutive(UNITS, 2).unwrap();
    passes_on(
        sets.dataset::<_, usize, _>(compared()).unwrap(),
        &[vec![0], vec![0, 1, 2], vec![1, 0], vec![0, 2]],
    );
    // Canaries are declared to be other records.
    let coins = CanaryCoins::from_seed(9, InsecureSeed(1));
    let canaries = CanaryDataset::new(compared(), (1000..1009).collect(), &coins).unwrap();
    assert_eq!(RecordIdentity::of(&canaries), RecordIdentity::Declared);
    canaries.check_record(3, &3).unwrap();
    assert!(canaries.check_record(3, &4).is_err());
    canaries.check_record(UNITS, &canaries.get(UNITS).unwrap()).unwrap();
}

#[test]
fn the_weakest_identity_of_all_steps_survives_a_resumption() {
    let folder = tempfile::tempdir().unwrap();
    let mut optim = stepped(Distinct::assume(records())).unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    checkpointer.save(&Net::new(), &optim).unwrap();
    drop(optim);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let plan = config().init().unwrap();
    let model;
    (optim, model) = checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap();
    let compared = Distinct::new(records()).unwrap();
    let batches = optim.plan().batches(compared, Rows, &device()).unwrap();
    let batch = batches.skip_to(1).unwrap().next().unwrap().unwrap();
    for physical_batch in batch.physical_batches(5).unwrap() {
        optim.backward(&model, physical_batch.unwrap(), Net::losses).unwrap();
    }
    optim.step(0.1, model, batch).unwrap();
    let facts = optim.statement(&[1e-5]).unwrap().facts;
    assert_eq!(facts["identity_of_records"], "declared by the type of the data set");
}

/// Returns the items as they are.
struct Items;

impl<I: Send> Batcher<I, Vec<I>> for Items {
    fn batch(&self, items: Vec<I>, _: &Device) -> Vec<I> {
        items
    }
}

/// Users who own one example each.
fn users() -> UserDataset<InMemDataset<usize>, usize> {
    UserDataset::by_key(records(), |record: &usize| *record).unwrap()
}

fn of_users() -> PrivacyPlanConfig {
    config().with_unit(UnitOfPrivacy::User)
}

fn batches_of<I: Send + 'static>(
    config: PrivacyPlanConfig,
    dataset: impl DistinctRecords<I> + 'static,
) -> Result<LogicalBatches<Vec<I>>, DpError> {
    config.init().unwrap().batches(dataset, Items, &device())
}

// Sharp edge: a guarantee for one example, although an item is all that a user owns.
#[test]
fn a_data_set_of_another_unit_than_the_plan_is_refused() {
    let sets = MiniSets::consecutive(UNITS, 1).unwrap();
    let of_sets = || sets.dataset::<_, usize, _>(records()).unwrap();
    let owner = |example: &usize| vec![*example];
    let selection = OwnedExamples::in_order((0..UNITS).map(|i| vec![i]), 1).unwrap();
    let owned = || selection.dataset(records(), owner).unwrap();
    let finish = |config: PrivacyPlanConfig| config.with_steps(8).with_noise_multiplier(1.0);
    let for_sets = || finish(PrivacyPlanConfig::for_mini_sets(&sets, 20.0));
    let for_owned = || finish(PrivacyPlanConfig::for_owned_examples(&selection, 20.0));
    let user = "items that are one user, with all of their examples";
    let set = "items that are one mini-set of examples";
    for (refused, words) in [
        (batches_of(config(), users()).map(drop), [user, "draws one example", "with_unit"]),
        (batches_of(config(), Box::new(users())).map(drop), [user, "draws one example", "User"]),
        (batches_of(config(), of_sets()).map(drop), [set, "draws one example", "for_mini_sets"]),
        (batches_of(for_sets(), users()).map(drop), [user, "draws one mini-set", "with_unit"]),
        (batches_of(for_owned(), users()).map(drop), [user, "draws one example", "with_unit"]),
        (batches_of(of_users(), of_sets()).map(drop), [set, "draws one user", "for_mini_sets"]),
        (
            batches_of(of_users(), owned()).map(drop),
            ["items that are one example", "draws one user", "for_owned_examples"],
        ),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
    }
    let households = UnitOfPrivacy::Other("one household".into());
    for accepted in [
        batches_of(of_users(), std::sync::Arc::new(users())).map(drop),
        batches_of(config().with_unit(households), users()).map(drop),
        batches_of(for_sets(), of_sets()).map(drop),
        batches_of(for_owned(), owned()).map(drop),
        batches_of(for_owned().with_unit(UnitOfPrivacy::User), owned()).map(drop),
        // Not known.
        batches_of(of_users(), records()).map(drop),
    ] {
        accepted.unwrap();
    }

    // A loader that was created without the plan.
    let mut optim = optimizer();
    let loader = PrivateDataLoaderBuilder::new(Items).with_device(device());
    let mut batches = loader.build(users(), optim.plan().sampler().unwrap(), 1).unwrap();
    let batch = batches.next().unwrap().unwrap();
    let physical = batch.physical_batches(5).unwrap().next().unwrap().unwrap();
    let update =
        |model: Net, owned: Vec<usize>| UnitUpdate::gradient(&model, model.losses_of(&owned));
    let error = optim.unit_updates(&Net::new(), physical, update).unwrap_err().to_string();
    assert!(error.contains(user), "{error}");
}

// Sharp edge: the ledger names the mini-sets of the plan, and other ones are trained on.
#[test]
fn another_division_or_selection_than_the_plan_has_is_refused() {
    let sets = |size, seed| MiniSets::shuffled(UNITS, size, seed).unwrap();
    let of_sets = |size, seed| sets(size, seed).dataset::<_, usize, _>(records()).unwrap();
    let owners = || (0..UNITS).map(|example| vec![example / 2]);
    let owned = |seed| OwnedExamples::shuffled(owners(), 1, seed).unwrap();
    let of_owned = |seed| owned(seed).dataset(records(), |example: &usize| vec![example / 2]);
    let finish = |config: PrivacyPlanConfig| {
        let config = config.with_steps(8).with_noise_multiplier(1.0);
        config.with_insecure_seed(InsecureSeed(5))
    };
    let for_sets = || finish(PrivacyPlanConfig::for_mini_sets(&sets(4, 1), 20.0));
    let for_owned = || finish(PrivacyPlanConfig::for_owned_examples(&owned(1), 5.0));

    batches_of(for_sets(), of_sets(4, 1)).unwrap();
    batches_of(for_owned(), of_owned(1).unwrap()).unwrap();
    let coarse = sets(UNITS, 1).dataset::<_, usize, _>(records()).unwrap();
    for refused in [
        batches_of(for_sets(), of_sets(4, 2)).map(drop),
        batches_of(for_sets(), Box::new(of_sets(4, 2))).map(drop),
        batches_of(for_sets(), std::sync::Arc::new(of_sets(4, 2))).map(drop),
        batches_of(for_sets(), of_sets(5, 1)).map(drop),
        batches_of(for_sets(), coarse).map(drop),
        batches_of(for_owned(), of_owned(2).unwrap()).map(drop),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("other mini-sets, or another selection"), "{error}");
    }

    // A loader that was created without the plan.
    let mut optim = for_sets().init().unwrap().optimizer(SgdConfig::new().init());
    let loader = PrivateDataLoaderBuilder::new(Items).with_device(device());
    let mut batches = loader.build(of_sets(4, 2), optim.plan().sampler().unwrap(), 1).unwrap();
    let batch = batches.next().unwrap().unwrap();
    let physical = batch.physical_batches(5).unwrap().next().unwrap().unwrap();
    let update = |model: Net, set: Vec<usize>| UnitUpdate::gradient(&model, model.losses_of(&set));
    let error = optim.unit_updates(&Net::new(), physical, update).unwrap_err().to_string();
    assert!(error.contains("other mini-sets, or another selection"), "{error}");
}

// Sharp edge: a wrapper hides by which division or owners the items were made.
#[test]
fn a_division_or_selection_that_is_not_known_is_in_the_statement() {
    let sets = |seed| MiniSets::shuffled(UNITS, 4, seed).unwrap();
    let compared = || Distinct::new(records()).unwrap();
    let of_sets = |seed| sets(seed).dataset::<_, usize, _>(compared()).unwrap();
    let owners = || (0..UNITS).map(|example| vec![example / 2]);
    let owned = |seed| OwnedExamples::shuffled(owners(), 1, seed).unwrap();
    let finish = |config: PrivacyPlanConfig| {
        let config = config.with_steps(8).with_noise_multiplier(1.0);
        config.with_insecure_seed(InsecureSeed(5))
    };
    let for_sets = || finish(PrivacyPlanConfig::for_mini_sets(&sets(1), 20.0));
    let for_owned = || finish(PrivacyPlanConfig::for_owned_examples(&owned(1), 5.0));
    let sentence = "has the owners or the mini-set of the plan";
    let known = not_covered(for_sets(), of_sets(1), of_several);
    assert!(!known.contains(sentence), "{known}");
    // The keys of the records say nothing about another seed, nor about owners.
    let key = |set: &Vec<usize>| format!("{set:?}");
    let hidden = Distinct::by_key(of_sets(2), key).unwrap();
    let text = not_covered(for_sets(), hidden, of_several);
    assert!(text.contains(sentence), "{text}");
    let assumed = owned(1).assume_dataset(records()).unwrap();
    let hidden = Distinct::by_key(assumed, |example: &usize| *example).unwrap();
    let text = not_covered(for_owned(), hidden, of_one);
    assert!(text.contains(sentence), "{text}");
}

/// Returns what the statement does not cover after one step on these items.
fn not_covered<I: Send + 'static>(
    config: PrivacyPlanConfig,
    dataset: impl DistinctRecords<I> + 'static,
    loss: impl Fn(&Net, I) -> burn::tensor::Tensor<1>,
) -> String {
    let mut optim = config.init().unwrap().optimizer(SgdConfig::new().init());
    let mut batches = optim.plan().batches(dataset, Items, &device()).unwrap();
    let (batch, model) = (batches.next().unwrap().unwrap(), Net::new());
    for physical in batch.physical_batches(64).unwrap() {
        optim.backward_each(&model, physical.unwrap(), &loss).unwrap();
    }
    optim.step(0.1, model, batch).unwrap();
    optim.statement(&[1e-5]).unwrap().not_covered.join(" ")
}

fn of_one(model: &Net, example: usize) -> burn::tensor::Tensor<1> {
    model.losses_of(&[example])
}

fn of_several(model: &Net, examples: Vec<usize>) -> burn::tensor::Tensor<1> {
    model.losses_of(&examples)
}

// Sharp edge: a guarantee for one user, although they own several items, or several people share a
// key.
#[test]
fn a_guarantee_for_users_says_what_was_compared_of_them() {
    let several = "One user could own several items";
    let shared = "People who share a user key";
    let compared = || Distinct::new(records()).unwrap();
    for (text, expected) in [
        (not_covered(config(), records(), of_one), [false, false]),
        (not_covered(of_users(), records(), of_one), [true, false]),
        (not_covered(of_users(), compared(), of_one), [true, false]),
        (not_covered(of_users(), users(), of_several), [false, true]),
    ] {
        assert_eq!([text.contains(several), text.contains(shared)], expected, "{text}");
    }
}

// Sharp edge: an index that is another record in a later step.
#[test]
fn records_in_another_order_are_refused_also_after_a_resumption() {
    fn load(optim: &DpOptimizer, reversed: bool) -> LogicalBatch<burn::tensor::Tensor<2>> {
        let mut records: Vec<usize> = (0..UNITS).collect();
        if reversed {
            records.reverse();
        }
        let records = Distinct::by_key(InMemDataset::new(records), |record: &usize| *record);
        let batches = optim.plan().batches(records.unwrap(), Rows, &device()).unwrap();
        batches.skip_to(optim.next_step()).unwrap().next().unwrap().unwrap()
    }
    let refused = |error: DpError| {
        let error = error.to_string();
        assert!(error.contains("the records of the run, in the same order"), "{error}");
    };
    let mut optim = optimizer();
    // Within a step. Nothing is released, so that the other order can begin the run.
    let (first, other) = (load(&optim, false), load(&optim, true));
    let part = |batch: &LogicalBatch<_>, number| {
        batch.physical_batches(5).unwrap().nth(number).unwrap().unwrap()
    };
    optim.backward(&Net::new(), part(&first, 0), Net::losses).unwrap();
    refused(optim.backward(&Net::new(), part(&other, 1), Net::losses).unwrap_err());
    optim.discard();
    step_of(&mut optim, other).unwrap();

    let next = load(&optim, false);
    refused(step_of(&mut optim, next).unwrap_err());
    optim.discard();
    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path());
    checkpointer.save(&Net::new(), &optim).unwrap();
    drop(optim);
    let checkpoint = checkpointer.latest().unwrap().unwrap();
    let plan = config().init().unwrap();
    let (mut optim, _) = checkpoint.restore(plan, SgdConfig::new().init(), Net::new()).unwrap();
    let next = load(&optim, false);
    refused(step_of(&mut optim, next).unwrap_err());
    optim.discard();
    let next = load(&optim, true);
    step_of(&mut optim, next).unwrap();
}

#[test]
fn an_order_that_was_not_compared_is_stated_where_the_guarantee_needs_it() {
    let is_stated = |text: String| text.contains("the order of the records was not compared");
    let parts = || config().with_sampling(SamplingScheme::CyclicPoisson { parts: 2 });
    let compared = || Distinct::new(records()).unwrap();
    assert!(!is_stated(not_covered(config(), records(), of_one)));
    assert!(is_stated(not_covered(parts(), records(), of_one)));
    assert!(!is_stated(not_covered(parts(), compared(), of_one)));
    let sets = MiniSets::consecutive(UNITS, 1).unwrap();
    let for_sets = || {
        let config = PrivacyPlanConfig::for_mini_sets(&sets, 20.0);
        config.with_steps(8).with_noise_multiplier(1.0).with_insecure_seed(InsecureSeed(5))
    };
    let by_set = sets.dataset::<_, usize, _>(records()).unwrap();
    assert!(is_stated(not_covered(for_sets(), by_set, of_several)));
    let by_set = sets.dataset::<_, usize, _>(compared()).unwrap();
    assert!(!is_stated(not_covered(for_sets(), by_set, of_several)));
}
