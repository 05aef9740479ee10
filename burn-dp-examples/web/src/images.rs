//! Images: synthetic, or from the user's files.

use burn_dp_examples::data::{DataError, ImageItem, PIXELS, digits, idx};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// Seed of the synthetic digits.
const SEED: u64 = 0;

/// Labeled images of 28 × 28 pixels.
#[wasm_bindgen]
#[derive(Clone)]
pub struct Images {
    pub(crate) items: Vec<ImageItem>,
    /// Where they are from, for the privacy statement.
    pub(crate) source: &'static str,
}

const DRAWN: &str = "synthetic digits of the page";
const FILES: &str = "files of the user";

#[wasm_bindgen]
impl Images {
    /// Returns the number of images.
    #[wasm_bindgen(getter)]
    pub fn count(&self) -> usize {
        self.items.len()
    }

    /// Returns the pixels of all images, one after another.
    pub fn pixels(&self) -> Vec<u8> {
        self.items.iter().flat_map(|item| item.image.iter().copied()).collect()
    }

    /// Returns the digits.
    pub fn labels(&self) -> Vec<u8> {
        self.items.iter().map(|item| item.label as u8).collect()
    }
}

/// Makes synthetic digits to train on.
#[wasm_bindgen(js_name = drawnImages)]
pub fn drawn_images(count: usize) -> Images {
    Images { items: digits::splits(SEED, count, 0).train.items().to_vec(), source: DRAWN }
}

/// Makes synthetic digits to test on, which differ from those to train on.
#[wasm_bindgen(js_name = drawnTestImages)]
pub fn drawn_test_images(count: usize) -> Images {
    Images { items: digits::splits(SEED, 0, count).test.items().to_vec(), source: DRAWN }
}

/// Reads the two IDX files of a data set, plain or compressed with gzip.
#[wasm_bindgen(js_name = idxImages)]
pub fn idx_images(images: &[u8], labels: &[u8]) -> Result<Images, JsError> {
    let images = idx::images_of("the images", images)?;
    let labels = idx::labels_of("the labels", labels)?;
    if images.len() != labels.len() {
        let counts = [images.len(), labels.len()];
        let (images, labels) = ("the images".into(), "the labels".into());
        return Err(DataError::CountMismatch { images, labels, counts }.into());
    }
    let items = images.into_iter().zip(labels);
    let items = items.map(|(image, label)| ImageItem { image: image.into(), label: label.into() });
    Ok(Images { items: items.collect(), source: FILES })
}

/// Returns images of these pixels, one after another, and these digits.
#[wasm_bindgen(js_name = labeledImages)]
pub fn labeled_images(pixels: &[u8], labels: &[u8]) -> Result<Images, JsError> {
    let (images, rest) = pixels.as_chunks::<PIXELS>();
    if !rest.is_empty() || images.len() != labels.len() || labels.is_empty() {
        return Err(JsError::new(
            "there must be 784 pixels for each digit, and at least one digit",
        ));
    }
    if let Some(label) = labels.iter().find(|&&label| label > 9) {
        return Err(JsError::new(&format!("{label} is not a digit from 0 to 9")));
    }
    let items = images.iter().zip(labels);
    let items =
        items.map(|(&image, &label)| ImageItem { image: image.into(), label: label.into() });
    Ok(Images { items: items.collect(), source: FILES })
}
