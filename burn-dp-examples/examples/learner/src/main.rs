//! Burn's learner, privately: `cargo run -p burn-dp-examples --features tui --example learner`.
use burn::data::dataloader::DataLoaderBuilder;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::nn::{Linear, LinearConfig};
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, InferenceStep};
use burn::{module::Module, optim::AdamConfig, tensor::Device, tensor::Tensor};
use burn_dp::prelude::*;
use burn_dp_examples::data::{Batch, ImageBatcher, digits};

const ARTIFACTS: &str = "out/learner";

#[derive(Module, Debug)]
struct Net {
    hidden: Private<Linear>,
    output: Private<Linear>,
}

impl Net {
    fn new(device: &Device) -> Self {
        Self {
            hidden: LinearConfig::new(784, 64).init(device).private(),
            output: LinearConfig::new(64, 10).init(device).private(),
        }
    }

    fn classify(&self, batch: Batch<Tensor<4>>) -> ClassificationOutput {
        let hidden = self.hidden.forward(batch.inputs.flatten::<2>(1, 3)).tanh();
        let output = self.output.forward(hidden);
        let loss = CrossEntropyLossConfig::new().init();
        let loss = loss.forward(output.clone(), batch.targets.clone());
        ClassificationOutput::new(loss, output, batch.targets)
    }
}

impl PrivateTrainStep for Net {
    type Input = Batch<Tensor<4>>;
    type Output = ClassificationOutput;

    fn losses(&self, batch: Self::Input) -> (Tensor<1>, Self::Output) {
        let output = self.classify(batch);
        (output.loss.clone(), output)
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
    let plan = PrivacyPlanConfig::new(2_000, 100.0).with_epochs(10.0);
    let plan = plan.with_budget(Budget::new(3.0, 1e-5)?).init()?;
    let private = PrivateTrainingConfig::new(128).with_checkpoints(format!("{ARTIFACTS}-private"));
    let private = private.init_or_resume(plan)?;
    let net = private.model(Net::new(&device))?;
    let train = private.loader(PrivateDataLoaderBuilder::new(ImageBatcher::MNIST), digits.train)?;
    let valid = DataLoaderBuilder::new(ImageBatcher::MNIST).batch_size(250).build(digits.test);
    let lr = LinearLrSchedulerConfig::new(0.01, 0.001, 200);

    let training = private
        .supervised(ARTIFACTS, train, valid)
        .metric_train_numeric(private.epsilon_metric(1e-5)?)
        .metric_valid_numeric(AccuracyMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .summary();
    let result = training.launch(net.learner(AdamConfig::new().init(), PublicSchedule::new(lr)?));
    let ended = private.finish(&result)?;
    result.model.save_file(format!("{ARTIFACTS}/model"))?;
    private.forget_key()?; // it is next to the checkpoints, not among what is published
    println!("{ended}\n{}", private.statement(&[1e-5])?);
    Ok(())
}
