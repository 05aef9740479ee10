//! Models in half precision.
#![allow(clippy::unwrap_used)]

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{DType, Device, Tensor};
use burn_dp::nn::{IntoPrivate, Private};
use burn_dp::optim::PrivacyPlanConfig;
use burn_dp::random::InsecureSeed;

/// Sets every parameter to zero, in a precision.
struct Zeros(DType);

impl ModuleMapper for Zeros {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| {
            let options = (&tensor.device(), self.0);
            Tensor::zeros(tensor.dims(), options).require_grad()
        })
    }
}

#[derive(Default)]
struct Values(Vec<f64>, Vec<DType>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.1.push(param.val().dtype());
        self.0.extend(param.val().into_data().iter::<f64>());
    }
}

/// The values of a model in `precision` after one step of noise alone.
fn after_a_step_of_noise(precision: DType) -> Values {
    let device = Device::flex().autodiff();
    let model: Private<Linear> = LinearConfig::new(30, 20).init(&device).private();
    let model = model.map(&mut Zeros(precision));
    // So small an expected batch size that the draw is empty.
    let plan = PrivacyPlanConfig::new(100, 1.0 / 128.0)
        .with_steps(1)
        .with_noise_multiplier(1.0)
        .with_insecure_seed(InsecureSeed(3))
        .init()
        .unwrap();
    let draw = plan.sampler().unwrap().draw(0).unwrap();
    assert!(draw.private_indices().is_empty());
    let mut optim = plan.optimizer(SgdConfig::new().init());
    let model = optim.step(1.0 / 128.0, model, draw).unwrap();
    let mut values = Values::default();
    model.visit(&mut values);
    values
}

#[test]
fn a_model_in_half_precision_gets_noise_in_double_precision() {
    let Values(single, types) = after_a_step_of_noise(DType::F32);
    assert_eq!(types, [DType::F32; 2]);
    for (precision, digits) in [(DType::F16, 2f64.powi(-10)), (DType::BF16, 2f64.powi(-7))] {
        let Values(half, types) = after_a_step_of_noise(precision);
        assert_eq!(types, [precision; 2]);
        assert_eq!(half.len(), 620);
        for (half, single) in half.iter().zip(&single) {
            // The same noise, rounded once for the gradient and once for the step.
            let tolerance = 2.0 * digits * single.abs() + 2f64.powi(-24);
            assert!((half - single).abs() <= tolerance, "{half} {single}");
        }
    }
}
