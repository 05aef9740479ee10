//! Measures median times of the accountants on six typical configurations.
//!
//! `cargo run --release -p burn-dp-accountant --example bench_accountant -- --json FILE [--runs N]`

use std::time::Instant;

use burn_dp_accountant::{
    Accountant, AccountantError, Budget, DpEvent, ExactAccountant, NeighboringRelation,
    PldAccountant, RdpAccountant, calibrate_noise_multiplier,
};
use serde_json::{Value, json};

const RELATION: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

/// Name, sampling probability, noise multiplier, steps, δ.
const CONFIGURATIONS: [(&str, f64, f64, u64, f64); 6] = [
    ("easy", 0.01, 1.0, 10_000, 1e-5),
    ("mnist", 256.0 / 60_000.0, 1.1, 14_100, 1e-5),
    ("cifar", 4096.0 / 50_000.0, 3.0, 2_500, 1e-5),
    ("imagenet", 16_384.0 / 1_281_167.0, 2.5, 72_000, 8e-7),
    ("user-level", 0.001, 0.8, 4_000, 1e-6),
    ("hard", 0.01, 0.3, 1_000_000, 1e-5),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut runs = 5;
    let mut file = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--help" {
            println!("Options: --json FILE, --runs N");
            std::process::exit(0);
        }
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--json" => file = Some(value),
            "--runs" => runs = value.parse::<usize>()?.max(1),
            other => return Err(format!("unknown argument {other}; use --json, --runs").into()),
        }
    }
    let mut rows = Vec::new();
    println!("{:<11} {:<10} {:>10} {:>14} {:>14}", "config", "what", "ms", "lower", "upper");
    println!("(exact: the value, twice; it is not a bound)");
    for (config, q, sigma, steps, delta) in CONFIGURATIONS {
        let event = DpEvent::dp_sgd_step(q, sigma);
        let build = || [(&event, steps)];
        for what in ["exact", "pld", "rdp", "calibrate", "tradeoff"] {
            let measured = median(runs, || -> Result<(f64, f64), AccountantError> {
                Ok(match what {
                    "exact" => {
                        let epsilon = ExactAccountant::new(build(), RELATION)?.epsilon(delta)?;
                        // Not a bound; the other rows are.
                        (epsilon.estimate, epsilon.estimate)
                    }
                    "pld" => {
                        let e = PldAccountant::new(build(), RELATION)?.epsilon(delta)?;
                        (e.lower, e.upper)
                    }
                    "rdp" => {
                        let e = RdpAccountant::new(build(), RELATION)?.epsilon(delta)?;
                        (e.lower, e.upper)
                    }
                    "calibrate" => {
                        let target = Budget::new(3.0, delta)?;
                        let event = |s| DpEvent::dp_sgd_step(q, s);
                        let sigma = calibrate_noise_multiplier(target, steps, event)?;
                        (sigma, sigma)
                    }
                    _ => {
                        let curve = PldAccountant::new(build(), RELATION)?.tradeoff(1_000)?;
                        let beta = curve.type_two_error(0.1);
                        (beta, beta)
                    }
                })
            })?;
            let (ms, (lower, upper)) = measured;
            println!("{config:<11} {what:<10} {ms:>10.3} {lower:>14.9} {upper:>14.9}");
            rows.push(json!({
                "config": config, "what": what, "ms": ms, "lower": lower, "upper": upper,
            }));
        }
    }
    if let Some(file) = file {
        std::fs::write(&file, format!("{:#}\n", Value::from(rows)))?;
    }
    Ok(())
}

/// Returns the median time in milliseconds, and the last result.
fn median<T>(
    runs: usize,
    mut work: impl FnMut() -> Result<T, AccountantError>,
) -> Result<(f64, T), AccountantError> {
    let mut times = Vec::with_capacity(runs);
    let mut last = None;
    for _ in 0..runs {
        let start = Instant::now();
        last = Some(work()?);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    match last {
        Some(result) => Ok((times[runs / 2], result)),
        None => Ok((0.0, work()?)),
    }
}
