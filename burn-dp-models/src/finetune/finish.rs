//! The end of a run: its files and its statement.

use std::path::PathBuf;

use burn::module::Module;
use burn_dp_examples::training::{TrainError, statement};

use super::export::Written;
use super::figures::{FinetuneFigures, Generated};
use super::training::{FinetuneRun, Trained};

/// The facts that ε does not cover.
const NOT_COVERED: [&str; 3] = [
    "The pre-trained model and its tokenizer, which are taken as public.",
    "The rows of the evaluation, which measured the model, and the names of the columns and of \
     the classes.",
    "A fact that several rows, or several users, share.",
];

/// Writes the model, the statement and the figures, and removes the checkpoints.
///
/// # Errors
///
/// Returns [`TrainError`] if a file cannot be written.
pub(super) fn finish<M: Module>(
    run: FinetuneRun<'_>,
    trained: Trained<M>,
    generated: Option<Generated>,
    write: impl FnOnce(M) -> Result<Written, TrainError>,
) -> Result<FinetuneFigures, TrainError> {
    let Trained { model, mut optim, checkpoints, figures } = trained;
    let figures = FinetuneFigures { generated, ..figures };
    run.output.ledger(Some(optim.ledger()))?;
    let folder: PathBuf = write(model)?.publish(&run.output)?;
    optim.forget_key()?;
    let base = figures.packed_base.as_ref().map(|base| format!(" on packed weights ({base})"));
    let base = base.unwrap_or_default();
    let trained = format!("{}{base}, {} parameters", figures.train, figures.trained_parameters);
    let facts = [("model", run.options.model.display().to_string()), ("trained", trained)];
    let (deltas, group) = ([run.privacy.delta], run.privacy.group);
    let mut statement = statement(&optim, &deltas, group, facts, &NOT_COVERED)?;
    if let Some(exposure) = figures.generated.as_ref().and_then(|g| g.exposure.as_ref()) {
        statement.facts.insert("canaries".into(), exposure.fact());
    }
    if let Some(rows) = run.source.user_rows {
        // The rows of a user are not copies of one row.
        statement.facts.remove("augmentation_multiplicity");
        statement.facts.insert("rows_of_a_user_in_a_step".into(), rows.to_string());
    }
    run.output.statement(&statement)?;
    if let Some(generated) = &figures.generated {
        generated.print();
    }
    burn_dp_examples::print_line!("{}", figures.summary());
    burn_dp_examples::print_line!("for transformers: {}", folder.display());
    run.output.figures(&figures)?;
    drop(optim);
    checkpoints.remove()?;
    Ok(figures)
}
