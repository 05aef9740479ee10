//! Models that are pre-trained on public texts, and fine-tuned.

use std::path::{Path, PathBuf};

use burn_dp_models::Weights;
use burn_dp_models::finetune::{self, Finetune};
use clap::Parser;

use super::{run, write_data};

/// Runs `pretrain` on the sentences; returns the folder of the model.
pub(crate) fn pretrain(folder: &Path, more: &str) -> Result<PathBuf, String> {
    let (data, output) = (write_data(folder, 120), folder.join("pretrained"));
    let words = ["finetune", "pretrain", "--text", "body", "--data", data.to_str().unwrap()];
    let sizes = "--vocabulary-size 300 --layers 1 --width 16 --heads 2 --positions 10 --lr 0.01";
    let words = words.into_iter().chain(["--output", output.to_str().unwrap()]);
    let words = words.chain(sizes.split_whitespace().filter(|_| !more.contains("--width")));
    let words = words.chain(more.split_whitespace());
    let command = Finetune::try_parse_from(words).map_err(|error| error.to_string())?;
    assert!(finetune::run(command).map_err(|error| error.to_string())?.is_none());
    Ok(output)
}

#[test]
fn a_model_that_was_trained_on_public_texts_is_fine_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let perplexity = |steps: usize| {
        let model = pretrain(folder.path(), &format!("--steps {steps}")).unwrap();
        let line = format!(
            "generate --batch-size 32 --noise-multiplier 1 --steps 1 --samples 0 --model {}",
            model.display()
        );
        let figures = run(folder.path(), &line).unwrap();
        assert!(figures["private"] == true, "{figures}");
        figures["before"]["loss"].as_f64().unwrap().exp()
    };
    // Four words that are not certain, and their ends.
    let (random, trained) = (perplexity(0), perplexity(120));
    assert!(random > 200.0 && trained < 10.0, "{random} {trained}");
}

#[test]
fn a_model_of_another_program_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("pretrained");
    std::fs::create_dir(&model).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::write(model.join(name), "{}").unwrap();
        let error = pretrain(folder.path(), "--steps 0").unwrap_err();
        assert!(error.contains("is not free for `finetune pretrain`: "), "{error}");
        assert!(error.contains(&format!("{name} was not written by")), "{error}");
        assert_eq!(std::fs::read_to_string(model.join(name)).unwrap(), "{}");
        std::fs::remove_file(model.join(name)).unwrap();
    }
    // A model that was trained privately has the configuration of its base.
    pretrain(folder.path(), "--steps 0").unwrap();
    let line = "generate --batch-size 32 --noise-multiplier 1 --steps 1 --samples 0 --model";
    run(folder.path(), &format!("{line} {}", model.display())).unwrap();
    std::fs::remove_dir_all(&model).unwrap();
    std::fs::rename(folder.path().join("out/model"), &model).unwrap();
    let error = pretrain(folder.path(), "--steps 0").unwrap_err();
    assert!(error.contains("was not written by `finetune pretrain`"), "{error}");
}

#[test]
fn the_folder_of_a_model_of_public_texts_is_not_the_folder_of_a_private_run() {
    let folder = tempfile::tempdir().unwrap();
    let model = pretrain(folder.path(), "--steps 0").unwrap();
    std::fs::rename(&model, folder.path().join("out")).unwrap();
    let base = pretrain(folder.path(), "--steps 0").unwrap();
    let line = "generate --batch-size 32 --noise-multiplier 1 --steps 1 --samples 0 --model";
    let error = run(folder.path(), &format!("{line} {}", base.display())).unwrap_err();
    assert!(error.contains("is not free for `finetune`: "), "{error}");
    assert!(error.contains("config.json is from an earlier run of `finetune pretrain`"), "{error}");
    assert!(!folder.path().join("out/run.json").exists());
}

#[test]
fn impossible_sizes_are_refused_before_the_training() {
    for (more, expected) in [
        ("--width 30 --heads 4", "--width must be a multiple of the 4 heads, got 30"),
        ("--width 16 --positions 1", "--positions must be at least 2, got 1"),
        ("--width 16 --positions 100000", "--positions must be less than the"),
        ("--width 16 --vocabulary-size 100", "--vocabulary-size must be at least 257, got 100"),
        ("--width 16 --layers 0", "--layers must be at least 1"),
        ("--width 16 --lr 0", "--lr must be"),
        ("--width 16 --predicted-share 0.4", "--predicted-share must be left out"),
        (
            "--width 16 --architecture bert --predicted-share 1",
            "--predicted-share must be between 0 and 1, got 1",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let error = pretrain(folder.path(), more).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(!folder.path().join("pretrained").exists());
    }
}

/// The names of `BertForPreTraining` in transformers 5.24.
fn names_of_bert(layers: usize) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut both = |module: String| {
        names.extend(["weight", "bias"].map(|end| format!("{module}.{end}")));
    };
    both("bert.embeddings.LayerNorm".into());
    for layer in 0..layers {
        for module in [
            "attention.output.LayerNorm",
            "attention.output.dense",
            "attention.self.key",
            "attention.self.query",
            "attention.self.value",
            "intermediate.dense",
            "output.LayerNorm",
            "output.dense",
        ] {
            both(format!("bert.encoder.layer.{layer}.{module}"));
        }
    }
    both("bert.pooler.dense".into());
    both("cls.seq_relationship".into());
    both("cls.predictions.transform.LayerNorm".into());
    both("cls.predictions.transform.dense".into());
    let tables = ["position", "token_type", "word"];
    names.extend(tables.map(|table| format!("bert.embeddings.{table}_embeddings.weight")));
    names.push("cls.predictions.bias".into());
    names.sort();
    names
}

#[test]
fn a_bert_of_public_texts_has_its_names_and_is_fine_tuned() {
    let folder = tempfile::tempdir().unwrap();
    let model = pretrain(folder.path(), "--architecture bert --steps 200").unwrap();
    let weights = Weights::read(&model).unwrap();
    assert_eq!(weights.tensors().keys().cloned().collect::<Vec<_>>(), names_of_bert(1));
    for way in ["--train full", "--lora 2", "--train probe"] {
        let line = format!(
            "classify --label stars --labels up,down --batch-size 32 --noise-multiplier 0.01 \
             --max-grad-norm 1 --insecure-seed 1 --lr 0.03 --steps 60 {way} --model {}",
            model.display()
        );
        let figures = run(folder.path(), &line).unwrap();
        let accuracy = figures["after"]["accuracy"].as_f64().unwrap();
        assert!(way != "--train full" || accuracy == 1.0, "{way}: {figures}");
    }
    let error = pretrain(folder.path(), "--architecture bert --width 16 --positions 2");
    assert!(error.unwrap_err().contains("--positions must be at least 3, got 2"));
}
