//! Values of a model that are not trained and that a forward pass changes.

use burn::module::{Module, Param, RunningState};
use burn::nn::Linear;
use burn::optim::SgdConfig;
use burn::tensor::quantization::QuantValue;
use burn::tensor::{Int, IntDType, Tensor};
use burn_dp::checkpoint::{Checkpointer, DpOptimizerRecord};
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::DpOptimizer;
use burn_dp::sampling::Sampler;
use burn_dp::{DpError, PublicSource};

use crate::fixtures::{config, device, inputs, layer, run_folder};
use crate::stored::{Counter, Flags};

/// The value that a forward pass changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Changes {
    Nothing,
    /// Like a BatchNorm, whose update is only visible after the next one.
    Running,
    Float,
    Int,
    Bool,
}

#[derive(Module, Debug)]
struct Net {
    fc: Private<Linear>,
    mean: RunningState<Tensor<1>>,
    count: Counter,
    seen: Flags,
}

impl Net {
    fn new() -> Self {
        let device = device();
        Self {
            fc: layer(3, 1, 1.0).private(),
            mean: RunningState::new(Tensor::from_floats([0.0, f32::NAN], &device)),
            count: Counter::new(Tensor::from_ints([0], &device)),
            seen: Flags::new(Tensor::from_data([false, false], &device)),
        }
    }

    fn losses(&self, examples: &[usize], changes: Changes) -> Tensor<1> {
        let (x, device) = (inputs(examples), device());
        let store = || self.mean.update(x.clone().mean_dim(0).slice([0..1, 0..2]).reshape([2]));
        match changes {
            Changes::Nothing => {}
            Changes::Running => store(),
            Changes::Float => {
                store();
                let _ = self.mean.value_sync();
            }
            Changes::Int => self.count.set(Tensor::from_ints([examples.len() as i32], &device)),
            Changes::Bool => {
                self.seen.set(Tensor::from_data([true, examples.len() > 2], &device));
            }
        }
        self.fc.forward(x).powi_scalar(2).reshape([-1])
    }
}

/// Runs steps of two physical batches; the second one of step `at` changes a value.
fn train(optim: &mut DpOptimizer, steps: u64, at: u64, changes: Changes) -> Result<Net, DpError> {
    let mut model = Net::new();
    let sampler = optim.plan().sampler()?;
    for step in 0..steps {
        let draw = sampler.draw(step)?;
        let half = draw.private_indices().len().div_ceil(2);
        for (number, part) in draw.parts(half.max(1))?.enumerate() {
            let now = if step == at && number == 1 { changes } else { Changes::Nothing };
            optim.backward(&model, part, |model: &Net, units| model.losses(&units, now))?;
        }
        model = optim.step(0.1, model, draw)?;
    }
    Ok(model)
}

fn optimizer() -> DpOptimizer {
    config().init().unwrap().optimizer(SgdConfig::new().init())
}

// Sharp edge: a value that changes late, is not a float, or waits in a running state.
#[test]
fn a_value_of_any_kind_that_changes_in_any_step_ends_the_run() {
    for (changes, path) in [
        (Changes::Running, "`mean`"),
        (Changes::Float, "`mean`"),
        (Changes::Int, "`count`"),
        (Changes::Bool, "`seen`"),
    ] {
        for at in [0, 1, 5] {
            let mut optim = optimizer();
            let error = train(&mut optim, 8, at, changes).unwrap_err().to_string();
            assert!(error.contains(path) && error.contains("not trained"), "{error}");
            assert_eq!(optim.ledger().releases(), at, "{changes:?}");
        }
    }
}

/// Makes one step, and returns the model.
fn step(optim: &mut DpOptimizer, model: Net) -> Result<Net, DpError> {
    let draw = optim.plan().sampler()?.draw(optim.next_step())?;
    let losses = |model: &Net, units: Vec<usize>| model.losses(&units, Changes::Nothing);
    optim.backward(&model, &draw, losses)?;
    Ok(optim.step(0.1, model, draw)?)
}

