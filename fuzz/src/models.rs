//! The readers of fine-tuning. Each returns whether the input was accepted.

use burn_dp_models::finetune::{HalvedColumns, write_halves};

use super::files::with_file;

/// Reads a table of texts, as `.csv` and as `.jsonl`, plain or gzip: two halves that can be read
/// and have one group.
pub fn texts(bytes: &[u8]) -> bool {
    let accepted = ["texts.csv", "texts.jsonl"].map(|name| {
        with_file(name, bytes, |path| {
            let folder = path.parent().expect("a folder");
            let halves = ["a.jsonl", "b.jsonl"].map(|name| folder.join(name));
            let columns = HalvedColumns {
                text: "text",
                label: Some("label"),
                user: Some("user"),
                group: None,
            };
            let [a, b] = &halves;
            if write_halves(path, columns, [a, b]).is_err() {
                return false;
            }
            for half in &halves {
                let again = write_halves(half, columns, [&folder.join("c.jsonl"), path]);
                // All rows of a half are in one half again.
                let error = again.expect_err("a half of a half").to_string();
                assert!(error.contains("one group only"), "{error}");
            }
            true
        })
    });
    accepted.contains(&true)
}
