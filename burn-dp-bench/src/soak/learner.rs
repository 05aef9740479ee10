//! The run in Burn's learner.

use std::path::Path;

use burn::data::dataloader::DataLoaderBuilder;
use burn::lr_scheduler::constant::ConstantLr;
use burn::optim::AdamConfig;
use burn::tensor::Tensor;
use burn::train::renderer::CliMetricsRenderer;
use burn::train::{InferenceStep, Learner, RegressionOutput};
use burn_dp::DpError;
use burn_dp::sampling::PrivateDataLoaderBuilder;
use burn_dp::train::{PrivateTrainStep, PrivateTrainingConfig};

use super::tiny::{DELTA, MEASURED, Net, Rows, dataset, device, phase, plan, publish};

impl PrivateTrainStep for Net {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn losses(&self, rows: Tensor<2>) -> (Tensor<1>, RegressionOutput) {
        let (losses, output, target) = self.predict(rows);
        (losses.clone(), RegressionOutput::new(losses, output, target))
    }
}

impl InferenceStep for Net {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, rows: Tensor<2>) -> RegressionOutput {
        self.losses(rows).1
    }
}

pub(super) fn run(folder: &Path) -> Result<(), DpError> {
    phase("load");
    let config = PrivateTrainingConfig::new(5).with_steps_per_epoch(2);
    let config = config.with_checkpoints(folder.join("run"));
    let private = config.init_or_resume(plan()?)?;
    let train = private.loader(PrivateDataLoaderBuilder::new(Rows), dataset(0))?;
    let valid = DataLoaderBuilder::new(Rows).batch_size(20).build(dataset(100));
    let model = private.model(Net::new(&device()))?;
    phase("learner");
    let result = private
        .supervised(folder.join(MEASURED), train, valid)
        .with_application_logger(None)
        .renderer(Box::new(CliMetricsRenderer::new()))
        .launch(Learner::new(model, AdamConfig::new().init(), ConstantLr::from(0.1)));
    private.finish(&result)?;
    publish(folder, result.model.into_inner(), || {
        private.forget_key()?;
        private.statement(&[DELTA])
    })
}
