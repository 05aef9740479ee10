//! What the fuzz targets share: files, and a small run.

use std::path::Path;

use burn::optim::SgdConfig;
use burn_dp::checkpoint::DpOptimizerRecord;
use burn_dp::clipping::QuantileClipping;
use burn_dp::optim::{
    DpOptimizer, PrivacyPlan, PrivacyPlanConfig, SamplingScheme, Sparsifier, WeightAverage,
};
use burn_dp::random::InsecureSeed;
use burn_dp_accountant::correlated_noise::Strategy;
use serde_json::Value;

/// Calls `read` with the path of a file of these bytes.
pub fn with_file(name: &str, bytes: &[u8], read: impl FnOnce(&Path)) {
    with_files(&[(name, bytes)], |folder| read(&folder.join(name)));
}

/// Calls `read` with the path of a folder of these files.
pub fn with_files(files: &[(&str, &[u8])], read: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder in it");
        std::fs::write(path, bytes).expect("a file in it");
    }
    read(folder.path());
}

/// What a run uses.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Adaptive clipping, a sparsifier and an average of the weights.
    Adaptive,
    /// Correlated noise.
    Correlated,
}

impl Kind {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Adaptive, Self::Correlated];
}

/// Returns the plan of a run.
pub fn plan(kind: Kind) -> PrivacyPlan {
    let config = PrivacyPlanConfig::new(200, 50.0).with_steps(8).with_noise_multiplier(1.0);
    let config = match kind {
        Kind::Adaptive => config.with_clipping(QuantileClipping::new(0.5).expect("a policy")),
        Kind::Correlated => config
            .with_sampling(SamplingScheme::ShuffledOnce)
            .with_correlated_noise(Strategy::banded_toeplitz(8, &[1.0, 0.5]).expect("a strategy")),
    };
    config.with_insecure_seed(InsecureSeed(7)).init().expect("a plan")
}

/// Returns the optimizer of a run that begins.
pub fn optimizer(kind: Kind) -> DpOptimizer {
    let optim = plan(kind).optimizer(SgdConfig::new().init());
    match kind {
        Kind::Correlated => optim,
        Kind::Adaptive => optim
            .with_sparsifier(Sparsifier::new(3, 3.0).expect("a sparsifier"))
            .and_then(|optim| optim.with_weight_average(WeightAverage::new(0.9)?))
            .expect("an optimizer"),
    }
}

/// Returns the bytes of the record without lengths and checksums: what [`record`] takes.
pub fn seed(record: &DpOptimizerRecord) -> Vec<u8> {
    record.to_bytes().expect("a record")[12..].to_vec()
}

/// Returns the number of the run and the bytes of a record whose privacy state and parts are these
/// bytes, with the lengths and checksums that belong to them.
pub fn record(bytes: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let mut state = values.next()?.ok()?;
    let mut rest = &bytes[values.byte_offset()..];
    let contents = rest;
    let parts = state.get_mut("parts")?.as_object_mut()?;
    let last = parts.len().checked_sub(1);
    for (number, (_, saved)) in parts.iter_mut().enumerate() {
        let saved = saved.as_array_mut().filter(|saved| saved.len() == 2)?;
        let length = usize::try_from(saved[0].as_u64()?).ok()?.min(rest.len());
        let length = if Some(number) == last { rest.len() } else { length };
        let (part, next) = rest.split_at(length);
        rest = next;
        saved[0] = length.into();
        saved[1] = crc32fast::hash(part).into();
    }
    let run = state.pointer("/run/run").and_then(Value::as_u64).unwrap_or(0);
    let json = serde_json::to_vec(&state).ok()?;
    let mut record = (json.len() as u64).to_le_bytes().to_vec();
    record.extend(crc32fast::hash(&json).to_le_bytes());
    record.extend(json);
    record.extend(contents);
    Some((run, record))
}

/// Returns the log of a run that has released nothing.
pub fn log(run: u64) -> String {
    line(&format!(r#"{{"format":1,"run":{run}}}"#))
}

/// Returns the lines of a log with right checksums.
pub fn checked_lines(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let content = |text: &'_ str| text.split_once(' ').map_or(text.to_string(), |(_, t)| t.into());
    text.lines().map(|text| line(&content(text))).collect::<String>().into_bytes()
}

fn line(json: &str) -> String {
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
}
