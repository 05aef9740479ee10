use burn::module::{
    Content, Devices, DisplaySettings, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper,
    ModuleVisitor,
};
use burn::tensor::{Device, Tensor};
use burn_dp::nn::RandomCrop;

use super::Classifier;

/// A network whose images are moved and mirrored at random during training.
///
/// The paths of the parameters are the paths of the network, so their records are interchangeable.
#[derive(Clone, Debug)]
pub struct Augmented<M> {
    /// The network.
    pub network: M,
    /// Moves the images.
    pub crop: RandomCrop,
}

impl<M: Classifier<Inputs = Tensor<4>>> Classifier for Augmented<M> {
    type Inputs = Tensor<4>;

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.network.forward(self.crop.forward(images))
    }
}

impl<M: Module> Module for Augmented<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.network.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self { network: self.network.fork(device), crop: self.crop.fork(device) }
    }

    fn to_device(self, device: &Device) -> Self {
        Self { network: self.network.to_device(device), crop: self.crop.to_device(device) }
    }

    fn train(self) -> Self {
        Self { network: self.network.train(), crop: self.crop.train() }
    }

    fn valid(&self) -> Self {
        Self { network: self.network.valid(), crop: self.crop.valid() }
    }

    fn materialize(self) -> Self {
        Self { network: self.network.materialize(), crop: self.crop }
    }

    fn visit<Visitor: ModuleVisitor>(&self, visitor: &mut Visitor) {
        self.network.visit(visitor);
        self.crop.visit(visitor);
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        Self { network: self.network.map(mapper), crop: self.crop.map(mapper) }
    }
}

impl<M: ModuleDisplay> ModuleDisplayDefault for Augmented<M> {
    fn content(&self, content: Content) -> Option<Content> {
        self.network.content(content)
    }

    fn num_params(&self) -> usize {
        ModuleDisplayDefault::num_params(&self.network)
    }
}

impl<M: ModuleDisplay> ModuleDisplay for Augmented<M> {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        self.network.custom_settings()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        self.network.custom_content(content)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn_dp::model::TrainableParameters;

    use super::*;
    use crate::models::MlpConfig;

    #[test]
    fn parameters_keep_the_paths_of_the_network() {
        let device = Device::flex().autodiff();
        let network = MlpConfig::new().init(&device);
        let augmented = Augmented { network: network.clone(), crop: RandomCrop::new(2).unwrap() };
        let paths = |parameters: TrainableParameters| -> Vec<String> {
            parameters.iter().map(|parameter| parameter.path.clone()).collect()
        };
        let expected = paths(TrainableParameters::of(&network).unwrap());
        assert_eq!(paths(TrainableParameters::of(&augmented).unwrap()), expected);
        let images = Tensor::<4>::ones([2, 1, 28, 28], &Device::flex());
        let (plain, valid) = (network.valid(), augmented.valid());
        let scores = plain.forward(images.clone()).into_data();
        valid.forward(images).into_data().assert_eq(&scores, true);
    }
}
