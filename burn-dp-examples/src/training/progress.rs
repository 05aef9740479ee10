//! The printed output of a run: its beginning, a progress bar, and a table of measurements.

use std::time::{Duration, Instant};

use burn_dp::optim::PrivacyPlan;
use burn_dp_accountant::Rounded;
use indicatif::{ProgressBar, ProgressStyle};

use super::TrainError;

/// A column of the table: name, width, and meaning.
pub type Column = (&'static str, usize, &'static str);

/// The loss on the test set.
pub const TEST_LOSS: Column = ("test loss", 11, "mean cross entropy");
/// The accuracy on the test set.
pub const TEST_ACCURACY: Column = ("test acc.", 11, "share of correct predictions");
/// The privacy that was spent.
pub const EPSILON: Column = ("epsilon", 10, "privacy spent so far, an upper bound");

/// How to stop and continue what has checkpoints.
pub(super) const STOP_AND_RESUME: &str =
    "stop with Ctrl-C, and continue with the same command and --resume";

/// Maximum width of a line of the legend.
const LEGEND_WIDTH: usize = 96;

/// Number of steps after which the time of a pass is estimated.
const ESTIMATED_AFTER: usize = 3;

/// The progress bar of a preparation.
pub(super) struct Waiting(ProgressBar);

impl Waiting {
    /// Shows the kind of item in progress, and the number of items.
    pub(super) fn start(what: &'static str, count: usize) -> Self {
        let bar = ProgressBar::new(count as u64).with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{msg}: {bar:40} {pos}/{len}, {eta}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(super) fn done_one(&self) {
        self.0.inc(1);
    }

    pub(super) fn finish(self) {
        self.0.finish_and_clear();
    }
}

/// The progress bar and the table of a run.
pub struct Progress {
    bar: ProgressBar,
    columns: Vec<Column>,
    /// Name and number of steps of the timed unit, for example a pass over the data.
    pass: (&'static str, usize),
    steps: usize,
    /// Number of steps in this process, and since the last row.
    made: usize,
    since_row: usize,
    since: Instant,
    /// Time between the last row and the pause after it.
    lap: Duration,
    /// Time of the steps, without measurements.
    training: Duration,
    estimated: bool,
}

impl Progress {
    /// Prints the legend and the header of the table.
    ///
    /// # Arguments
    ///
    /// - `first`, `steps`: steps before this process, and steps of the whole training
    /// - `pass`: name and number of steps of the timed unit
    pub fn start(
        first: usize,
        steps: usize,
        pass: (&'static str, usize),
        columns: Vec<Column>,
    ) -> Self {
        let bar = ProgressBar::new(steps as u64).with_position(first as u64);
        let style = "{bar:40} step {pos}/{len}, elapsed {elapsed}, remaining {eta}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        bar.suspend(|| {
            print_line!("{}\n", legend(&columns));
            print_line!("{}", line(&columns, columns.iter().map(|column| column.0.to_string())));
        });
        Self {
            bar,
            columns,
            pass,
            steps,
            made: 0,
            since_row: 0,
            since: Instant::now(),
            lap: Duration::ZERO,
            training: Duration::ZERO,
            estimated: false,
        }
    }

    /// Counts a step, and estimates the time of a pass after a few steps.
    pub fn step(&mut self, number: usize) {
        self.bar.set_position(number as u64);
        self.made += 1;
        self.since_row += 1;
        let ready = self.made >= ESTIMATED_AFTER && number < self.steps;
        if ready && !self.estimated {
            self.estimated = true;
            let step = (self.training + self.since.elapsed()) / self.made as u32;
            let of = |steps: usize| duration(step.mul_f64(steps as f64));
            let (name, steps) = self.pass;
            let (pass, rest) = (of(steps), of(self.steps - number));
            // Not on the standard output, because its lines are results.
            self.bar.suspend(|| print_note!("about {pass} per {name}, {rest} to the end"));
        }
    }

    /// Stops the clock for a measurement; [`Progress::row`] starts it again.
    pub fn pause(&mut self) {
        self.lap = self.since.elapsed();
        self.training += self.lap;
    }

    /// Returns the steps per second between the last row and the pause after it.
    pub fn steps_per_second(&self) -> f64 {
        self.since_row as f64 / self.lap.as_secs_f64().max(1e-9)
    }

    /// Returns the time of the steps up to the last pause, without measurements.
    pub fn training(&self) -> Duration {
        self.training
    }

    /// Prints a row of the table and starts the clock.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let line = line(&self.columns, cells);
        self.bar.suspend(|| print_line!("{line}"));
        self.since_row = 0;
        self.since = Instant::now();
    }

    /// Removes the bar and returns the time of the steps.
    pub fn finish(self) -> Duration {
        self.bar.finish_and_clear();
        self.training
    }
}

