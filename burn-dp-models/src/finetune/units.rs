//! The units of privacy of a run: rows, or users with several rows.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;
use burn_dp::optim::DpOptimizer;
use burn_dp::sampling::{LogicalBatches, PrivateDataLoaderBuilder, UserDataset};
use burn_dp_examples::training::progress::counted;
use burn_dp_examples::training::{TrainError, checks};
use serde_json::{Value, json};

use super::options::Texts;
use super::split::Split;

/// Maximum number of rows of a user in a step. The rows of a user are in memory together, and a
/// user with fewer rows takes the same memory. The limit does not depend on the private data.
const MOST_USER_ROWS: usize = 1000;

/// The source of a run's samples.
pub(super) struct Source {
    /// Rows of a user in a step; absent if the unit is a row.
    pub(super) user_rows: Option<usize>,
    /// Whether the rows of the evaluation are from the same file.
    pub(super) held_out: bool,
    /// Number of units of the data that are held out for the evaluation.
    pub(super) held_out_units: usize,
    /// Whether the model is one of torchvision.
    pub(super) is_torchvision: bool,
    /// Names of the classes, in the order of the scores; absent for a language model.
    pub(super) classes: Option<Vec<String>>,
    /// Numbers of units and rows to train on.
    pub(super) units: usize,
    pub(super) rows: usize,
    /// All settings that the samples depend on. A resumed run must have the same ones.
    pub(super) settings: Value,
}

impl Source {
    /// Returns the source of rows of texts.
    ///
    /// # Arguments
    ///
    /// - `max_length`: longest text in tokens
    /// - `others`: other settings that the samples depend on, by option
    pub(super) fn of_texts<S>(
        texts: &Texts,
        max_length: usize,
        others: Value,
        split: &Split<S>,
    ) -> Self {
        let mut settings = json!({
            "data": texts.data, "test": texts.test, "text": texts.text, "user": texts.user,
            "user-rows": texts.user_rows, "max-length": max_length,
            "the checksum of the data": split.checksum,
        });
        for (name, value) in others.as_object().into_iter().flatten() {
            settings[name] = value.clone();
        }
        Self {
            user_rows: texts.user.is_some().then_some(texts.user_rows),
            held_out: texts.test.is_none(),
            held_out_units: split.held_out,
            is_torchvision: false,
            classes: None,
            units: split.units(),
            rows: split.train.len(),
            settings,
        }
    }

    /// Checks the number of rows of a user, and that a batch is not larger than the data.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] with the number and its limit.
    pub(super) fn check(&self, batch_size: usize) -> Result<(), TrainError> {
        let rows = self.user_rows.unwrap_or(1);
        checks::at_least_one([("--user-rows", rows)])?;
        checks::at_most("--user-rows", rows, MOST_USER_ROWS, " rows of a user in memory at once")?;
        let name = if self.user_rows.is_some() { "users" } else { "rows" };
        checks::at_most(
            "--batch-size",
            batch_size,
            self.units,
            &format!(", the number of {name} that are trained on"),
        )
    }

    /// Prints how many rows or users of the data measure the model and are not protected.
    pub(super) fn print_held_out(&self) {
        if self.held_out {
            let unit = if self.user_rows.is_some() { "user" } else { "row" };
            burn_dp_examples::print_line!(
                "held out for the evaluation and NOT protected: {} of --data; with --test FILE all \
                 are protected",
                counted(self.held_out_units, unit)
            );
        }
    }
}

/// The rows of a physical batch: the same number for each unit.
pub(super) struct Rows<S> {
    pub(super) samples: Vec<S>,
    /// Multiplies the losses; zero for rows that fill a unit.
    pub(super) weights: Vec<f32>,
}

/// Lays out the rows of units.
pub(super) struct UnitBatcher<S> {
    /// Rows of each unit.
    pub(super) rows: usize,
    pub(super) filler: S,
}

impl<S: Clone + Send + Sync> Batcher<Vec<(usize, S)>, Rows<S>> for UnitBatcher<S> {
    fn batch(&self, units: Vec<Vec<(usize, S)>>, _: &Device) -> Rows<S> {
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        for unit in units {
            // The gradient of a unit is the mean over `rows` rows; this weight turns it into the
            // mean over the samples.
            let weight = self.rows as f32 / unit.len().max(1) as f32;
            for row in 0..self.rows {
                let sample = unit.get(row).map(|(_, sample)| sample);
                samples.push(sample.unwrap_or(&self.filler).clone());
                weights.push(if sample.is_some() { weight } else { 0.0 });
            }
        }
        Rows { samples, weights }
    }
}

/// Returns the batches of the run: single rows, or all rows of a user together.
pub(super) fn batches<S: Clone + Send + Sync + std::fmt::Debug + 'static>(
    builder: PrivateDataLoaderBuilder<Vec<(usize, S)>, Rows<S>>,
    train: Vec<(usize, S)>,
    user_rows: Option<usize>,
    optim: &DpOptimizer,
    steps: usize,
) -> Result<LogicalBatches<Rows<S>>, TrainError> {
    let sampler = optim.plan().sampler()?;
    Ok(match user_rows {
        None => {
            let rows = train.into_iter().map(|row| vec![row]).collect();
            builder.build(InMemDataset::new(rows), sampler, steps as u64)?
        }
        Some(rows) => {
            let users = UserDataset::by_key(InMemDataset::new(train), |row: &(usize, S)| row.0)?;
            builder.build(users.with_max_examples(rows)?, sampler, steps as u64)?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_of_a_user_give_the_mean_over_their_rows() {
        let batcher = UnitBatcher { rows: 4, filler: 0 };
        let units = vec![vec![(7, 1), (7, 2)], vec![(8, 3)], vec![(9, 4), (9, 5), (9, 6), (9, 7)]];
        let Rows { samples, weights } = batcher.batch(units, &Device::flex());
        assert_eq!(samples, [1, 2, 0, 0, 3, 0, 0, 0, 4, 5, 6, 7]);
        assert_eq!(weights, [2.0, 2.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    }
}
