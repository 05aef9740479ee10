//! The parametric primitives: Burn's operations with parameters, with a backward step that can pass
//! on per-example information instead of computing the summed gradient.
//!
//! A primitive is Burn's own operation with its parameters as constants, followed by a *tap*: an
//! identity whose parents are the output and the parameters. The tap keeps the tensors that the
//! gradients of the parameters are computed from. Its backward step is hand-written. While a
//! [recording](crate::grads) is active on the thread, it passes on these tensors and the gradient
//! of the output, and computes no gradient of the parameters. Otherwise it computes their ordinary
//! gradients. The layer's output and the gradient of its input are Burn's in both cases.
//!
//! | file | content |
//! |---|---|
//! | `primitives/` | one file per primitive: layout of the record, ordinary gradient |
//! | `tap` | the forward pass |
//! | `autodiff/` | the backward steps |
//! | `recording` | the recording of one thread |
//! | `kernels/` | per-example norms, gradients and coefficients on devices with kernels |
//! | `release_ops`, `release_calls` | the release of sums on their device |
//! | `recurrent/` | recurrent layers, one primitive per sequence |
//! | `rows`, `max_pool` | softmax and normalization over the last axis, max pooling |
//! | `backends/` | native kernels, with Burn's operations as their oracles |

mod autodiff;
mod backends;
mod functions;
mod ids;
mod kept;
mod kernels;
mod layer_ops;
mod max_pool;
mod parametric_ops;
mod primitive;
mod primitives;
pub(crate) mod recording;
mod recurrent;
mod release_calls;
mod release_ops;
mod row_norms;
mod row_sums;
mod rows;
mod same_memory;
mod slot;
mod tap;

#[cfg(all(test, feature = "cube"))]
pub(crate) use backends::cube::{
    copied_memories, double_operations, erased_memories, normal_values,
};
pub(crate) use functions::{
    affine, convolution, convolution_gradients, gram_matrices, indexed_squared_norms,
    matrix_product, packed_linear, patches, put, row_normalize, row_softmax, single,
    standardized_gradients, take, take_ids, take_rows, weight_gradient, weighted_outer_products,
    window_maxima,
};
pub(crate) use ids::{bounded, first_outside, widened};
pub use kept::{Bias, Kept};
pub use kernels::{ClippingWords, KernelOps, RoundedUp};
pub(crate) use kernels::{
    DeviceClipping, DeviceGroup, DeviceParameter, coefficients, kept_examples, norm_products,
    scaled_examples, selected_outer_products, selected_rows, selects, single_above,
};
pub use layer_ops::LayerOps;
pub use max_pool::Windows;
pub use parametric_ops::ParametricOps;
pub use primitive::{LayerIds, Primitive};
pub use primitives::{Convolution, Patches};
pub use recurrent::{
    Cell, FusedOps, GateFunction, GateIds, GateParameters, GruCell, LstmCell, Recurrence, RnnCell,
};
pub(crate) use recurrent::{activation, recurrent};
pub(crate) use release_calls::{
    InParts, native_content_hash, native_correlated_release, native_erase, native_part,
    native_release,
};
pub use release_ops::{
    ContentHash, CorrelatedKeyedNoise, KeyedNoise, PlacedHashes, PlacedNoise, ReleaseOps,
};
pub(crate) use release_ops::{Earlier, Part, has_kernels, has_release, hash_units};
pub(crate) use row_norms::{enlarged_squared_norms, row_squared_norms};
pub(crate) use row_sums::{
    additions, any, axis_product_sums, axis_sums, block_roundings, gram_roundings, row_products,
    row_sums, weighted_rows,
};
pub(crate) use same_memory::is_same_memory;
pub use slot::Slot;
pub(crate) use tap::{apply, keep, keep_deformed, keep_ids, keep_standardized, mark_unkeyed};
