//! A file of a strategy of correlated noise: an error, or a strategy whose noise is finite.

#![no_main]

use burn_dp_accountant::correlated_noise::Strategy;
use burn_dp_fuzz::with_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    with_file("strategy.json", bytes, |path| {
        let Ok(strategy) = Strategy::load(path) else { return };
        let noising = strategy.noising();
        let mut stream = noising.stream();
        for _ in 0..strategy.steps().min(16) {
            assert!(stream.next(1.0).is_finite(), "{strategy}");
        }
    });
});
