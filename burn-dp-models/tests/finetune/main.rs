//! The program from its options to the files, on small models.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod canaries;
#[cfg(debug_assertions)]
#[path = "../../../burn-dp/tests/support/ended.rs"]
mod ended;
mod packed;
mod pooler;
mod precision;
mod pretrain;
mod resume;

use burn::module::Module;
use burn::tensor::{Device, TensorData};
use burn_dp_models::{Adapter, Config, Gpt2LanguageModel, LoraTargets, Sequence, Tokens, Weights};
use serde_json::Value;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Sentences with a class that one word decides, by 20 authors.
fn write_data(folder: &Path, rows: usize) -> PathBuf {
    let mut text = String::from("author,body,stars,question\n");
    for row in 0..rows {
        let (word, class) = if row / 3 % 2 == 0 { ("good", "up") } else { ("bad", "down") };
        let noun = ["film", "book"][row % 2];
        text += &format!("{},the {noun} is {word},{class},a {noun}\n", row % 20);
    }
    let path = folder.join("data.csv");
    std::fs::write(&path, text).unwrap();
    path
}

fn run(folder: &Path, line: &str) -> Result<Value, String> {
    run_on(folder, line, 120)
}

/// Runs a command of the program; its first word is the command.
fn run_on(folder: &Path, line: &str, rows: usize) -> Result<Value, String> {
    let output = process(&words(folder, line, rows), None);
    match output.status.success() {
        true => Ok(figures(folder)),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Runs the program in a separate process, because the generator of new parameters belongs to the
/// process.
fn process(words: &[String], variable: Option<(&str, &str)>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finetune"));
    command.args(&words[1..]).envs(variable).output().unwrap()
}

/// The figures of the last run.
fn figures(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("out/run.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Writes the data, and returns the words of a command.
fn words(folder: &Path, line: &str, rows: usize) -> Vec<String> {
    let data = write_data(folder, rows);
    let output = folder.join("out");
    let command = line.split_whitespace().next().unwrap();
    let rest = line.split_whitespace().skip(1);
    let words = match command {
        "images" => vec!["finetune", command, "--data", folder.to_str().unwrap()],
        _ => {
            let data = data.to_str().unwrap();
            vec!["finetune", command, "--data", data, "--text", "body"]
        }
    };
    let words = words.into_iter().map(String::from);
    let words = words.chain(["--output".into(), output.to_string_lossy().into()]);
    let defaults = [("--steps", "--epochs 2"), ("--max-length", "--max-length 10")];
    let is_text = command != "images";
    let defaults = defaults.into_iter().filter(|(name, default)| {
        !line.contains(name) && (is_text || !default.contains("--max-length"))
    });
    let defaults = defaults.flat_map(|(_, default)| default.split_whitespace());
    let words = words.chain(defaults.map(String::from));
    let rest = rest.map(|word| match golden(word) {
        path if path.is_dir() => path.to_string_lossy().into_owned(),
        _ => word.to_string(),
    });
    words.chain(rest).collect()
}

const CLASSIFY: &str = "--label stars --labels up,down --batch-size 32 --noise-multiplier 1";

#[test]
fn every_way_trains_a_classifier_and_states_its_privacy() {
    for (way, trained) in [
        ("bert-classify --train full", None),
        ("gpt2-classify --train bias", None),
        ("bert-classify --train head --blocks 1", None),
        ("gpt2-classify --lora 2 --lora-layers c_attn,mlp.c_proj=3", Some(384)),
        ("bert-classify --train probe", Some(18)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let figures = run(folder.path(), &format!("classify {CLASSIFY} --model {way}")).unwrap();
        assert!(figures["private"] == true && figures["epsilon"].as_f64().unwrap() > 0.0, "{way}");
        assert_eq!(figures["rows"][0], 108);
        let parameters = figures["trained_parameters"].as_u64().unwrap();
        assert!(parameters < figures["parameters"].as_u64().unwrap() || way.contains("full"));
        if let Some(trained) = trained {
            assert_eq!(parameters, trained, "{way}");
        }
        let out = folder.path().join("out");
        let kind =
            if way.contains("lora") { "adapter/adapter_config.json" } else { "model/config.json" };
        assert!(out.join(kind).is_file(), "{way}");
        assert!(std::fs::read_to_string(out.join("privacy.txt")).unwrap().contains("one example"));
        assert!(!out.join("checkpoints").exists());
    }
}

#[test]
fn a_classifier_learns_with_little_noise() {
    let folder = tempfile::tempdir().unwrap();
    // The seed makes the test the same every time.
    let line = "classify --label stars --labels up,down --model gpt2-classify --batch-size 32 \
                --noise-multiplier 0.2 --insecure-seed 1 --lr 0.01 --physical-batch-size 7 \
                --steps 30";
    let figures = run(folder.path(), line).unwrap();
    assert!(figures["after"]["loss"].as_f64().unwrap() < 0.3, "{figures}");
    assert_eq!((&figures["after"]["accuracy"], &figures["private"]), (&1.0.into(), &false.into()));
}

/// Dark and bright images: 40 to train on.
fn write_images(folder: &Path) {
    for (part, count) in [("train", 20), ("test", 6)] {
        for (class, brightness) in [("bright", 200), ("dark", 40)] {
            let path = folder.join(part).join(class);
            std::fs::create_dir_all(&path).unwrap();
            for index in 0..count {
                let color = image::Rgb([brightness + index, brightness, brightness]);
                let image = image::RgbImage::from_pixel(9, 8, color);
                image.save(path.join(format!("{index}.png"))).unwrap();
            }
        }
    }
}

#[test]
fn a_probe_of_images_trains_the_head_as_training_of_the_head_alone_does() {
    for (model, head) in [("vit-classify", "classifier"), ("resnet-classify", "fc")] {
        let folder = tempfile::tempdir().unwrap();
        write_images(folder.path());
        let [alone, probe] = ["head", "probe"].map(|way| {
            let line = format!(
                "images --model {model} --image-size 32 --batch-size 20 --noise-multiplier 0.2 \
                 --insecure-seed 2 --steps 6 --train {way}"
            );
            let figures = run(folder.path(), &line).unwrap();
            assert!(figures["trained_parameters"].as_u64() < figures["parameters"].as_u64());
            Weights::read(&folder.path().join("out/model")).unwrap()
        });
        let names = |weights: &Weights| weights.tensors().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&probe), names(&alone));
        let values = |weights: &Weights, name: &String| -> Vec<f32> {
            weights.tensors()[name].iter().collect()
        };
        for name in names(&alone) {
            let tolerance = if name.starts_with(head) { 1e-4 } else { 0.0 };
            for (found, expected) in values(&probe, &name).iter().zip(values(&alone, &name)) {
                assert!(
                    (found - expected).abs() <= tolerance,
                    "{model} {name}: {found} {expected}"
                );
            }
        }
        let base = Weights::read(&golden(model)).unwrap();
        let weight = format!("{head}.weight");
        assert_ne!(values(&probe, &weight), values(&base, &weight));
    }
}

#[test]
fn classifiers_of_images_learn_and_keep_their_names() {
    for (model, options, layers, names) in [
        (
            "vit-classify",
            "--lr 0.01",
            "query,output.dense,projection=3",
            // Of checkpoints and `transformers` 4, and of `transformers` 5.
            vec!["vit.encoder.layer.1.attention.attention.query", "vit.layers.1.attention.q_proj"],
        ),
        ("resnet-classify", "--lr 0.01 --image-size 32", "layer2.0.conv2", vec!["layer2.0.conv2"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write_images(folder.path());
        let line = format!(
            "images --model {model} --batch-size 20 --noise-multiplier 0.2 --insecure-seed 2 \
             --steps 20 {options}"
        );
        let figures = run(folder.path(), &line).unwrap();
        assert_eq!(figures["after"]["accuracy"], 1.0, "{figures}");
        let weights = Weights::read(&folder.path().join("out/model")).unwrap();
        let base = Weights::read(&golden(model)).unwrap();
        let names_of = |weights: &Weights| weights.tensors().keys().cloned().collect::<Vec<_>>();
        let is_kept = |name: &String| !name.ends_with("num_batches_tracked");
        let expected = names_of(&base).into_iter().filter(is_kept).collect::<Vec<_>>();
        assert_eq!(names_of(&weights), expected);

        let line = format!("{line} --lora 2 --lora-layers {layers}");
        run(folder.path(), &line).unwrap();
        let file = folder.path().join("out/adapter").join(Adapter::WEIGHTS_FILE);
        let adapter = Weights::read_file(&file).unwrap();
        let figures = run(folder.path(), &format!("{line} --merge")).unwrap();
        assert!(figures["trained_parameters"].as_u64() < figures["parameters"].as_u64());
        let merged = Weights::read(&folder.path().join("out/model")).unwrap();
        assert_eq!(merged.tensors().len(), weights.tensors().len());
        // The two runs have one seed: their adapters are the same.
        let values = |data: &TensorData| data.iter::<f64>().collect::<Vec<_>>();
        let stored = format!("{}.weight", names[0]);
        let kernel = base.tensors()[&stored].shape().to_vec();
        for name in &names {
            let [a, b] = ["A", "B"].map(|factor| {
                &adapter.tensors()[&format!("base_model.model.{name}.lora_{factor}.weight")]
            });
            // Factors of a convolution: of its kernel, and of single pixels.
            let ones = vec![1; kernel.len() - 2];
            assert_eq!(a.shape().to_vec(), [&[2], &kernel[1..]].concat());
            assert_eq!(b.shape().to_vec(), [vec![kernel[0], 2], ones].concat());
            let [a, b] = [a, b].map(values);
            let size = a.len() / 2;
            let [base, merged] = [&base, &merged].map(|of| values(&of.tensors()[&stored]));
            for (index, merged) in merged.into_iter().enumerate() {
                let (row, column) = (index / size, index % size);
                let product: f64 = (0..2).map(|r| b[2 * row + r] * a[r * size + column]).sum();
                assert!((merged - base[index] - product).abs() < 1e-5, "{index}");
            }
            assert!(b.iter().any(|value| value.abs() > 1e-4), "{b:?}");
        }
    }
}

#[test]
fn users_are_the_unit_of_privacy_and_texts_are_generated() {
    let folder = tempfile::tempdir().unwrap();
    let line = "generate --model gpt2-generate --user author --user-rows 3 --batch-size 6 \
                --noise-multiplier 1 --prompt question --loss sum --lora 2 --samples 2 \
                --sample-length 3";
    let output = process(&words(folder.path(), line, 120), None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures = figures(folder.path());
    assert_eq!((figures["units"].as_u64(), figures["rows"][1].as_u64()), (Some(19), Some(6)));
    // The number of rows of users, and of their tokens, is private.
    assert!(figures["rows"][0].is_null() && figures["tokens_per_second"].is_null());
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains(" units/s") && !printed.contains("tokens/s"), "{printed}");
    assert!(figures["unit"].as_str().unwrap().contains("user"), "{figures}");
    assert_eq!(figures["generated"]["samples"].as_array().unwrap().len(), 2);
    assert!(figures["generated"]["bleu"].is_number() && figures["perplexity"].is_number());
}

#[test]
fn merged_weights_and_adapters_of_one_run_give_the_same_scores() {
    let line = "generate --model gpt2-generate --batch-size 32 --noise-multiplier 1 --lora 2 \
                --insecure-seed 5 --samples 0";
    let (separate, merged) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(separate.path(), line).unwrap();
    run(merged.path(), &format!("{line} --merge")).unwrap();
    let (device, base) = (Device::default(), golden("gpt2-generate"));
    let Config::Gpt2(config) = Config::read(&base).unwrap() else { panic!("not a GPT-2") };
    let load = |folder: &Path| {
        let model = Gpt2LanguageModel::new(&config, &device);
        Weights::read(folder).unwrap().load_into(model, None).unwrap()
    };
    let plain = load(&base);
    let targets = LoraTargets::new(&plain, &[("c_attn".into(), 2)], 2.0, None).unwrap();
    let file = separate.path().join("out/adapter").join(Adapter::WEIGHTS_FILE);
    let weights = Weights::read_file(&file).unwrap();
    let adapted = Adapter::load_into(&weights, targets.attach(plain.clone()).unwrap()).unwrap();
    let merged = load(&merged.path().join("out/model"));
    let text = Sequence { ids: vec![5, 6, 7, 8], given: 1 };
    let tokens = Tokens::new(&[&text], &device);
    let scores = |model: &Gpt2LanguageModel| {
        model.forward(&tokens).into_data().iter::<f64>().collect::<Vec<_>>()
    };
    let distance =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let trained = scores(&adapted);
    assert!(distance(&trained, &scores(&merged)) < 1e-5);
    assert!(distance(&trained, &scores(&plain)) > 1e-4);
    assert!(adapted.num_params() > merged.num_params());
}

#[cfg(debug_assertions)]
#[test]
fn an_earlier_model_stays_until_the_new_one_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let line = "generate --model gpt2-generate --batch-size 32 --noise-multiplier 1 --steps 1 \
                --samples 0";
    run(folder.path(), line).unwrap();
    let at = |name: &str| folder.path().join("out").join(name);
    let before = std::fs::read(at("model/model.safetensors")).unwrap();
    let words = words(folder.path(), &format!("{line} --lora 2"), 120);
    let mut found = 0;
    for number in 1..100 {
        // No space for this file and later ones.
        let full = ("BURN_DP_TEST_FULL_AT_FILE", number.to_string());
        let output = process(&words, Some((full.0, &full.1)));
        if output.status.success() {
            break;
        }
        let error = String::from_utf8_lossy(&output.stderr);
        if error.contains("adapter_") {
            found += 1;
            assert_eq!(std::fs::read(at("model/model.safetensors")).unwrap(), before, "{error}");
            assert!(at("privacy.json").is_file(), "{error}");
        }
        let _ = std::fs::remove_dir_all(at("checkpoints"));
        let _ = std::fs::remove_file(folder.path().join("out.key"));
    }
    // Both files of the adapter.
    assert_eq!(found, 2);
    assert!(!at("model").exists() && at("adapter/adapter_config.json").is_file());
}

#[test]
fn a_run_is_not_resumed_with_other_data() {
    let folder = tempfile::tempdir().unwrap();
    let line = "generate --model gpt2-generate --batch-size 32 --noise-multiplier 1 --steps 4 \
                --samples 0";
    // The files of the end cannot be written, so that the checkpoints of the run remain.
    let blocked = folder.path().join("out/model/config.json/x");
    std::fs::create_dir_all(&blocked).unwrap();
    let error = run(folder.path(), line).unwrap_err();
    assert!(error.contains("config.json was not written by `finetune`, which would"), "{error}");
    // The name alone makes no run.
    std::fs::write(folder.path().join("out/run.json"), "{}").unwrap();
    std::fs::create_dir(folder.path().join("out/checkpoints")).unwrap();
    let error = run(folder.path(), line).unwrap_err();
    assert!(error.contains("config.json was not written by `finetune`"), "{error}");
    let figures = folder.path().join("out/run.json");
    std::fs::write(&figures, r#"{"private": true}"#).unwrap();
    let error = run(folder.path(), line).unwrap_err();
    assert!(error.contains("run.json is from an earlier run of `train`; give another"), "{error}");
    std::fs::write(figures, r#"{"private": true, "task": "generate"}"#).unwrap();
    let error = run(folder.path(), line).unwrap_err();
    assert!(error.contains("config.json") && !error.contains("is not free"), "{error}");
    std::fs::remove_dir_all(folder.path().join("out/model")).unwrap();
    let error = run(folder.path(), line).unwrap_err();
    assert!(error.contains("--resume must be given"), "{error}");
    let error = run_on(folder.path(), &format!("{line} --resume"), 119).unwrap_err();
    assert!(error.contains("the checksum of the data"), "{error}");
    let error = run(folder.path(), &format!("{line} --resume --lr 1")).unwrap_err();
    assert!(error.contains("--lr was"), "{error}");
    // It has another default of --lr, which was not given.
    let error = run(folder.path(), &format!("{line} --resume --train bias")).unwrap_err();
    assert!(error.contains("--train was full and is now bias"), "{error}");
    let figures = run(folder.path(), &format!("{line} --resume")).unwrap();
    assert_eq!(figures["steps"], 4);
    assert!(folder.path().join("out/model/model.safetensors").is_file());
}

/// The golden ResNet as it is in a dictionary around its state.
fn write_nested_resnet(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let content = std::fs::read(golden("resnet-classify/model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&content).unwrap().tensors();
    let tensors = tensors.into_iter().map(|(name, view)| (format!("state_dict.{name}"), view));
    let content = safetensors::serialize(tensors.collect::<Vec<_>>(), None).unwrap();
    std::fs::write(folder.join("model.safetensors"), content).unwrap();
}

#[test]
fn what_cannot_be_used_is_refused_with_the_value_and_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    write_images(folder.path());
    let nested = folder.path().join("nested");
    write_nested_resnet(&nested);
    for (line, expected) in [
        (format!("classify {CLASSIFY} --model none"), "is not a folder; a model is a folder with"),
        (format!("classify {CLASSIFY} --model vit-classify"), "finetune images"),
        ("images --model gpt2-classify".into(), "this model reads texts"),
        (
            format!("classify {CLASSIFY} --model gpt2-classify --lora 2 --lora-layers query"),
            "c_attn",
        ),
        (format!("classify {CLASSIFY} --model gpt2-classify --train lora"), "--lora must be given"),
        (format!("classify {CLASSIFY} --model gpt2-classify --merge"), "--merge is for adapters"),
        (format!("classify {CLASSIFY} --model gpt2-classify --user nobody"), "no column `nobody`"),
        (
            "classify --model gpt2-classify --label stars --labels up,down --batch-size 1000"
                .into(),
            "at most",
        ),
        (
            "classify --model bert-classify --label stars --labels up,other".into(),
            "data.csv: row 4: `stars` is not one of the classes: \"up\", \"other\"",
        ),
        (
            "classify --model bert-classify --label stars --labels up,down,up".into(),
            "--labels must name each class once, got \"up\" twice",
        ),
        (
            "classify --model bert-classify --label stars --labels up,down,".into(),
            "one of the names is empty: \"up\", \"down\", \"\"",
        ),
        (
            "classify --model bert-classify --label body --labels up,down".into(),
            "column `body` is used for the text and the class",
        ),
        (
            format!("classify {CLASSIFY} --model bert-classify --train head --blocks 9"),
            "--blocks must be at most the 2 blocks of this model, got 9",
        ),
        (format!("classify {CLASSIFY} --model bert-classify --max-length 2"), "2 special tokens"),
        ("generate --model gpt2-generate --temperature nan".into(), "--temperature must be"),
        (
            "generate --model gpt2-generate --prompt question --max-length 2".into(),
            "--max-length must be greater than the prompts of the evaluation",
        ),
        (
            format!("images --model {}", nested.display()),
            "no weights of a ResNet of torchvision: those have names like `conv1.weight` and \
             `layer1.0.conv1.weight`, and the first one here is `state_dict.bn1.bias`",
        ),
        (
            "images --model resnet-classify --batch-size 20 --train head --blocks 1".into(),
            "--blocks is for models with numbered blocks, and a ResNet has none",
        ),
        ("images --model resnet-classify --image-size 0".into(), "--image-size must be at least"),
        (
            format!("classify {CLASSIFY} --model gpt2-classify --lora 0"),
            "--lora must be at least 1, got 0",
        ),
        (
            format!("classify {CLASSIFY} --model gpt2-classify --lora 1000000000000"),
            "--lora must give transformer.h.0.attn.c_attn a rank of at most 8, the smaller side of \
             its weight, got 1000000000000",
        ),
        (
            format!("classify {CLASSIFY} --model gpt2-classify --lora 2 --lora-layers wpe=9"),
            "--lora-layers must give transformer.wpe a rank of at most 8, the smaller side of its",
        ),
        (
            format!("classify {CLASSIFY} --model gpt2-classify --lora 2 --lora-layers c_attn,"),
            "--lora-layers must have a name before each comma and equals sign, got `c_attn,`",
        ),
        (
            format!("classify {CLASSIFY} --model gpt2-classify --user author --user-rows 100000"),
            "--user-rows must be at most 1000 rows of a user in memory at once, got 100000",
        ),
        (
            "generate --model gpt2-generate --samples 18446744073709551615".into(),
            "--samples must be at most 1000000 texts, got",
        ),
        ("classify --model bert-classify --label stars --labels up".into(), "at least two"),
        ("classify --model roberta-classify --label stars".into(), "tokenizer.json"),
        ("generate --model bert-classify".into(), "must be a GPT-2"),
        (
            "generate --model gpt2-generate --train probe".into(),
            "probe is for classifiers; generate",
        ),
        ("generate --model gpt2-generate --delta 0.5".into(), "--delta"),
    ] {
        let error = run(folder.path(), &line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
    assert!(!folder.path().join("out").exists(), "nothing was written");
}

#[test]
fn the_folder_of_an_unfinished_search_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // What `tune --output out` keeps until it ends.
    std::fs::create_dir(folder.path().join("out.search")).unwrap();
    std::fs::write(folder.path().join("out.search/search.json"), "{}").unwrap();
    let line = format!("classify {CLASSIFY} --model bert-classify --train head");
    let error = run(folder.path(), &line).unwrap_err();
    assert!(error.contains("unfinished search") && error.contains("--output"), "{error}");
    assert!(!folder.path().join("out").exists());
}

#[test]
fn a_training_that_diverges_keeps_its_records_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("classify {CLASSIFY} --model bert-classify --lr 1e30");
    let output = process(&words(folder.path(), &line, 120), None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("warning: the training has diverged"), "{printed}");
    // JSON has no value for a loss that is not finite.
    assert!(figures(folder.path())["after"]["loss"].is_null());
    for name in ["ledger.json", "privacy.json"] {
        assert!(folder.path().join("out").join(name).is_file(), "{name}");
    }
}

#[test]
fn spaces_around_the_names_of_classes_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("classify {CLASSIFY} --model bert-classify --steps 1");
    let words = words(folder.path(), &line, 120).into_iter();
    let words = words.map(|word| if word == "up,down" { "up, down".into() } else { word });
    let output = process(&words.collect::<Vec<_>>(), None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(figures(folder.path())["classes"], serde_json::json!(["up", "down"]));
}

#[test]
fn a_head_with_the_same_classes_is_kept_and_the_base_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("classify {CLASSIFY} --train head --insecure-seed 3");
    let first = run(folder.path(), &format!("{line} --model bert-classify --lr 0.1")).unwrap();
    assert_eq!(first["classes"], serde_json::json!(["up", "down"]));
    let model = folder.path().join("out/model");
    let again = format!("{line} --model {}", model.display());
    let error = run(folder.path(), &again).unwrap_err();
    assert!(error.contains("--model") && error.contains("give another --output"), "{error}");
    let weights = std::fs::read(model.join("model.safetensors")).unwrap();

    let other = tempfile::tempdir().unwrap();
    let second = run(other.path(), &again).unwrap();
    assert_eq!(second["before"], first["after"]);
    // The run that made the model is not counted, and the statement says so.
    let statement = std::fs::read_to_string(other.path().join("out/privacy.txt")).unwrap();
    let named = format!("made the pre-trained model ({})", model.display());
    assert!(statement.contains(&named), "{statement}");
    assert_eq!(std::fs::read(model.join("model.safetensors")).unwrap(), weights);
}

#[test]
fn a_public_file_is_evaluated_and_only_its_prompts_are_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let public = tempfile::tempdir().unwrap();
    let test = write_data(public.path(), 7);
    let line = "generate --model gpt2-generate --batch-size 8 --noise-multiplier 1 --steps 1 \
                --delta 1e-3 --prompt question --samples 2 --user author";
    let samples = |figures: &Value| figures["generated"]["samples"].as_array().unwrap().clone();
    let starts_with_prompt = |sample: &Value| sample.as_str().unwrap().starts_with("a ");
    let line_with_test = format!("{line} --test {}", test.display());
    let figures = run(folder.path(), &line_with_test).unwrap();
    assert_eq!(figures["rows"][1], 7);
    assert!(samples(&figures).iter().all(starts_with_prompt), "{figures}");
    let held_out = "about a tenth of the rows (or users) of the data";
    let statement = || std::fs::read_to_string(folder.path().join("out/privacy.txt")).unwrap();
    assert!(!statement().contains(held_out), "{}", statement());

    let figures = run(folder.path(), line).unwrap();
    assert!(figures["generated"]["bleu"].is_number(), "{figures}");
    let prompts = ["a film", "a book"];
    let is_repeated =
        |sample: &Value| prompts.iter().any(|p| sample.as_str().unwrap().starts_with(p));
    assert!(!samples(&figures).iter().any(is_repeated), "{figures}");
    assert!(statement().contains(held_out), "{}", statement());

    let data = folder.path().join("data.csv");
    let copy = public.path().join("copy.csv");
    std::fs::copy(&data, &copy).unwrap();
    for file in [data, copy] {
        let error = run(folder.path(), &format!("{line} --test {}", file.display())).unwrap_err();
        assert!(error.contains("is also the training file"), "{error}");
    }
}

#[test]
fn rows_that_are_held_out_are_announced_before_the_training() {
    let (folder, public) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let test = write_data(public.path(), 7);
    let line = format!("classify {CLASSIFY} --model bert-classify --steps 1 --delta 1e-3");
    for (more, expected) in [
        (String::new(), Some("NOT protected: 12 rows of --data; with --test FILE")),
        ("--user author --batch-size 6".into(), Some("NOT protected: 1 user of --data; with")),
        (format!("--test {}", test.display()), None),
    ] {
        let line = match more.contains("--batch-size") {
            true => line.replace("--batch-size 32", ""),
            false => line.clone(),
        };
        let output = process(&words(folder.path(), &format!("{line} {more}"), 120), None);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(printed.contains("NOT protected"), expected.is_some(), "{printed}");
        assert!(printed.contains(expected.unwrap_or_default()), "{printed}");
        // Held-out rows of private data are not public.
        let legend = "share of correct predictions, rows of the evaluation";
        assert!(printed.contains(legend), "{printed}");
    }
}

#[test]
fn an_adapter_of_the_tied_embedding_changes_both_its_uses() {
    let folder = tempfile::tempdir().unwrap();
    let line = "generate --model gpt2-generate --batch-size 32 --noise-multiplier 1 --lora 2 \
                --lora-layers wte --samples 0 --insecure-seed 5";
    let error = run(folder.path(), line).unwrap_err();
    assert!(error.contains("--merge must be given with an adapter of wte"), "{error}");
    let figures = run(folder.path(), &format!("{line} --merge")).unwrap();
    // 40 tokens of width 8.
    assert_eq!(figures["trained_parameters"], 2 * (40 + 8));
    // The merged table has the loss of the table with its adapter, at both ends of the model.
    let merged = folder.path().join("out/model");
    let line = format!(
        "generate --batch-size 32 --noise-multiplier 1 --steps 1 --samples 0 --model {}",
        merged.display()
    );
    let other = tempfile::tempdir().unwrap();
    let again = run(other.path(), &line).unwrap();
    let loss = |evaluation: &Value| evaluation["loss"].as_f64().unwrap();
    let (trained, read) = (loss(&figures["after"]), loss(&again["before"]));
    assert!((trained - read).abs() < 1e-5, "{trained} {read}");
    assert!((trained - loss(&figures["before"])).abs() > 1e-4);
}

#[test]
fn gradient_checkpointing_changes_only_rounding() {
    let folder = tempfile::tempdir().unwrap();
    let line = "generate --model gpt2-generate --batch-size 32 --noise-multiplier 1 --samples 0 \
                --insecure-seed 5";
    let loss = |more: &str| {
        let figures = run(folder.path(), &format!("{line} {more}")).unwrap();
        figures["after"]["loss"].as_f64().unwrap()
    };
    let (kept, computed_again) = (loss(""), loss("--gradient-checkpointing"));
    assert!((kept - computed_again).abs() < 1e-5, "{kept} {computed_again}");
}
