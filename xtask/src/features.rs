//! The features that the arguments of a program ask for.

use std::path::Path;

use toml::Value;

use crate::backend::{Backend, values_of};
use crate::workspace::{self, Program, TUNE};

/// The folder of the recipes that have a name.
const RECIPES: &str = "burn-dp-examples/recipes";

/// Returns the words that select what is compiled: the options of the recipe and, because they
/// take precedence, after them the command line. A search has its training options after `--`;
/// other programs have nothing there.
pub(crate) fn words(program: Program, args: &[String]) -> Vec<String> {
    let is_own = |arg: &&String| program == TUNE || *arg != "--";
    let own: Vec<_> = args.iter().take_while(is_own).filter(|arg| *arg != "--").cloned().collect();
    let is_named = own.first().is_some_and(|word| program != TUNE && !word.starts_with('-'));
    let last = |option| values_of(&own, option).next_back();
    let recipe = last("--recipe").or_else(|| last("--preset"));
    let of_recipe = recipe.map(|name| recipe_words(name, !is_named)).unwrap_or_default();
    of_recipe.into_iter().chain(own).collect()
}

/// Returns the options of a recipe as words; what is no recipe is left to the program to report.
fn recipe_words(recipe: &str, with_dataset: bool) -> Vec<String> {
    let named = workspace::root().join(RECIPES).join(format!("{recipe}.toml"));
    let path = if named.is_file() { named.as_path() } else { Path::new(recipe) };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    let word = |(key, value): (String, Value)| match value {
        Value::String(name) if key == "dataset" => with_dataset.then_some(name),
        Value::Boolean(is_given) => is_given.then(|| format!("--{key}")),
        Value::String(text) => Some(format!("--{key}={text}")),
        // No number selects what is compiled.
        _ => None,
    };
    table.into_iter().filter_map(word).collect()
}

/// Returns the features that a run with these [`words`] needs beyond the default ones.
///
/// `environment_has_data` says whether the environment names a folder of data sets.
///
/// # Errors
///
/// Returns a message if `--backend` names no backend.
pub(crate) fn of_run(
    binary: &str,
    words: &[String],
    environment_has_data: bool,
) -> Result<Vec<&'static str>, String> {
    let mut features: Vec<_> =
        Backend::among(words)?.and_then(Backend::feature).into_iter().collect();
    let own: Vec<_> = words.iter().map(String::as_str).collect();
    let given = |option: &str| {
        own.iter().any(|arg| {
            arg.strip_prefix(option)
                .is_some_and(|rest| matches!(rest.chars().next(), None | Some('=')))
        })
    };
    // The name of a data set is a positional argument, and no option has it as its value.
    let has_data = given("--data-dir") || environment_has_data;
    let downloads = given("--download") || own.contains(&"mnist") && !has_data;
    if downloads && !asks_for_help(&own) {
        features.push("download");
    }
    if matches!(binary, "train" | "tune" | "experiment") && own.contains(&"folder") {
        features.push("images");
    }
    if binary == "finetune" && own.first() == Some(&"images") {
        features.push("images");
    }
    if binary == "bench" && own.first() == Some(&"learner") {
        features.push("train");
    }
    if binary == "experiment" && own.first() == Some(&"finetune-gain") {
        features.push("finetune");
    }
    Ok(features)
}

