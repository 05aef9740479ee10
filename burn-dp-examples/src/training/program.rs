//! The training program, which runs the training mode that the command line requests.

use super::place::{self, Program};
use super::{Mode, TrainError, TrainOptions, batch_clipping, federated, individual};

/// Trains in the requested mode, and writes the results.
///
/// # Errors
///
/// Returns [`TrainError`] if an option is impossible, the data cannot be read, or the training
/// fails.
pub fn run(options: TrainOptions) -> Result<(), TrainError> {
    place::check(Program::Train, &options.run.output, [])?;
    match options.mode() {
        Mode::Individual | Mode::Ordinary => individual::run(options).map(|_| ()),
        Mode::Batch => batch_clipping::run(options).map(|_| ()),
        Mode::Users => federated::run(options).map(|_| ()),
    }
}
