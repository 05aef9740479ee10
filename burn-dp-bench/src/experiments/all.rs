//! All figures, and the page of their verdicts.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use burn_dp_examples::data::{DataError, mnist, shakespeare};
use burn_dp_examples::training::{BackendName, TrainError, checks, device, files, typed};
use clap::Args;

use super::experiment::FigureExperiment;
use super::figure::{Figure, Preset, wrapped};
use super::measured::FigureOptions;

/// Options of the page of all figures.
#[derive(Args, Debug, Clone)]
pub struct AllOptions {
    /// Minutes per experiment on two cores, instead of the settings of the papers.
    #[arg(long)]
    pub quick: bool,
    /// Folder with the four IDX files of MNIST and with shakespeare-users.jsonl, plain or gzip, or
    /// with the subfolders mnist and shakespeare; without it, synthetic digits and roles. Needed
    /// without --quick, also with the binary version of CIFAR-10 in the subfolder cifar10, on which
    /// batch and layerwise clipping then train.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Seeds of initial weights and synthetic digits.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["0", "1", "2"])]
    pub seeds: Vec<u64>,
    /// Backend to train and to measure on.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Folder for the page, RESULTS.md, and its pictures. An interrupted run continues.
    #[arg(long, value_name = "DIR", default_value = "out/experiment-all")]
    pub output: PathBuf,
}

/// Runs every experiment and writes the page. An experiment whose figure exists is not repeated;
/// its verdicts are computed again.
pub(super) fn run(options: &AllOptions, all: &[FigureExperiment]) -> Result<(), TrainError> {
    device(options.backend)?;
    checks::folder("--output", &options.output)?;
    options.check_data()?;
    let pictures = options.output.join(PICTURES);
    files::make_folder(&pictures)?;
    options.keep_settings(&pictures)?;
    let preset = if options.quick { Preset::Quick } else { Preset::Paper };
    let mut figures = Vec::new();
    for experiment in all {
        figures.push(match finished(options, experiment.name, preset)? {
            Some(mut figure) => {
                figure.verdicts = (experiment.judge)(&figure);
                figure.write(&pictures)?;
                figure
            }
            None => experiment.run(&FigureOptions {
                quick: options.quick,
                data_dir: options.data_dir.clone(),
                seeds: options.seeds.clone(),
                backend: options.backend,
                output: Some(pictures.clone()),
                json: None,
            })?,
        });
    }
    let path = options.output.join("RESULTS.md");
    files::write_text(&path, &page(&figures, options))?;
    let held = figures.iter().flat_map(|figure| &figure.verdicts).filter(|v| v.holds).count();
    let all: usize = figures.iter().map(|figure| figure.verdicts.len()).sum();
    println!("{held} of {all} claims held; page: {}", path.display());
    Ok(())
}

/// The folder of the pictures, next to the page.
const PICTURES: &str = "figures";
/// The file in it with the seeds, the data and the backend of all of them.
const SETTINGS: &str = "settings.json";

impl AllOptions {
    /// Returns an error if a data set is missing, before hours of measurements.
    fn check_data(&self) -> Result<(), TrainError> {
        if !self.quick {
            super::trial::cifar10_of(self.data_dir.as_deref())?;
        }
        let Some(folder) = &self.data_dir else { return Ok(()) };
        mnist::from_folder(folder)?;
        match shakespeare::file_of(folder) {
            Some(_) => Ok(()),
            None => Err(DataError::NoRoles { folder: Some(folder.clone()) }.into()),
        }
    }

