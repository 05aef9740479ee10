//! The measurements of an experiment so far, so that an interrupted experiment can continue.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use burn_dp_examples::training::{BackendName, TrainError, checks, device, files, typed};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::figure::{Figure, Findings, Preset, on};
use super::verdict::Verdict;

/// Options of every figure of a paper.
#[derive(Args, Debug, Clone)]
pub struct FigureOptions {
    /// Minutes on two cores, instead of the setting of the paper.
    #[arg(long)]
    pub quick: bool,
    /// Folder with the four IDX files of MNIST, or its subfolder mnist, plain or gzip; without it,
    /// the synthetic digits. Without --quick, experiments on scaling (tan-…) train on CIFAR-10:
    /// with its binary version, or the subfolder cifar10. For experiments on users, with
    /// shakespeare-users.jsonl, or the subfolder shakespeare, plain or gzip; without it, synthetic
    /// roles.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Seeds of initial weights and synthetic digits, one run each; noise and sampling never use
    /// them.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["0", "1", "2"])]
    pub seeds: Vec<u64>,
    /// Backend to train and to measure on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Folder for the figure and the measurements [default: out/experiment-NAME]. An interrupted
    /// run continues.
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// File for the figures as JSON [default: NAME.json in the output folder].
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The measurements of one experiment, each stored when it is complete.
pub(crate) struct Measured {
    name: String,
    pub(crate) preset: Preset,
    pub(crate) seeds: Vec<u64>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) backend: BackendName,
    device: Device,
    output: PathBuf,
    json: Option<PathBuf>,
    /// The file of the measurements.
    path: PathBuf,
    stored: BTreeMap<String, Stored>,
    /// Time of the measurements that the figure uses so far, in seconds.
    seconds: f64,
    /// Commit of this program.
    commit: Option<String>,
    /// Commits of the measurements that the figure uses so far.
    commits: BTreeSet<String>,
    bar: ProgressBar,
}

/// A measurement in the file.
#[derive(Serialize, Deserialize)]
struct Stored {
    value: serde_json::Value,
    seconds: f64,
    #[serde(default)]
    commit: Option<String>,
}

/// The variable in which `cargo xtask` names the commit of the program.
const COMMIT: &str = "BURN_DP_COMMIT";

/// The name of the file with the measurements.
const FILE: &str = "measured.json";

