//! BERT from a checkpoint without a pooler, as the models of masked tokens are.

use std::path::Path;

use burn::module::Module;
use burn::tensor::Device;
use burn_dp_models::{
    Adapter, BertClassifier, Config, LoraTargets, Sequence, TextClassifier, Tokens, Weights,
};
use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::{CLASSIFY, golden, run};

/// The parts that the adapter contains as a whole.
const PARTS: [&str; 2] = ["classifier", "bert.pooler"];

/// Copies the golden BERT without its pooler.
fn write_base(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for name in ["config.json", "tokenizer.json"] {
        std::fs::copy(golden("bert-classify").join(name), folder.join(name)).unwrap();
    }
    let content = std::fs::read(golden("bert-classify").join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&content).unwrap().tensors();
    let is_kept = |name: &str| !name.contains("pooler.");
    let kept = tensors.into_iter().filter(|(name, _)| is_kept(name)).collect::<Vec<_>>();
    let content = safetensors::serialize(kept, None).unwrap();
    std::fs::write(folder.join("model.safetensors"), content).unwrap();
}

#[test]
fn an_adapter_contains_the_pooler_that_the_checkpoint_lacks() {
    let (separate, merged) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let base = separate.path().join("base");
    write_base(&base);
    // Every layer called `dense`, except the one of the pooler, which is fully trained.
    let line = format!(
        "classify {CLASSIFY} --lora 2 --lora-layers query,dense --insecure-seed 5 --model {}",
        base.display()
    );
    let figures = run(separate.path(), &line).unwrap();
    run(merged.path(), &format!("{line} --merge")).unwrap();
    // Factors of the query and of three layers of each of two blocks; a head for two classes; the
    // pooler.
    let factors = 2 * 2 * ((8 + 8) + (8 + 8) + (8 + 12) + (12 + 8));
    assert_eq!(figures["trained_parameters"], factors + (2 * 8 + 2) + (8 * 8 + 8), "{figures}");

    let adapter = separate.path().join("out/adapter");
    let config = std::fs::read_to_string(adapter.join(Adapter::CONFIG_FILE)).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["modules_to_save"], json!(PARTS));
    let file = Weights::read_file(&adapter.join(Adapter::WEIGHTS_FILE)).unwrap();
    assert!(file.tensors().contains_key("base_model.model.bert.pooler.dense.weight"));

    // The pooler and the head of this model start with other random values.
    let device = Device::flex();
    let Config::Bert(bert) = Config::read(&base).unwrap() else { panic!("not a BERT") };
    let model = BertClassifier::new(&bert, 2, &device);
    let model = Weights::read(&base).unwrap().load_into(model, PARTS).unwrap();
    let layers = ["query", "dense"].map(|name| (name.to_string(), 2));
    let targets = LoraTargets::new(&model, &layers, 2.0, PARTS).unwrap();
    let adapted = Adapter::load_into(&file, targets.attach(model).unwrap()).unwrap();
    let whole = Weights::read(&merged.path().join("out/model")).unwrap();
    let whole = whole.load_into(BertClassifier::new(&bert, 2, &device), None).unwrap();
    assert!(adapted.num_params() > whole.num_params());
    let text = Sequence { ids: vec![2, 5, 6, 3], given: 4 };
    let scores = |model: &BertClassifier| {
        let scores = model.scores(&Tokens::new(&[&text], &device));
        scores.into_data().iter::<f64>().collect::<Vec<_>>()
    };
    let (adapted, whole) = (scores(&adapted), scores(&whole));
    let equal = adapted.iter().zip(&whole).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(equal, "{adapted:?} {whole:?}");
}
