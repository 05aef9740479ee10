//! Comparison of correlated noise with golden values of JAX-Privacy and of independent
//! computations.
//!
//! A few rows are copied here. The whole tables are checked if `BURN_DP_GOLDEN` names their folder
//! or the folder is next to the repository; otherwise the tests print that they check nothing more.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod golden_rows;

use burn_dp_accountant::correlated_noise::{
    Objective, Participation, Strategy, StrategySearch, Workload,
};
use burn_dp_accountant::{
    Accountant, Budget, Calibration, DpEvent, ExactAccountant, NeighboringRelation, PldAccountant,
    calibrate_noise_multiplier,
};
use golden_rows::number;
use serde_json::Value;

const ADD_REMOVE: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

/// Returns the rows of one kind of a table, which is not there everywhere.
fn rows(file: &str, kind: &str) -> Vec<Value> {
    golden_rows::rows(serde_json::json!([]), file, kind)
}

fn whole(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"))
}

fn numbers(row: &Value, key: &str) -> Vec<f64> {
    let all = row[key].as_array().unwrap_or_else(|| panic!("{key} in {row}"));
    all.iter().map(|value| value.as_f64().unwrap()).collect()
}

fn objective(row: &Value, key: &str) -> Objective {
    if row[key] == "mean" { Objective::Mean } else { Objective::Max }
}

fn close(value: f64, expected: f64, tolerance: f64, context: &str) {
    let error = (value / expected - 1.0).abs();
    assert!(error <= tolerance, "{context}: {value}, expected {expected}: {error:e}");
}

/// Checks errors of prefix sums and a sensitivity.
fn check_errors(strategy: &Strategy, row: &Value) {
    let errors = strategy.squared_errors(&Workload::prefix_sums()).unwrap();
    let context = format!("{} {strategy}", row["id"]);
    close(errors.max(), number(row, "max_sq_error"), 1e-9, &context);
    close(errors.mean(), number(row, "mean_sq_error"), 1e-9, &context);
}

#[test]
fn copied_rows_agree() {
    // correlated_noise.json, rows p018 (banded), p038 and p040 (buffered), p026 (banded inverse).
    let search = StrategySearch::new(64).unwrap();
    let loss = search.loss_of(&search.banded_toeplitz(8).unwrap()).unwrap();
    close(loss, 7.096761916882549, 1e-9, "banded, mean");
    let search = search.with_objective(Objective::Max);
    let loss = search.loss_of(&search.banded_toeplitz(8).unwrap()).unwrap();
    close(loss, 11.725753688979559, 1e-9, "banded, max");
    for (steps, buffers, best) in [(100, 2, 6.433948383324536), (1_000, 3, 10.69236245761286)] {
        let search = StrategySearch::new(steps).unwrap().with_objective(Objective::Max);
        let loss = search.loss_of(&search.buffered(buffers).unwrap()).unwrap();
        assert!(loss <= best * (1.0 + 1e-6), "{steps} {buffers}: {loss} {best}");
    }
    let search = StrategySearch::new(12).unwrap().with_participation(3, 4).unwrap();
    let loss = search.loss_of(&search.banded_inverse(2).unwrap()).unwrap();
    close(loss, 10.219304081570197, 1e-9, "banded inverse");
    let inverse_root = Strategy::banded_inverse_square_root(12, 2).unwrap();
    close(inverse_root.sensitivity(3, 4).unwrap(), 2.0827450557471936, 1e-13, "BISR");
}

#[test]
fn given_buffers_of_a_long_run_have_their_known_loss() {
    // Dvijotham et al. 2024: sens² 4.166791847, maximal error 6.733125.
    let theta = [0.9999528892, 0.9857068667];
    let strategy = Strategy::buffered(100_000, &theta, &[0.0122853238, 0.1878393665]).unwrap();
    let loss = strategy.loss(&Workload::prefix_sums(), 1, 1).unwrap();
    close(loss.sensitivity.powi(2), 4.166791847, 1e-9, "sensitivity");
    close(loss.max_sq_error, 6.733125, 1e-7, "error");
}

