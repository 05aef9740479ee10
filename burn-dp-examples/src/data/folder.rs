//! Images in folders: one folder per class, in `train` and in `test` (or `val`), as LSUN and
//! ImageNet are often stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[cfg(feature = "images")]
use image::imageops::FilterType;
use rayon::prelude::*;

use super::{DataError, ImageBatcher, ImageDataset, ImageItem, Splits};

/// Name of the data set in reports.
pub const NAME: &str = "folder";

/// The layout, after "give the folder with".
const LAYOUT: &str = "train/CLASS/*.png and test/CLASS/*.png, one folder for each class";

/// Endings of the files that are read.
const ENDINGS: [&str; 3] = ["png", "jpg", "jpeg"];

/// Error of a build without image decoders.
#[cfg(not(feature = "images"))]
const FEATURE_MISSING: DataError = DataError::FeatureMissing {
    task: "reading a folder of images",
    feature: "images",
    remedy: "run it by `cargo xtask train folder`, or add `--features images`",
};

/// Reads `{train,test}/CLASS/*.{png,jpg,jpeg}`, cuts the middle square out of each image and scales
/// it to `side` × `side` pixels in three channels. `val` can replace `test`.
///
/// The classes are the names of the folders in `train`, in alphabetical order. They are treated as
/// public.
///
/// # Errors
///
/// Returns [`DataError::Missing`] if a folder is missing, [`DataError::Layout`] if a folder holds
/// no image, `train` has fewer than two classes, or `test` has a class that `train` does not have,
/// and [`DataError::Damaged`] if a file is not an image.
pub fn read(folder: &Path, side: usize) -> Result<Splits<ImageBatcher>, DataError> {
    #[cfg(not(feature = "images"))]
    if folder.is_dir() {
        return Err(FEATURE_MISSING);
    }
    let subfolder = |names: &[&str]| {
        let found = names.iter().map(|name| folder.join(name)).find(|path| path.is_dir());
        found.ok_or_else(|| DataError::Missing {
            folder: folder.into(),
            tried: names.iter().map(|&name| name.into()).collect(),
            wanted: LAYOUT,
        })
    };
    let (train, test) = (subfolder(&["train"])?, subfolder(&["test", "val"])?);
    let classes: BTreeMap<_, _> = subfolders(&train)?.into_iter().zip(0..).collect();
    let mut names = classes.keys();
    if let (Some(class), None) = (names.next(), names.next()) {
        let reason = format!(
            "holds one class, `{class}`, and a classifier needs at least two; give a folder with \
             {LAYOUT}"
        );
        return Err(DataError::Layout { path: train, reason });
    }
    let split = |folder: &Path| images(folder, &classes, side).map(ImageDataset::new);
    Ok(Splits {
        name: NAME.into(),
        classes: classes.len(),
        encoder: ImageBatcher::photographs(side),
        train: split(&train)?,
        test: split(&test)?,
    })
}

/// Returns the images of a split. The classes alternate, so its beginning contains all of them.
fn images(
    split: &Path,
    classes: &BTreeMap<String, u16>,
    side: usize,
) -> Result<Vec<ImageItem>, DataError> {
    let mut files: Vec<(usize, u16, PathBuf)> = Vec::new();
    for name in subfolders(split)? {
        let folder = split.join(&name);
        let layout = |reason: String| DataError::Layout { path: folder.clone(), reason };
        let Some(&label) = classes.get(&name) else {
            let known: Vec<_> = classes.keys().map(String::as_str).collect();
            let known = known.join(", ");
            return Err(layout(format!("`{name}` is not a class of train, which has {known}")));
        };
        let paths = images_in(&folder)?;
        if paths.is_empty() {
            return Err(layout(format!("holds no file that ends in {}", ENDINGS.join(", "))));
        }
        files.extend(paths.into_iter().enumerate().map(|(index, path)| (index, label, path)));
    }
    if files.is_empty() {
        let reason = format!("holds no folder; give a folder with {LAYOUT}");
        return Err(DataError::Layout { path: split.into(), reason });
    }
    files.sort();
    let item = |(_, label, path): (usize, u16, PathBuf)| {
        Ok(ImageItem { image: pixels(&path, side)?.into(), label })
    };
    files.into_par_iter().map(item).collect()
}

/// Returns the pixels of one file, channel by channel.
#[cfg(feature = "images")]
fn pixels(path: &Path, side: usize) -> Result<Vec<u8>, DataError> {
    let io = |source| DataError::Io { path: path.into(), source };
    let reader = image::ImageReader::open(path).map_err(io)?.with_guessed_format().map_err(io)?;
    let image = reader.decode().map_err(|error| DataError::Damaged {
        path: path.into(),
        reason: format!("not a readable image ({error})"),
    })?;
    let (width, height) = (image.width(), image.height());
    let square = width.min(height);
    let image = image.crop_imm((width - square) / 2, (height - square) / 2, square, square);
    let side = side as u32;
    let image = image.resize_exact(side, side, FilterType::Triangle).into_rgb8();
    let planes = (0..3).flat_map(|channel| image.pixels().map(move |pixel| pixel.0[channel]));
    Ok(planes.collect())
}

#[cfg(not(feature = "images"))]
fn pixels(_path: &Path, _side: usize) -> Result<Vec<u8>, DataError> {
    Err(FEATURE_MISSING)
}

