//! From the record of a layer to one contribution per parameter.

use burn::module::ParamId;
use burn::tensor::{DType, Tensor};

use super::recording::RawRecord;
use super::rules::{ConvWeight, OuterProducts, Repeated, Rule, Scale, Shift, Summed};
use crate::DpError;
use crate::ops::{self, Primitive};

/// One use of a layer in the recorded pass.
pub(crate) struct Layer {
    batch_size: usize,
    contributions: Vec<(ParamId, Contribution)>,
}

/// What one use of a layer contributes to one parameter.
pub(crate) enum Contribution {
    /// Outer products over positions, which those of other uses join.
    Outer(OuterProducts),
    /// Anything else.
    Other(Box<dyn Rule>),
}

impl Layer {
    /// Refuses a layer whose batch axis is not that of the losses.
    pub(crate) fn check_batch_size(&self, batch_size: usize) -> Result<(), DpError> {
        check_batch_size(self.batch_size, batch_size)
    }

    /// The contributions to the trained parameters.
    pub(crate) fn into_contributions(self) -> Vec<(ParamId, Contribution)> {
        self.contributions
    }

    /// Lifts a record to Burn's tensors, which are on the backend of `witness`.
    pub(super) fn lift(record: RawRecord, witness: &Tensor<1>) -> Self {
        let RawRecord { layer, weight, bias, primitive, kept, ids, output_grad } = record;
        let bias = if bias { layer.bias } else { None };
        let weight = weight.map(|shape| (layer.weight, shape));
        let mut kept = kept.into_iter();
        let mut contributions = Vec::with_capacity(2);
        let mut push = |id: ParamId, rule: Box<dyn Rule>| {
            contributions.push((id, Contribution::Other(rule)));
        };

        let batch_size = match primitive {
            Primitive::Linear | Primitive::TransposedLinear | Primitive::Embedding => {
                let grad = single(ops::take::<3>(witness, output_grad));
                let [batch_size, positions, features] = grad.dims();
                if let Some(id) = bias {
                    let output_grad = grad.clone().reshape([batch_size, positions, features, 1]);
                    push(id, Box::new(Shift { output_grad }));
                }
                if let Some((id, shape)) = weight {
                    let mut input =
                        || kept.next().map(|slot| single(ops::take::<3>(witness, slot)));
                    let ids = ids.map(|slot| ops::take_ids(witness, slot));
                    let outer = match primitive {
                        Primitive::Linear => input().map(|a| OuterProducts::dense(a, grad)),
                        Primitive::TransposedLinear => {
                            input().map(|a| OuterProducts::dense(grad, a))
                        }
                        _ => ids.map(|ids| OuterProducts::indexed(shape[0], ids, grad)),
                    };
                    contributions.extend(outer.map(|outer| (id, Contribution::Outer(outer))));
                }
                batch_size
            }
            Primitive::Scale { negative, .. } => {
                let output_grad = single(ops::take::<4>(witness, output_grad));
                let batch_size = output_grad.dims()[0];
                if let Some(id) = bias {
                    push(id, Box::new(Shift { output_grad: output_grad.clone() }));
                }
                if let (Some((id, _)), Some(input)) = (weight, kept.next()) {
                    let input = single(ops::take::<4>(witness, input));
                    let input = if negative { input.clamp_max(0.0) } else { input };
                    push(id, Box::new(Scale { input, output_grad }));
                }
                batch_size
            }
            Primitive::Repeat => {
                let output_grad = single(ops::take::<2>(witness, output_grad));
                let batch_size = output_grad.dims()[0];
                if let Some((id, _)) = weight {
                    push(id, Box::new(Repeated { output_grad }));
                }
                batch_size
            }
            Primitive::Conv2d(options) => {
                let output_grad = single(ops::take::<4>(witness, output_grad));
                let [batch_size, channels, height, width] = output_grad.dims();
                if let Some(id) = bias {
                    let output_grad =
                        output_grad.clone().reshape([batch_size, 1, channels, height * width]);
                    push(id, Box::new(Shift { output_grad }));
                }
                if let (Some((id, shape)), Some(input)) = (weight, kept.next()) {
                    let input = single(ops::take::<4>(witness, input));
                    let weight = shape.dims();
                    push(id, Box::new(ConvWeight { input, output_grad, weight, options }));
                }
                batch_size
            }
            _ => todo!(),
        };
        Self { batch_size, contributions }
    }
}

/// The rule for all uses of one parameter.
pub(super) fn combine(contributions: Vec<Contribution>, group_size: usize) -> Box<dyn Rule> {
    let (mut outer, mut uses) = (Vec::new(), Vec::new());
    for contribution in contributions {
        match contribution {
            Contribution::Outer(part) => outer.push(part),
            Contribution::Other(rule) => uses.push(rule),
        }
    }
    if let Some(outer) = OuterProducts::concatenate(outer) {
        uses.push(Box::new(outer) as Box<dyn Rule>);
    }
    if let [rule] = uses.as_slice()
        && let Some(rule) = rule.regroup(group_size)
    {
        return rule;
    }
    Box::new(Summed { uses, group_size })
}

/// Refuses a batch axis that is not that of the losses.
pub(super) fn check_batch_size(found: usize, losses: usize) -> Result<(), DpError> {
    if found == losses {
        return Ok(());
    }
    Err(DpError::NotPerExample {
        reason: "a private layer saw another number of examples on axis 0 than there are \
                 losses; return one loss per example (`[batch_size]`, not their mean) and keep \
                 the examples on axis 0 of every private layer"
            .into(),
    })
}

/// Norms and sums are in single precision, whatever the precision of the model.
fn single<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.dtype() == DType::F32 { tensor } else { tensor.cast(DType::F32) }
}
