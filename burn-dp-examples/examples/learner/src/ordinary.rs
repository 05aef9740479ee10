//! Burn's learner: `cargo run -p burn-dp-examples --features tui --example learner_ordinary`.
use burn::data::dataloader::DataLoaderBuilder;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, InferenceStep};
use burn::train::{Learner, SupervisedTraining, TrainOutput, TrainStep};
use burn::{module::Module, optim::AdamConfig, tensor::Device, tensor::Tensor};
use burn_dp_examples::data::{Batch, ImageBatcher, digits};

const ARTIFACTS: &str = "out/learner";

#[derive(Module, Debug)]
struct Net {
    hidden: Linear,
    output: Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        Self {
            hidden: LinearConfig::new(784, 64).init(device),
            output: LinearConfig::new(64, 10).init(device),
        }
    }

    fn classify(&self, batch: Batch<Tensor<4>>) -> ClassificationOutput {
        let hidden = self.hidden.forward(batch.inputs.flatten::<2>(1, 3)).tanh();
        let output = self.output.forward(hidden);
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        let loss = loss.forward(output.clone(), batch.targets.clone());
        ClassificationOutput::new(loss, output, batch.targets)
    }
}

impl TrainStep for Net {
    type Input = Batch<Tensor<4>>;
    type Output = ClassificationOutput;

    fn step(&self, batch: Self::Input) -> TrainOutput<Self::Output> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Net {
    type Input = Batch<Tensor<4>>;
    type Output = ClassificationOutput;

    fn step(&self, batch: Self::Input) -> Self::Output {
        self.classify(batch)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::flex().autodiff();
    let digits = digits::splits(0, 2_000, 500);
    let net = Net::new(&device);
    let train = DataLoaderBuilder::new(ImageBatcher::MNIST).batch_size(100).shuffle(1);
    let train = train.build(digits.train);
    let valid = DataLoaderBuilder::new(ImageBatcher::MNIST).batch_size(250).build(digits.test);
    let lr = LinearLrSchedulerConfig::new(0.01, 0.001, 200);

    let training = SupervisedTraining::new(ARTIFACTS, train, valid)
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .with_default_checkpointers()
        .num_epochs(10)
        .summary();
    let result = training.launch(Learner::new(net, AdamConfig::new().init(), lr.init()?));
    result.model.save_file(format!("{ARTIFACTS}/model"))?;
    Ok(())
}