/// Returns the names of the folders in a folder, in alphabetical order.
fn subfolders(folder: &Path) -> Result<Vec<String>, DataError> {
    let paths = entries(folder)?.into_iter().filter(|path| path.is_dir());
    Ok(paths.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect())
}

/// Returns the images in a folder, in alphabetical order.
fn images_in(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let is_image = |path: &PathBuf| {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        path.is_file() && ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
    };
    Ok(entries(folder)?.into_iter().filter(is_image).collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let io = |source| DataError::Io { path: folder.into(), source };
    let entries = std::fs::read_dir(folder).map_err(io)?.map(|entry| Ok(entry.map_err(io)?.path()));
    let mut entries = entries.collect::<Result<Vec<_>, DataError>>()?;
    entries.sort();
    Ok(entries)
}

#[cfg(all(test, feature = "images"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::data::dataset::Dataset;
    use image::{Rgb, RgbImage};
    use tempfile::TempDir;

    use super::*;

    /// Writes an image of one color in the middle square, black around it.
    fn image(folder: &TempDir, name: &str, [width, height]: [u32; 2], color: [u8; 3]) {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let square = width.min(height);
        let (left, top) = ((width - square) / 2, (height - square) / 2);
        let inside = |x, y| (left..left + square).contains(&x) && (top..top + square).contains(&y);
        let pixel = |x, y| if inside(x, y) { Rgb(color) } else { Rgb([0; 3]) };
        RgbImage::from_fn(width, height, pixel).save(path).unwrap();
    }

    fn two_classes() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        image(&folder, "train/cat/1.png", [20, 10], [200, 100, 50]);
        image(&folder, "train/cat/2.jpg", [10, 10], [200, 100, 50]);
        image(&folder, "train/bird/a.JPEG", [8, 30], [0, 0, 255]);
        image(&folder, "val/cat/9.png", [4, 4], [255, 255, 255]);
        std::fs::write(folder.path().join("train/cat/notes.txt"), "not an image").unwrap();
        folder
    }

    #[test]
    fn one_folder_per_class_gives_square_images_of_one_size() {
        let splits = read(two_classes().path(), 6).unwrap();
        assert_eq!((splits.train.len(), splits.test.len(), splits.classes), (3, 1, 2));
        let labels: Vec<_> = splits.train.items().iter().map(|item| item.label).collect();
        assert_eq!(labels, [0, 1, 1]);
        assert_eq!(splits.test.get(0).unwrap().label, 1);
        let item = splits.train.get(1).unwrap();
        assert_eq!(item.image.len(), 3 * 6 * 6);
        for (plane, color) in item.image.chunks(36).zip([200, 100, 50]) {
            assert_eq!(plane, [color; 36]);
        }
        // JPEG changes colors a little.
        let blue = &splits.train.get(0).unwrap().image[72..];
        assert!(blue.iter().all(|&value| value > 240), "{blue:?}");
        assert_eq!(splits.encoder.shape.values(), 108);
    }

    #[test]
    fn a_layout_without_train_and_test_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        image(&folder, "cat/1.png", [4, 4], [9; 3]);
        let text = read(folder.path(), 6).unwrap_err().to_string();
        let layout = "give the folder with train/CLASS/*.png and test/CLASS/*.png";
        assert!(text.contains("none of train;") && text.contains(layout), "{text}");
        image(&folder, "train/cat/1.png", [4, 4], [9; 3]);
        let text = read(folder.path(), 6).unwrap_err().to_string();
        assert!(text.contains("none of test, val"), "{text}");
    }

    #[test]
    fn an_unknown_class_an_empty_one_and_no_class_are_named() {
        let folder = two_classes();
        image(&folder, "val/dog/1.png", [4, 4], [9; 3]);
        let text = read(folder.path(), 6).unwrap_err().to_string();
        assert!(text.contains("`dog` is not a class of train, which has bird, cat"), "{text}");

        let folder = two_classes();
        std::fs::create_dir(folder.path().join("train/dog")).unwrap();
        let text = read(folder.path(), 6).unwrap_err().to_string();
        assert!(text.contains("dog: holds no file that ends in png, jpg, jpeg"), "{text}");

        let folder = tempfile::tempdir().unwrap();
        for name in ["train", "test"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let text = read(folder.path(), 6).unwrap_err().to_string();
        let expected = "train: holds no folder; give a folder with train/CLASS/*.png and test/";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn one_class_is_refused_with_the_expected_layout() {
        let folder = tempfile::tempdir().unwrap();
        // The data is one level deeper, so its folder is mistaken for a class.
        for name in ["train/pets/1.png", "test/pets/1.png"] {
            image(&folder, name, [4, 4], [9; 3]);
        }
        let text = read(folder.path(), 6).unwrap_err().to_string();
        assert!(text.contains("train: holds one class, `pets`"), "{text}");
        assert!(text.contains("train/CLASS/*.png and test/CLASS/*.png"), "{text}");
        image(&folder, "train/cars/1.png", [4, 4], [9; 3]);
        assert_eq!(read(folder.path(), 6).unwrap().classes, 2);
    }

    #[test]
    fn a_file_that_is_not_an_image_is_named() {
        let folder = two_classes();
        std::fs::write(folder.path().join("train/bird/broken.png"), "nothing").unwrap();
        let text = read(folder.path(), 6).unwrap_err().to_string();
        assert!(text.contains("broken.png: not a readable image"), "{text}");
        assert!(text.ends_with("download it again"), "{text}");
    }
}
