//! The models against the results of the original Python libraries.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use burn_dp_models::reference::{compare, compare_adapter, write_for_python};
use burn_dp_models::{Adapter, Weights};

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn check(name: &str) {
    let comparison = compare(&folder(name)).unwrap();
    assert!(comparison.agrees(), "{name}: {comparison:?}");
    assert!(comparison.parameters > 1000 && comparison.examples == 3, "{comparison:?}");
}

#[test]
fn gpt2_generates_as_in_transformers() {
    check("gpt2-generate");
}

#[test]
fn gpt2_from_a_pytorch_file_classifies_as_in_transformers() {
    check("gpt2-classify");
}

#[test]
fn bert_classifies_as_in_transformers() {
    check("bert-classify");
}

#[test]
fn roberta_classifies_as_in_transformers() {
    check("roberta-classify");
}

#[test]
fn a_vision_transformer_classifies_as_in_transformers() {
    check("vit-classify");
}

#[test]
fn a_residual_network_classifies_as_in_torchvision() {
    check("resnet-classify");
}

#[test]
fn a_residual_network_is_written_for_python_with_adapters_and_merged() {
    let output = tempfile::tempdir().unwrap();
    write_for_python(&folder("resnet-classify"), output.path()).unwrap();
    let [adapter, merged] =
        ["adapter", "merged"].map(|kind| output.path().join(format!("resnet-classify.{kind}")));
    let adapter = Weights::read_file(&adapter.join(Adapter::WEIGHTS_FILE)).unwrap();
    for name in ["conv1.lora_A.weight", "layer2.0.downsample.0.lora_B.weight", "fc.bias"] {
        assert!(adapter.tensors().contains_key(&format!("base_model.model.{name}")), "{name}");
    }
    let merged = Weights::read(&merged).unwrap();
    let base = Weights::read(&folder("resnet-classify")).unwrap();
    let is_equal = |name: &str| merged.tensors()[name] == base.tensors()[name];
    assert!(is_equal("layer2.0.conv3.weight") && is_equal("bn1.running_mean"));
    assert!(!is_equal("layer2.0.conv2.weight") && !is_equal("fc.weight"));
}

#[test]
fn an_adapter_of_peft_gives_the_scores_of_peft() {
    let layers = [("c_attn".to_string(), 2), ("mlp.c_proj".to_string(), 3)];
    let difference = compare_adapter(&folder("gpt2-generate"), &layers, 6.0).unwrap();
    assert!(difference <= 1e-5, "{difference}");
}
