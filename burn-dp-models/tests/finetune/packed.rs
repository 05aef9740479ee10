//! Adapters of packed weights (QLoRA).

use burn::module::Module;
use burn::tensor::quantization::{QuantScheme, QuantValue, ScaleDtype};
use burn::tensor::{DType, Device};
use burn_dp_models::{Adapter, Config, Gpt2LanguageModel, LoraTargets, Sequence, Tokens, Weights};

use super::{golden, run, write_images};

/// Adapters of rank 2 in all linear layers, whose outputs are multiples of 8.
const LINE: &str = "generate --model gpt2-generate --batch-size 32 --noise-multiplier 1 --lora 2 \
                    --lora-layers c_attn,c_proj,c_fc --insecure-seed 5 --samples 0 --lr 0.02 \
                    --max-grad-norm 1";

fn layers() -> Vec<(String, usize)> {
    ["c_attn", "c_proj", "c_fc"].map(|name| (name.into(), 2)).to_vec()
}

/// The scheme of the program for these layers.
fn scheme(value: QuantValue) -> QuantScheme {
    let scheme = Device::flex().settings().quantization.scheme;
    scheme.with_value(value).per_block([8], ScaleDtype::F32)
}

fn scores(model: &Gpt2LanguageModel) -> Vec<f64> {
    let text = Sequence { ids: vec![5, 6, 7, 8], given: 1 };
    let tokens = Tokens::new(&[&text], &Device::flex());
    model.forward(&tokens).into_data().iter::<f64>().collect()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn the_merged_model_is_the_one_that_was_trained_on_packed_weights() {
    let (device, base) = (Device::flex(), golden("gpt2-generate"));
    let Config::Gpt2(config) = Config::read(&base).unwrap() else { panic!("not a GPT-2") };
    let load = |folder: &std::path::Path| {
        let model = Gpt2LanguageModel::new(&config, &device);
        Weights::read(folder).unwrap().load_into(model, None).unwrap()
    };
    let mut distances = Vec::new();
    for (packing, value) in [("int8", QuantValue::Q8S), ("int4", QuantValue::Q4S)] {
        let [separate, merged] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let line = format!("{LINE} --packed-base {packing}");
        let figures = run(separate.path(), &line).unwrap();
        assert_eq!(figures["packed_base"], packing);
        let statement = std::fs::read_to_string(separate.path().join("out/privacy.txt")).unwrap();
        assert!(statement.contains(&format!("lora on packed weights ({packing})")), "{statement}");
        run(merged.path(), &format!("{line} --merge")).unwrap();

        let file = separate.path().join("out/adapter").join(Adapter::WEIGHTS_FILE);
        let weights = Weights::read_file(&file).unwrap();
        let adapted = |targets: LoraTargets| {
            let model = targets.attach(load(&base)).unwrap();
            Adapter::load_into(&weights, model).unwrap()
        };
        let targets = LoraTargets::new(&load(&base), &layers(), 2.0, None).unwrap();
        let packed = adapted(targets.clone().with_packed_base(scheme(value)));
        let trained = scores(&packed);
        assert!(distance(&trained, &scores(&load(&merged.path().join("out/model")))) < 1e-5);
        assert!(distance(&trained, &scores(&load(&base))) > 1e-3, "the adapters were trained");
        // In Python the adapter is added to weights that are not rounded.
        distances.push(distance(&trained, &scores(&adapted(targets))));
        let loss = figures["before"]["loss"].as_f64().unwrap();
        assert!(loss.is_finite() && packed.num_params() > load(&base).num_params());
    }
    // Four bits round sixteen times as much as eight.
    let [eight, four] = distances[..] else { panic!() };
    assert!(eight > 1e-5 && eight < 0.05 && four > 4.0 * eight && four < 1.0, "{distances:?}");
}

#[test]
fn packed_weights_train_in_half_precision_and_in_other_models() {
    for line in [
        format!("{LINE} --packed-base int8 --precision bf16"),
        "classify --label stars --labels up,down --model bert-classify --lora 2 --packed-base int8 \
         --batch-size 32 --noise-multiplier 1 --backend ndarray"
            .into(),
        "images --model vit-classify --lora 2 --packed-base int4 --batch-size 20 --merge \
         --noise-multiplier 1"
            .into(),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write_images(folder.path());
        let figures = run(folder.path(), &line).unwrap();
        assert!(figures["after"]["loss"].as_f64().unwrap().is_finite(), "{line}");
        for kind in ["model/model", "adapter/adapter_model"] {
            let file = folder.path().join("out").join(kind).with_extension("safetensors");
            if let Ok(weights) = Weights::read_file(&file) {
                assert!(weights.tensors().values().all(|data| data.dtype() == DType::F32));
            }
        }
    }
}

#[test]
fn weights_that_cannot_be_packed_are_refused_with_the_layer() {
    let folder = tempfile::tempdir().unwrap();
    write_images(folder.path());
    for (line, expected) in [
        (
            "generate --model gpt2-generate --lora 2 --backend ndarray",
            "--packed-base int4 is not possible on ndarray; choose int8",
        ),
        ("generate --model gpt2-generate", "--packed-base is for adapters, not for --train full"),
        (
            "generate --model gpt2-generate --lora 2 --lora-layers wpe",
            "--packed-base only packs linear layers with adapters, but --lora-layers selects none",
        ),
        (
            "classify --label stars --labels up,down --model bert-classify --lora 2 \
             --lora-layers query,intermediate.dense",
            "intermediate.dense.weight has 12; leave this layer out of --lora-layers",
        ),
    ] {
        let line = format!("{line} --batch-size 20 --packed-base int4");
        let error = run(folder.path(), &line).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(!folder.path().join("out").exists());
    }
}