#[test]
fn a_value_whose_shape_or_type_changes_is_seen() {
    let device = device();
    let others: [(&str, Tensor<1, Int>); 3] = [
        ("longer", Tensor::from_ints([0, 0], &device)),
        ("empty", Tensor::empty([0], &device)),
        ("of another type", Tensor::from_ints([0], &device).cast(IntDType::I16)),
    ];
    for (context, other) in others {
        let mut optim = optimizer();
        let model = step(&mut optim, Net::new()).unwrap();
        model.count.set(other);
        let error = step(&mut optim, model).unwrap_err().to_string();
        assert!(error.contains("`count`"), "{context}: {error}");
    }
    // A value without elements is no change.
    let (mut optim, mut model) = (optimizer(), Net::new());
    model.count.set(Tensor::empty([0], &device));
    for _ in 0..3 {
        model = step(&mut optim, model).unwrap();
    }
}

#[derive(Module, Debug)]
struct Caching {
    fc: Private<Linear>,
    cache: Option<Counter>,
}

// A value that is not there at first, such as a cache or statistics that the first batch creates,
// or that is away for a step.
#[test]
fn a_value_that_appears_during_the_run_ends_it() {
    let device = device();
    let cache = |value: i32| Some(Counter::new(Tensor::from_ints([value], &device)));
    let kept = || Some(0);
    for (caches, released) in [
        (vec![None, None, Some(1)], 2),
        (vec![None, Some(1)], 1),
        (vec![kept(), None, Some(1)], 2),
        (vec![kept(), None, kept(), None], 4),
        (vec![None, None], 2),
    ] {
        let mut optim = optimizer();
        let mut model = Caching { fc: layer(3, 1, 1.0).private(), cache: None };
        let mut error = None;
        for (step, value) in caches.iter().enumerate() {
            model.cache = value.and_then(cache);
            let draw = optim.plan().sampler().unwrap().draw(step as u64).unwrap();
            let losses = |model: &Caching, units: Vec<usize>| {
                model.fc.forward(inputs(&units)).powi_scalar(2).reshape([-1])
            };
            let step = |model: Caching| -> Result<Caching, DpError> {
                optim.backward(&model, &draw, losses)?;
                Ok(optim.step(0.1, model, draw)?)
            };
            match step(model.clone()) {
                Ok(trained) => model = trained,
                Err(found) => error = Some(found.to_string()),
            }
        }
        assert_eq!(optim.ledger().releases(), released, "{caches:?}");
        let is_refused = released < caches.len() as u64;
        assert_eq!(error.is_some(), is_refused, "{caches:?}");
        assert!(error.is_none_or(|error| error.contains("`cache`")), "{caches:?}");
    }
}

#[derive(Module, Debug)]
struct Growing {
    fc: Private<Linear>,
    more: Option<Private<Linear>>,
}

// Its first value can follow from the examples.
#[test]
fn a_trained_value_that_appears_during_the_run_ends_it() {
    let mut optim = optimizer();
    let model = Growing { fc: layer(3, 1, 1.0).private(), more: None };
    let step = |optim: &mut DpOptimizer, model: Growing| -> Result<Growing, DpError> {
        let draw = optim.plan().sampler()?.draw(optim.next_step())?;
        let losses = |model: &Growing, units: Vec<usize>| {
            let x = inputs(&units);
            let more = model.more.as_ref().map(|more| more.forward(x.clone()));
            let output = model.fc.forward(x);
            more.into_iter().fold(output, |sum, more| sum + more).powi_scalar(2).reshape([-1])
        };
        optim.backward(&model, &draw, losses)?;
        Ok(optim.step(0.1, model, draw)?)
    };
    let mut model = step(&mut optim, model).unwrap();
    model.more = Some(layer(3, 1, 2.0).private());
    let error = step(&mut optim, model).unwrap_err().to_string();
    assert!(error.contains("`more.") && error.contains("was not there"), "{error}");
    assert_eq!(optim.ledger().releases(), 1);
}

