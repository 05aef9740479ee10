//! A table of texts, as `.csv` or `.jsonl`, plain or gzip: an error, or two halves that can be read
//! and halved again or have one group.

#![no_main]

use burn_dp_fuzz::with_file;
use burn_dp_models::finetune::{HalvedColumns, write_halves};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for name in ["texts.csv", "texts.jsonl"] {
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
                return;
            }
            for half in &halves {
                let again = write_halves(half, columns, [&folder.join("c.jsonl"), path]);
                // All rows of a half are in one half again.
                let error = again.expect_err("a half of a half").to_string();
                assert!(error.contains("one group only"), "{error}");
            }
        });
    }
});