    /// Writes the seeds, the data folder and the backend next to the figures, or compares them:
    /// otherwise figures of other ones would be reported as results of these.
    fn keep_settings(&self, pictures: &Path) -> Result<(), TrainError> {
        let path = pictures.join(SETTINGS);
        let AllOptions { seeds, data_dir, .. } = self;
        let backend = typed(self.backend);
        let settings =
            serde_json::json!({ "seeds": seeds, "data_dir": data_dir, "backend": backend });
        match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if std::fs::read_dir(pictures).is_ok_and(|mut files| files.next().is_some()) {
                    let reason = format!(
                        "{} has figures of unknown --seeds, --data-dir and --backend; give another \
                         folder",
                        self.output.display()
                    );
                    return Err(TrainError::option("--output", reason));
                }
                files::write_json(&path, &settings)
            }
            Err(source) => Err(TrainError::Io { path, source }),
            Ok(text) => match serde_json::from_slice::<serde_json::Value>(&text) {
                Ok(found) if found == settings => Ok(()),
                _ => {
                    let reason = format!(
                        "{} has figures of other --seeds, --data-dir or --backend ({}); give \
                         them again, or another folder",
                        self.output.display(),
                        String::from_utf8_lossy(&text).split_whitespace().collect::<String>()
                    );
                    Err(TrainError::option("--output", reason))
                }
            },
        }
    }
}

/// Returns the figure of an earlier run with this preset.
fn finished(
    options: &AllOptions,
    name: &str,
    preset: Preset,
) -> Result<Option<Figure>, TrainError> {
    let path = options.output.join(PICTURES).join(format!("{name}.json"));
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(TrainError::Io { path, source }),
    };
    let figure = serde_json::from_slice::<Figure>(&text).ok();
    Ok(figure.filter(|figure| figure.preset == preset))
}