#[derive(Module, Debug)]
struct Layers {
    first: Private<Linear>,
    second: Private<Linear>,
}

// The values of a layer that was trained at the start.
#[test]
fn a_layer_that_is_frozen_during_the_run_is_compared_from_then_on() {
    let run = |changes: bool| -> Result<DpOptimizer, DpError> {
        let mut optim = optimizer();
        let mut model =
            Layers { first: layer(3, 3, 1.0).private(), second: layer(3, 1, 2.0).private() };
        for step in 0..5 {
            let draw = optim.plan().sampler()?.draw(step)?;
            let losses = |model: &Layers, units: Vec<usize>| {
                let hidden = model.first.forward(inputs(&units)).tanh();
                model.second.forward(hidden).powi_scalar(2).reshape([-1])
            };
            optim.backward(&model, &draw, losses)?;
            model = optim.step(0.1, model, draw)?;
            if step == 1 {
                model.first = model.first.no_grad();
            }
            if step == 3 && changes {
                model.first = layer(3, 3, 5.0).private().no_grad();
            }
        }
        Ok(optim)
    };
    let optim = run(false).unwrap();
    assert_eq!((optim.ledger().releases(), optim.releases()), (5, 5));
    // The values of this model are not packed.
    assert!(!optim.statement(&[1e-3]).unwrap().facts.contains_key("packed_values"));
    let error = run(true).unwrap_err().to_string();
    assert!(error.contains("`first.") && error.contains("not trained"), "{error}");
}

#[derive(Module, Debug)]
struct Packed {
    fc: Private<Linear>,
    base: Param<Tensor<2>>,
}

/// Makes all steps but `left`; the packed value changes after the first.
fn train_packed(optim: &mut DpOptimizer, left: u64) -> Result<Packed, DpError> {
    let scheme = device().settings().quantization.scheme.with_value(QuantValue::Q8S);
    let pack = |value: f64| {
        let value = Tensor::<2>::ones([4, 4], &device()) * value;
        Param::from_tensor(value.quantize_dynamic(&scheme)).set_require_grad(false)
    };
    let mut model = Packed { fc: layer(3, 1, 1.0).private(), base: pack(1.0) };
    let sampler = optim.plan().sampler()?;
    for step in 0..optim.plan().steps() - left {
        let draw = sampler.draw(step)?;
        for part in draw.parts(64)? {
            optim.backward(&model, part, |model: &Packed, units| {
                model.fc.forward(inputs(&units)).powi_scalar(2).reshape([-1])
            })?;
        }
        model = optim.step(0.1, model, draw)?;
        model.base = pack(2.0);
    }
    Ok(model)
}

// Sharp edge: a packed value that changes late.
#[test]
fn a_packed_value_that_changes_is_seen_by_the_last_step_and_the_checkpoint() {
    let mut optim = optimizer();
    let is_stated = |optim: &DpOptimizer| {
        let statement = optim.statement(&[1e-3]).unwrap();
        statement.not_covered.iter().any(|line| line.starts_with("A packed (quantized) value"))
    };
    assert!(!is_stated(&optim));
    let error = train_packed(&mut optim, 0).unwrap_err().to_string();
    assert!(error.contains("`base`") && error.contains("not trained"), "{error}");
    assert_eq!(optim.ledger().releases(), optim.plan().steps() - 1);
    assert!(is_stated(&optim));

    let folder = tempfile::tempdir().unwrap();
    let checkpointer = Checkpointer::new(folder.path().join("run"));
    let mut optim = optimizer();
    let model = train_packed(&mut optim, 1).unwrap();
    // A run that ends early has not compared them at its end, and says nothing else.
    let fact = &optim.statement(&[1e-3]).unwrap().facts["packed_values"];
    assert!(fact.contains("in the last planned one if it was made"), "{fact}");
    let error = checkpointer.save(&model, &optim).unwrap_err().to_string();
    assert!(error.contains("`base`") && error.contains("not trained"), "{error}");
}

