//! A tiny run that follows from its seed.

use std::path::Path;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData};
use burn_dp::DpError;
use burn_dp::losses::MseLossConfig;
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig, SamplingScheme};
use burn_dp::random::InsecureSeed;
use burn_dp_accountant::PrivacyStatement;
use burn_dp_accountant::correlated_noise::Strategy;

/// Starts a line with the phase that the process enters.
pub(super) const PHASE: &str = "phase: ";
/// Starts a line with the number of releases.
pub(super) const RELEASED: &str = "released: ";
/// The folder of the model and the statement.
pub(super) const RESULTS: &str = "results";
/// The file of the model, in the results of a run that is not the program.
pub(super) const MODEL: &str = "model.values";
/// The folder of Burn's metrics.
pub(super) const MEASURED: &str = "measured";

const UNITS: usize = 60;
pub(super) const STEPS: u64 = 6;
pub(super) const DELTA: f64 = 1e-3;

#[derive(Module, Debug)]
pub(super) struct Net {
    fc: Private<Linear>,
}

#[derive(Clone)]
pub(super) struct Rows;

impl Batcher<usize, Tensor<2>> for Rows {
    fn batch(&self, items: Vec<usize>, device: &Device) -> Tensor<2> {
        let values = items.iter().flat_map(|&i| [0, 1, 2].map(|j| ((3 * i + j) as f32).cos()));
        let values: Vec<f32> = values.collect();
        Tensor::from_data(TensorData::new(values, [items.len(), 3]), device)
    }
}

impl Net {
    pub(super) fn new(device: &Device) -> Self {
        let mut fc = LinearConfig::new(3, 1).init(device);
        let weight = TensorData::new(vec![0.3_f32, -0.2, 0.1], [3, 1]);
        fc.weight = fc.weight.map(|_| Tensor::from_data(weight, device).require_grad());
        fc.bias = fc.bias.map(|bias| bias.map(|bias| bias.zeros_like().require_grad()));
        Self { fc: fc.private() }
    }

    pub(super) fn predict(&self, rows: Tensor<2>) -> (Tensor<1>, Tensor<2>, Tensor<2>) {
        let target = rows.clone().sum_dim(1);
        let output = self.fc.forward(rows);
        let losses = MseLossConfig::new().init().forward(output.clone(), target.clone());
        (losses, output, target)
    }
}

pub(super) fn phase(name: &str) {
    println!("{PHASE}{name}");
}

pub(super) fn device() -> Device {
    Device::flex().autodiff()
}

pub(super) fn dataset(from: usize) -> InMemDataset<usize> {
    InMemDataset::new((from..from + UNITS).collect())
}

pub(super) fn plan() -> Result<PrivacyPlan, DpError> {
    config().init()
}

/// Returns a plan whose units take part every five steps, with noise of three bands.
pub(super) fn correlated_plan() -> Result<PrivacyPlan, DpError> {
    let strategy = Strategy::banded_toeplitz(STEPS, &[1.0, 0.5, 0.2])?;
    config().with_sampling(SamplingScheme::ShuffledOnce).with_correlated_noise(strategy).init()
}

fn config() -> PrivacyPlanConfig {
    PrivacyPlanConfig::new(UNITS, 12.0)
        .with_steps(STEPS)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(3))
}

/// Returns the parameters of a model.
pub(super) fn values<M: Module>(model: &M) -> Vec<u8> {
    #[derive(Default)]
    struct Values(Vec<u8>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend_from_slice(param.val().into_data().as_bytes());
        }
    }
    let mut found = Values::default();
    model.visit(&mut found);
    found.0
}

/// Writes the model and, when the key is erased, the statement.
pub(super) fn publish<M: Module>(
    folder: &Path,
    model: M,
    end: impl FnOnce() -> Result<PrivacyStatement, DpError>,
) -> Result<(), DpError> {
    phase("final files");
    let folder = folder.join(RESULTS);
    let io = |source| DpError::Io { path: folder.clone(), source };
    std::fs::create_dir_all(&folder).map_err(io)?;
    let write = |name: &str, bytes: &[u8]| {
        // Written next to the folder, so that a killed process leaves nothing in it.
        let incomplete = folder.with_extension(name);
        std::fs::write(&incomplete, bytes)?;
        std::fs::rename(incomplete, folder.join(name))
    };
    // Not a record: its identities of parameters differ from process to process.
    write(MODEL, &values(&model)).map_err(io)?;
    let statement = end()?;
    write("privacy.txt", statement.to_string().as_bytes()).map_err(io)
}
