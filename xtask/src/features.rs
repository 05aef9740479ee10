//! The features that the arguments of a program ask for.

use crate::backend::Backend;

/// Returns the features that a run with these arguments needs beyond the default ones.
///
/// `environment_has_data` says whether the environment names a folder of data sets.
///
/// # Errors
///
/// Returns a message if `--backend` names no backend.
pub(crate) fn of_run(
    binary: &str,
    args: &[String],
    environment_has_data: bool,
) -> Result<Vec<&'static str>, String> {
    let mut features: Vec<_> =
        Backend::among(args)?.and_then(Backend::feature).into_iter().collect();
    let own: Vec<_> = args.iter().map(String::as_str).take_while(|arg| *arg != "--").collect();
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
    if binary == "train" && own.contains(&"folder") {
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
    use super::*;

    fn of(binary: &str, line: &str, data: bool) -> Vec<&'static str> {
        let args: Vec<_> = line.split_whitespace().map(String::from).collect();
        of_run(binary, &args, data).unwrap_or_default()
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
        assert_eq!(of("experiment", "batch-clipping mnist", false), ["download"]);
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
        assert_eq!(of("finetune", "images --data d", false), ["images"]);
        assert!(of("finetune", "classify --data images.csv", false).is_empty());
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
