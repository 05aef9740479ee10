//! From the record of a layer to one contribution per parameter.

use burn::module::ParamId;
use burn::tensor::ops::DeformConvOptions;
use burn::tensor::{DType, Shape, Tensor};

use super::row_scale::RowScale;
use super::rules::{
    ConvWeight, DeformConvWeight, OuterProducts, Repeated, Rule, Scale, Shift, Summed,
};
use crate::DpError;
use crate::ops::recording::RawRecord;
use crate::ops::{self, LayerIds, Primitive, Slot};

/// One use of a layer in the recorded pass.
pub(crate) struct Layer {
    batch_size: usize,
    contributions: Vec<(ParamId, Contribution)>,
}

/// What one use of a layer contributes to one parameter.
// A few for each layer, moved once: a box would only cost an allocation.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Contribution {
    /// Outer products over positions, which those of other uses join.
    Outer(OuterProducts),
    /// Anything else.
    Other(Box<dyn Rule>),
}

impl Layer {
    /// Length of the batch axis.
    pub(super) fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// The contributions to the trained parameters.
    pub(crate) fn into_contributions(self) -> Vec<(ParamId, Contribution)> {
        self.contributions
    }

    /// Lifts a record to Burn's tensors, which are on the backend of `witness`; the rows of the output
    /// gradient are scaled by `scale`.
    pub(super) fn lift(record: RawRecord, witness: &Tensor<1>, scale: &mut RowScale) -> Self {
        let RawRecord { layer, primitive, weight, bias, kept, ids, output_grad } = record;
        let contributions = Vec::with_capacity(2);
        let kept = kept.into_iter();
        let mut lift = Lift { witness, scale, layer, weight, bias, kept, ids, contributions };
        let batch_size = match primitive {
            Primitive::Linear => lift.linear(output_grad),
            Primitive::TransposedLinear => lift.transposed_linear(output_grad),
            Primitive::Embedding => lift.embedding(output_grad),
            Primitive::Scale { negative, .. } => lift.scale(output_grad, negative),
            Primitive::Repeat => lift.repeat(output_grad),
            Primitive::Conv1d(_) | Primitive::ConvTranspose1d(_) => {
                lift.convolution::<3>(output_grad, primitive)
            }
            Primitive::Conv2d(_) | Primitive::ConvTranspose2d(_) => {
                lift.convolution::<4>(output_grad, primitive)
            }
            Primitive::Conv3d(_) | Primitive::ConvTranspose3d(_) => {
                lift.convolution::<5>(output_grad, primitive)
            }
            Primitive::DeformConv2d(options) => lift.deformed(output_grad, options),
        };
        Self { batch_size, contributions: lift.contributions }
    }
}

impl Contribution {
    /// The rule of this use alone.
    pub(super) fn rule(&self) -> &dyn Rule {
        match self {
            Self::Outer(outer) => outer,
            Self::Other(rule) => &**rule,
        }
    }
}

/// A record on its way to contributions. The methods take the gradient of the output and return its
/// number of rows.
struct Lift<'a> {
    witness: &'a Tensor<1>,
    scale: &'a mut RowScale,
    layer: LayerIds,
    /// Shape of the weight, if it is trained.
    weight: Option<Shape>,
    /// Whether the bias is trained.
    bias: bool,
    kept: std::vec::IntoIter<Slot>,
    ids: Option<Slot>,
    contributions: Vec<(ParamId, Contribution)>,
}

impl Lift<'_> {
    fn take<const D: usize>(&self, slot: Slot) -> Tensor<D> {
        single(ops::take(self.witness, slot))
    }

    fn output_grad<const D: usize>(&mut self, slot: Slot) -> Tensor<D> {
        let grad = self.take(slot);
        self.scale.apply(grad)
    }

    /// What the forward pass kept, in that order; absent if only the bias is trained.
    fn kept<const D: usize>(&mut self) -> Option<Tensor<D>> {
        self.kept.next().map(|slot| self.take(slot))
    }

    fn push(&mut self, id: ParamId, rule: impl Rule + 'static) {
        self.contributions.push((id, Contribution::Other(Box::new(rule))));
    }

    fn push_outer(&mut self, outer: OuterProducts) {
        self.contributions.push((self.layer.weight, Contribution::Outer(outer)));
    }

    /// The bias along `axis` of the gradient, if it is trained.
    fn shift<const D: usize>(&mut self, output_grad: &Tensor<D>, axis: usize) {
        let (true, Some(id)) = (self.bias, self.layer.bias) else {
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

    fn linear(&mut self, output_grad: Slot) -> usize {
        let output_grad = self.output_grad::<3>(output_grad);
        let batch_size = output_grad.dims()[0];
        self.shift(&output_grad, 2);
        if let Some(input) = self.kept() {
            self.push_outer(OuterProducts::dense(input, output_grad));
        }
        batch_size
    }

    fn transposed_linear(&mut self, output_grad: Slot) -> usize {
        let output_grad = self.output_grad::<3>(output_grad);
        let batch_size = output_grad.dims()[0];
        self.shift(&output_grad, 2);
        if let Some(input) = self.kept() {
            self.push_outer(OuterProducts::dense(output_grad, input));
        }
        batch_size
    }

    fn embedding(&mut self, output_grad: Slot) -> usize {
        let output_grad = self.output_grad::<3>(output_grad);
        let batch_size = output_grad.dims()[0];
        if let (Some(shape), Some(ids)) = (self.weight.take(), self.ids.take()) {
            let ids = ops::take_ids(self.witness, ids);
            self.push_outer(OuterProducts::indexed(shape[0], ids, output_grad));
        }
        batch_size
    }

    fn scale(&mut self, output_grad: Slot, negative: bool) -> usize {
        let output_grad = self.output_grad::<4>(output_grad);
        let batch_size = output_grad.dims()[0];
        self.shift(&output_grad, 2);
        if let Some(input) = self.kept::<4>() {
            let input = if negative { input.clamp_max(0.0) } else { input };
            self.push(self.layer.weight, Scale { input, output_grad });
        }
        batch_size
    }

    fn repeat(&mut self, output_grad: Slot) -> usize {
        let output_grad = self.output_grad::<2>(output_grad);
        let batch_size = output_grad.dims()[0];
        self.push(self.layer.weight, Repeated { output_grad });
        batch_size
    }

    fn convolution<const D: usize>(&mut self, output_grad: Slot, primitive: Primitive) -> usize {
        let output_grad = self.output_grad::<D>(output_grad);
        let batch_size = output_grad.dims()[0];
        self.shift(&output_grad, 1);
        if let (Some(input), Some(weight)) = (self.kept::<D>(), self.weight.take())
            && let Some(rule) = ConvWeight::new(primitive, weight, input, output_grad)
        {
            self.push(self.layer.weight, rule);
        }
        batch_size
    }

    fn deformed(&mut self, output_grad: Slot, options: DeformConvOptions<2>) -> usize {
        let output_grad = self.output_grad::<4>(output_grad);
        let batch_size = output_grad.dims()[0];
        self.shift(&output_grad, 1);
        if let (Some(input), Some(offset), mask, Some(weight)) =
            (self.kept(), self.kept(), self.kept(), self.weight.take())
        {
            let rule = DeformConvWeight { input, offset, mask, output_grad, weight, options };
            self.push(self.layer.weight, rule);
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
pub(crate) fn single<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.dtype() == DType::F32 { tensor } else { tensor.cast(DType::F32) }
}
