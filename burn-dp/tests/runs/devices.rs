//! A logical batch that several devices process.

use std::cell::RefCell;
use std::thread;

use burn::data::dataset::InMemDataset;
use burn::optim::SgdConfig;
use burn::tensor::Tensor;
use burn_dp::clipping::{ClippedSum, CountNoise, QuantileClipping};
use burn_dp::grads::PrivateBackward;
use burn_dp::noise::GaussianMechanism;
use burn_dp::optim::{DpOptimizer, IndependenceCheck, PrivacyPlanConfig, SamplingScheme};
use burn_dp::sampling::{DrawPart, PrivateDataLoaderBuilder, Sampler};

use crate::chosen_device::chosen_device;
use crate::fixtures::{Net, Rows, UNITS, assert_same_units, config, device, flat};

fn optimizer() -> DpOptimizer {
    let clipping = QuantileClipping::new(0.5).unwrap().with_count_noise(CountNoise::Share(0.1));
    config().with_clipping(clipping).init().unwrap().optimizer(SgdConfig::new().init())
}

// Sharp edge: all devices use the same thresholds in a step, and they move once, after it.
#[test]
fn sums_clipped_by_several_threads_are_one_release() {
    let (mut one, mut several) = (optimizer(), optimizer());
    let (mut expected, mut model) = (Net::new(), Net::new());
    for step in 0..4 {
        let draw = one.plan().sampler().unwrap().draw(step).unwrap();
        one.backward(&expected, &draw, |model, units| model.losses_of(&units)).unwrap();
        expected = one.step(0.1, expected, draw.clone()).unwrap();

        let thresholds = several.thresholds().unwrap();
        let parts = draw.parts(draw.private_indices().len().div_ceil(3)).unwrap();
        let sums: Vec<_> = thread::scope(|scope| {
            let clip = |part: DrawPart| {
                let (model, thresholds) = (model.clone(), thresholds.clone());
                scope.spawn(move || {
                    let losses = model.losses_of(part.private_indices());
                    let grads = PrivateBackward::new().run(losses, &model).unwrap();
                    (part, ClippedSum::from_gradients(grads, &thresholds).unwrap())
                })
            };
            let threads: Vec<_> = parts.map(clip).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(sums.len(), 3);
        for (part, sum) in sums {
            several.accumulate(part, sum).unwrap();
            assert_eq!(several.thresholds().unwrap(), thresholds);
        }
        model = several.step(0.1, model, draw).unwrap();
        let unit = 0.1 * thresholds.norms()[0] / 20.0;
        assert_same_units(&flat(&model), &flat(&expected), 1e-5, unit);
        // The counts are exact, and so are the values derived from them.
        assert_eq!(several.plan().clipping().adapted(), one.plan().clipping().adapted());
    }
    assert_eq!(several.ledger().entries(), one.ledger().entries());
}

/// Trains with whole logical batches. Returns the model and the numbers of rows of the passes.
fn passes(config: PrivacyPlanConfig, physical: usize, pads: bool) -> (Net, Vec<usize>) {
    let plan = config.init().unwrap();
    let builder = PrivateDataLoaderBuilder::new(Rows).with_device(device());
    let builder = if pads { builder } else { builder.without_padding() };
    let dataset = InMemDataset::new((0..UNITS).collect::<Vec<usize>>());
    let batches = builder.build(dataset, plan.sampler().unwrap(), plan.steps()).unwrap();
    // The test by value runs passes with other numbers of rows.
    let optim = plan.optimizer(SgdConfig::new().init());
    let mut optim = optim.with_independence_check(IndependenceCheck::Never);
    let (mut model, rows) = (Net::new(), RefCell::new(Vec::new()));
    for batch in batches {
        let batch = batch.unwrap();
        let losses = |model: &Net, x: Tensor<2>| {
            rows.borrow_mut().push(x.dims()[0]);
            model.losses(x)
        };
        optim.backward_batch(&model, &batch, physical, losses).unwrap();
        model = optim.step(0.1, model, batch).unwrap();
    }
    (model, rows.into_inner())
}

#[test]
fn devices_that_compile_kernels_get_one_shape_by_default() {
    let truncated = SamplingScheme::TruncatedPoisson { max_batch_size: 22 };
    // A small physical batch; one that is larger than two deviations above 20 units; a truncated
    // draw.
    let cases =
        [(config(), 8, 8), (config(), 100, 29), (config().with_sampling(truncated), 100, 22)];
    for (config, physical, expected) in cases {
        let (plain, unpadded) = passes(config.clone(), physical, false);
        assert!(unpadded.iter().any(|&rows| rows != expected), "{unpadded:?}");
        let (model, rows) = passes(config, physical, true);
        match GaussianMechanism::releases_on(&chosen_device()) {
            true => assert!(rows.iter().all(|&rows| rows == expected), "{rows:?}"),
            false => assert_eq!(rows, unpadded),
        }
        assert_same_units(&flat(&model), &flat(&plain), 1e-5, 0.1 / 20.0);
    }
}