#[test]
fn optimal_toeplitz_rows() {
    for row in rows("correlated_noise.json", "max_error_toeplitz") {
        let strategy = Strategy::optimal_toeplitz(whole(&row, "n")).unwrap();
        check_errors(&strategy, &row);
        let loss = strategy.loss(&Workload::prefix_sums(), 1, 1).unwrap();
        let context = row["id"].to_string();
        close(loss.sensitivity, number(&row, "sens"), 1e-9, &context);
        close(loss.max_loss_sq(), number(&row, "max_loss_sq"), 1e-9, &context);
        close(loss.mean_loss_sq(), number(&row, "mean_loss_sq"), 1e-9, &context);
        let coefficients = strategy.coefficients().unwrap();
        close(*coefficients.last().unwrap(), number(&row, "coef_last"), 1e-9, &context);
    }
}

#[test]
fn banded_toeplitz_rows() {
    for row in rows("correlated_noise.json", "banded_toeplitz") {
        let n = whole(&row, "n");
        let given = Strategy::banded_toeplitz(n, &numbers(&row, "coef")).unwrap();
        check_errors(&given, &row);
        let context = row["id"].to_string();
        for pattern in row["sens"].as_array().unwrap() {
            let (times, separation) =
                (whole(pattern, "max_participations"), whole(pattern, "min_sep"));
            let sensitivity = given.sensitivity(times, separation).unwrap();
            let expected = number(pattern, "sens");
            assert!(sensitivity >= expected * (1.0 - 1e-9), "{context}: {sensitivity} {pattern}");
            let most = pattern["jax_upper_bound"].as_f64().unwrap_or(expected);
            assert!(sensitivity <= most * (1.0 + 1e-9), "{context}: {sensitivity} {pattern}");
        }
        let normalized = &row["column_normalized"];
        if normalized.is_object() {
            let strategy = given.with_normalized_columns();
            let errors = strategy.squared_errors(&Workload::prefix_sums()).unwrap();
            close(errors.max(), number(normalized, "max_sq_error"), 1e-9, &context);
            close(errors.mean(), number(normalized, "mean_sq_error"), 1e-9, &context);
            let (times, separation) =
                (whole(normalized, "max_participations"), whole(normalized, "min_sep"));
            let sensitivity = strategy.sensitivity(times, separation).unwrap();
            close(sensitivity, number(normalized, "sens"), 1e-9, &context);
        }
        let search = StrategySearch::new(n).unwrap().with_objective(objective(&row, "objective"));
        let start = std::time::Instant::now();
        let found = search.banded_toeplitz(whole(&row, "bands")).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        let loss = search.loss_of(&found).unwrap();
        let theirs = number(&row, "optimize_seconds");
        eprintln!("{context} {found}: {loss} in {seconds:.3} s, peer {theirs:.3} s");
        close(loss, number(&row, "loss_sq"), 1e-9, &context);
    }
}

