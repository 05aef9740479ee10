//! The log of releases, with right checksums: an error, or a run that continues after it.

#![no_main]

use burn::optim::SgdConfig;
use burn_dp_fuzz::{Kind, checked_lines, plan, with_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As it is, and with the checksum of each line made right.
    for bytes in [bytes.to_vec(), checked_lines(bytes)] {
        with_file("releases.log", &bytes, |path| {
            let optim = plan(Kind::Adaptive).optimizer(SgdConfig::new().init());
            if optim.with_release_log(path).is_err() {
                assert_eq!(std::fs::read(path).expect("the log is kept"), bytes);
            }
        });
    }
});
