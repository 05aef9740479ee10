//! A user-level run from options to files.

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use burn_dp::DpError;
use burn_dp::optim::FederatedTraining;

use super::{FederatedFigures, FederatedOptions, RoundFigures, norms};
use crate::data::DataError;
use crate::data::shakespeare::{self, Tokens, UserWindows, Window};
use crate::models::{NextToken, NextTokenConfig, WindowBatch};
use crate::training::checkpoints::Checkpoints;
use crate::training::plot::{self, Series};
use crate::training::progress::upwards;
use crate::training::run::MODEL_FILE;
use crate::training::statement::{STATEMENT_JSON, STATEMENT_TEXT};
use crate::training::{TrainError, device, files};

/// Every so many users one is public: measured on, never trained on.
const PUBLIC_EVERY: usize = 10;

/// Windows that are measured together.
const MEASURED: usize = 64;

/// Most windows of a public user that are measured.
const MEASURED_OF_USER: usize = 16;

/// Name of the plot of the measurements.
const LOSS_PLOT: &str = "loss.svg";

/// Name of the plot of the clipping threshold.
const THRESHOLD_PLOT: &str = "threshold.svg";

/// Private users, and public ones.
struct Users {
    train: UserWindows,
    test: UserWindows,
}

/// Trains as the options say, and writes model, privacy statement, figures and plots.
///
/// # Errors
///
/// When an option is impossible or the data cannot be read, before anything is written; and when the
/// training or the writing fails.
pub fn run(options: FederatedOptions) -> Result<FederatedFigures, TrainError> {
    options.check()?;
    let device = device(options.backend)?;
    let tokens = match &options.vocabulary {
        Some(path) => Tokens::words(path)?,
        None => Tokens::Characters,
    };
    let users = load(&options, &tokens)?;
    // Of the initial weights only: noise and sampling have generators of their own.
    device.seed(options.seed);
    let trained = device.clone().autodiff();
    let config = NextTokenConfig::new(tokens.len())
        .with_embedding(options.embedding)
        .with_hidden(options.hidden);
    let model = config.init(&trained);
    let plan = options.plan(users.train.users().len(), &model)?;

    let checkpoints = Checkpoints::of(&options.output, options.compared());
    let (optim, mut model) = if options.resume {
        checkpoints.resume(plan, options.server(), model)?
    } else {
        checkpoints.refuse_interrupted_run()?;
        (plan.optimizer(options.server()), model)
    };
    let mut training = FederatedTraining::new(optim, options.update()?)?;
    files::make_folder(&options.output)?;
    for name in [MODEL_FILE, STATEMENT_JSON, STATEMENT_TEXT] {
        files::remove(&options.output.join(name))?;
    }
    checkpoints.begin()?;

    println!(
        "{}",
        row(["round", "test loss", "test acc.", "epsilon", "threshold", "seconds"]
            .map(String::from))
    );
    let mut measurements = Vec::new();
    let (mut train_time, mut since) = (Duration::ZERO, Instant::now());
    while (training.rounds() as usize) < options.rounds {
        let losses = |model: &NextToken, windows: Vec<Window>| {
            Ok(model.loss(WindowBatch::new(&windows, &trained)).0)
        };
        model = match training.round(options.server_lr, model, &users.train, losses) {
            Ok(model) => model,
            Err(refused) if matches!(refused.error(), DpError::BudgetExhausted { .. }) => {
                println!("stopped: {refused}");
                model = refused.into_model();
                break;
            }
            Err(refused) => return Err(DpError::from(refused).into()),
        };
        let round = training.rounds() as usize;
        if round.is_multiple_of(options.evaluate_every) || round == options.rounds {
            train_time += since.elapsed();
            if round < options.rounds {
                // Before anything is printed: from then on every release is on disk.
                checkpoints.save(&model, training.optimizer())?;
            }
            let measured = measure(&model, &users.test, &device);
            let epsilon = training.optimizer().privacy_spent(options.delta)?.upper;
            let thresholds = training.optimizer().plan().clipping().thresholds(round as u64)?;
            println!(
                "{}",
                row([
                    round.to_string(),
                    format!("{:.4}", measured.0),
                    format!("{:.2} %", 100.0 * measured.1),
                    upwards(epsilon),
                    format!("{:.4}", thresholds.total_norm()),
                    format!("{:.0}", train_time.as_secs_f64()),
                ])
            );
            measurements.push(RoundFigures {
                round,
                test_loss: measured.0,
                test_accuracy: measured.1,
                epsilon: epsilon.is_finite().then_some(epsilon),
                threshold: thresholds.total_norm(),
            });
            since = Instant::now();
        }
    }
    finish(&options, &users, &training, model, &trained, (measurements, train_time), checkpoints)
}