#[test]
fn banded_inverse_rows() {
    for row in rows("correlated_noise.json", "bisr") {
        let (n, bands) = (whole(&row, "n"), whole(&row, "bands"));
        let (times, separation) = (whole(&row, "max_participations"), whole(&row, "min_sep"));
        let context = row["id"].to_string();
        let given = Strategy::banded_inverse(n, &numbers(&row, "noising")).unwrap();
        let workload = if row["workload_coef"] == "ones" {
            let own = Strategy::banded_inverse_square_root(n, bands).unwrap();
            let own = own.sensitivity(times, separation).unwrap();
            close(own, number(&row, "sens"), 1e-9, &context);
            Workload::prefix_sums()
        } else {
            Workload::toeplitz(&numbers(&row, "workload_coef")).unwrap()
        };
        let loss = given.loss(&workload, times, separation).unwrap();
        close(loss.mean_sq_error, number(&row, "mean_sq_error"), 1e-9, &context);
        close(loss.max_sq_error, number(&row, "max_sq_error"), 1e-9, &context);
        close(loss.sensitivity, number(&row, "sens"), 1e-9, &context);
        let optimized = &row["bandinvmf"];
        if !optimized.is_object() {
            continue;
        }
        let given = Strategy::banded_inverse(n, &numbers(optimized, "noising")).unwrap();
        let loss = given.loss(&workload, times, separation).unwrap();
        close(loss.mean_sq_error, number(optimized, "mean_sq_error"), 1e-9, &context);
        let least = optimized["brute_sens"].as_f64().or(optimized["sens"].as_f64());
        let most = number(optimized, "jax_head_sens");
        assert!(loss.sensitivity >= least.unwrap_or(0.0) * (1.0 - 1e-9), "{context}");
        assert!(loss.sensitivity <= most * (1.0 + 1e-9), "{context}: {} {most}", loss.sensitivity);
        let search = StrategySearch::new(n).unwrap().with_workload(workload).unwrap();
        let search = search.with_participation(times, separation).unwrap();
        let found = search.banded_inverse(bands).unwrap();
        let ours = search.loss_of(&found).unwrap();
        let theirs = number(optimized, "jax_head_loss_mean");
        eprintln!("{context} {found}: {ours}, peer {theirs}");
        assert!(ours <= theirs * (1.0 + 1e-6), "{context}: {ours} {theirs}");
    }
}

#[test]
fn buffered_rows() {
    for row in rows("correlated_noise.json", "blt_optimized") {
        let n = whole(&row, "n");
        let (times, separation) = (whole(&row, "max_participations"), whole(&row, "min_sep"));
        let context = row["id"].to_string();
        let given =
            Strategy::buffered(n, &numbers(&row, "theta"), &numbers(&row, "omega")).unwrap();
        check_errors(&given, &row);
        close(given.sensitivity(times, separation).unwrap(), number(&row, "sens"), 1e-9, &context);
        let search = StrategySearch::new(n).unwrap().with_objective(objective(&row, "error"));
        let search = search.with_participation(times, separation).unwrap();
        let start = std::time::Instant::now();
        let found = search.buffered(whole(&row, "buffers")).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        let loss = search.loss_of(&found).unwrap();
        let (best, theirs) = (number(&row, "best_loss"), number(&row, "jax_seconds"));
        eprintln!(
            "{context} {found}: {:e} above {best} in {seconds:.3} s, peer {theirs:.3} s",
            loss / best - 1.0
        );
        assert!(loss <= best * (1.0 + 1e-9), "{context}: {loss} {best}");
    }
    for row in rows("correlated_noise.json", "blt_eval") {
        let (theta, omega) = (numbers(&row, "theta"), numbers(&row, "omega"));
        let strategy = Strategy::buffered(whole(&row, "n"), &theta, &omega).unwrap();
        check_errors(&strategy, &row);
        let context = row["id"].to_string();
        close(strategy.sensitivity(1, 1).unwrap(), number(&row, "sens_single"), 1e-9, &context);
        let (times, separation) = (whole(&row, "max_participations"), whole(&row, "min_sep"));
        let sensitivity = strategy.sensitivity(times, separation).unwrap();
        close(sensitivity, number(&row, "sens"), 1e-9, &context);
    }
}

