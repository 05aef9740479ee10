//! Values of a model that a forward pass can replace.

use std::fmt;
use std::sync::{Arc, Mutex};

use burn::module::{
    Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
    Param, ParamId,
};
use burn::tensor::{Bool, Device, Int, Tensor};

/// A value that a forward pass can replace, like Burn's `RunningState`, of a kind that Burn lacks.
macro_rules! stored {
    ($name:ident, $kind:ty, $visit:ident) => {
        #[derive(Clone, Debug)]
        pub(crate) struct $name {
            id: ParamId,
            value: Arc<Mutex<Tensor<1, $kind>>>,
        }

        impl $name {
            pub(crate) fn new(value: Tensor<1, $kind>) -> Self {
                Self { id: ParamId::new(), value: Arc::new(Mutex::new(value)) }
            }

            pub(crate) fn set(&self, value: Tensor<1, $kind>) {
                *self.value.lock().unwrap() = value;
            }
        }

        impl Module for $name {
            fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
                let value = self.value.lock().unwrap().clone();
                visitor.$visit(&Param::initialized(self.id, value));
            }
            fn map<M: ModuleMapper>(self, _: &mut M) -> Self {
                self
            }
            fn to_device(self, _: &Device) -> Self {
                self
            }
            fn fork(self, _: &Device) -> Self {
                self
            }
            fn collect_devices(&self, devices: Devices) -> Devices {
                devices
            }
            fn materialize(self) -> Self {
                self
            }
            fn valid(&self) -> Self {
                self.clone()
            }
            fn train(self) -> Self {
                self
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl ModuleDisplayDefault for $name {
            fn content(&self, content: Content) -> Option<Content> {
                content.optional()
            }
        }

        impl ModuleDisplay for $name {}
    };
}

stored!(Counter, Int, visit_int);
stored!(Flags, Bool, visit_bool);
