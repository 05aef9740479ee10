//! A user-level run from options to files.

use burn_dp::PublicSource;

use super::training::UserTraining;
use super::users::load;
use super::{FederatedFigures, FederatedSettings, RoundFigures, norms};
use crate::data::shakespeare::Tokens;
use crate::plot::{self, Series};
use crate::training::checkpoints::Checkpoints;
use crate::training::compared::Compared;
use crate::training::output::{LOSS_PLOT, Measurement, Output, THRESHOLD_PLOT};
use crate::training::progress::{
    EPSILON, Progress, TEST_ACCURACY, TEST_LOSS, announce, counted, percent, upwards,
};
use crate::training::statement::{Described, first_of_files, published_number};
use crate::training::{TrainError, TrainOptions, device};

/// Trains with the given options, and writes the model, the privacy statement, the figures and the
/// plots.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if an option is impossible and [`TrainError::Data`] if the data
/// cannot be read, both before anything is written; and the errors of training and writing.
pub fn run(options: TrainOptions) -> Result<FederatedFigures, TrainError> {
    let settings = FederatedSettings::try_from(&options)?;
    let delta = settings.privacy.delta;
    let output = Output::new(&options.run)?;
    let device = device(options.run.backend)?;
    let vocabulary = &settings.training.vocabulary;
    let tokens = match vocabulary {
        Some(path) => Tokens::words(path)?,
        None => Tokens::Characters,
    };
    let users = load(&options, &tokens)?;
    let compared = Compared { data: None, settings: &settings, backend: options.run.backend };
    let checkpoints = Checkpoints::new(&output.folder, &compared)?;
    let data = (users.train.users(), users.test.items());
    let checkpoints = checkpoints.with_data(&data).with_start(options.run.start());
    let mut rounds = UserTraining::prepare(&settings, &users, &device, Some(&checkpoints))?;
    if let Some(path) = vocabulary {
        let file = path.file_name().unwrap_or_default().display();
        let words = PublicSource::published(format!("words of {file}"));
        rounds.training.name_public_data(&words.data(vec![(); tokens.len()])?);
    }
    output.begin()?;

    let number = settings.training.rounds;
    let subject = format!(
        "next-token LSTM on {}: {} users, {number} rounds of {} users; {} public users",
        users.name,
        users.train.users().len(),
        rounds.training.optimizer().plan().expected_batch_size().round(),
        users.test.items().len()
    );
    print_line!(
        "held out for the evaluation and NOT protected: {} of --data-dir, about one in ten",
        counted(users.test.items().len(), "user")
    );
    announce(&subject, Some((rounds.training.optimizer().plan(), delta)))?;
    let columns = vec![
        ("round", 8, "rounds so far"),
        TEST_LOSS,
        TEST_ACCURACY,
        EPSILON,
        ("threshold", 11, "clipping threshold of the next round, from noisy counts"),
        ("seconds", 8, "time of the rounds"),
    ];
    let first = rounds.training.rounds() as usize;
    let mut progress = Progress::start(first, number, ("round", 1), columns);
    let (model, mut training, figures) =
        rounds.train(Some(&checkpoints), |round, measured| match measured {
            None => progress.step(round),
            Some(measured) => {
                progress.pause();
                progress.row([
                    round.to_string(),
                    format!("{:.4}", measured.test_loss),
                    percent(measured.test_accuracy),
                    measured.epsilon.map_or("none".into(), upwards),
                    format!("{:.4}", measured.threshold),
                    format!("{:.0}", progress.training().as_secs_f64()),
                ]);
            }
        })?;
    progress.finish();
    let not_covered = [
        "About one in ten users of the file, who are held out: their text measured the model, and \
         thresholds and figures can follow from it.",
        "A person behind several speaking roles: the guarantee is for one role of one play.",
    ];
    let first = options.rounds.users.map(|number| first_of_files("--users", number, "users"));
    let not_covered = not_covered.map(String::from).into_iter().chain(first);
    let described = Described {
        facts: vec![("dataset", format!("{}, by speaking role", users.name))],
        not_covered: std::iter::once(published_number("users")).chain(not_covered).collect(),
    };
    output.ledger(Some(&described.ledger(training.optimizer())))?;
    output.models(model, None)?;
    training.forget_key()?;
    let ledger = described.ledger(training.optimizer());
    output.statement(&ledger, &[delta], settings.privacy.group)?;
    draw(&output, &figures)?;
    output.print(figures.summary());
    output.figures(&figures)?;
    drop(training);
    checkpoints.remove()?;
    Ok(figures)
}

fn draw(output: &Output, figures: &FederatedFigures) -> Result<(), TrainError> {
    let measurements = &figures.measurements;
    let points = |of: fn(&RoundFigures) -> f64| {
        measurements.iter().map(move |measured| (measured.round as f64, of(measured)))
    };
    let loss = Series::new("loss of public users", points(|m| m.test_loss));
    plot::lines(&output.file(LOSS_PLOT), ["Next token", "round", "cross entropy"], &[loss])?;
    let threshold = Series::new("threshold", points(|m| m.threshold));
    let titles = ["Clipping threshold", "round", "L2 norm"];
    plot::lines(&output.file(THRESHOLD_PLOT), titles, &[threshold])?;
    norms::draw(&output.folder, &figures.update_norms, &figures.private_norms)?;
    let measured = measurements.iter().map(|measured| Measurement {
        step: measured.round,
        accuracy: measured.test_accuracy,
        epsilon: measured.epsilon.unwrap_or(f64::INFINITY),
    });
    let title = "Next token, user-level privacy";
    output.plot(title, &measured.collect::<Vec<_>>())
}
