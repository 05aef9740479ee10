//! Writes the seeds of the targets `checkpoint` and `release_log` into `seeds/`.

use std::path::Path;

use burn::data::{dataloader::batcher::Batcher, dataset::InMemDataset};
use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor};
use burn_dp::nn::IntoPrivate;
use burn_dp_fuzz::library::{Kind, optimizer, seed};

struct Rows;

impl Batcher<usize, Tensor<2>> for Rows {
    fn batch(&self, items: Vec<usize>, device: &Device) -> Tensor<2> {
        let rows: Vec<f32> = items.iter().flat_map(|&i| [(i as f32).sin(), 1.0]).collect();
        Tensor::<1>::from_floats(rows.as_slice(), device).reshape([items.len(), 2])
    }
}

fn main() {
    for kind in Kind::ALL {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = folder.path().join("releases.log");
        let mut optim = optimizer(kind).with_release_log(&log).expect("a log");
        let write = |target: &str, steps: u64, bytes: &[u8]| {
            let name = format!("{kind:?}-{steps}").to_lowercase();
            std::fs::write(Path::new("seeds").join(target).join(name), bytes).expect("a seed");
        };
        write("checkpoint", 0, &seed(&optim.to_record().expect("a record")));
        let device = Device::flex().autodiff();
        let mut model = LinearConfig::new(2, 1).init(&device).private();
        let dataset = InMemDataset::new((0..200).collect::<Vec<usize>>());
        let batches = optim.plan().batches(dataset, Rows, &device).expect("batches");
        for batch in batches.take(3) {
            let batch = batch.expect("a batch");
            let losses = |model: &burn_dp::nn::Private<burn::nn::Linear>, x| {
                model.forward(x).powi_scalar(2).reshape([-1])
            };
            optim.backward_batch(&model, &batch, 64, losses).expect("a backward pass");
            model = optim.step(0.1, model, batch).expect("a step");
        }
        write("checkpoint", 3, &seed(&optim.to_record().expect("a record")));
        write("release_log", 3, &std::fs::read(&log).expect("the log"));
    }
}
