use burn::backend::{
    Backend, ExtensionType,
    tensor::{FloatTensor, IntTensor},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

/// The bias of a layer, if it has one.
#[doc(hidden)]
#[derive(ExtensionType)]
pub enum Bias<B: Backend> {
    /// The bias.
    Present(FloatTensor<B>),
    /// The layer has no bias.
    Absent,
}

impl<B: Backend> Bias<B> {
    pub(super) fn into_option(self) -> Option<FloatTensor<B>> {
        match self {
            Self::Present(bias) => Some(bias),
            Self::Absent => None,
        }
    }
}

impl<B: Backend, C: CheckpointStrategy> Bias<Autodiff<B, C>> {
    /// Returns the bias without its graph.
    pub(super) fn into_inner(self) -> Bias<B> {
        match self {
            Self::Present(bias) => Bias::Present(bias.into_primitive()),
            Self::Absent => Bias::Absent,
        }
    }
}

/// The tensors that the forward pass keeps for the gradient of a weight.
#[doc(hidden)]
#[derive(ExtensionType)]
pub enum Kept<B: Backend> {
    /// Nothing: the weight is not trained, or its gradient needs nothing.
    Nothing,
    /// The input.
    One(FloatTensor<B>),
    /// Input and offset of a deformable convolution; input and weight of a standardized one.
    Two(FloatTensor<B>, FloatTensor<B>),
    /// Input, offset and mask of a deformable convolution.
    Modulated(FloatTensor<B>, FloatTensor<B>, FloatTensor<B>),
    /// Indices of rows of the weight.
    Ids(IntTensor<B>),
}

const KEPT: &str = "the forward pass keeps what its backward step needs";

impl<B: Backend> Kept<B> {
    /// Restores the value from the parts that [`into_parts`](Self::into_parts) returned.
    pub(super) fn from_parts(floats: Vec<FloatTensor<B>>, ids: Option<IntTensor<B>>) -> Self {
        let mut floats = floats.into_iter();
        match (floats.next(), floats.next(), floats.next(), ids) {
            (Some(input), None, None, None) => Self::One(input),
            (Some(input), Some(other), None, None) => Self::Two(input, other),
            (Some(input), Some(offset), Some(mask), None) => Self::Modulated(input, offset, mask),
            (None, None, None, Some(ids)) => Self::Ids(ids),
            _ => Self::Nothing,
        }
    }

    /// Returns the float tensors and the indices.
    pub(super) fn into_parts(self) -> (Vec<FloatTensor<B>>, Option<IntTensor<B>>) {
        match self {
            Self::Nothing => (vec![], None),
            Self::One(input) => (vec![input], None),
            Self::Two(input, other) => (vec![input, other], None),
            Self::Modulated(input, offset, mask) => (vec![input, offset, mask], None),
            Self::Ids(ids) => (vec![], Some(ids)),
        }
    }

    pub(super) fn one(self) -> FloatTensor<B> {
        match self {
            Self::One(input) => Some(input),
            _ => None,
        }
        .expect(KEPT)
    }

    pub(super) fn two(self) -> [FloatTensor<B>; 2] {
        match self {
            Self::Two(input, other) => Some([input, other]),
            _ => None,
        }
        .expect(KEPT)
    }

    pub(super) fn ids(self) -> IntTensor<B> {
        match self {
            Self::Ids(ids) => Some(ids),
            _ => None,
        }
        .expect(KEPT)
    }

    pub(super) fn deformed(self) -> (FloatTensor<B>, FloatTensor<B>, Option<FloatTensor<B>>) {
        match self {
            Self::Two(input, offset) => Some((input, offset, None)),
            Self::Modulated(input, offset, mask) => Some((input, offset, Some(mask))),
            _ => None,
        }
        .expect(KEPT)
    }
}
