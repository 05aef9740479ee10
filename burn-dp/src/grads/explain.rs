//! The planner's choices, for people.

use std::fmt;

use burn::module::Module;
use burn::tensor::Tensor;

use super::{MemoryBound, PrivateBackward, Strategy};
use crate::DpError;
use crate::model::ParameterInfo;

/// Which rule reached the per-example gradients of one parameter, and at what cost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExplainedParameter {
    /// The parameter.
    pub info: ParameterInfo,
    /// Name of the rule; none if no example reached the parameter, which is then released as noise.
    pub rule: Option<&'static str>,
    /// How often the pass used the parameter.
    pub uses: usize,
    /// How the norms are reached; `None` if no example reached the parameter.
    pub strategy: Option<Strategy>,
    /// Floating-point operations of the ghost norms of all units, where the rule has them.
    pub ghost_flops: Option<f64>,
    /// Bytes of the per-example gradients of all units.
    pub gradient_bytes: usize,
    /// Bytes that the pass recorded for them: inputs and output gradients.
    pub recorded_bytes: usize,
    /// Bytes kept until the norms are known: the gradients where they are formed and kept, inputs and
    /// output gradients where they are not.
    pub kept_bytes: usize,
    /// Bytes used for a moment.
    pub temporary_bytes: usize,
}

impl ExplainedParameter {
    pub(super) fn unreached(info: &ParameterInfo) -> Self {
        Self {
            info: info.clone(),
            rule: None,
            uses: 0,
            strategy: None,
            ghost_flops: None,
            gradient_bytes: 0,
            recorded_bytes: 0,
            kept_bytes: 0,
            temporary_bytes: 0,
        }
    }

    /// The same for further uses; the gradients of all of them are formed.
    pub(super) fn plus(mut self, other: Self) -> Self {
        self.uses += other.uses;
        self.ghost_flops = self.ghost_flops.zip(other.ghost_flops).map(|(a, b)| a + b);
        self.recorded_bytes += other.recorded_bytes;
        self.temporary_bytes = self.temporary_bytes.max(other.temporary_bytes);
        self
    }

    /// Bytes that the memory bound counts: gradients that are kept though they are larger than half of what
    /// was recorded for them.
    fn bounded_bytes(&self) -> usize {
        let kept = self.strategy == Some(Strategy::Instantiate);
        if kept && 2 * self.gradient_bytes > self.recorded_bytes { self.kept_bytes } else { 0 }
    }
}

/// A table of the planner's choices for one batch, in the order of the model's parameters.
///
/// Shapes of layers and batch are all that it depends on; no value of an example enters it.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub(super) parameters: Vec<ExplainedParameter>,
    pub(super) units: usize,
    pub(super) bound: MemoryBound,
}

impl Explanation {
    /// The parameters.
    pub fn parameters(&self) -> &[ExplainedParameter] {
        &self.parameters
    }

    /// Number of units in the batch.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Bytes kept until the norms are known.
    pub fn kept_bytes(&self) -> usize {
        self.parameters.iter().map(|parameter| parameter.kept_bytes).sum()
    }

    /// Bytes of the kept gradients that are larger than half of what was recorded for them, which the
    /// memory bound limits.
    pub fn bounded_bytes(&self) -> usize {
        self.parameters.iter().map(ExplainedParameter::bounded_bytes).sum()
    }
}

/// Runs a private backward pass over a batch and tells what was done for each parameter, and why.
///
/// The gradients are dropped.
///
/// # Shapes
///
/// - losses: `[batch_size]`
///
/// # Errors
///
/// As [`PrivateBackward::run`].
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
    Ok(backward.run(losses, model)?.explanation(model_parameters(model)?, backward.memory_bound()))
}