fn load(options: &FederatedOptions, tokens: &Tokens) -> Result<Users, TrainError> {
    let environment = std::env::var_os("BURN_DP_DATA").map(Into::into);
    let Some(folder) = options.data_dir.clone().or(environment) else {
        return Err(DataError::NoRoles { folder: None }.into());
    };
    let mut roles = shakespeare::from_folder(&folder)?;
    roles.truncate(options.users.unwrap_or(usize::MAX));
    let is_public = |index: usize| index % PUBLIC_EVERY == PUBLIC_EVERY - 1;
    let (test, train): (Vec<_>, Vec<_>) =
        roles.into_iter().enumerate().partition(|(index, _)| is_public(*index));
    if test.is_empty() {
        let reason = format!(
            "must be at least {PUBLIC_EVERY}, one of which is public, got {}",
            options.users.unwrap_or(train.len())
        );
        return Err(TrainError::option("--users", reason));
    }
    let windows = |roles: Vec<(usize, shakespeare::Role)>| {
        let roles: Vec<_> = roles.into_iter().map(|(_, role)| role).collect();
        UserWindows::new(&roles, tokens, options.length)
    };
    Ok(Users { train: windows(train), test: windows(test) })
}

/// Mean cross entropy of the public users' tokens, and the share that is predicted right.
fn measure(model: &NextToken, users: &UserWindows, device: &Device) -> (f64, f64) {
    let model = model.valid();
    let few = users.users().iter().flat_map(|user| user.iter().take(MEASURED_OF_USER));
    let windows: Vec<Window> = few.cloned().collect();
    let (mut loss, mut right, mut tokens) = (0.0, 0.0, 0.0);
    for windows in windows.chunks(MEASURED) {
        let batch = WindowBatch::new(windows, device);
        let targets = batch.targets.clone();
        let known = targets.clone().not_equal_elem(i64::from(shakespeare::PADDING));
        let (mean, scores) = model.loss(batch);
        let matches = scores.argmax(1).flatten::<1>(0, 1).equal(targets).bool_and(known.clone());
        let number = known.int().sum().into_scalar::<i64>() as f64;
        loss += mean.into_scalar::<f64>() * number;
        right += matches.int().sum().into_scalar::<i64>() as f64;
        tokens += number;
    }
    (loss / tokens, right / tokens)
}

fn finish(
    options: &FederatedOptions,
    users: &Users,
    training: &FederatedTraining,
    model: NextToken,
    trained: &Device,
    (measurements, train_time): (Vec<RoundFigures>, Duration),
    checkpoints: Checkpoints,
) -> Result<FederatedFigures, TrainError> {
    let optim = training.optimizer();
    let mut statement = optim.statement(&[options.delta])?;
    statement.facts.insert("dataset".into(), "shakespeare, by speaking role".into());
    statement.facts.insert("public_users".into(), users.test.users().len().to_string());
    statement.not_covered.extend(
        [
            "The text of the public users, which measured the model.",
            "Settings that were chosen by looking at results of earlier runs on the same data.",
            "A person behind several speaking roles: the guarantee is for one role of one play.",
        ]
        .map(String::from),
    );
    let at = |name: &str| options.output.join(name);
    let norms = norms::of_public_users(options, &model, &users.test, trained)?;
    files::write_model(&at(MODEL_FILE), model)?;
    files::write_json(&at(STATEMENT_JSON), &statement)?;
    files::write(&at(STATEMENT_TEXT), statement.to_string().as_bytes())?;
    let points = |of: fn(&RoundFigures) -> f64| {
        measurements.iter().map(|measured| (measured.round as f64, of(measured))).collect()
    };
    let loss = Series { name: "loss of public users".into(), points: points(|m| m.test_loss) };
    plot::lines(&at(LOSS_PLOT), ["Next token", "round", "cross entropy"], &[loss])?;
    let threshold = Series { name: "threshold".into(), points: points(|m| m.threshold) };
    plot::lines(&at(THRESHOLD_PLOT), ["Clipping threshold", "round", "L2 norm"], &[threshold])?;
    let private = norms::of_private_users(training);
    norms::draw(&options.output, &norms, &private)?;

    let spent = optim.privacy_spent(options.delta)?.upper;
    let figures = FederatedFigures {
        dataset: "shakespeare".into(),
        private: spent.is_finite(),
        unit: optim.plan().unit().to_string(),
        epsilon: spent.is_finite().then_some(spent),
        delta: options.delta,
        noise_multiplier: optim.plan().noise_multiplier(),
        sampling_probability: optim.plan().sampling_probability(),
        users: [users.train.users().len(), users.test.users().len()],
        rounds: training.rounds() as usize,
        measurements,
        update_norms: norms,
        private_norms: private,
        train_seconds: train_time.as_secs_f64(),
        version: env!("CARGO_PKG_VERSION"),
    };
    let json = options.json.clone().unwrap_or_else(|| at("run.json"));
    files::write_json(&json, &figures)?;
    checkpoints.remove()?;
    println!("\n{statement}");
    println!("files: {}", options.output.display());
    Ok(figures)
}

/// One line of the table.
fn row(cells: [String; 6]) -> String {
    cells.map(|cell| format!("{cell:<11}")).concat().trim_end().to_string()
}