fn page(figures: &[Figure], options: &AllOptions) -> String {
    let quick = if options.quick { " --quick" } else { "" };
    let data = if options.data_dir.is_some() { " --data-dir DIR" } else { "" };
    let backend = match options.backend {
        BackendName::Flex => String::new(),
        other => format!(" --backend {}", typed(other)),
    };
    let mut text = format!(
        "# Results\n\n{}\n\
         | experiment | claims that held | minutes |\n|---|---|---|\n",
        wrapped(
            &format!(
                "Made by `cargo xtask experiment all{quick}{data}{backend} --seeds {}`; with the \
                 name of an experiment instead of `all`, by itself. Each section names the commit \
                 that measured it. Every verdict is computed from numbers, which are in \
                 `{PICTURES}/NAME.json`. Of several seeds, means decide; \"on average\" says that \
                 some choice of seeds decides otherwise.",
                options.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
            ),
            ""
        )
    );
    for Figure { experiment, verdicts, seconds, .. } in figures {
        let held = verdicts.iter().filter(|verdict| verdict.holds).count();
        let (all, minutes) = (verdicts.len(), seconds / 60.0);
        let average = verdicts.iter().filter(|verdict| verdict.holds && verdict.on_average);
        let average = match average.count() {
            0 => String::new(),
            count => format!(", {count} on average"),
        };
        let _ = writeln!(text, "| `{experiment}` | {held} of {all}{average} | {minutes:.1} |");
    }
    for figure in figures {
        let picture = format!("{PICTURES}/{}.svg", figure.experiment);
        text.push('\n');
        text.push_str(&figure.markdown(&picture));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::experiments::experiment::figure as experiment;
    use crate::experiments::figure::FigureSeries;
    use crate::experiments::measured::Measured;
    use crate::experiments::verdict::Verdict;

    fn options(output: &std::path::Path) -> AllOptions {
        let (seeds, backend) = (vec![0], BackendName::Flex);
        AllOptions { quick: true, data_dir: None, seeds, backend, output: output.into() }
    }

    fn figure() -> Figure {
        let verdict = |holds| Verdict { on_average: true, ..Verdict::new("Something.", holds, []) };
        Figure {
            experiment: "one".into(),
            figure: "Paper".into(),
            preset: Preset::Quick,
            backend: "flex".into(),
            seconds: 90.0,
            commits: vec![],
            setting: "Setting.".into(),
            labels: ["t", "x", "y"].map(String::from),
            series: vec![FigureSeries::exact("a", [(0.0, 1.0)])],
            facts: Default::default(),
            verdicts: vec![verdict(true), verdict(false)],
        }
    }

    #[test]
    fn the_page_counts_the_verdicts_of_each_figure() {
        let folder = tempfile::tempdir().unwrap();
        let text = page(&[figure()], &options(folder.path()));
        assert!(text.contains("| `one` | 1 of 2, 1 on average | 1.5 |"), "{text}");
        assert!(text.contains("(figures/one.svg)"), "{text}");
    }

    #[test]
    fn a_missing_data_set_is_named_before_anything_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let output = folder.path().join("out");
        let options = AllOptions { data_dir: Some(data), ..options(&output) };
        let never = |_: &mut Measured| panic!("measured");
        let error =
            run(&options, &[experiment("one", never, |_| vec![], "")]).unwrap_err().to_string();
        assert!(error.contains("train-images"), "{error}");
        assert!(!output.exists());
    }

    // What is committed is what the program writes from the committed numbers.
    #[test]
    fn the_page_of_the_book_is_the_one_of_its_numbers() {
        let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src");
        let pictures = book.join(PICTURES);
        let read = |experiment: &FigureExperiment| -> Figure {
            let picture = pictures.join(format!("{}.svg", experiment.name));
            assert!(picture.is_file(), "{}", picture.display());
            let json = pictures.join(format!("{}.json", experiment.name));
            let json = std::fs::read(&json).unwrap_or_else(|_| panic!("no {}", json.display()));
            serde_json::from_slice(&json).unwrap()
        };
        let figures: Vec<Figure> = super::super::figures::FIGURES.iter().map(read).collect();
        for (figure, experiment) in figures.iter().zip(&super::super::figures::FIGURES) {
            assert!(!figure.verdicts.is_empty());
            assert_eq!((experiment.judge)(figure), figure.verdicts, "{}", experiment.name);
        }
        let (data_dir, seeds) = (Some("DIR".into()), vec![0, 1, 2]);
        let options = AllOptions { data_dir, seeds, ..options(&book) };
        let page = page(&figures, &options);
        assert_eq!(std::fs::read_to_string(book.join("RESULTS.md")).unwrap(), page);
    }

    #[test]
    fn a_finished_figure_is_not_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path());
        let pictures = folder.path().join(PICTURES);
        std::fs::create_dir(&pictures).unwrap();
        options.keep_settings(&pictures).unwrap();
        figure().write(&pictures).unwrap();
        let never = |_: &mut Measured| panic!("measured again");
        let judge = |figure: &Figure| vec![Verdict::new("Another.", figure.series.len() == 1, [])];
        run(&options, &[experiment("one", never, judge, "")]).unwrap();
        let text = std::fs::read_to_string(folder.path().join("RESULTS.md")).unwrap();
        assert!(text.contains("1 of 1") && text.contains("**Held**: Another."), "{text}");
        let stored = finished(&options, "one", Preset::Quick).unwrap().unwrap();
        assert_eq!(stored.verdicts, judge(&figure()));
        // Figures from other seeds or data are not results of these.
        let other = AllOptions { seeds: vec![0, 1], ..self::options(folder.path()) };
        let error =
            run(&other, &[experiment("one", never, |_| vec![], "")]).unwrap_err().to_string();
        assert!(error.contains("other --seeds") && error.contains("[0]"), "{error}");
        std::fs::remove_file(pictures.join(SETTINGS)).unwrap();
        let error =
            run(&options, &[experiment("one", never, |_| vec![], "")]).unwrap_err().to_string();
        assert!(error.contains("unknown --seeds"), "{error}");
        // The setting of the paper is a different figure.
        let found = |preset| finished(&options, "one", preset).unwrap().is_some();
        assert!(found(Preset::Quick) && !found(Preset::Paper));
    }
}
