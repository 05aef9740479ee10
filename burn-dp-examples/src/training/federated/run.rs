//! A user-level run from options to files.

use std::time::Duration;

use burn::tensor::Tensor;
use burn_dp::optim::FederatedTraining;
use burn_dp::{DpError, PublicSource};

use super::users::{self, Users, measure};
use super::{FederatedFigures, FederatedOptions, RoundFigures, UserClippingName, norms};
use crate::data::shakespeare::{Tokens, Window};
use crate::models::{NextToken, NextTokenConfig, WindowBatch};
use crate::plot::{self, Series};
use crate::training::budget::within_budget;
use crate::training::checkpoints::Checkpoints;
use crate::training::output::{Measurement, Output};
use crate::training::progress::{
    EPSILON, Progress, TEST_ACCURACY, TEST_LOSS, announce, percent, upwards,
};
use crate::training::statement::statement;
use crate::training::{TrainError, device};

/// Name of the plot of the loss.
const LOSS_PLOT: &str = "loss.svg";

/// Name of the plot of the clipping threshold.
const THRESHOLD_PLOT: &str = "threshold.svg";

/// Trains as the options say, and writes the model, the privacy statement, the figures and the
/// plots.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if an option is impossible and [`TrainError::Data`] if the data
/// cannot be read, both before anything is written; and the errors of training and writing.
pub fn run(options: FederatedOptions) -> Result<FederatedFigures, TrainError> {
    let checked = options.check()?;
    let privacy = checked.privacy;
    let output = Output::new(&options.run)?;
    let device = device(options.run.backend)?;
    let tokens = match &options.training.vocabulary {
        Some(path) => Tokens::words(path)?,
        None => Tokens::Characters,
    };
    let users = users::load(&options, &tokens)?;
    // Only the initial weights: noise and sampling have their own generators.
    device.seed(options.seed);
    let trained = device.clone().autodiff();
    let config = NextTokenConfig::new(tokens.len())
        .with_embedding(options.training.embedding)
        .with_hidden(options.training.hidden);
    let model = config.init(&trained);
    let public_norms =
        |model: &_| norms::of_public_users(&options.training, model, &users.test, &trained);
    let number = users.train.users().len();
    let plan = options.training.plan(number, &checked, &model, || public_norms(&model))?;

    let checkpoints = Checkpoints::new(&output.folder, &options.compared(&checked))?;
    let server = options.training.server();
    let (optim, mut model) =
        checkpoints.begin_or_resume(options.run.resume, plan, server, model)?;
    let mut training = FederatedTraining::new(optim, options.training.update()?)?;
    training.name_public_data(&users.test);
    if let Some(path) = &options.training.vocabulary {
        let file = path.file_name().unwrap_or_default().display();
        let words = PublicSource::published(format!("words of {file}"));
        training.name_public_data(&words.data(vec![(); tokens.len()])?);
    }
    output.begin()?;
    checkpoints.begin(&model, training.optimizer())?;

    let rounds = options.training.rounds;
    let subject = format!(
        "next-token LSTM on shakespeare: {} users, {rounds} rounds of {} users; {} public users",
        users.train.users().len(),
        options.training.users_per_round,
        users.test.items().len()
    );
    announce(&subject, Some((training.optimizer().plan(), privacy.delta)))?;
    let columns = vec![
        ("round", 8, "rounds so far"),
        TEST_LOSS,
        TEST_ACCURACY,
        EPSILON,
        ("threshold", 11, "clipping threshold of the next round, from noisy counts"),
        ("seconds", 8, "time of the rounds"),
    ];
    let mut progress = Progress::start(training.rounds() as usize, rounds, ("round", 1), columns);
    let mut measurements = Vec::new();
    let losses = |model: &NextToken, windows: Vec<Window>| -> Result<Tensor<1>, DpError> {
        Ok(model.loss(WindowBatch::new(&windows, &trained)).0)
    };
    while (training.rounds() as usize) < rounds {
        let lr = options.training.server_lr;
        let stopped;
        (model, stopped) = within_budget(training.round(lr, model, &users.train, losses))?;
        if let Some(reason) = stopped {
            println!("stopped: {reason}");
            break;
        }
        let round = training.rounds() as usize;
        progress.step(round);
        if round.is_multiple_of(options.evaluate_every) || round == rounds {
            if options.training.clipping == UserClippingName::Layerwise {
                training.learn_from_public(&public_norms(&model)?)?;
            }
            progress.pause();
            if round < rounds {
                // Before the row is printed: from then on every release is on disk.
                checkpoints.save(&model, training.optimizer())?;
            }
            let test = measure(&model, &users.test, &device);
            let epsilon = training.optimizer().privacy_spent(privacy.delta)?.upper;
            let thresholds = training.optimizer().plan().clipping().thresholds(round as u64)?;
            let threshold = thresholds.total_norm();
            progress.row([
                round.to_string(),
                format!("{:.4}", test.loss),
                percent(test.accuracy),
                upwards(epsilon),
                format!("{threshold:.4}"),
                format!("{:.0}", progress.training().as_secs_f64()),
            ]);
            measurements.push(RoundFigures {
                round,
                test_loss: test.loss,
                test_accuracy: test.accuracy,
                epsilon: epsilon.is_finite().then_some(epsilon),
                threshold,
            });
        }
    }
    let measured = (measurements, progress.finish());
    checkpoints.save(&model, training.optimizer())?;
    let norms = norms::named(&public_norms(&model)?);
    let figures = finish(privacy.delta, &output, &users, &mut training, model, norms, measured)?;
    drop(training);
    checkpoints.remove()?;
    Ok(figures)
}

