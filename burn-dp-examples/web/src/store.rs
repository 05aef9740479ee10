//! The functions of the worker that this library calls.

use burn_dp::checkpoint::{ReleaseStore, StoreFuture};
use js_sys::Promise;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen_futures::JsFuture;

#[wasm_bindgen]
extern "C" {
    /// Appends a text to the log of releases; the promise is resolved when the text is durable.
    #[wasm_bindgen(js_namespace = ["globalThis", "burnDp"], js_name = appendRelease)]
    fn append_release(text: &str) -> Promise;

    /// Reports a panic to the page.
    #[wasm_bindgen(js_namespace = ["globalThis", "burnDp"], js_name = reportPanic)]
    pub(crate) fn report_panic(message: &str);
}

/// The log of releases in the storage of the browser. The worker holds a lock of the browser, so
/// that no other page continues the run.
pub(crate) struct BrowserStore;

impl ReleaseStore for BrowserStore {
    fn append(&mut self, text: String) -> StoreFuture<'_> {
        Box::pin(async move {
            match JsFuture::from(append_release(&text)).await {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{error:?}").into()),
            }
        })
    }

    fn is_exclusive(&self) -> bool {
        true
    }
}
