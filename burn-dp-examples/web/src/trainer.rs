//! Private training, step by step.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::optim::SgdConfig;
use burn::store::ModuleRecord;
use burn::tensor::{Bytes, Device, Tensor, TensorData};
use burn_dp::checkpoint::{DpOptimizerRecord, model_to_bytes_async};
use burn_dp::losses::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn_dp::optim::DpOptimizer;
use burn_dp::sampling::LogicalBatches;
use burn_dp_examples::data::{Batch, ImageBatcher, ImageDataset, PIXELS, SIDE};
use serde::Serialize;
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::images::Images;
use crate::network::Network;
use crate::settings::Settings;
use crate::store::BrowserStore;

/// Maximum number of images in memory at once.
const PHYSICAL_BATCH: usize = 128;

/// A new or resumed run.
#[wasm_bindgen]
pub struct Trainer {
    settings: Settings,
    optim: DpOptimizer,
    /// `None` while a step runs.
    model: Option<Network>,
    batches: LogicalBatches<Batch<Tensor<4>>>,
    /// Where the images to train on are from.
    source: &'static str,
    test: Images,
    loss: CrossEntropyLoss,
    device: Device,
}

/// The state of a run in the browser's storage, in addition to its log of releases.
#[wasm_bindgen(getter_with_clone)]
pub struct Saved {
    /// The record of the model.
    pub model: Vec<u8>,
    /// The record of the optimizer, with the key of the run.
    pub record: Vec<u8>,
}

/// The treatment of steps that were released after the stored state.
#[wasm_bindgen]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostSteps {
    /// They are repeated with their noise, on the device that computed them.
    Repeat,
    /// They are skipped, and still count in the ledger.
    Skip,
}

/// The state of a run for the page.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    /// Number of steps.
    step: u64,
    /// Steps in the ledger: more, while a resumed run repeats steps.
    released: u64,
    steps: u64,
    finished: bool,
    /// A repeated step differs from the step that was released, so it was rejected.
    repetition_differs: bool,
}

/// The results on the test images.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Evaluation {
    accuracy: f64,
    loss: f64,
}

/// Returns the device of a backend: `webgpu` or `flex`.
pub(crate) async fn device(backend: &str) -> Result<Device, JsError> {
    match backend {
        "flex" => Ok(Device::flex()),
        #[cfg(feature = "webgpu")]
        "webgpu" => webgpu().await,
        _ => Err(JsError::new(&format!("this build has no backend `{backend}`"))),
    }
}

/// Returns the WebGPU device of this worker. It can be initialized only once.
#[cfg(feature = "webgpu")]
async fn webgpu() -> Result<Device, JsError> {
    thread_local! {
        static INITIALIZED: std::cell::OnceCell<Device> = const { std::cell::OnceCell::new() };
    }
    if let Some(device) = INITIALIZED.with(|cell| cell.get().cloned()) {
        return Ok(device);
    }
    let device = Device::wgpu_options().init_async().await?;
    Ok(INITIALIZED.with(|cell| cell.get_or_init(|| device).clone()))
}

#[wasm_bindgen]
impl Trainer {
    /// Starts a run. Its releases are stored from now on.
    pub async fn begin(
        backend: String,
        settings: String,
        train: &Images,
        test: &Images,
    ) -> Result<Trainer, JsError> {
        let device = device(&backend).await?;
        let settings = Settings::parse(&settings)?;
        let optim = settings.plan(train.items.len())?.optimizer(SgdConfig::new().init());
        let optim = optim.with_release_store(BrowserStore).await?;
        let model = Network::new(&device.clone().autodiff());
        Self::of(settings, optim, model, train, test, device)
    }

    /// Continues a stored run.
    ///
    /// # Arguments
    ///
    /// - `log`: the texts of the store, in order
    /// - `lost_steps`: the treatment of steps that were released after the stored state
    #[allow(clippy::too_many_arguments)]
    pub async fn resume(
        backend: String,
        settings: String,
        train: &Images,
        test: &Images,
        model: Vec<u8>,
        record: Vec<u8>,
        log: String,
        lost_steps: LostSteps,
    ) -> Result<Trainer, JsError> {
        let device = device(&backend).await?;
        let settings = Settings::parse(&settings)?;
        let optim = settings.plan(train.items.len())?.optimizer(SgdConfig::new().init());
        let record = DpOptimizerRecord::from_stored_bytes(&record)?;
        let record = match lost_steps {
            LostSteps::Repeat => record,
            LostSteps::Skip => record.skip_lost_steps(),
        };
        let optim = optim.load_record_from_store(record, log.as_bytes(), BrowserStore)?;
        let model_record = ModuleRecord::from_bytes(Bytes::from_bytes_vec(model))?;
        let model = Network::new(&device.clone().autodiff()).try_load_record(model_record)?;
        Self::of(settings, optim, model, train, test, device)
    }

    fn of(
        settings: Settings,
        optim: DpOptimizer,
        model: Network,
        train: &Images,
        test: &Images,
        device: Device,
    ) -> Result<Trainer, JsError> {
        let source = train.source;
        let train = ImageDataset::new(train.items.clone());
        let autodiff = device.clone().autodiff();
        let batches = optim.plan().batches(train, ImageBatcher::MNIST, &autodiff)?;
        let batches = batches.skip_to(optim.next_step())?;
        let (loss, test) = (CrossEntropyLossConfig::new().init(), test.clone());
        Ok(Self { settings, optim, model: Some(model), batches, source, test, loss, device })
    }

