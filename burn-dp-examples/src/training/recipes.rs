//! Recipes: options of a training run, as a file.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use toml::{Table, Value};

use super::TrainError;

/// The recipes that have a name.
const KNOWN: [(&str, &str); 6] = [
    ("mnist-cnn", include_str!("../../recipes/mnist-cnn.toml")),
    ("mnist-scattering", include_str!("../../recipes/mnist-scattering.toml")),
    ("mnist-scattering-1", include_str!("../../recipes/mnist-scattering-1.toml")),
    ("cifar10-wrn-16-4-1", include_str!("../../recipes/cifar10-wrn-16-4-1.toml")),
    ("cifar10-wrn-16-4-8", include_str!("../../recipes/cifar10-wrn-16-4-8.toml")),
    ("imagenet-nf-resnet-50", include_str!("../../recipes/imagenet-nf-resnet-50.toml")),
];

/// The key of the data set, which has no name on the command line.
const DATASET: &str = "dataset";

/// The option that names a recipe.
const RECIPE: &str = "--recipe";

/// Another name of the same option.
const PRESET: &str = "--preset";

/// Replaces `--recipe NAME` with the options of the recipe that the command line does not set.
///
/// # Arguments
///
/// - `words`: the command line, the name of the program included
/// - `dataset`: the data set that the command line names
///
/// # Errors
///
/// Returns [`TrainError::Option`] if the recipe is not known or cannot be read, or if a value is
/// not an option.
pub(super) fn expanded(
    mut words: Vec<OsString>,
    dataset: Option<&str>,
) -> Result<Vec<OsString>, TrainError> {
    let joined = |word: &OsString| {
        let (name, recipe) = word.to_str()?.split_once('=')?;
        [RECIPE, PRESET].contains(&name).then(|| OsString::from(recipe))
    };
    let is_option = |word: &OsString| word == RECIPE || word == PRESET || joined(word).is_some();
    let mut recipe = None;
    while let Some(at) = words.iter().position(is_option) {
        if recipe.is_some() {
            return Err(TrainError::option(RECIPE, "is given twice; leave one of them out"));
        }
        let word = words.remove(at);
        recipe = match joined(&word) {
            Some(name) => Some(name),
            None if at < words.len() => Some(words.remove(at)),
            None => {
                let reason = format!("needs a file, or one of {}", names());
                return Err(TrainError::option(RECIPE, reason));
            }
        };
    }
    let Some(recipe) = recipe else { return Ok(words) };
    let is_given = |name: &str| {
        let option = format!("--{name}");
        let with_value =
            |word: &str| word.strip_prefix(&option).is_some_and(|r| r.starts_with('='));
        words.iter().filter_map(|word| word.to_str()).any(|word| word == option || with_value(word))
    };
    let options = options(&recipe)?.into_iter();
    let options = options.filter(|(name, _)| match name.as_str() {
        DATASET => dataset.is_none(),
        name => !is_given(name),
    });
    let options: Vec<OsString> = options.map(|(_, word)| word.into()).collect();
    // At the front, because words after an incomplete option would be its value.
    let first = 1.min(words.len());
    words.splice(first..first, options);
    Ok(words)
}

/// Returns the names of the options of a recipe, with their words on a command line.
fn options(recipe: &OsStr) -> Result<Vec<(String, String)>, TrainError> {
    let refused = |reason: String| {
        let recipe = recipe.display();
        TrainError::option(RECIPE, format!("{recipe} {reason}"))
    };
    let known = KNOWN.iter().find(|(name, _)| recipe == *name).map(|(_, text)| (*text).into());
    let text = match known {
        Some(text) => text,
        None if Path::new(recipe).is_file() => {
            let text = std::fs::read_to_string(recipe);
            text.map_err(|error| refused(format!("cannot be read: {error}")))?
        }
        None => return Err(refused(format!("is neither a file nor one of {}", names()))),
    };
    let table: Table = text.parse().map_err(|error| refused(format!("is not TOML: {error}")))?;
    let mut words = Vec::new();
    for (key, value) in table {
        if [RECIPE, PRESET].iter().any(|option| option.trim_start_matches('-') == key) {
            return Err(refused(format!("names another recipe ({key}); give its options")));
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
    use crate::training::Training;

    fn expand(line: &str) -> Result<Vec<String>, String> {
        let words = ["train"].into_iter().chain(line.split_whitespace()).map(OsString::from);
        let dataset = line.split_whitespace().find(|word| *word == "digits");
        let words = expanded(words.collect(), dataset).map_err(|error| error.to_string())?;
        Ok(words.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn a_file_gives_the_options_that_the_command_line_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        let text = "dataset = \"mnist\"\nlr = 0.5\nsteps = 3\nscattering = true\nresume = false\n";
        std::fs::write(&path, text).unwrap();
        let path = path.display();
        let expected = ["train", "mnist", "--scattering", "--steps=3", "--lr", "2"];
        assert_eq!(expand(&format!("--lr 2 --recipe {path}")).unwrap(), expected);
        assert_eq!(expand(&format!("--lr 2 --preset {path}")).unwrap(), expected);
        let found = expand(&format!("digits --preset={path} --steps=4")).unwrap();
        assert_eq!(found, ["train", "--lr=0.5", "--scattering", "digits", "--steps=4"]);
    }

    #[test]
    fn every_known_recipe_is_a_training() {
        for (name, text) in KNOWN {
            // Each says what was chosen on which data, and the result.
            assert!(text.starts_with("# "), "{name}");
            let words = ["train", "--recipe", name, "--data-dir", "d", "--lr", "3"];
            let Training::Individual(options) = Training::parse(words).unwrap() else {
                panic!("{name}");
            };
            assert_eq!(options.training.lr, Some(3.0), "{name}: the command line wins");
            assert!(options.privacy.epsilon.is_some(), "{name}");
        }
    }

    #[test]
    fn what_is_not_a_recipe_is_refused_by_name() {
        let error = |line: &str| expand(line).unwrap_err();
        assert!(error("--recipe nothing").contains("nothing is neither a file nor one of mnist-"));
        assert!(error("--recipe").contains("needs a file"));
        assert!(error("--recipe a --preset=b").contains("given twice"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bad.toml");
        for (text, expected) in [("lr = = 2", "is not TOML"), ("lr = [2]", "has lr = [2]; a value")]
        {
            std::fs::write(&path, text).unwrap();
            let text = error(&format!("--recipe {}", path.display()));
            assert!(text.contains(expected), "{text}");
        }
        // The parser rejects an unknown option.
        std::fs::write(&path, "learning-rate = 2\n").unwrap();
        let words = ["train".into(), "--recipe".into(), path.into_os_string()];
        let error = Training::parse(words).unwrap_err().to_string();
        assert!(error.contains("--learning-rate"), "{error}");
    }
}