// Public statistics replace the values of a BatchNorm, not the packed ones of a frozen layer.
#[test]
fn a_packed_value_that_changed_is_not_accepted_as_public() {
    let mut optim = optimizer();
    let model = train_packed(&mut optim, 1).unwrap();
    let data = PublicSource::published("letters").data(vec![1, 2, 3]).unwrap();
    let error = optim.accept_public_buffers(&model, &data).unwrap_err().to_string();
    assert!(error.contains("`base`") && error.contains("not trained"), "{error}");
    assert!(!optim.statement(&[1e-3]).unwrap().facts.contains_key("values_not_trained"));
}

#[test]
fn values_that_stay_are_accepted_also_if_one_is_not_a_number() {
    let mut optim = optimizer();
    train(&mut optim, 8, 0, Changes::Nothing).unwrap();
    assert_eq!(optim.ledger().releases(), 8);
}

#[test]
fn an_update_that_waits_in_a_running_state_is_seen_in_the_first_pass() {
    let mut optim = optimizer();
    let model = Net::new();
    let draw = optim.plan().sampler().unwrap().draw(0).unwrap();
    let losses = |model: &Net, units: Vec<usize>| model.losses(&units, Changes::Running);
    let error = optim.backward(&model, &draw, losses).unwrap_err();
    assert!(error.to_string().contains("`mean`"), "{error}");
}

// Sharp edge: a value that changes between two processes, with a model that the program saves.
#[test]
fn a_run_continues_from_a_record_only_with_the_values_that_it_had() {
    let device = device();
    let float = || RunningState::new(Tensor::from_floats([1.0, f32::NAN], &device));
    type Change<'a> = (Option<&'a str>, Box<dyn Fn(&mut Net) + 'a>);
    let changes: [Change<'_>; 4] = [
        (None, Box::new(|_| ())),
        (Some("`mean`"), Box::new(|net| net.mean = float())),
        (Some("`count`"), Box::new(|net| net.count.set(Tensor::from_ints([1], &device)))),
        (Some("`seen`"), Box::new(|net| net.seen.set(Tensor::from_data([false, true], &device)))),
    ];
    for (path, change) in changes {
        let folder = run_folder();
        let log = folder.path().join("log");
        let mut first = optimizer().with_release_log(&log).unwrap();
        let mut model = step(&mut first, Net::new()).unwrap();
        let record = first.to_record().unwrap().to_bytes().unwrap();
        drop(first);
        let load = |record: &[u8]| {
            let record = DpOptimizerRecord::from_bytes(record, &log).unwrap();
            optimizer().load_record(record).unwrap()
        };
        // The values are still known where no step came between two records.
        let again = load(&record).to_record().unwrap().to_bytes().unwrap();
        let mut second = load(&again);
        change(&mut model);
        match (path, step(&mut second, model)) {
            (None, found) => assert_eq!(found.map(|_| second.ledger().releases()).unwrap(), 2),
            (Some(path), found) => {
                let error = found.unwrap_err().to_string();
                assert!(error.contains(path) && error.contains("not trained"), "{error}");
                assert_eq!(second.ledger().releases(), 1);
            }
        }
    }
}

