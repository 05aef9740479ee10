//! What privacy costs in this browser: the times of steps and of noise.

use burn::data::dataloader::batcher::Batcher;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Tensor};
use burn_dp::checkpoint::model_to_bytes_async;
use burn_dp::losses::CrossEntropyLossConfig;
use burn_dp::noise::GaussianMechanism;
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::random::{InsecureSeed, NoiseSource, Purpose};
use burn_dp_examples::data::{Batch, ImageBatcher};
use burn_dp_examples::models::{Classifier, CnnConfig, MlpConfig};
use serde::Serialize;
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::images::drawn_images;
use crate::trainer::device;

const BATCH: usize = 128;
const LEARNING_RATE: f64 = 0.001;
/// Measured blocks of each step; the first one compiles kernels, and is not counted.
const BLOCKS: usize = 4;
/// Values of a release of noise.
const VALUES: usize = 1_000_000;
const RELEASES: u64 = 4;

/// Median times of steps with Adam on 128 images, in milliseconds.
#[derive(Serialize)]
struct Steps {
    ordinary: f64,
    private: f64,
}

#[derive(Serialize)]
struct Cost {
    mlp: Steps,
    cnn: Steps,
    /// Nanoseconds of noise, for each value.
    noise: f64,
}

/// Measures steps of the MLP and the CNN of the fast-clipping paper, ordinary and private ones in
/// turns, and the release of a sum. Returns the times as JSON.
///
/// # Arguments
///
/// - `steps`: the number of steps in a block
#[wasm_bindgen]
pub async fn cost(backend: String, steps: u32) -> Result<String, JsError> {
    let device = device(&backend).await?;
    let autodiff = device.clone().autodiff();
    let batch = ImageBatcher::MNIST.batch(drawn_images(BATCH).items, &autodiff);
    let mlp = compared(MlpConfig::new().init(&autodiff), &batch, steps).await?;
    let cnn = compared(CnnConfig::new().init(&autodiff), &batch, steps).await?;
    let noise = noise(&device).await?;
    Ok(serde_json::to_string(&Cost { mlp, cnn, noise })?)
}

/// Measures ordinary and private steps in turns.
async fn compared<M: Classifier<Inputs = Tensor<4>>>(
    model: M,
    batch: &Batch<Tensor<4>>,
    steps: u32,
) -> Result<Steps, JsError> {
    let (mut ordinary, mut private) = (Vec::new(), Vec::new());
    let (mut plain, mut protected) = (model.clone(), model);
    let mut adam = AdamConfig::new().init();
    let plan = PrivacyPlanConfig::new(BATCH, BATCH as f64)
        .with_steps(1 << 32)
        .with_noise_multiplier(1.0)
        .init()?;
    let sampler = plan.sampler()?;
    let mut optim = plan.optimizer(AdamConfig::new().init());
    let loss = CrossEntropyLossConfig::new().init();
    for block in 0..=BLOCKS {
        let start = js_sys::Date::now();
        for _ in 0..steps {
            let grads = plain.mean_loss(batch.clone()).backward();
            let grads = GradientsParams::from_grads(grads, &plain);
            plain = adam.step(LEARNING_RATE, plain, grads);
        }
        computed(&plain).await?;
        let between = js_sys::Date::now();
        for _ in 0..steps {
            let draw = sampler.draw(optim.next_step())?;
            let losses = |model: &M, _: Vec<usize>| model.losses(&loss, batch.clone());
            optim.backward_async(&protected, &draw, losses).await?;
            let stepped = optim.step_async(LEARNING_RATE, protected, draw).await;
            protected = stepped.map_err(|refused| JsError::new(&refused.to_string()))?;
        }
        computed(&protected).await?;
        let end = js_sys::Date::now();
        if block > 0 {
            ordinary.push((between - start) / f64::from(steps));
            private.push((end - between) / f64::from(steps));
        }
    }
    Ok(Steps { ordinary: median(ordinary), private: median(private) })
}

/// Waits until the device has computed a model.
async fn computed<M: Classifier>(model: &M) -> Result<(), JsError> {
    model_to_bytes_async(model).await?;
    Ok(())
}

async fn noise(device: &Device) -> Result<f64, JsError> {
    let mechanism = GaussianMechanism::new(1.0, 1.0)?;
    let mut source = NoiseSource::insecure(InsecureSeed(1));
    let mut host = vec![0.0; VALUES];
    let mut sum = Tensor::<1>::zeros([VALUES], device);
    let mut start = 0.0;
    for step in 0..=RELEASES {
        if step == 1 {
            start = js_sys::Date::now();
        }
        let stream = source.begin_step(Purpose::Gradient, step)?.stream(0)?;
        if GaussianMechanism::releases_on(device) {
            sum = mechanism.release_on_device(stream, sum);
            if step == 0 || step == RELEASES {
                sum.clone().slice(0..1).into_data_async().await?;
            }
        } else {
            mechanism.release(stream, &mut host)?;
        }
    }
    Ok((js_sys::Date::now() - start) * 1e6 / (RELEASES * VALUES as u64) as f64)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
