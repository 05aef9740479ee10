//! Recipes: options of a training run, as a file.

use std::path::Path;

use toml::{Table, Value};

use super::TrainError;

/// The recipes that have a name.
const KNOWN: [(&str, &str); 13] = [
    ("mnist-cnn", include_str!("../../recipes/mnist-cnn.toml")),
    ("mnist-scattering", include_str!("../../recipes/mnist-scattering.toml")),
    ("mnist-scattering-1", include_str!("../../recipes/mnist-scattering-1.toml")),
    ("cifar10-scattering", include_str!("../../recipes/cifar10-scattering.toml")),
    ("cifar10-scattering-8", include_str!("../../recipes/cifar10-scattering-8.toml")),
    ("cifar10-batch-clipping", include_str!("../../recipes/cifar10-batch-clipping.toml")),
    ("cifar10-batch-clipping-2", include_str!("../../recipes/cifar10-batch-clipping-2.toml")),
    ("cifar10-wrn-16-4-1", include_str!("../../recipes/cifar10-wrn-16-4-1.toml")),
    ("cifar10-wrn-16-4-8", include_str!("../../recipes/cifar10-wrn-16-4-8.toml")),
    ("cifar10-wrn-16-4-simulated", include_str!("../../recipes/cifar10-wrn-16-4-simulated.toml")),
    ("imagenet-nf-resnet-50", include_str!("../../recipes/imagenet-nf-resnet-50.toml")),
    ("imdb-transformer", include_str!("../../recipes/imdb-transformer.toml")),
    ("shakespeare-users", include_str!("../../recipes/shakespeare-users.toml")),
];

/// The key of the data set, which has no name on the command line.
const DATASET: &str = "dataset";

/// Returns the names of the options of a recipe for `command`, with their words on a command line.
///
/// # Errors
///
/// Returns [`TrainError::Option`] if the recipe is not known or cannot be read, or if a value is
/// not an option.
pub(super) fn options(
    recipe: &Path,
    command: &clap::Command,
) -> Result<Vec<(String, String)>, TrainError> {
    let refused =
        |reason: String| TrainError::option("--recipe", format!("{} {reason}", recipe.display()));
    let known =
        KNOWN.iter().find(|(name, _)| recipe == Path::new(name)).map(|(_, text)| (*text).into());
    let text = match known {
        Some(text) => text,
        None if recipe.is_file() => {
            let text = std::fs::read_to_string(recipe);
            text.map_err(|error| refused(format!("cannot be read: {error}")))?
        }
        None => return Err(refused(format!("is neither a file nor one of {}", names()))),
    };
    let table: Table = text.parse().map_err(|error| refused(format!("is not TOML: {error}")))?;
    let mut words = Vec::new();
    for (key, value) in table {
        if ["recipe", "preset"].contains(&key.as_str()) {
            return Err(refused(format!("names another recipe ({key}); give its options")));
        }
        let argument = command.get_arguments().find(|one| one.get_long() == Some(key.as_str()));
        if let Value::Boolean(truth) = value {
            let reason = match argument {
                _ if key == DATASET => format!("has {key} = {truth}; give a name"),
                None => format!("has {key} = {truth}, but there is no option --{key}"),
                Some(one) if one.get_action().takes_values() => {
                    format!("has {key} = {truth}; --{key} needs a value")
                }
                Some(_) if truth => String::new(),
                Some(_) => continue,
            };
            if !reason.is_empty() {
                return Err(refused(reason));
            }
        }
        let value = match value {
            Value::Boolean(true) => None,
            Value::Boolean(false) => continue,
            Value::String(text) => Some(text),
            Value::Integer(number) => Some(number.to_string()),
            Value::Float(number) => Some(number.to_string()),
            value => {
                let reason =
                    format!("has {key} = {value}; a value is a text, a number, true or false");
                return Err(refused(reason));
            }
        };
        let word = match value {
            Some(value) if key == DATASET => value,
            Some(value) => format!("--{key}={value}"),
            None => format!("--{key}"),
        };
        words.push((key, word));
    }
    Ok(words)
}

