use std::fmt;

use burn::module::{
    Content, Devices, DisplaySettings, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper,
    ModuleVisitor, Param,
};
use burn::nn;
use burn::tensor::{Device, Tensor};

use super::StandardizedConv2d;
use super::backend::check_devices;
use super::scope::PrivateScope;

mod sealed {
    pub trait Sealed {}
}

/// A layer that has a per-example rule.
pub trait PrivateLayer: Module + sealed::Sealed {}

macro_rules! private_layers {
    ($($layer:ty),* $(,)?) => {
        $(
            impl sealed::Sealed for $layer {}
            impl PrivateLayer for $layer {}
        )*

        /// The types that can be wrapped, in addition to bare parameters.
        #[cfg(test)]
        pub(super) const WRAPPED: &[&str] = &[$(stringify!($layer)),*];
    };
}

private_layers!(
    nn::Linear,
    nn::Dropout,
    nn::Embedding,
    nn::LayerNorm,
    nn::RmsNorm,
    nn::GroupNorm,
    nn::InstanceNorm,
    nn::BatchNorm,
    nn::PRelu,
    nn::conv::Conv1d,
    nn::conv::Conv2d,
    nn::conv::Conv3d,
    nn::conv::ConvTranspose1d,
    nn::conv::ConvTranspose2d,
    nn::conv::ConvTranspose3d,
    nn::conv::DeformConv2d,
    StandardizedConv2d,
    nn::GateController,
    nn::Rnn,
    nn::BiRnn,
    nn::Gru,
    nn::BiGru,
    nn::Lstm,
    nn::BiLstm,
    nn::norm::Normalization,
    nn::activation::Activation,
    nn::pool::MaxPool2d,
    nn::activation::SwiGlu,
    nn::attention::MultiHeadAttention,
    nn::transformer::PositionWiseFeedForward,
    nn::transformer::TransformerEncoder,
    nn::transformer::TransformerEncoderLayer,
    nn::transformer::TransformerDecoder,
    nn::transformer::TransformerDecoderLayer,
);

impl<const D: usize> sealed::Sealed for Param<Tensor<D>> {}
impl<const D: usize> PrivateLayer for Param<Tensor<D>> {}

/// A Burn layer whose backward pass can provide per-example gradients.
///
/// The wrapper does not change paths: the parameter `weight` of a field `fc` keeps the path
/// `fc.weight`, so records of the plain and of the private model are interchangeable. The inner
/// layer is not accessible, because its own `forward` sums the gradients of the examples;
/// [`into_inner`](Self::into_inner) returns it.
///
/// # Example
///
/// ```
/// use burn::module::Module;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::{Device, Tensor};
/// use burn_dp::nn::{IntoPrivate, Private};
///
/// #[derive(Module, Debug)]
/// struct Classifier {
///     fc: Private<Linear>,
/// }
///
/// let device = Device::flex().autodiff();
/// let model = Classifier { fc: LinearConfig::new(4, 2).init(&device).private() };
/// let output = model.fc.forward(Tensor::<2>::ones([3, 4], &device));
/// assert_eq!(output.dims(), [3, 2]);
/// ```
#[derive(Clone)]
pub struct Private<M> {
    pub(crate) inner: M,
}

impl<M: PrivateLayer> Private<M> {
    /// Wraps a layer.
    ///
    /// # Panics
    ///
    /// Panics if the layer is on an autodiff device whose backend is not compiled into this crate.
    /// Enable the `burn-dp` feature of that name.
    pub fn new(layer: M) -> Self {
        Self { inner: layer }.checked()
    }

    /// Returns the wrapped layer.
    pub fn into_inner(self) -> M {
        self.inner
    }
}

impl<M: PrivateLayer> From<M> for Private<M> {
    fn from(layer: M) -> Self {
        Self::new(layer)
    }
}

/// Wraps layers with `layer.private()`.
pub trait IntoPrivate: PrivateLayer {
    /// Wraps the layer in [`Private`].
    ///
    /// # Panics
    ///
    /// Panics like [`Private::new`].
    fn private(self) -> Private<Self> {
        Private::new(self)
    }
}

impl<M: PrivateLayer> IntoPrivate for M {}

impl<M: Module> Private<M> {
    /// Returns the layer after checking that its devices can train it.
    fn checked(self) -> Self {
        check_devices(&self.inner);
        self
    }
}

impl<M: fmt::Debug> fmt::Debug for Private<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Private").field(&self.inner).finish()
    }
}

impl<M: Module> Module for Private<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.inner.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self { inner: self.inner.fork(device) }.checked()
    }

    fn to_device(self, device: &Device) -> Self {
        Self { inner: self.inner.to_device(device) }.checked()
    }

    fn train(self) -> Self {
        Self { inner: self.inner.train() }.checked()
    }

    fn valid(&self) -> Self {
        Self { inner: self.inner.valid() }
    }

    fn materialize(self) -> Self {
        Self { inner: self.inner.materialize() }
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        let _scope = PrivateScope::enter();
        self.inner.visit(visitor);
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        Self { inner: self.inner.map(mapper) }
    }
}

/// Returns `Private<Linear>` for the wrapper of `burn_nn::modules::linear::Linear`.
fn display_name<M>() -> String {
    let path = std::any::type_name::<M>();
    format!("Private<{}>", path.rsplit("::").next().unwrap_or(path))
}

impl<M: ModuleDisplay> ModuleDisplayDefault for Private<M> {
    fn content(&self, content: Content) -> Option<Content> {
        self.inner.content(content.set_top_level_type(&display_name::<M>()))
    }

    fn num_params(&self) -> usize {
        ModuleDisplayDefault::num_params(&self.inner)
    }
}

impl<M: ModuleDisplay> ModuleDisplay for Private<M> {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        self.inner.custom_settings()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        self.inner.custom_content(content.set_top_level_type(&display_name::<M>()))
    }
}