fn finish(
    delta: f64,
    output: &Output,
    users: &Users,
    training: &mut FederatedTraining,
    model: NextToken,
    public: Vec<(String, f64)>,
    (measurements, train_time): (Vec<RoundFigures>, Duration),
) -> Result<FederatedFigures, TrainError> {
    let facts = [("dataset", "shakespeare, by speaking role".to_string())];
    let not_covered = [
        "The text of the public users, which measured the model.",
        "A person behind several speaking roles: the guarantee is for one role of one play.",
    ];
    output.models(model, None)?;
    training.forget_key()?;
    let (training, optim) = (&*training, training.optimizer());
    output.statement(&statement(optim, &[delta], facts, &not_covered)?)?;
    let points = |of: fn(&RoundFigures) -> f64| {
        measurements.iter().map(|measured| (measured.round as f64, of(measured))).collect()
    };
    let loss = Series { name: "loss of public users".into(), points: points(|m| m.test_loss) };
    plot::lines(&output.file(LOSS_PLOT), ["Next token", "round", "cross entropy"], &[loss])?;
    let threshold = Series { name: "threshold".into(), points: points(|m| m.threshold) };
    let titles = ["Clipping threshold", "round", "L2 norm"];
    plot::lines(&output.file(THRESHOLD_PLOT), titles, &[threshold])?;
    let private = norms::of_private_users(training);
    norms::draw(&output.folder, &public, &private)?;
    let measured = measurements.iter().map(|measured| Measurement {
        step: measured.round,
        accuracy: measured.test_accuracy,
        epsilon: measured.epsilon.unwrap_or(f64::INFINITY),
    });
    let title = "Next token, user-level privacy";
    output.plot(title, &measured.collect::<Vec<_>>())?;

    let spent = optim.privacy_spent(delta)?.upper;
    let figures = FederatedFigures {
        dataset: "shakespeare".into(),
        private: spent.is_finite(),
        unit: optim.plan().unit().to_string(),
        epsilon: spent.is_finite().then_some(spent),
        delta,
        noise_multiplier: optim.plan().noise_multiplier(),
        sampling_probability: optim.plan().sampling_probability(),
        users: [users.train.users().len(), users.test.items().len()],
        rounds: training.rounds() as usize,
        measurements,
        update_norms: public,
        private_norms: private,
        train_seconds: train_time.as_secs_f64(),
        version: env!("CARGO_PKG_VERSION"),
    };
    output.figures(&figures)?;
    Ok(figures)
}