fn names() -> String {
    KNOWN.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::training::options::DatasetName;
    use crate::training::{Mode, TrainOptions};

    fn read(line: &str) -> Result<TrainOptions, String> {
        let words = ["train"].into_iter().chain(line.split_whitespace());
        TrainOptions::read(words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_gives_the_options_that_the_command_line_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        let text = "dataset = \"mnist\"\nlr = 0.5\nsteps = 3\nscattering = true\nresume = false\n\
                    public-data = \"digits\"\nmomentum = -1\n";
        std::fs::write(&path, text).unwrap();
        let path = path.display();
        for line in [format!("--lr 2 --recipe {path}"), format!("--preset={path} --lr=2")] {
            let options = read(&line).unwrap();
            assert_eq!(options.data.dataset, DatasetName::Mnist);
            assert_eq!((options.examples.lr, options.individual.steps), (Some(2.0), Some(3)));
            assert!(options.inputs.scattering && !options.run.resume);
            // It counts as given.
            assert!(options.given.first_of(&["--scattering"]).is_some());
            assert_eq!(options.given.first_of(&["--momentum"]), Some(("--momentum", "-1")));
        }
        let options = read(&format!("digits --recipe {path} --steps=4 --public-dir d")).unwrap();
        assert_eq!(options.data.dataset, DatasetName::Digits);
        assert_eq!((options.examples.lr, options.individual.steps), (Some(0.5), Some(4)));
        assert_eq!(options.data.public_data, Some(DatasetName::Digits));
    }

    #[test]
    fn a_recipe_may_choose_the_training_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, "clipping = \"batch\"\nmini-sets = 2\n").unwrap();
        let line = format!("--recipe {}", path.display());
        let options = read(&line).unwrap();
        assert_eq!((options.mode(), options.mini_sets.mini_sets), (Mode::Batch, 2));
        assert_eq!(options.run.output, Path::new("out/batch-clipping"));
        assert_eq!(read(&format!("{line} --clipping flat")).unwrap().mode(), Mode::Individual);
    }

    #[test]
    fn the_command_line_replaces_what_contradicts_it() {
        for (line, left_out) in [
            ("--steps 2", "--epochs"),
            ("--optimizer adam", "--momentum"),
            ("--non-private", "--delta"),
        ] {
            let options = read(&format!("--recipe mnist-cnn --data-dir d {line}")).unwrap();
            assert_eq!(options.given.first_of(&[left_out]), None, "{line}");
            options.check_mode(&[Mode::Individual, Mode::Ordinary]).unwrap();
        }
    }

    #[test]
    fn every_known_recipe_is_a_training() {
        for (name, text) in KNOWN {
            // Each says what was chosen on which data, and the result.
            assert!(text.starts_with("# "), "{name}");
            let (mode, lr) = match name {
                "shakespeare-users" => (Mode::Users, "--local-lr 3"),
                _ if name.starts_with("cifar10-batch-clipping") => (Mode::Batch, "--lr 3"),
                _ => (Mode::Individual, "--lr 3"),
            };
            let options = read(&format!("--recipe {name} --data-dir d {lr}")).unwrap();
            assert_eq!(options.mode(), mode, "{name}");
            options.check_mode(&[mode]).unwrap();
            let lr = options.examples.lr.or(options.local_lr);
            assert_eq!(lr, Some(3.0), "{name}: the command line wins");
            // A simulation states the noise that it scales down; batch clipping, that of its paper.
            let states_noise = name.ends_with("-simulated") || mode == Mode::Batch;
            assert_eq!(options.privacy.epsilon.is_some(), !states_noise, "{name}");
            assert_eq!(options.privacy.noise_multiplier.is_some(), states_noise, "{name}");
        }
    }

    #[test]
    fn the_noise_of_batch_clipping_is_divided_by_the_root_of_the_number_of_layers() {
        for (name, layers) in [("cifar10-batch-clipping", 41.0), ("cifar10-batch-clipping-2", 9.0)]
        {
            let options = read(&format!("--recipe {name} --data-dir d")).unwrap();
            let model = options.model.unwrap().second("--model", "batch").unwrap();
            assert_eq!(model.layers(3, 10).unwrap() as f64, layers);
            let moved = &options.augmentation;
            assert_eq!((moved.augmentation, moved.crop, moved.mirror), (Some(1), Some(4), true));
            let noise = options.privacy.noise_multiplier.unwrap();
            assert!(
                (noise / (2.0 * 0.01875 / layers.sqrt()) - 1.0).abs() < 1e-5,
                "{name}: {noise}"
            );
        }
    }

    #[test]
    fn the_help_names_every_known_recipe() {
        let command = <TrainOptions as clap::CommandFactory>::command();
        let mut arguments = command.get_arguments();
        let argument = arguments.find(|one| one.get_long() == Some("recipe")).unwrap();
        let help = argument.get_help().unwrap().to_string();
        let words: Vec<_> = help.split([' ', ',', '.', ':']).collect();
        for (name, _) in KNOWN {
            assert!(words.contains(&name), "{name}: {help}");
        }
    }

    #[test]
    fn what_is_not_a_recipe_is_refused_by_name() {
        let error = |line: &str| read(line).unwrap_err();
        assert!(error("--recipe nothing").contains("nothing is neither a file nor one of mnist-"));
        assert!(error("--recipe").contains("a value is required for '--recipe"));
        assert!(error("--recipe a --preset=b").contains("cannot be used multiple times"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.toml");
        for (text, expected) in [
            ("lr = = 2", "is not TOML"),
            ("lr = [2]", "has lr = [2]; a value"),
            ("preset = \"mnist-cnn\"", "names another recipe (preset)"),
            // The parser rejects an unknown option, and a value.
            ("learning-rate = 2", "bad.toml: unexpected argument '--learning-rate' found"),
            ("lr = \"x\"", "bad.toml: invalid value 'x' for '--lr <LR>'"),
            ("epochs = -1", "bad.toml: invalid value '-1' for '--epochs <"),
            ("output = true", "has output = true; --output needs a value"),
            ("lr = false", "has lr = false; --lr needs a value"),
            ("dataset = true", "has dataset = true; give a name"),
            ("scaterring = false", "there is no option --scaterring"),
        ] {
            std::fs::write(&path, text).unwrap();
            let text = error(&format!("--recipe {}", path.display()));
            assert!(text.contains(expected), "{text}");
        }
    }
}