    /// Returns the progress of the run, as JSON.
    pub fn progress(&self) -> Result<String, JsError> {
        self.shown(false)
    }

    /// Runs the next step and returns the progress, as JSON.
    pub async fn step(&mut self) -> Result<String, JsError> {
        let Some(batch) = self.batches.next() else { return self.shown(false) };
        let batch = batch?;
        let model = self.model.as_ref().ok_or_else(no_model)?;
        let loss = &self.loss;
        let losses = |model: &Network, digits: Batch<Tensor<4>>| {
            loss.forward(model.forward(digits.inputs), digits.targets)
        };
        self.optim.backward_batch_async(model, &batch, PHYSICAL_BATCH, losses).await?;
        let lr = self.settings.learning_rate;
        let model = self.model.take().ok_or_else(no_model)?;
        match self.optim.step_async(lr, model, batch).await {
            Ok(model) => {
                self.model = Some(model);
                self.shown(false)
            }
            Err(refused) => {
                let repeats = self.optim.next_step() < self.optim.releases();
                let error = JsError::new(&refused.to_string());
                self.model = Some(refused.into_model());
                if repeats { self.shown(true) } else { Err(error) }
            }
        }
    }

    /// Returns the ε of everything that was released so far.
    pub fn epsilon(&self) -> Result<f64, JsError> {
        Ok(self.optim.privacy_spent(self.settings.delta)?.upper)
    }

    /// Returns accuracy and loss on the test images, as JSON.
    pub async fn evaluate(&self) -> Result<String, JsError> {
        let model = self.model()?.valid();
        let (mut right, mut loss) = (0i64, 0.0);
        for items in self.test.items.chunks(4 * PHYSICAL_BATCH) {
            let batch = ImageBatcher::MNIST.batch(items.to_vec(), &self.device);
            let scores = model.forward(batch.inputs);
            let losses = self.loss.forward(scores.clone(), batch.targets.clone()).sum();
            let equal = scores.argmax(1).flatten::<1>(0, 1).equal(batch.targets).int().sum();
            right += equal.into_data_async().await?.iter::<i64>().sum::<i64>();
            loss += losses.into_data_async().await?.iter::<f64>().sum::<f64>();
        }
        let count = self.test.items.len() as f64;
        let found = Evaluation { accuracy: right as f64 / count, loss: loss / count };
        Ok(serde_json::to_string(&found)?)
    }

    /// Returns the probability of each digit for one image of 28 × 28 pixels.
    pub async fn classify(&self, pixels: Vec<u8>) -> Result<Vec<f32>, JsError> {
        if pixels.len() != PIXELS {
            return Err(JsError::new("an image has 784 pixels"));
        }
        let values: Vec<f32> =
            pixels.into_iter().map(|pixel| (f32::from(pixel) / 255.0 - 0.1307) / 0.3081).collect();
        let image = TensorData::new(values, [1, 1, SIDE, SIDE]);
        let scores = self.model()?.valid().forward(Tensor::from_data(image, &self.device));
        let scores: Vec<f32> = scores.into_data_async().await?.iter::<f32>().collect();
        let largest = scores.iter().copied().fold(f32::MIN, f32::max);
        let exponentials: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f32 = exponentials.iter().sum();
        Ok(exponentials.into_iter().map(|value| value / total).collect())
    }

    /// Returns the state between two steps.
    pub async fn save(&self) -> Result<Saved, JsError> {
        let model = model_to_bytes_async(self.model()?).await?.to_vec();
        let record = self.optim.to_record_async().await?.to_bytes()?.to_vec();
        Ok(Saved { model, record })
    }

    /// Returns the privacy statement of everything that was released so far.
    pub fn statement(&self) -> Result<String, JsError> {
        let mut statement = self.optim.statement(&[self.settings.delta])?;
        let key = "in the storage of the browser, until the run is deleted on the page";
        statement.facts.insert("noise_key".into(), key.into());
        statement.facts.insert("dataset".into(), self.source.into());
        statement.facts.insert("test_set".into(), self.test.source.into());
        let sentences = [
            "The number of images that are trained on: it is published, and determines the \
             sampling probability and the number of steps.",
            "The images and labels of the test set, which is taken as public.",
            "Settings that were chosen by looking at results of earlier runs on the same data.",
            "The time of a step and the moment of a stop, which depend on the number of drawn \
             images.",
        ];
        statement.not_covered.extend(sentences.map(String::from));
        Ok(statement.to_string())
    }

    fn model(&self) -> Result<&Network, JsError> {
        self.model.as_ref().ok_or_else(no_model)
    }

    fn shown(&self, repetition_differs: bool) -> Result<String, JsError> {
        let (step, steps) = (self.optim.next_step(), self.optim.plan().steps());
        let released = self.optim.releases();
        let finished = step >= steps;
        let shown = Progress { step, released, steps, finished, repetition_differs };
        Ok(serde_json::to_string(&shown)?)
    }
}

fn no_model() -> JsError {
    JsError::new("the training was interrupted within a step; resume it from the stored state")
}