/// Prints the training task and its privacy.
///
/// # Arguments
///
/// - `subject`: the model, the data and the length of the training
/// - `privacy`: the plan and the δ at which ε is stated; `None` for ordinary training
///
/// # Errors
///
/// Returns [`TrainError::Privacy`] if the accountant cannot analyze the plan.
pub fn announce(subject: &str, privacy: Option<(&PrivacyPlan, f64)>) -> Result<(), TrainError> {
    print_line!("training {subject}");
    let Some((plan, delta)) = privacy else {
        print_line!("privacy: none");
        return Ok(());
    };
    let guarantee = if !plan.is_secure() {
        "NONE, because the seed of the noise is known".to_string()
    } else {
        let epsilon = match plan.budget() {
            Some(budget) => budget.epsilon(),
            None => plan.epsilon_at_end(delta)?,
        };
        format!("epsilon <= {} at delta = {delta:e}", upwards(epsilon))
    };
    print_line!(
        "privacy: {guarantee}, for {}; noise multiplier {}, sampling probability {}",
        plan.unit(),
        significant(plan.noise_multiplier(), 4),
        significant(plan.sampling_probability(), 3)
    );
    print_line!("{STOP_AND_RESUME}");
    Ok(())
}

/// Returns a number with its noun, which is in the plural unless the number is 1.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns an upper bound with four decimals, or a large one with five digits, rounded up.
pub fn upwards(epsilon: f64) -> String {
    if epsilon >= 1e6 {
        return Rounded::up(epsilon).with_digits(5).to_string();
    }
    format!("{:.4}", (epsilon * 1e4).ceil() / 1e4)
}

/// Returns a loss with four decimals, or a large one with five digits.
pub fn loss(value: f64) -> String {
    if value.abs() < 1e6 { format!("{value:.4}") } else { significant(value, 5) }
}

/// Returns a share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Returns a number with this many significant digits.
pub fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..6).contains(&magnitude) {
        return format!("{value:.*e}", digits as usize - 1);
    }
    let text = format!("{value:.*}", (digits - 1 - magnitude).max(0) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// Returns a time in the unit that a person would choose.
fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds @ ..10.0 => format!("{seconds:.1} s"),
        seconds @ ..120.0 => format!("{seconds:.0} s"),
        seconds @ ..7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Explains the columns in lines of limited width.
fn legend(columns: &[Column]) -> String {
    let mut lines = vec!["columns:".to_string()];
    let explained = columns.iter().filter(|(name, ..)| !name.is_empty());
    for (name, _, meaning) in explained {
        let entry = format!(" {name} = {meaning};");
        match lines.last_mut() {
            Some(line) if line.len() + entry.len() <= LEGEND_WIDTH => line.push_str(&entry),
            _ => lines.push(format!("  {entry}")),
        }
    }
    lines.join("\n").trim_end_matches(';').to_string()
}

/// Returns one line of the table. Lines are printed one by one, so the widths are fixed; a cell
/// that is too long moves the next one.
fn line(columns: &[Column], cells: impl IntoIterator<Item = String>) -> String {
    let cells = columns.iter().zip(cells).map(|((_, width, _), cell)| {
        let width = (*width).max(cell.chars().count() + 1);
        format!("{cell:<width$}")
    });
    cells.collect::<String>().trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_explained() {
        let columns = [("epoch", 7, "passes over the data"), TEST_LOSS, EPSILON];
        let head = line(&columns, columns.iter().map(|column| column.0.to_string()));
        let row = line(&columns, ["1.0", "0.5", "0.1"].map(String::from));
        for (cell, other) in [("test loss", "0.5"), ("epsilon", "0.1")] {
            let places = (head.rfind(cell), row.rfind(other));
            assert!(places.0.is_some() && places.0 == places.1, "{head:?}\n{row:?}");
        }
        assert_eq!(line(&columns, ["1234567", "0.5"].map(String::from)), "1234567 0.5");
        let legend = legend(&columns);
        assert!(legend.starts_with("columns: epoch = passes over the data; test loss = "));
        assert!(legend.lines().all(|line| line.len() <= LEGEND_WIDTH), "{legend}");
        assert!(legend.ends_with("epsilon = privacy spent so far, an upper bound"), "{legend}");
    }

    #[test]
    fn epsilon_is_rounded_upwards() {
        assert_eq!(upwards(1.00001), "1.0001");
        assert_eq!(upwards(2.0), "2.0000");
        assert_eq!(upwards(1.500_001e18), "1.5001e18");
        assert_eq!(upwards(f64::INFINITY), "inf");
    }

    #[test]
    fn numbers_for_people_are_short() {
        assert_eq!(significant(0.042_666_666_666_666_67, 3), "0.0427");
        assert_eq!(significant(1.0, 4), "1");
        assert_eq!(significant(123_456.7, 3), "123457");
        assert_eq!(significant(1.5e-7, 3), "1.50e-7");
        assert_eq!(significant(0.0, 3), "0");
        assert_eq!(duration(Duration::from_secs(90)), "90 s");
        assert_eq!(duration(Duration::from_secs(600)), "10 min");
    }
}