impl Measured {
    /// Opens the output folder of the experiment `name`.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for an impossible option or an absent device, and
    /// [`TrainError::Io`] if the folder cannot be used, before anything is measured.
    pub(crate) fn open(name: &str, options: &FigureOptions) -> Result<Self, TrainError> {
        let preset = if options.quick { Preset::Quick } else { Preset::Paper };
        let output = options
            .output
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("out/experiment-{name}")));
        let mut seeds = options.seeds.clone();
        seeds.sort_unstable();
        seeds.dedup();
        if seeds.is_empty() {
            return Err(TrainError::option(
                "--seeds",
                "must name a seed, got none; give --seeds 0",
            ));
        }
        let device = device(options.backend)?;
        checks::folder("--output", &output)?;
        if let Some(json) = &options.json {
            checks::file("--json", json, Some(&output))?;
        }
        files::make_folder(&output)?;
        let path = output.join(format!("{name}.{FILE}"));
        let stored = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| TrainError::Record {
                path: path.clone(),
                reason: format!("is damaged ({error}); delete it to measure again"),
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => return Err(TrainError::Io { path, source }),
        };
        let bar = ProgressBar::new(0);
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, elapsed {elapsed}")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        let (data_dir, json) = (options.data_dir.clone(), options.json.clone());
        Ok(Self {
            name: name.into(),
            preset,
            seeds,
            data_dir,
            backend: options.backend,
            device,
            output,
            json,
            path,
            stored,
            seconds: 0.0,
            commit: std::env::var(COMMIT).ok(),
            commits: BTreeSet::new(),
            bar,
        })
    }

    /// Returns whether the quick preset is run.
    pub(crate) fn quick(&self) -> bool {
        self.preset == Preset::Quick
    }

    /// Returns what the images of [`images`](super::trial::images) are.
    pub(crate) fn images_name(&self) -> &'static str {
        if self.data_dir.is_some() { "MNIST" } else { "synthetic digits" }
    }

    /// Announces how many measurements follow.
    pub(crate) fn expect(&self, measurements: usize) {
        self.bar.set_length(measurements as u64);
    }

    /// Announces one more measurement.
    pub(crate) fn expect_one(&self) {
        self.bar.inc_length(1);
    }

    /// Returns a measurement: the stored one, or a new one, which is stored at once.
    ///
    /// # Arguments
    ///
    /// - `name`: what is measured, with every setting that affects it, except the preset, the data
    ///   and the backend
    /// - `measure`: measures it, on the device if it trains
    ///
    /// # Errors
    ///
    /// Returns the error of the measurement, and [`TrainError::Io`] if it cannot be stored.
    pub(crate) fn measure<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        measure: impl FnOnce(&Device) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        self.bar.set_message(name.to_string());
        let data = self.data_dir.as_ref().map(|folder| format!(" {}", folder.display()));
        let on = on(&typed(self.backend));
        let name = format!("{:?}: {name}{}{on}", self.preset, data.unwrap_or_default());
        let known = self.stored.get(&name).and_then(|stored| {
            let value = T::deserialize(&stored.value).ok()?;
            Some((value, stored.seconds, stored.commit.clone()))
        });
        let (value, seconds, commit) = match known {
            Some(known) => known,
            None => {
                let start = Instant::now();
                let found = measure(&self.device)?;
                let seconds = start.elapsed().as_secs_f64();
                let value = serde_json::to_value(&found).map_err(|error| TrainError::Io {
                    path: self.path.clone(),
                    source: error.into(),
                })?;
                let commit = self.commit.clone();
                self.stored.insert(name, Stored { value, seconds, commit: commit.clone() });
                files::write_json(&self.path, &self.stored)?;
                (found, seconds, commit)
            }
        };
        self.seconds += seconds;
        self.commits.extend(commit);
        self.bar.inc(1);
        Ok(value)
    }

    /// Writes the figure, prints its verdicts, and removes the measurements, so that the next run
    /// starts over.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    pub(crate) fn finish(
        &self,
        findings: Findings,
        judge: impl FnOnce(&Figure) -> Vec<Verdict>,
    ) -> Result<Figure, TrainError> {
        self.bar.finish_and_clear();
        let Findings { figure, setting, labels, series, facts } = findings;
        let mut figure = Figure {
            experiment: self.name.clone(),
            figure,
            preset: self.preset,
            backend: typed(self.backend),
            seconds: self.seconds,
            commits: self.commits.iter().cloned().collect(),
            setting,
            labels,
            series,
            facts: facts.into_iter().collect(),
            verdicts: Vec::new(),
        };
        figure.verdicts = judge(&figure);
        figure.write(&self.output)?;
        if let Some(json) = &self.json {
            files::write_json(json, &figure)?;
        }
        files::remove(&self.path)?;
        println!("{}: {}\n{}", figure.experiment, figure.figure, figure.setting);
        figure.verdicts.iter().for_each(|verdict| println!("- {verdict}"));
        println!("files: {}", self.output.display());
        Ok(figure)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;

    fn options(output: &Path) -> FigureOptions {
        FigureOptions {
            quick: true,
            data_dir: None,
            seeds: vec![2, 1, 2],
            backend: BackendName::Flex,
            output: Some(output.into()),
            json: None,
        }
    }

    fn nothing() -> Findings {
        Findings {
            figure: "A paper".into(),
            setting: String::new(),
            labels: Default::default(),
            series: vec![],
            facts: vec![("a".into(), 1.0)],
        }
    }

    #[test]
    fn an_interrupted_experiment_measures_nothing_twice() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let mut first = Measured::open("name", &options(&output)).unwrap();
        assert_eq!((first.seeds.as_slice(), first.quick()), (&[1, 2][..], true));
        assert_eq!(first.measure("a", |_| Ok(vec![1.0, 0.1])).unwrap(), [1.0, 0.1]);
        let failed = first.measure::<f64>("b", |_| Err(TrainError::option("--x", "fails")));
        assert!(failed.is_err());
        drop(first);
        let mut second = Measured::open("name", &options(&output)).unwrap();
        let stored: Vec<f64> = second.measure("a", |_| panic!("measured twice")).unwrap();
        assert_eq!(stored, [1.0, 0.1]);
        assert_eq!(second.measure("b", |_| Ok(3)).unwrap(), 3);
        drop(second);
        // What the quick preset measured is no result of the setting of the paper.
        let paper = FigureOptions { quick: false, ..options(&output) };
        let mut third = Measured::open("name", &paper).unwrap();
        assert_eq!(third.measure("a", |_| Ok(vec![7.0])).unwrap(), [7.0]);
    }

    // Burn deprecates NdArray; here it is the second implementation to compare with.
    #[cfg(feature = "ndarray")]
    #[allow(deprecated)]
    #[test]
    fn a_measurement_is_made_on_the_chosen_backend_and_is_no_result_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let mut first = Measured::open("name", &options).unwrap();
        let on = |device: &Device| Ok(format!("{device:?}"));
        assert_eq!(first.measure("a", on).unwrap(), format!("{:?}", Device::flex()));
        drop(first);
        let options = FigureOptions { backend: BackendName::Ndarray, ..options };
        let mut second = Measured::open("name", &options).unwrap();
        assert_eq!(second.measure("a", on).unwrap(), format!("{:?}", Device::ndarray()));
        let figure = second.finish(nothing(), |_| vec![]);
        assert_eq!(figure.unwrap().backend, "ndarray");
    }

    #[test]
    fn the_time_and_the_commit_of_stored_measurements_count() {
        let folder = tempfile::tempdir().unwrap();
        let store = r#"{"Quick: a": {"value": 1, "seconds": 4.0, "commit": "1a2b3c4d"}}"#;
        std::fs::write(folder.path().join("name.measured.json"), store).unwrap();
        let mut measured = Measured::open("name", &options(folder.path())).unwrap();
        let stored: u8 = measured.measure("a", |_| panic!("measured twice")).unwrap();
        assert_eq!(stored, 1);
        let judge = |figure: &Figure| vec![Verdict::new("", figure.fact("a") == 1.0, [])];
        let figure = measured.finish(nothing(), judge).unwrap();
        assert!(figure.verdicts[0].holds);
        assert_eq!((figure.seconds, figure.commits), (4.0, vec!["1a2b3c4d".into()]));
        assert!(!folder.path().join("name.measured.json").exists());
    }

    #[test]
    fn a_damaged_store_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("name.measured.json"), "{").unwrap();
        let error = Measured::open("name", &options(folder.path())).err().unwrap().to_string();
        assert!(error.contains(FILE) && error.contains("delete it"), "{error}");
    }
}
