//! From the record of a layer to one contribution per parameter.

use burn::module::ParamId;
use burn::tensor::ops::DeformConvOptions;
use burn::tensor::{DType, Tensor};

use super::recording::RawRecord;
use super::rules::{
    ConvWeight, DeformConvWeight, OuterProducts, Repeated, Rule, Scale, Shift, Summed,
};
use crate::DpError;
use crate::ops::{self, Primitive, Slot};

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
        let mut lift = Lift { record, witness, contributions: Vec::with_capacity(2) };
        let batch_size = match lift.record.primitive.clone() {
            Primitive::Linear | Primitive::TransposedLinear | Primitive::Embedding => lift.linear(),
            Primitive::Scale { negative, .. } => lift.scale(negative),
            Primitive::Repeat => lift.repeat(),
            Primitive::Conv1d(_) | Primitive::ConvTranspose1d(_) => lift.convolution::<3>(),
            Primitive::Conv2d(_) | Primitive::ConvTranspose2d(_) => lift.convolution::<4>(),
            Primitive::Conv3d(_) | Primitive::ConvTranspose3d(_) => lift.convolution::<5>(),
            Primitive::DeformConv2d(options) => lift.deformed(options),
        };
        Self { batch_size, contributions: lift.contributions }
    }
}

/// A record on its way to contributions. Each method returns the number of rows.
struct Lift<'a> {
    record: RawRecord,
    witness: &'a Tensor<1>,
    contributions: Vec<(ParamId, Contribution)>,
}

impl Lift<'_> {
    fn output_grad<const D: usize>(&mut self) -> Tensor<D> {
        // Each record is lifted once; what is left in its place holds nothing.
        let slot = std::mem::replace(&mut self.record.output_grad, Slot::new(()));
        single(ops::take(self.witness, slot))
    }

    /// What the forward pass kept, in that order; absent if only the bias is trained.
    fn kept<const D: usize>(&mut self) -> Option<Tensor<D>> {
        if self.record.kept.is_empty() {
            return None;
        }
        Some(single(ops::take(self.witness, self.record.kept.remove(0))))
    }

    fn push(&mut self, id: ParamId, rule: impl Rule + 'static) {
        self.contributions.push((id, Contribution::Other(Box::new(rule))));
    }

    /// The bias along `axis` of the gradient, if it is trained.
    fn shift<const D: usize>(&mut self, output_grad: &Tensor<D>, axis: usize) {
        let (true, Some(id)) = (self.record.bias, self.record.layer.bias) else {
            return;
        };
        let dims = output_grad.dims();
        let output_grad = output_grad.clone().reshape([
            dims[0],
            dims[1..axis].iter().product(),
            dims[axis],
            dims[axis + 1..].iter().product(),
        ]);
        self.push(id, Shift { output_grad });
    }

    fn linear(&mut self) -> usize {
        let output_grad = self.output_grad::<3>();
        let batch_size = output_grad.dims()[0];
        self.shift(&output_grad, 2);
        if let Some(shape) = self.record.weight.take() {
            let outer = match self.record.primitive {
                Primitive::Linear => {
                    self.kept().map(|input| OuterProducts::dense(input, output_grad))
                }
                Primitive::TransposedLinear => {
                    self.kept().map(|input| OuterProducts::dense(output_grad, input))
                }
                _ => self.record.ids.take().map(|slot| {
                    let ids = ops::take_ids(self.witness, slot);
                    OuterProducts::indexed(shape[0], ids, output_grad)
                }),
            };
            let id = self.record.layer.weight;
            self.contributions.extend(outer.map(|outer| (id, Contribution::Outer(outer))));
        }
        batch_size
    }

    fn scale(&mut self, negative: bool) -> usize {
        let output_grad = self.output_grad::<4>();
        let batch_size = output_grad.dims()[0];
        self.shift(&output_grad, 2);
        if let Some(input) = self.kept::<4>() {
            let input = if negative { input.clamp_max(0.0) } else { input };
            self.push(self.record.layer.weight, Scale { input, output_grad });
        }
        batch_size
    }

    fn repeat(&mut self) -> usize {
        let output_grad = self.output_grad::<2>();
        let batch_size = output_grad.dims()[0];
        self.push(self.record.layer.weight, Repeated { output_grad });
        batch_size
    }

    fn convolution<const D: usize>(&mut self) -> usize {
        let output_grad = self.output_grad::<D>();
        let batch_size = output_grad.dims()[0];
        self.shift(&output_grad, 1);
        if let (Some(input), Some(weight)) = (self.kept::<D>(), self.record.weight.take()) {
            let primitive = self.record.primitive.clone();
            if let Some(rule) = ConvWeight::new(primitive, weight, input, output_grad) {
                self.push(self.record.layer.weight, rule);
            }
        }
        batch_size
    }

    fn deformed(&mut self, options: DeformConvOptions<2>) -> usize {
        let output_grad = self.output_grad::<4>();
        let batch_size = output_grad.dims()[0];
        self.shift(&output_grad, 1);
        if let (Some(input), Some(offset), mask, Some(weight)) =
            (self.kept(), self.kept(), self.kept(), self.record.weight.take())
        {
            let rule = DeformConvWeight { input, offset, mask, output_grad, weight, options };
            self.push(self.record.layer.weight, rule);
        }
        batch_size
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
