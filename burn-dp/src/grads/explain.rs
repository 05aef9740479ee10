use burn::module::Module;
use burn::tensor::Tensor;

use super::backward::PrivateBackward;
use super::explanation::Explanation;
use crate::DpError;
use crate::model::TrainableParameters;

/// Runs a private backward pass over a batch and returns the planner's decision for each parameter,
/// with the estimated and the measured time of its norms and its weighted sum.
///
/// The gradients are dropped.
///
/// # Shapes
///
/// - losses: `[batch_size]`
///
/// # Errors
///
/// Returns the errors of [`PrivateBackward::run`], and [`DpError::Device`] if the device fails.
///
/// # Example
///
/// ```
/// # use burn_dp::{DpError, grads::{PrivateBackward, explain}, nn::IntoPrivate};
/// # use burn::{nn::LinearConfig, tensor::{Device, Tensor}};
/// # fn main() -> Result<(), DpError> {
/// let device = Device::flex().autodiff();
/// let model = LinearConfig::new(4, 1).init(&device).private();
/// let losses = model.forward(Tensor::<2>::ones([8, 4], &device)).reshape([8]);
/// println!("{}", explain(&PrivateBackward::new(), losses, &model)?);
/// # Ok(())
/// # }
/// ```
pub fn explain<M: Module>(
    backward: &PrivateBackward,
    losses: Tensor<1>,
    model: &M,
) -> Result<Explanation, DpError> {
    let parameters = TrainableParameters::of(model)?.iter().cloned().collect();
    backward.run(losses, model)?.explanation(parameters, backward.memory_bound())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;
    use crate::grads::{MemoryBound, NormMethod};
    use crate::nn::{IntoPrivate, Private};

    #[derive(Module, Debug)]
    struct Net {
        wide: Private<Linear>,
        unused: Private<Linear>,
        narrow: Private<Linear>,
    }

    fn net() -> Net {
        let device = Device::flex().autodiff();
        let layer = |i, o| LinearConfig::new(i, o).init(&device).private();
        Net { wide: layer(300, 200), unused: layer(2, 2), narrow: layer(200, 3) }
    }

    fn explained(backward: &PrivateBackward, positions: usize) -> Explanation {
        let net = net();
        let x = Tensor::<3>::ones([4, positions, 300], &Device::flex().autodiff());
        // The narrow layer is used twice.
        let hidden = net.wide.forward(x).tanh();
        let output = net.narrow.forward(hidden.clone()) * net.narrow.forward(hidden.tanh());
        explain(backward, output.sum_dim(2).sum_dim(1).reshape([-1]), &net).unwrap()
    }

    #[test]
    fn every_trained_parameter_has_a_row_with_its_rule_and_costs() {
        let explanation = explained(&PrivateBackward::new(), 1);
        assert_eq!(explanation.units(), 4);
        let row = |path: &str| {
            explanation.parameters().iter().find(|p| p.info.path == path).unwrap().clone()
        };
        assert_eq!(explanation.parameters().len(), 6);
        let wide = row("wide.weight");
        assert_eq!((wide.rule, wide.method), (Some("OuterProducts"), Some(NormMethod::Ghost)));
        assert_eq!(wide.gradient_bytes, 4 * 300 * 200 * 4);
        // Input and output gradient of four examples.
        assert_eq!(wide.kept_bytes, 4 * (300 + 200) * 4);
        assert_eq!(row("narrow.weight").uses, 2);
        let bias = row("wide.bias");
        assert_eq!((bias.method, bias.kept_bytes), (Some(NormMethod::Instantiate), 4 * 200 * 4));
        let kept: usize = explanation.parameters().iter().map(|p| p.kept_bytes).sum();
        assert!(kept >= wide.kept_bytes + bias.kept_bytes);
        assert_eq!(explanation.kept_bytes(), kept);
        let unused = row("unused.weight");
        assert_eq!((unused.method, unused.measured_seconds), (None, None));
        assert!(wide.estimated_seconds > 0.0 && wide.measured_seconds.unwrap() > 0.0);
    }

    #[test]
    fn the_table_shows_unreached_parameters_and_totals() {
        let text = explained(&PrivateBackward::new(), 1).to_string();
        assert_eq!(text.lines().count(), 1 + 6 + 1);
        assert!(text.contains("unused.weight  [2, 2]      not reached: only noise"), "{text}");
        assert!(text.ends_with("of a bound of 256.0 MiB"), "{text}");
    }

    #[test]
    fn an_exceeded_memory_bound_is_reported() {
        let bound = MemoryBound::bytes(1000);
        let backward =
            PrivateBackward::new().with_memory_bound(bound).with_materialized_gradients();
        let text = explained(&backward, 100).to_string();
        assert!(text.ends_with("over the bound"), "{text}");
        let chunks = explained(&PrivateBackward::new().with_memory_bound(bound), 200);
        let wide = &chunks.parameters()[0];
        assert_eq!(wide.method, Some(NormMethod::InstantiateInChunks(1)), "{chunks}");
        assert!(wide.temporary_bytes >= 300 * 200 * 4, "{chunks}");
        assert!(chunks.to_string().contains("1 at a time"));
    }

    #[test]
    fn gradients_smaller_than_the_record_are_not_bounded() {
        let backward = PrivateBackward::new().with_memory_bound(MemoryBound::bytes(0));
        let explanation = explained(&backward, 100);
        let narrow = &explanation.parameters()[4];
        assert_eq!((narrow.uses, narrow.method), (2, Some(NormMethod::Instantiate)));
        assert_eq!(narrow.gradient_bytes, 4 * 200 * 3 * 4);
        // Two uses at a hundred positions of four examples.
        assert_eq!(narrow.recorded_bytes, 2 * 100 * 4 * (200 + 3) * 4);
        assert_eq!(explanation.bounded_bytes(), 0);
    }
}
