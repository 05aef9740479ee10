//! Private training of a digit classifier in a browser.
//!
//! The page (folder `page`) runs this library in a Web Worker: [`Trainer`] runs the steps, and
//! [`plan`] computes what a budget buys. [`cost`](fn@cost) measures what privacy costs. Nothing
//! here makes a request; releases are stored by `page/store.js` before their noise is drawn
//! ([`store`]).

mod cost;
mod images;
mod network;
mod settings;
mod store;
mod trainer;

pub use cost::cost;
pub use images::{Images, drawn_images, drawn_test_images, idx_images, labeled_images};
pub use settings::plan;
pub use trainer::{LostSteps, Saved, Trainer};

use wasm_bindgen::prelude::wasm_bindgen;

#[cfg(target_family = "wasm")]
unsafe extern "C" {
    fn __wasm_call_ctors();
}

/// Runs the registrations of the backends once. Without this call the linker lets every exported
/// function run them again.
#[wasm_bindgen(start)]
pub fn start() {
    #[cfg(target_family = "wasm")]
    // SAFETY: the linker defines the function; it is called once, before anything else.
    unsafe {
        __wasm_call_ctors();
    }
    std::panic::set_hook(Box::new(|info| store::report_panic(&info.to_string())));
}

/// Returns the backends of this build.
#[wasm_bindgen]
pub fn backends() -> Vec<String> {
    let gpu = cfg!(feature = "webgpu").then_some("webgpu");
    gpu.into_iter().chain(["flex"]).map(String::from).collect()
}

/// Returns the released gradient of a step whose seed is known, as bits: the same on every machine.
#[wasm_bindgen(js_name = seededStep)]
pub fn seeded_step() -> Result<String, wasm_bindgen::JsError> {
    Ok(burn_dp_examples::seeded_step::released_bits()?)
}