#[test]
fn dense_rows() {
    // Rows p062 and p066 to p068. The latter are results of jax_privacy 2.0.0.
    let copied = serde_json::json!([
        {"id": "p062", "n": 8, "epochs": 1, "objective": "mean",
         "loss_sq": 2.2332721665967266, "dual_bound": 2.2332721665967266},
        {"id": "p066", "n": 4, "epochs": 2, "objective": "mean", "loss_sq": 3.648693740918605},
        {"id": "p067", "n": 8, "epochs": 2, "objective": "mean", "loss_sq": 4.609233488822153},
        {"id": "p068", "n": 16, "epochs": 4, "objective": "mean", "loss_sq": 13.47336309884001}
    ]);
    for row in golden_rows::rows(copied, "correlated_noise.json", "dense") {
        let (n, context) = (whole(&row, "n"), row["id"].to_string());
        let search = StrategySearch::new(n).unwrap().with_objective(objective(&row, "objective"));
        let search = search.with_fixed_order(n / whole(&row, "epochs")).unwrap();
        let start = std::time::Instant::now();
        let loss = search.loss_of(&search.dense().unwrap()).unwrap();
        let theirs = number(&row, "loss_sq");
        eprintln!("{context} {n}: {loss} in {:?}, peer {theirs}", start.elapsed());
        assert!(loss <= theirs * (1.0 + 1e-6), "{context}: {loss}");
        let bound = search.dense_lower_bound().unwrap();
        close(loss, bound, 1e-6, &context);
        if let Some(dual_bound) = row["dual_bound"].as_f64() {
            close(bound, dual_bound, 1e-6, &context);
        }
        if row["strategy"].is_array() && whole(&row, "epochs") > 1 {
            let given = Strategy::dense(triangle(&row["strategy"])).unwrap();
            let sensitivity = given.sensitivity_in_fixed_order(n / whole(&row, "epochs")).unwrap();
            close(sensitivity, number(&row, "sens"), 1e-9, &context);
        }
    }
}

/// Returns the rows of a lower triangle.
fn triangle(matrix: &Value) -> Vec<Vec<f64>> {
    let lines = matrix.as_array().unwrap().iter().enumerate();
    let line = |(i, line): (usize, &Value)| {
        line.as_array().unwrap()[..=i].iter().map(|c| c.as_f64().unwrap()).collect()
    };
    lines.map(line).collect()
}

#[test]
fn sensitivity_rows() {
    for row in rows("correlated_noise.json", "sensitivity") {
        let (n, context) = (whole(&row, "n"), row["id"].to_string());
        let strategy = if row["matrix"].is_array() {
            Strategy::dense(triangle(&row["matrix"])).unwrap()
        } else {
            Strategy::banded_toeplitz(n, &numbers(&row, "toeplitz_coef")).unwrap()
        };
        let (times, separation) = (whole(&row, "max_participations"), whole(&row, "min_sep"));
        let value = strategy.sensitivity(times, separation).unwrap();
        let least = row["brute_vector"].as_f64().unwrap_or(number(&row, "brute_signed"));
        let most = number(&row, "jax_min_sep_upper_bound");
        eprintln!("{context}: {least} <= {value} <= {most}");
        assert!(value >= least * (1.0 - 1e-9), "{context}: {value} {least}");
        assert!(value <= most * (1.0 + 1e-9), "{context}: {value} {most}");
        if let Some(exact) = row["jax_toeplitz"].as_f64() {
            close(value, exact, 1e-9, &context);
        }
    }
}

#[test]
fn streaming_rows() {
    let Some(noise) = rows("correlated_noise.json", "noise_vector").pop() else { return };
    let z = noise["z"].as_array().unwrap();
    for row in rows("correlated_noise.json", "streaming_noise") {
        let n = whole(&row, "n");
        let banded = || Strategy::banded_toeplitz(n, &numbers(&row, "coef")).unwrap();
        let strategy = match row["strategy"].as_str().unwrap() {
            "banded_toeplitz" => banded(),
            "banded_column_normalized" | "banded_toeplitz_column_normalize_for_n" => {
                banded().with_normalized_columns()
            }
            "max_error_toeplitz" => Strategy::optimal_toeplitz(n).unwrap(),
            "blt" => {
                Strategy::buffered(n, &numbers(&row, "theta"), &numbers(&row, "omega")).unwrap()
            }
            "bisr" | "banded_inverse" => {
                Strategy::banded_inverse(n, &numbers(&row, "noising")).unwrap()
            }
            "identity" => Strategy::identity(n).unwrap(),
            "dense" => Strategy::dense(triangle(&row["matrix"])).unwrap(),
            other => panic!("{other} in {row}"),
        };
        let noising = strategy.noising();
        for coordinate in 0..whole(&noise, "dim") as usize {
            let mut stream = noising.stream();
            for (z, expected) in z.iter().zip(row["output"].as_array().unwrap()) {
                let value = stream.next(z[coordinate].as_f64().unwrap()).unwrap();
                let expected = expected[coordinate].as_f64().unwrap();
                let error = (value - expected).abs();
                assert!(error <= 1e-9 * expected.abs().max(1.0), "{}: {error:e}", row["id"]);
            }
        }
    }
}

