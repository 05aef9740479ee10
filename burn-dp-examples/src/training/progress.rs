//! What a person sees of a run: a progress bar, and a line for every pass over the data.

use std::time::{Duration, Instant};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, TableStyle, Width};
use indicatif::{ProgressBar, ProgressStyle};

use super::Evaluation;

/// A step that was made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    /// Number of steps made so far, those before a resumption included.
    pub(super) number: usize,
    /// Upper bound of ε so far, after each pass over the data; nothing in ordinary training.
    pub(super) epsilon: Option<f64>,
    /// Examples and how many of them were clipped; nothing in ordinary training.
    ///
    /// Both are private: they are for the eyes of whoever trains and are written nowhere.
    pub(super) clipped: Option<Clipped>,
}

/// Number of examples, and of those that were clipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Clipped {
    /// Examples of the step.
    pub(super) examples: u64,
    /// Those whose gradient was longer than the threshold.
    pub(super) clipped: u64,
}

/// The progress bar and the table of a run.
pub(super) struct Progress {
    bar: ProgressBar,
    private: bool,
    /// Examples of a step, in the mean: the true number is private.
    expected_batch_size: usize,
    clipped: Clipped,
    since: Instant,
    steps_since: usize,
    /// Time that went into steps, evaluations left out.
    training: Duration,
}

const WIDTHS: [u16; 7] = [7, 8, 11, 11, 11, 10, 12];

impl Progress {
    /// Starts at a step of a run of `steps` steps and prints the head of the table.
    pub(super) fn start(
        first: usize,
        steps: usize,
        expected_batch_size: usize,
        private: bool,
    ) -> Self {
        let bar = ProgressBar::new(steps as u64).with_position(first as u64);
        let style = "{bar:40} step {pos}/{len}, {elapsed} gone, {eta} to go";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        bar.suspend(|| {
            if private {
                println!("(*) taken from private data and not covered by epsilon: do not publish");
            }
            let clipped = if private { "clipped*" } else { "" };
            let epsilon = if private { "epsilon" } else { "" };
            let head = ["epoch", "step", "test loss", "test acc.", epsilon, clipped, "examples/s"];
            println!("{}", line(head.map(String::from)));
        });
        Self {
            bar,
            private,
            expected_batch_size,
            clipped: Clipped::default(),
            since: Instant::now(),
            steps_since: 0,
            training: Duration::ZERO,
        }
    }

    /// Counts a step.
    pub(super) fn step(&mut self, step: Step) {
        self.bar.set_position(step.number as u64);
        self.steps_since += 1;
        if let Some(Clipped { examples, clipped }) = step.clipped {
            self.clipped.examples += examples;
            self.clipped.clipped += clipped;
        }
    }

    /// Stops the clock for what is not training; [`Progress::row`] starts it again.
    pub(super) fn pause(&mut self) {
        self.training += self.since.elapsed();
    }

    /// Prints the line of the steps since the last one.
    pub(super) fn row(&mut self, epoch: f64, step: usize, test: Evaluation, epsilon: Option<f64>) {
        let seconds = self.since.elapsed().as_secs_f64();
        let speed = (self.steps_since * self.expected_batch_size) as f64 / seconds.max(1e-9);
        let Clipped { examples, clipped } = std::mem::take(&mut self.clipped);
        let share = match examples {
            _ if !self.private => String::new(),
            0 => "-".into(),
            _ => format!("{:.1} %", 100.0 * clipped as f64 / examples as f64),
        };
        let row = [
            format!("{epoch:.1}"),
            step.to_string(),
            format!("{:.4}", test.loss),
            format!("{:.2} %", 100.0 * test.accuracy),
            epsilon.map(upwards).unwrap_or_default(),
            share,
            format!("{speed:.0}"),
        ];
        self.bar.suspend(|| println!("{}", line(row)));
        self.steps_since = 0;
        self.since = Instant::now();
    }

    /// Removes the bar and tells how long the steps took.
    pub(super) fn finish(self) -> Duration {
        self.bar.finish_and_clear();
        self.training
    }
}

/// An upper bound with four decimals that is still one.
pub(super) fn upwards(epsilon: f64) -> String {
    format!("{:.4}", (epsilon * 1e4).ceil() / 1e4)
}

/// One line of the table; the lines are printed as they come, so the widths are fixed.
fn line(cells: [String; 7]) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Dynamic);
    table.add_row(cells);
    table.set_constraints(WIDTHS.map(|width| ColumnConstraint::Absolute(Width::Fixed(width))));
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_columns_below_one_another() {
        let head = line(["epoch", "step", "a", "b", "c", "d", "e"].map(String::from));
        let row = line(["1.0", "24", "0.5", "9 %", "0.1", "7 %", "300"].map(String::from));
        for (cell, other) in [("step", "24"), ("a", "0.5"), ("e", "300")] {
            let places = (head.rfind(cell), row.rfind(other));
            assert!(places.0.is_some() && places.0 == places.1, "{head:?}\n{row:?}");
        }
        assert!(!row.contains('\n'), "{row:?}");
    }

    #[test]
    fn epsilon_is_rounded_upwards() {
        assert_eq!(upwards(1.00001), "1.0001");
        assert_eq!(upwards(2.0), "2.0000");
        assert_eq!(upwards(f64::INFINITY), "inf");
    }
}
