//! Canaries in the program.

use burn_dp_models::finetune::{self, Finetune};
use clap::Parser;
use serde_json::Value;

use super::pretrain::pretrain;
use super::{figures, run};

/// Options of training that is far from private.
const NO_PRIVACY: &str = "--noise-multiplier 0.001 --insecure-seed 1 --max-grad-norm 1 --lr 0.01 \
                          --batch-size 40 --samples 0 --max-length 40 --canary-candidates 255";

/// A small model with a tokenizer of bytes, with room for a canary.
const SIZES: &str = "--vocabulary-size 300 --layers 1 --width 16 --heads 2 --positions 40 --steps";

#[test]
fn a_canary_that_was_memorized_has_the_largest_exposure() {
    let folder = tempfile::tempdir().unwrap();
    let model = pretrain(folder.path(), &format!("{SIZES} 0")).unwrap();
    let line = format!(
        "generate {NO_PRIVACY} --model {} --steps 80 --canaries 1 --canary-repetitions 120",
        model.display()
    );
    let found = run(folder.path(), &line).unwrap();
    let exposure = &found["generated"]["exposure"];
    let canary = &exposure["canaries"][0];
    assert!(canary["text"].as_str().unwrap().starts_with("The secret number is "), "{found}");
    assert_eq!((&canary["rank"], &canary["exposure"]), (&1.0.into(), &8.0.into()), "{exposure}");
    assert_eq!((&exposure["candidates"], &exposure["largest"]), (&256.into(), &8.0.into()));
    // The model writes it, and none of the texts that it has not seen.
    let written = serde_json::json!({ "texts": 100, "canaries": 1, "others": 0 });
    assert_eq!(exposure["written"], written, "{exposure}");
    // They count as rows, and none of them is evaluated.
    let tested = found["rows"][1].as_u64().unwrap();
    assert!((1..40).contains(&tested), "{found}");
    assert_eq!((&found["units"], &found["rows"][0]), (&(240 - tested).into(), &found["units"]));
    let statement = std::fs::read_to_string(folder.path().join("out/privacy.txt")).unwrap();
    assert!(
        statement.contains(
            "1 synthetic canary text (\"The secret number is ...\"), each repeated in 120 rows"
        ),
        "{statement}"
    );
}

/// The exposures that `finetune exposure` writes.
fn exposure(folder: &std::path::Path, line: &str) -> Result<Value, String> {
    let file = folder.join("exposure.json");
    let words = ["finetune", "exposure", "--json", file.to_str().unwrap()];
    let words = words.into_iter().chain(line.split_whitespace());
    let command = Finetune::try_parse_from(words).map_err(|error| error.to_string())?;
    finetune::run(command).map_err(|error| error.to_string())?;
    Ok(serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap())
}

#[test]
fn a_model_that_has_not_seen_the_canaries_has_the_exposure_by_chance() {
    let folder = tempfile::tempdir().unwrap();
    let model = pretrain(folder.path(), &format!("{SIZES} 0")).unwrap();
    let line = format!("--model {} --canaries 100 --canary-candidates 255", model.display());
    let found = exposure(folder.path(), &line).unwrap();
    let (mean, by_chance) = (found["mean"].as_f64().unwrap(), found["by_chance"].as_f64().unwrap());
    // The deviation of the mean of 100 exponential variables is a tenth of their mean.
    assert!((mean - by_chance).abs() < 0.5 && (1.3..1.45).contains(&by_chance), "{found}");
    assert_eq!(found["canaries"].as_array().unwrap().len(), 100);
    let written = serde_json::json!({ "texts": 100, "canaries": 0, "others": 0 });
    assert_eq!(found["written"], written, "{found}");
    for (line, expected) in [
        ("--model none".to_string(), "config.json"),
        (format!("--model {} --canaries 0", model.display()), "--canaries must be at least 1"),
    ] {
        let error = exposure(folder.path(), &line).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn users_with_canaries_are_users_and_the_merged_model_has_the_exposure_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let model = pretrain(folder.path(), &format!("{SIZES} 0")).unwrap();
    let line = format!(
        "generate --noise-multiplier 1 --batch-size 10 --samples 0 --max-length 40 --steps 3 \
         --user author --canaries 2 --canary-repetitions 3 --canary-candidates 20 --seed 3 \
         --model {}",
        model.display()
    );
    run(folder.path(), &line).unwrap();
    let found = figures(folder.path());
    assert_eq!(found["units"], 19 + 2);
    let merged = folder.path().join("out/model");
    let line = format!("--model {} --canaries 2 --canary-candidates 20 --seed 3", merged.display());
    let again = exposure(folder.path(), &line).unwrap();
    assert_eq!(again["canaries"], found["generated"]["exposure"]["canaries"]);
    assert_eq!(
        (&again["repetitions"], &found["generated"]["exposure"]["repetitions"]),
        (&0.into(), &3.into())
    );
}