/// Returns a step of a banded run whose columns have norm 1, in as many parts as bands.
fn cyclic_step(row: &Value, sigma: f64) -> DpEvent {
    let bands = whole(row, "bands");
    let coefficient = 1.0 / (bands as f64).sqrt();
    let coefficients = vec![coefficient; bands as usize];
    let strategy = Strategy::banded_toeplitz(whole(row, "n"), &coefficients).unwrap();
    let sampling_probability = number(row, "sampling_prob");
    let participation = Participation::CyclicPoisson { parts: bands, sampling_probability };
    DpEvent::correlated_gaussian(sigma, &strategy, participation)
}

#[test]
fn banded_rows_with_cyclic_poisson_sampling() {
    // sampler_accounting.json, row p054.
    let copied = serde_json::json!({
        "n": 100, "bands": 10, "sampling_prob": 0.1, "sigma": 2.0, "rounds": 10, "delta": 1e-5,
        "eps": 0.7984673858437389
    });
    for row in rows("sampler_accounting.json", "bandmf_cyclic_poisson").iter().chain([&copied]) {
        let step = cyclic_step(row, number(row, "sigma"));
        let (n, delta, expected) = (whole(row, "n"), number(row, "delta"), number(row, "eps"));
        assert_eq!(step.without_correlation(n).unwrap().1, whole(row, "rounds"), "{row}");
        let context = row["id"].to_string();
        let pld = PldAccountant::new([(&step, n)], ADD_REMOVE).unwrap().epsilon(delta).unwrap();
        assert!(pld.upper >= expected * (1.0 - 1e-9), "{context}: {pld:?}");
        close(pld.upper, expected, 1e-4, &context);
        // The last participation has fewer rows than bands if they do not divide the steps.
        if n % whole(row, "bands") == 0 && number(row, "sampling_prob") < 1.0 {
            let exact = ExactAccountant::new([(&step, n)], ADD_REMOVE).unwrap();
            close(exact.epsilon(delta).unwrap().estimate, expected, 1e-8, &context);
        }
    }
    for row in rows("sampler_accounting.json", "bandmf_calibrate") {
        let budget = Budget::new(number(&row, "target_eps"), number(&row, "delta")).unwrap();
        let event = |sigma| cyclic_step(&row, sigma);
        let sigma = calibrate_noise_multiplier(budget, whole(&row, "n"), event).unwrap();
        close(sigma, number(&row, "sigma"), 2e-6, &row["id"].to_string());
        assert!(sigma >= number(&row, "sigma") * (1.0 - 1e-8), "{}", row["id"]);
    }
}

#[test]
fn small_epsilon_chooses_one_band_and_large_epsilon_many() {
    // Batches of 10 of 1,000 units; b bands and parts, drawn with b times the probability.
    let steps = 256;
    let best = |epsilon: f64| {
        let calibration = Calibration::new(Budget::new(epsilon, 1e-5).unwrap());
        let losses = [1u64, 2, 4, 8, 16].map(|bands| {
            let search = StrategySearch::new(steps).unwrap();
            let strategy = search.banded_toeplitz(bands).unwrap();
            let participation = Participation::CyclicPoisson {
                parts: bands,
                sampling_probability: 0.01 * bands as f64,
            };
            let step = |sigma| DpEvent::correlated_gaussian(sigma, &strategy, participation);
            let sigma = calibration.noise_multiplier(steps, step).unwrap();
            let error = strategy.squared_errors(&Workload::prefix_sums()).unwrap().mean();
            (bands, error * sigma.powi(2))
        });
        eprintln!("{epsilon} {losses:?}");
        let smallest = |a: (u64, f64), b: (u64, f64)| if b.1 < a.1 { b } else { a };
        losses.into_iter().reduce(smallest).unwrap().0
    };
    assert_eq!(best(0.05), 1);
    assert!(best(16.0) >= 8);
}
