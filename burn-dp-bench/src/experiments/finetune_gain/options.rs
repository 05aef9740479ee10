//! Command-line options of the experiment.

use std::path::PathBuf;

use burn_dp_examples::training::BackendName;
use clap::Args;

/// Options of the experiment.
#[derive(Args, Debug, Clone)]
pub struct FinetuneGainOptions {
    /// File of texts: .csv with a header row, or .jsonl, plain or gzip. One half is treated as
    /// public and pre-trains a small GPT-2, or with --label a small BERT; the other half is
    /// private.
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Column of the text.
    #[arg(long, value_name = "COLUMN")]
    pub text: String,
    /// Column of the group that stays in one half as a whole: its value up to the first slash
    /// [default: each text on its own].
    #[arg(long, value_name = "COLUMN")]
    pub group: Option<String>,
    /// Column of the user: protects all rows of a user together.
    #[arg(long, value_name = "COLUMN")]
    pub user: Option<String>,
    /// Column of the class: trains a BERT that classifies instead of a language model.
    #[arg(long, value_name = "COLUMN", requires = "labels")]
    pub label: Option<String>,
    /// Names of the classes.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', requires = "label")]
    pub labels: Vec<String>,
    /// Privacy budgets.
    #[arg(long, value_name = "E,…", value_delimiter = ',', default_values = ["1", "3", "8"])]
    pub epsilons: Vec<f64>,
    /// Probability with which a budget may be exceeded.
    #[arg(long, value_name = "D", default_value_t = 1e-5)]
    pub delta: f64,
    /// Small models and short training: minutes for a run on two cores. With --label, the public
    /// training takes an hour.
    #[arg(long)]
    pub quick: bool,
    /// Seeds of initial weights, one run each; noise and sampling never use them.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["0", "1", "2"])]
    pub seeds: Vec<u64>,
    /// Backend of the private training; the public training runs on flex.
    #[arg(long, value_enum, default_value_t = BackendName::Flex)]
    pub backend: BackendName,
    /// Folder for the figure, the halves and the models [default: out/experiment-NAME]. An
    /// interrupted run continues.
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// File for the figures as JSON [default: NAME.json in the output folder].
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
