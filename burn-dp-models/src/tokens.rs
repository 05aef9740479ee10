//! Batches of token sequences.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// The tokens of one text, and the position from which they are predicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Ids of the tokens; at least one.
    pub ids: Vec<u32>,
    /// Number of tokens that are given and not predicted: the prompt. At least one.
    pub given: usize,
}

/// A batch of token sequences, padded to the length of the longest.
///
/// The padding is masked, so the result of a sequence does not depend on the length of the others.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// Ids, `[batch_size, length]`; the padding has id 0.
    pub ids: Tensor<2, Int>,
    /// Whether a position is padding, `[batch_size, length]`.
    pub padding: Tensor<2, Bool>,
    /// Index of the last token of each sequence, `[batch_size]`.
    pub last: Tensor<1, Int>,
    /// The token after each position, or [`IGNORED`](Self::IGNORED), `[batch_size, length]`.
    pub next: Tensor<2, Int>,
}

impl Tokens {
    /// The target of a position that has no loss, as in PyTorch.
    pub const IGNORED: i64 = -100;

    /// Pads sequences to one length.
    pub fn new(sequences: &[&Sequence], device: &Device) -> Self {
        let rows = sequences.len();
        let length = sequences.iter().map(|sequence| sequence.ids.len()).max().unwrap_or(1).max(1);
        let mut ids = Vec::with_capacity(rows * length);
        let mut next = Vec::with_capacity(rows * length);
        let mut padding = Vec::with_capacity(rows * length);
        for Sequence { ids: tokens, given } in sequences {
            for position in 0..length {
                ids.push(tokens.get(position).map_or(0, |id| i64::from(*id)));
                padding.push(position >= tokens.len());
                let target = tokens.get(position + 1).filter(|_| position + 1 >= *given);
                next.push(target.map_or(Self::IGNORED, |id| i64::from(*id)));
            }
        }
        let last = sequences.iter().map(|sequence| sequence.ids.len().saturating_sub(1) as i64);
        Self {
            ids: Tensor::from_data(TensorData::new(ids, [rows, length]), device),
            padding: Tensor::from_data(TensorData::new(padding, [rows, length]), device),
            last: Tensor::from_data(TensorData::new(last.collect::<Vec<_>>(), [rows]), device),
            next: Tensor::from_data(TensorData::new(next, [rows, length]), device),
        }
    }

    /// Returns the indices of the positions, `[batch_size, length]`.
    pub(crate) fn positions(&self) -> Tensor<2, Int> {
        let [rows, length] = self.ids.dims();
        let positions = Tensor::arange(0..length as i64, &self.ids.device());
        positions.reshape([1, length]).repeat_dim(0, rows)
    }

    /// Returns the vector of the last token of each sequence.
    ///
    /// # Shapes
    ///
    /// - hidden: `[batch_size, length, width]`
    /// - output: `[batch_size, width]`
    pub(crate) fn of_last(&self, hidden: Tensor<3>) -> Tensor<2> {
        let [rows, _, width] = hidden.dims();
        let index = self.last.clone().reshape([rows, 1, 1]).repeat_dim(2, width);
        hidden.gather(1, index).reshape([rows, width])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use burn::module::{ModuleVisitor, Param};
    use burn::nn::Linear;
    use burn::tensor::Gradients;
    use burn_dp::nn::{IntoPrivate, Private};

    use super::*;
    use crate::{Config, TextClassifier};

    /// The configuration of a small model.
    pub(crate) fn golden(name: &str) -> Config {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        Config::read(&folder).unwrap()
    }

    /// Returns a layer whose output is constant in the equal parts that have a value.
    pub(crate) fn constant(layer: &Private<Linear>, parts: &[Option<f32>]) -> Private<Linear> {
        let Linear { weight, .. } = layer.clone().into_inner();
        let [_, width] = weight.dims();
        let columns = |of: fn(Option<f32>) -> f32| {
            let repeat = |&part: &Option<f32>| std::iter::repeat_n(of(part), width / parts.len());
            let values: Vec<f32> = parts.iter().flat_map(repeat).collect();
            Tensor::<1>::from_floats(values.as_slice(), &weight.device())
        };
        let bias = columns(|part| part.unwrap_or(0.0));
        let kept = columns(|part| if part.is_none() { 1.0 } else { 0.0 });
        let weight = (weight.val() * kept.unsqueeze()).detach();
        let (weight, bias) = (Param::from_tensor(weight), Some(Param::from_tensor(bias)));
        Linear { weight, bias }.private()
    }

    /// The gradients of all parameters.
    struct Collected<'a>(&'a Gradients, Vec<f32>);

    impl ModuleVisitor for Collected<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(grad) = param.val().grad(self.0) {
                self.1.extend(grad.into_data().iter::<f32>());
            }
        }
    }

    /// Checks the scores of a short text, and their gradients, alone and next to a long text.
    pub(crate) fn assert_padding_has_no_effect<M: TextClassifier>(model: &M) {
        let short = Sequence { ids: vec![9, 4], given: 2 };
        let long = Sequence { ids: vec![5, 6, 7, 8, 3, 2], given: 6 };
        let values = |sequences: &[&Sequence]| {
            let scores = model.scores(&Tokens::new(sequences, &Device::flex().autodiff()));
            let scores = scores.narrow(0, 0, 1).narrow(1, 0, 1);
            let mut values: Vec<f32> = scores.to_data().iter().collect();
            let gradients = scores.backward();
            let mut collected = Collected(&gradients, Vec::new());
            model.visit(&mut collected);
            values.append(&mut collected.1);
            values
        };
        let (alone, next) = (values(&[&short]), values(&[&short, &long]));
        assert!(alone.len() == next.len() && alone.len() > 500, "{}", alone.len());
        for (alone, next) in alone.iter().zip(&next) {
            assert!((alone - next).abs() <= 1e-5 * (1.0 + alone.abs()), "{alone} {next}");
        }
    }

    #[test]
    fn prompt_and_padding_have_no_target() {
        let device = Device::flex();
        let long = Sequence { ids: vec![5, 6, 7, 8], given: 2 };
        let short = Sequence { ids: vec![9, 4], given: 1 };
        let tokens = Tokens::new(&[&long, &short], &device);
        let next = tokens.next.into_data().iter::<i64>().collect::<Vec<_>>();
        assert_eq!(next, [-100, 7, 8, -100, 4, -100, -100, -100]);
        let ids = tokens.ids.into_data().iter::<i64>().collect::<Vec<_>>();
        assert_eq!(ids, [5, 6, 7, 8, 9, 4, 0, 0]);
        assert_eq!(tokens.last.into_data().iter::<i64>().collect::<Vec<_>>(), [3, 1]);
    }
}
