//! A logical batch that several devices work off.

use std::thread;

use burn::optim::SgdConfig;
use burn_dp::clipping::{ClippedSum, CountNoise, QuantileClipping};
use burn_dp::grads::PrivateBackward;
use burn_dp::optim::DpOptimizer;
use burn_dp::sampling::{DrawPart, Sampler};

use crate::fixtures::{Net, assert_close, config, flat};

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
        assert_close(&flat(&model), &flat(&expected), 1e-5);
        // What is counted is exact, and so is what follows from it.
        assert_eq!(several.plan().clipping().adapted(), one.plan().clipping().adapted());
    }
    assert_eq!(several.ledger().to_json().unwrap(), one.ledger().to_json().unwrap());
}