#[test]
fn a_run_does_not_continue_from_a_record_with_a_value_that_it_did_not_have() {
    let device = device();
    let folder = run_folder();
    let log = folder.path().join("log");
    let mut first = optimizer().with_release_log(&log).unwrap();
    let step = |optim: &mut DpOptimizer, model: Caching| -> Result<Caching, DpError> {
        let draw = optim.plan().sampler()?.draw(optim.next_step())?;
        let losses = |model: &Caching, units: Vec<usize>| {
            model.fc.forward(inputs(&units)).powi_scalar(2).reshape([-1])
        };
        optim.backward(&model, &draw, losses)?;
        Ok(optim.step(0.1, model, draw)?)
    };
    let model = Caching { fc: layer(3, 1, 1.0).private(), cache: None };
    let mut model = step(&mut first, model).unwrap();
    let record = first.to_record().unwrap();
    drop(first);
    let mut second = optimizer().load_record(record).unwrap();
    model.cache = Some(Counter::new(Tensor::from_ints([1], &device)));
    let error = step(&mut second, model).unwrap_err().to_string();
    assert!(error.contains("`cache`") && error.contains("was not there"), "{error}");
    assert_eq!(second.ledger().releases(), 1);
}

#[test]
fn a_checkpoint_before_the_first_step_has_the_values_of_the_record() {
    let folder = run_folder();
    let run = folder.path().join("run");
    let checkpointer = Checkpointer::new(&run);
    let mut first = optimizer();
    checkpointer.save(&Net::new(), &first).unwrap();
    let model = step(&mut first, Net::new()).unwrap();
    checkpointer.save(&model, &first).unwrap();
    let record = first.to_record().unwrap();
    drop(first);
    let second = optimizer().load_record(record).unwrap();
    let other = Net { count: Counter::new(Tensor::from_ints([1], &device())), ..model.clone() };
    let error = checkpointer.save(&other, &second).unwrap_err().to_string();
    assert!(error.contains("`count`") && error.contains("not trained"), "{error}");
    checkpointer.save(&model, &second).unwrap();
}

// What was packed was not trained and not computed on public data.
#[test]
fn a_packed_value_that_changed_between_two_processes_is_not_accepted_as_public() {
    let folder = run_folder();
    let log = folder.path().join("log");
    let mut first = optimizer().with_release_log(&log).unwrap();
    let begun = train_packed(&mut first, optimizer().plan().steps() - 1).unwrap();
    let record = first.to_record().unwrap();
    drop(first);
    let mut second = optimizer().load_record(record).unwrap();
    let data = PublicSource::published("letters").data(vec![1, 2, 3]).unwrap();
    let error = second.accept_public_buffers(&begun, &data).unwrap_err().to_string();
    assert!(error.contains("`base`") && error.contains("not trained"), "{error}");
}

#[test]
fn a_change_after_the_last_step_is_seen_by_the_checkpoint() {
    let mut optim = optimizer();
    let model = train(&mut optim, 2, 9, Changes::Nothing).unwrap();
    let folder = run_folder();
    let checkpointer = Checkpointer::new(folder.path());
    checkpointer.save(&model, &optim).unwrap();
    let _ = model.losses(&[1, 2, 3], Changes::Int);
    let error = checkpointer.save(&model, &optim).unwrap_err().to_string();
    assert!(error.contains("`count`"), "{error}");
}

#[test]
fn values_computed_on_public_data_are_accepted_and_stated() {
    let mut optim = optimizer();
    let model = train(&mut optim, 2, 9, Changes::Nothing).unwrap();
    let _ = model.losses(&[1, 2, 3], Changes::Float);
    let data = PublicSource::published("letters").data(vec![1, 2, 3]).unwrap();
    optim.accept_public_buffers(&model, &data).unwrap();
    let draw = optim.plan().sampler().unwrap().draw(2).unwrap();
    let losses = |model: &Net, units: Vec<usize>| model.losses(&units, Changes::Nothing);
    optim.backward(&model, &draw, losses).unwrap();
    let error = optim.accept_public_buffers(&model, &data).unwrap_err().to_string();
    assert!(error.contains("within a logical step"), "{error}");
    optim.step(0.1, model, draw).unwrap();
    let statement = optim.statement(&[1e-3]).unwrap();
    assert!(statement.facts["values_not_trained"].contains("computed on public data"));
    assert_eq!(statement.facts["public_data"], data.to_string());
}