/// Returns whether the program only prints its options.
fn asks_for_help(args: &[&str]) -> bool {
    args.iter().any(|arg| matches!(*arg, "-h" | "--help" | "-V" | "--version"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::workspace::{BENCH, EXPERIMENT, FINETUNE, TRAIN};

    fn of(binary: &str, line: &str, data: bool) -> Vec<&'static str> {
        let mut programs = [TRAIN, TUNE, FINETUNE, BENCH, EXPERIMENT].into_iter();
        let program = programs.find(|program| program.binary == binary).unwrap();
        let args: Vec<_> = line.split_whitespace().map(String::from).collect();
        of_run(binary, &words(program, &args), data).unwrap_or_default()
    }

    #[test]
    fn the_default_run_adds_nothing() {
        assert!(of("train", "", false).is_empty());
        assert!(of("train", "--epsilon 3 --backend flex", false).is_empty());
        assert!(of("train", "fashion-mnist --data-dir d", false).is_empty());
    }

    #[test]
    fn a_backend_is_a_feature() {
        assert_eq!(of("train", "--backend ndarray", false), ["ndarray"]);
        assert_eq!(of("bench", "step --backend=wgpu", false), ["wgpu"]);
        assert_eq!(of("train", "--backend cuda", false), ["cuda"]);
    }

    #[test]
    fn mnist_is_downloaded_only_without_a_folder() {
        assert_eq!(of("train", "mnist", false), ["download"]);
        assert_eq!(of("experiment", "accuracy-epsilon mnist", false), ["download"]);
        assert_eq!(of("train", "mnist --download", true), ["download"]);
        assert!(of("train", "mnist", true).is_empty());
        assert!(of("train", "mnist --data-dir d", false).is_empty());
        assert!(of("train", "--data-dir=d mnist", false).is_empty());
        assert!(of("train", "mnist --help", false).is_empty());
    }

    #[test]
    fn folders_of_images_need_decoders() {
        assert_eq!(of("train", "folder --data-dir d", false), ["images"]);
        assert_eq!(of("train", "folder --backend ndarray", false), ["ndarray", "images"]);
        assert_eq!(of("experiment", "accuracy-epsilon folder", false), ["images"]);
        assert_eq!(of("finetune", "images --data d", false), ["images"]);
        assert!(of("finetune", "classify --data images.csv", false).is_empty());
    }

    #[test]
    fn the_trainings_of_a_search_have_their_options_after_two_dashes() {
        let line = "--choose lr=0.3,1 -- folder --data-dir d --backend cuda";
        assert_eq!(of("tune", line, false), ["cuda", "images"]);
        assert_eq!(of("tune", "-- mnist", false), ["download"]);
        assert!(of("train", "digits -- mnist", false).is_empty());
    }

    #[test]
    fn a_recipe_names_its_data_set_unless_the_command_line_does() {
        assert_eq!(of("train", "--recipe mnist-cnn", false), ["download"]);
        assert_eq!(of("tune", "--choose lr=1 -- --recipe mnist-cnn", false), ["download"]);
        let line = "--recipe=imagenet-nf-resnet-50 --data-dir d --backend cuda";
        assert_eq!(of("train", line, false), ["cuda", "images"]);
        assert!(of("train", "--recipe mnist-cnn --data-dir d", false).is_empty());
        assert!(of("train", "digits --recipe mnist-cnn", false).is_empty());
        assert!(of("train", "--recipe none", false).is_empty());
    }

    #[test]
    fn the_command_line_has_the_last_word_over_a_recipe() {
        let path = std::env::temp_dir().join(format!("xtask-recipe-{}.toml", std::process::id()));
        std::fs::write(&path, "dataset = \"folder\"\nbackend = \"wgpu\"\nsteps = 3\n").unwrap();
        let name = path.display();
        assert_eq!(of("train", &format!("--preset {name}"), false), ["wgpu", "images"]);
        let line = format!("--preset {name} --backend ndarray");
        assert_eq!(of("train", &line, false), ["ndarray", "images"]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_experiment_that_fine_tunes_needs_the_program() {
        assert_eq!(of("experiment", "finetune-gain --data d", false), ["finetune"]);
        assert!(of("experiment", "tan-privacy", false).is_empty());
    }

    #[test]
    fn the_benchmark_of_the_learner_needs_the_learner() {
        assert_eq!(of("bench", "learner", false), ["train"]);
        assert!(of("train", "learner", false).is_empty());
    }

    #[test]
    fn an_unknown_backend_is_refused() {
        assert!(of_run("train", &["--backend".into(), "tpu".into()], false).is_err());
    }
}
