//! What the types of private values must not be able to do. Unlike an example that must not
//! compile, these lines stop compiling if a type is renamed, and if it gains the trait.

use std::fmt::Display;
use std::ops::Deref;

use burn::data::dataset::InMemDataset;
use burn::data::dataset::transform::{
    ComposedDataset, Mapper, MapperDataset, SamplerDataset, SelectionDataset, WindowsDataset,
};
use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::optim::{LBFGS, ModuleOptimizer};
use burn::tensor::Tensor;
use burn_dp::NonPrivate;
use burn_dp::clipping::ClippedSum;
use burn_dp::grads::PerExampleGradients;
use burn_dp::optim::{DpOptimizer, PublicSchedule};
use burn_dp::sampling::{DistinctRecords, DrawPart, PhysicalBatch};
use static_assertions::{assert_impl_all, assert_not_impl_any};

// Each value takes part in one step, once.
assert_not_impl_any!(PerExampleGradients: Clone, Copy);
assert_not_impl_any!(ClippedSum: Clone, Copy);
assert_not_impl_any!(DrawPart: Clone, Copy);
assert_not_impl_any!(PhysicalBatch<Tensor<1>>: Clone, Copy);
// Two optimizers would use the same noise and count half of the releases.
assert_not_impl_any!(DpOptimizer: Clone, Copy);

// An exact private number has no way out but `reveal`.
assert_not_impl_any!(NonPrivate<f64>: Display, Deref, Into<f64>, AsRef<f64>, PartialOrd);

// A learning rate that may follow a private loss.
assert_not_impl_any!(ModuleLrScheduler: Into<PublicSchedule>);
// An optimizer that evaluates the loss itself. The one that the private optimizer wraps exists.
assert_not_impl_any!(LBFGS: Into<ModuleOptimizer>);

// Data sets that resample, overlap, or return whatever a function returns.
struct Any;

impl Mapper<u8, u8> for Any {
    fn map(&self, item: &u8) -> u8 {
        *item
    }
}

type Records = InMemDataset<u8>;
assert_impl_all!(Records: DistinctRecords<u8>);
assert_not_impl_any!(SamplerDataset<Records, u8>: DistinctRecords<u8>);
assert_not_impl_any!(ComposedDataset<Records>: DistinctRecords<u8>);
assert_not_impl_any!(SelectionDataset<Records, u8>: DistinctRecords<u8>);
assert_not_impl_any!(MapperDataset<Records, Any, u8>: DistinctRecords<u8>);
assert_not_impl_any!(WindowsDataset<Records, u8>: DistinctRecords<Vec<u8>>);
