//! The record of a run, with right lengths and checksums: an error, or a run that continues with
//! no less spent than its log says.

#![no_main]

use burn::optim::SgdConfig;
use burn_dp::checkpoint::DpOptimizerRecord;
use burn_dp_fuzz::{Kind, log, plan, record, with_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((run, bytes)) = record(bytes) else { return };
    let log = log(run);
    with_file("releases.log", log.as_bytes(), |path| {
        for kind in Kind::ALL {
            let Ok(record) = DpOptimizerRecord::from_bytes(&bytes, path) else { return };
            let optim = plan(kind).optimizer(SgdConfig::new().init());
            if let Ok(optim) = optim.load_record(record) {
                // The log has no release, and the record may have none that the log has not.
                assert_eq!(optim.next_step(), 0);
                assert!(optim.statement(&[1e-5]).is_ok());
            }
        }
    });
});
