//! Networks of several types as one type.

/// Defines a type that holds any of several networks. The training code is then compiled once, and
/// not for each of them.
///
/// The paths of the parameters are the paths of the network, so their records are interchangeable.
#[macro_export]
macro_rules! any_classifier {
    (
        $(#[$doc:meta])*
        $name:ident($inputs:ty) { $($(#[$of:meta])* $variant:ident($model:ty),)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        // A program has one network.
        #[allow(clippy::large_enum_variant)]
        pub enum $name {
            $($(#[$of])* $variant($model),)*
        }

        $(impl From<$model> for $name {
            fn from(model: $model) -> Self {
                Self::$variant(model)
            }
        })*

        impl ::burn::module::Module for $name {
            fn collect_devices(
                &self,
                devices: ::burn::module::Devices,
            ) -> ::burn::module::Devices {
                match self { $(Self::$variant(model) => model.collect_devices(devices),)* }
            }

            fn fork(self, device: &::burn::tensor::Device) -> Self {
                match self { $(Self::$variant(model) => Self::$variant(model.fork(device)),)* }
            }

            fn to_device(self, device: &::burn::tensor::Device) -> Self {
                match self { $(Self::$variant(model) => Self::$variant(model.to_device(device)),)* }
            }

            fn train(self) -> Self {
                match self { $(Self::$variant(model) => Self::$variant(model.train()),)* }
            }

            fn valid(&self) -> Self {
                match self { $(Self::$variant(model) => Self::$variant(model.valid()),)* }
            }

            fn materialize(self) -> Self {
                match self { $(Self::$variant(model) => Self::$variant(model.materialize()),)* }
            }

            fn visit<V: ::burn::module::ModuleVisitor>(&self, visitor: &mut V) {
                match self { $(Self::$variant(model) => model.visit(visitor),)* }
            }

            fn map<V: ::burn::module::ModuleMapper>(self, mapper: &mut V) -> Self {
                match self { $(Self::$variant(model) => Self::$variant(model.map(mapper)),)* }
            }
        }

        impl $crate::models::Classifier for $name {
            type Inputs = $inputs;

            fn forward(&self, inputs: $inputs) -> ::burn::tensor::Tensor<2> {
                match self {
                    $(Self::$variant(model) => {
                        $crate::models::Classifier::forward(model, inputs)
                    })*
                }
            }
        }
    };
}
