//! Forward and backward passes in half precision.

use burn_dp_models::Weights;

use super::{run, write_images};

/// Two runs have the same draws and noise. Gradient descent is linear in the gradients, so rounding
/// errors do not grow.
const SAME: &str = "--noise-multiplier 0.2 --insecure-seed 1 --optimizer sgd --lr 0.5 --steps 1 \
                    --batch-size 20";

#[test]
fn half_precision_trains_nearly_the_same_model_in_every_task() {
    let labels = "--label stars --labels up,down";
    for task in [
        format!("classify {labels} --model bert-classify"),
        format!("classify {labels} --model gpt2-classify --train probe"),
        "generate --model gpt2-generate --lora 2 --samples 0".into(),
        "images --model vit-classify".into(),
        "images --model resnet-classify --image-size 32".into(),
    ] {
        let trained = |precision: &str| {
            let folder = tempfile::tempdir().unwrap();
            write_images(folder.path());
            let line = format!("{task} {SAME} --precision {precision}");
            let figures = run(folder.path(), &line).unwrap();
            assert_eq!(figures["precision"], precision, "{task}");
            let statement =
                std::fs::read_to_string(folder.path().join("out/privacy.json")).unwrap();
            let states_it =
                statement.contains(&format!("\"precision_of_passes\": \"{precision}\""));
            assert_eq!(states_it, precision != "f32", "{task}: {statement}");
            let out = folder.path().join("out");
            let is_adapter = task.contains("lora");
            let file = ["model/model", "adapter/adapter_model"][usize::from(is_adapter)];
            let weights = Weights::read_file(&out.join(file).with_extension("safetensors"));
            let weights = weights.unwrap();
            // The written values have the precision of the parameters.
            let values = weights.tensors().values().flat_map(|data| {
                assert_eq!(data.dtype(), burn::tensor::DType::F32);
                data.iter::<f64>().collect::<Vec<_>>()
            });
            (figures["after"]["loss"].as_f64().unwrap(), values.collect::<Vec<f64>>())
        };
        let (loss, weights) = trained("f32");
        // Eight and eleven bits of accuracy, of losses that a step moves by up to 0.14.
        for (precision, tolerance) in [("bf16", 0.005), ("f16", 0.001)] {
            let (found, others) = trained(precision);
            assert!((found - loss).abs() < tolerance, "{task}, {precision}: {found} {loss}");
            assert_ne!(others, weights, "{task}, {precision}");
        }
    }
}

#[test]
fn a_precision_that_the_backend_lacks_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let line = "generate --model gpt2-generate --batch-size 20 --precision f16 --backend ndarray";
    let error = run(folder.path(), line).unwrap_err();
    assert!(error.contains("--precision f16 is not possible on ndarray; choose f32"), "{error}");
    assert!(!folder.path().join("out").exists());
}