fn model_parameters<M: Module>(model: &M) -> Result<Vec<ParameterInfo>, DpError> {
    Ok(crate::model::TrainableParameters::of(model)?.iter().cloned().collect())
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header =
            ["parameter", "shape", "rule", "uses", "norm", "ghost flops", "gradients", "kept"];
        let mut rows = vec![header.map(String::from)];
        rows.extend(self.parameters.iter().map(|parameter| {
            [
                parameter.info.path.clone(),
                format!("{:?}", parameter.info.shape),
                parameter.rule.unwrap_or("not reached: noise alone").into(),
                parameter.uses.to_string(),
                match parameter.strategy {
                    None => "-".into(),
                    Some(Strategy::Ghost) => "ghost".into(),
                    Some(Strategy::Instantiate) => "instantiated".into(),
                    Some(Strategy::InstantiateInChunks(chunk)) => format!("in chunks of {chunk}"),
                },
                parameter.ghost_flops.map_or("-".into(), |flops| format!("{flops:.2e}")),
                Bytes(parameter.gradient_bytes).to_string(),
                Bytes(parameter.kept_bytes).to_string(),
            ]
        }));
        let widths: [usize; 8] = std::array::from_fn(|column| {
            rows.iter().map(|row| row[column].len()).max().unwrap_or(0)
        });
        for row in &rows {
            let line: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        let bounded = self.bounded_bytes();
        let bound = self.bound.as_bytes();
        write!(
            f,
            "{} units; kept {}; gradients beyond the record {} of a bound of {}",
            self.units,
            Bytes(self.kept_bytes()),
            Bytes(bounded),
            Bytes(bound),
        )?;
        if bounded > bound { f.write_str(": over the bound") } else { Ok(()) }
    }
}

struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match units.into_iter().find(|&(_, shift)| self.0 >= 1 << shift) {
            Some((unit, shift)) => {
                write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64)
            }
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;
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
        assert_eq!((wide.rule, wide.strategy), (Some("OuterProducts"), Some(Strategy::Ghost)));
        assert_eq!(wide.gradient_bytes, 4 * 300 * 200 * 4);
        // Input and output gradient of four examples.
        assert_eq!(wide.kept_bytes, 4 * (300 + 200) * 4);
        assert_eq!(row("narrow.weight").uses, 2);
        let bias = row("wide.bias");
        assert_eq!((bias.strategy, bias.kept_bytes), (Some(Strategy::Instantiate), 4 * 200 * 4));
        assert_eq!(row("unused.weight").strategy, None);
    }

    #[test]
    fn the_table_says_what_is_not_reached_and_the_totals() {
        let text = explained(&PrivateBackward::new(), 1).to_string();
        assert_eq!(text.lines().count(), 1 + 6 + 1);
        assert!(text.contains("unused.weight  [2, 2]      not reached: noise alone"), "{text}");
        assert!(text.ends_with("of a bound of 256.0 MiB"), "{text}");
    }

    #[test]
    fn a_bound_that_is_exceeded_by_choice_is_told() {
        let bound = MemoryBound::bytes(1000);
        let backward = PrivateBackward::new().with_memory_bound(bound).with_materialize(true);
        let text = explained(&backward, 100).to_string();
        assert!(text.ends_with("over the bound"), "{text}");
        let chunks = explained(&PrivateBackward::new().with_memory_bound(bound), 100);
        let wide = &chunks.parameters()[0];
        assert_eq!(wide.strategy, Some(Strategy::InstantiateInChunks(1)), "{chunks}");
        assert!(wide.temporary_bytes >= 300 * 200 * 4, "{chunks}");
        assert!(chunks.to_string().contains("in chunks of 1"));
    }

    #[test]
    fn gradients_that_are_smaller_than_the_record_take_nothing_of_the_bound() {
        let backward = PrivateBackward::new().with_memory_bound(MemoryBound::bytes(0));
        let explanation = explained(&backward, 100);
        let narrow = &explanation.parameters()[4];
        assert_eq!((narrow.uses, narrow.strategy), (2, Some(Strategy::Instantiate)));
        assert_eq!(narrow.gradient_bytes, 4 * 200 * 3 * 4);
        // Two uses at a hundred positions of four examples.
        assert_eq!(narrow.recorded_bytes, 2 * 100 * 4 * (200 + 3) * 4);
        assert_eq!(explanation.bounded_bytes(), 0);
    }
}
