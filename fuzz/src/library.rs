//! The readers of a run. Each returns whether the input was accepted.

use burn::nn::LinearConfig;
use burn::optim::SgdConfig;
use burn::tensor::Device;
use burn_dp::checkpoint::{Checkpointer, DpOptimizerRecord};
use burn_dp::clipping::QuantileClipping;
use burn_dp::nn::IntoPrivate;
use burn_dp::optim::{
    DpOptimizer, PrivacyPlan, PrivacyPlanConfig, SamplingScheme, Sparsifier, WeightAverage,
};
use burn_dp::random::InsecureSeed;
use burn_dp_accountant::correlated_noise::Strategy;
use serde_json::Value;

use super::files::{with_file, with_files};

/// Reads the record of a run, with right lengths and checksums, next to a log without a release: an
/// error, or a run that continues with no less spent than its log says.
pub fn checkpoint(bytes: &[u8]) -> bool {
    let Some((run, bytes)) = record(bytes) else { return false };
    let log = log(run);
    with_file("releases.log", log.as_bytes(), |path| {
        let mut accepted = false;
        for kind in Kind::ALL {
            let Ok(record) = DpOptimizerRecord::from_bytes(&bytes, path) else { return false };
            let optim = plan(kind).optimizer(SgdConfig::new().init());
            if let Ok(optim) = optim.load_record(record) {
                // The log has no release, and the record may have none that the log has not.
                assert_eq!(optim.next_step(), 0);
                assert!(optim.statement(&[1e-5]).is_ok());
                accepted = true;
            }
        }
        accepted
    })
}

/// Reads a log of releases as it is, and with the checksum of each line made right: an error that
/// leaves the file, or a run that continues after it.
pub fn release_log(bytes: &[u8]) -> bool {
    let accepted = [bytes.to_vec(), checked_lines(bytes)].map(|bytes| {
        with_file("releases.log", &bytes, |path| {
            let optim = plan(Kind::Adaptive).optimizer(SgdConfig::new().init());
            let accepted = optim.with_release_log(path).is_ok();
            if !accepted {
                assert_eq!(std::fs::read(path).expect("the log is kept"), bytes);
            }
            accepted
        })
    });
    accepted.contains(&true)
}

/// Saves a run next to a file of a key, as it is and with a right checksum: an error that leaves
/// the file, or the key of the run in place of one that was cut off.
pub fn key_file(bytes: &[u8]) -> bool {
    let accepted = [bytes.to_vec(), checked_lines(bytes)].map(|bytes| {
        with_files(&[("run.key", &bytes)], |folder| {
            let key = folder.join("run.key");
            let checkpointer = Checkpointer::new(folder.join("run")).with_key_file(&key);
            let model = LinearConfig::new(1, 1).init(&Device::flex().autodiff()).private();
            let optim = plan(Kind::Adaptive).optimizer(SgdConfig::new().init());
            let accepted = checkpointer.save(&model, &optim).is_ok();
            let now = std::fs::read(&key).expect("a key");
            assert_eq!(now == bytes, !accepted);
            accepted
        })
    });
    accepted.contains(&true)
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
fn plan(kind: Kind) -> PrivacyPlan {
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
#[allow(dead_code, reason = "the program that writes the seeds calls it")]
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

/// Returns the bytes of the record without the checksum of its line: what [`checkpoint`] takes.
#[allow(dead_code, reason = "the program that writes the seeds calls it")]
pub fn seed(record: &DpOptimizerRecord) -> Vec<u8> {
    let bytes = record.to_bytes().expect("a record");
    let end = bytes.iter().position(|&byte| byte == b'\n').expect("a line");
    [&bytes[9..end], &bytes[end + 1..]].concat()
}

/// Returns the number of the run and the bytes of a record whose privacy state and parts are these
/// bytes, with the lengths and checksums that belong to them.
fn record(bytes: &[u8]) -> Option<(u64, Vec<u8>)> {
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
    let line = line(&serde_json::to_string(&state).ok()?);
    Some((run, [line.as_bytes(), contents].concat()))
}

/// Returns the log of a run that has released nothing.
fn log(run: u64) -> String {
    line(&format!(r#"{{"format":1,"run":{run}}}"#))
}

/// Returns the lines of a log with right checksums.
fn checked_lines(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let content = |text: &'_ str| text.split_once(' ').map_or(text.to_string(), |(_, t)| t.into());
    text.lines().map(|text| line(&content(text))).collect::<String>().into_bytes()
}

fn line(json: &str) -> String {
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
}
