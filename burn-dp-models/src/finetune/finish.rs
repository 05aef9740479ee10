//! The end of a run: its files and its statement.

use std::path::PathBuf;

use burn::module::Module;
use burn_dp_examples::training::{Described, TrainError};

use super::base::has_uncounted_ledger;
use super::export::Written;
use super::figures::{FinetuneFigures, Generated};
use super::training::{FinetuneRun, Trained};

/// Returns what ε does not cover.
fn not_covered(run: &FinetuneRun<'_>) -> Vec<String> {
    let base = if run.task == "images" { "model" } else { "model and its tokenizer" };
    let evaluated = match run.source.held_out {
        true => {
            "The rows of the evaluation, about a tenth of the rows (or users) of the data: they \
             measured the model and are not protected."
        }
        false => "The rows of the evaluation, which measured the model.",
    };
    let units = if run.source.user_rows.is_some() { "users" } else { "rows" };
    let mut sentences = vec![
        format!(
            "The number of {units} that are trained on: it is published, and determines the \
             sampling probability and the number of steps."
        ),
        format!("The pre-trained {base}, which is taken as public."),
        evaluated.to_string(),
        "The names of the columns and of the classes.".to_string(),
        "Facts that appear in several rows or are shared by several users.".to_string(),
    ];
    if has_uncounted_ledger(run.options) {
        sentences.push(format!(
            "The private training that made the pre-trained model ({}): if it had the same data, \
             its ledger counts too, as --earlier-ledger.",
            run.options.model.display()
        ));
    }
    sentences
}

/// Returns the public facts of a run.
fn facts(run: &FinetuneRun<'_>, figures: &FinetuneFigures) -> Vec<(&'static str, String)> {
    let base = figures.packed_base.as_ref().map(|base| format!(" on packed weights ({base})"));
    let base = base.unwrap_or_default();
    let trained = format!("{}{base}, {} parameters", figures.train, figures.trained_parameters);
    let mut facts = vec![("model", run.options.model.display().to_string()), ("trained", trained)];
    if let Some(exposure) = figures.generated.as_ref().and_then(|g| g.exposure.as_ref()) {
        facts.push(("canaries", exposure.fact()));
    }
    facts
}

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
    let described = Described { facts: facts(&run, &figures), not_covered: not_covered(&run) };
    run.output.ledger(Some(&described.ledger(&optim)))?;
    let folder: PathBuf = write(model)?.publish(&run.output)?;
    optim.forget_key()?;
    let ledger = described.ledger(&optim);
    run.output.statement(&ledger, &[run.privacy.delta], run.privacy.group)?;
    if let Some(generated) = &figures.generated {
        generated.print();
    }
    burn_dp_examples::print_line!("{}", figures.summary());
    let library = if run.source.is_torchvision { "torchvision" } else { "transformers" };
    burn_dp_examples::print_line!("for {library}: {}", folder.display());
    run.output.figures(&figures)?;
    drop(optim);
    checkpoints.remove()?;
    Ok(figures)
}
