//! Comparison of Gaussian DP, the central-limit formulas and the total amount of noise with golden
//! tables.
//!
//! A few rows are copied here. The whole tables are checked if `BURN_DP_GOLDEN` names their folder
//! or the folder is next to the repository; otherwise the tests print that they check the copied
//! rows only.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod golden_folder;

use burn_dp_accountant::{
    Accountant, CentralLimitEstimate, DpEvent, ExactAccountant, GaussianDp, NeighboringRelation,
    PldAccountant, RdpAccountant, RunPlan, TotalAmountOfNoise,
};
use serde_json::{Value, json};

const ADD_REMOVE: NeighboringRelation = NeighboringRelation::AddOrRemoveOne;

/// Returns the copied rows of a table, then the rows of the file.
fn rows(name: &str, copied: Value, kind: &str) -> Vec<Value> {
    let mut rows = copied.as_array().unwrap().clone();
    match golden_folder::folder() {
        Some(folder) => {
            let text = std::fs::read_to_string(folder.join(name)).unwrap();
            let json: Value = serde_json::from_str(&text).unwrap();
            let table = json["rows"].as_array().unwrap();
            rows.extend(table.iter().filter(|row| row["kind"] == kind).cloned());
        }
        None => eprintln!("no folder of golden tables: the whole table {name} is not checked"),
    }
    rows
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"))
}

/// Asserts that a value is at most 1e-9 (relative) above the truth and not below it, up to
/// rounding.
fn assert_rounded_up(got: f64, truth: f64, context: &Value) {
    let slack = 1e-12 * truth + 1e-300;
    assert!(
        got >= truth - slack && got <= truth * (1.0 + 1e-9) + slack,
        "{context}: {got} {truth}"
    );
}

fn assert_close(got: f64, truth: f64, tolerance: f64, context: &Value) {
    assert!((got / truth - 1.0).abs() <= tolerance, "{context}: {got} {truth}");
}

#[test]
fn gaussian_duality_from_epsilon_to_delta() {
    let copied = json!([
        {"mu": 0.01, "eps": 0.0, "delta": 0.003989406181481645},
    ]);
    for row in rows("gdp_fdp.json", copied, "duality") {
        let gdp = GaussianDp::new(number(&row, "mu")).unwrap();
        assert_rounded_up(gdp.delta(number(&row, "eps")).unwrap(), number(&row, "delta"), &row);
    }
}

#[test]
fn gaussian_duality_from_delta_to_epsilon() {
    let copied = json!([
        {"mu": 0.01, "delta": 0.01, "eps": 0.0},
        {"mu": 0.01, "delta": 1e-5, "eps": 0.027219419814577137},
        {"mu": 0.01, "delta": 1e-8, "eps": 0.04429478475768301},
    ]);
    for row in rows("gdp_fdp.json", copied, "duality_inverse") {
        let gdp = GaussianDp::new(number(&row, "mu")).unwrap();
        assert_rounded_up(gdp.epsilon(number(&row, "delta")).unwrap(), number(&row, "eps"), &row);
    }
}

#[test]
fn central_limits_and_exact_value_agree_with_the_table() {
    let copied = json!([{
        "q": 0.01, "sigma": 1.0, "steps": 10_000, "delta": 1e-5,
        "mu_poisson": 1.3108324944320862, "mu_uniform": 1.7101424755953307,
        "eps_gdp_poisson": 6.007077307595718, "eps_gdp_uniform": 8.257003927381792,
        "truth_eps": 6.187712389971129, "clt_underreports": true,
    }]);
    for row in rows("gdp_fdp.json", copied, "clt") {
        let (q, sigma, delta) = (number(&row, "q"), number(&row, "sigma"), number(&row, "delta"));
        let steps = number(&row, "steps") as u64;
        let poisson = CentralLimitEstimate::poisson(q, sigma, steps).unwrap();
        let fixed = CentralLimitEstimate::fixed_size(q, sigma, steps).unwrap();
        assert_close(poisson.mu(), number(&row, "mu_poisson"), 1e-12, &row);
        // h(σ)² is a difference of numbers near 4 for large σ.
        assert_close(fixed.mu(), number(&row, "mu_uniform"), 1e-10, &row);
        let estimate = poisson.epsilon(delta).unwrap().without_guarantee();
        assert_close(estimate, number(&row, "eps_gdp_poisson"), 1e-9, &row);
        let estimate_fixed = fixed.epsilon(delta).unwrap().without_guarantee();
        assert_close(estimate_fixed, number(&row, "eps_gdp_uniform"), 1e-9, &row);
        let event = DpEvent::dp_sgd_step(q, sigma);
        let exact = ExactAccountant::new([(&event, steps)], ADD_REMOVE).unwrap();
        let exact = exact.epsilon(delta).unwrap().estimate;
        assert_close(exact, number(&row, "truth_eps"), 1e-8, &row);
        assert_eq!(estimate < exact, row["clt_underreports"] == true, "{row}");
    }
}

#[test]
fn published_batch_clipping_numbers_are_reproduced() {
    let copied = json!([{
        "sigma": 1.5, "L": 8, "m": 64, "N": 54_000, "E": 50, "sigma_bar": 0.5303300858899106,
        "mu": 1.990914283195018, "eps_at_1e5": 9.941357566340232,
        "mu_poisson_clt": 1.4195933282209325, "truth_eps_poisson_1e5": 7.926015673912,
    }]);
    for row in rows("gdp_fdp.json", copied, "paper") {
        let (batch, size) = (number(&row, "m"), number(&row, "N"));
        let sigma = number(&row, "sigma") / number(&row, "L").sqrt();
        assert_close(sigma, number(&row, "sigma_bar"), 1e-14, &row);
        let q = batch / size;
        // The number of steps of the paper need not be whole: it lies between these two.
        let exact_steps = number(&row, "E") * size / batch;
        let (fewer, more) = (exact_steps.floor() as u64, exact_steps.ceil() as u64);
        let scale = (exact_steps / fewer as f64).sqrt();
        let fixed = CentralLimitEstimate::fixed_size(q, sigma, fewer).unwrap();
        assert_close(fixed.mu() * scale, number(&row, "mu"), 1e-10, &row);
        let limit = GaussianDp::new(fixed.mu() * scale).unwrap().epsilon(1e-5).unwrap();
        assert_close(limit, number(&row, "eps_at_1e5"), 1e-9, &row);
        let poisson = CentralLimitEstimate::poisson(q, sigma, fewer).unwrap();
        assert_close(poisson.mu() * scale, number(&row, "mu_poisson_clt"), 1e-10, &row);
        let event = DpEvent::dp_sgd_step(q, sigma);
        let bracket = |steps: u64| {
            let pld = PldAccountant::new([(&event, steps)], ADD_REMOVE).unwrap();
            pld.epsilon(1e-5).unwrap()
        };
        let (fewer, more) = (bracket(fewer), bracket(more));
        let truth = number(&row, "truth_eps_poisson_1e5");
        assert!(fewer.lower <= truth * (1.0 + 1e-9), "{row}: {fewer:?}");
        assert!(more.upper >= truth * (1.0 - 1e-9), "{row}: {more:?}");
        assert!(more.upper - fewer.lower <= 1.5e-4 * more.upper, "{row}: {fewer:?} {more:?}");
    }
}

/// Checks η, ε_TAN, the sampling probability that keeps η, and the certified ε.
fn check_noise(row: &Value) {
    let (sigma, steps) = (number(row, "sigma"), number(row, "S") as u64);
    let (eta, q, delta) = (number(row, "eta"), number(row, "q"), number(row, "delta"));
    if q > 1.0 {
        // Infeasible: neither the table nor the crate has a value.
        let any = TotalAmountOfNoise::new(1.0, sigma, steps).unwrap();
        assert!(any.eta() < eta, "{row}");
        return;
    }
    let noise = TotalAmountOfNoise::new(q, sigma, steps).unwrap();
    assert_close(noise.eta(), eta, 1e-12, row);
    assert_close(noise.approximate_epsilon(delta).unwrap(), number(row, "eps_tan"), 1e-12, row);
    assert_close(noise.sampling_probability(sigma, steps).unwrap(), q, 1e-12, row);
    let truth = number(&row["truth"], "eps");
    let slack = row["truth"]["abs_err"].as_f64().unwrap_or(0.0) + 1e-12 * truth;
    let event = DpEvent::dp_sgd_step(q, sigma);
    let pld = PldAccountant::new([(&event, steps)], ADD_REMOVE).unwrap().epsilon(delta).unwrap();
    assert!(pld.lower <= truth + slack && pld.upper >= truth - slack, "{row}: {pld:?}");
    assert!(pld.upper - pld.lower <= 1e-4 * pld.upper, "{row}: {pld:?}");
    let exact = ExactAccountant::new([(&event, steps)], ADD_REMOVE).unwrap().epsilon(delta);
    let exact = exact.unwrap_or_else(|e| panic!("{row}: {e}")).estimate;
    assert!((exact - truth).abs() <= slack + 1e-8 * truth, "{row}: {exact}");
    // The orders of the peer are a coarser grid for the same bound.
    let rdp = RdpAccountant::new([(&event, steps)], ADD_REMOVE).unwrap().epsilon(delta).unwrap();
    let peer = number(&row["opacus_rdp"], "eps");
    assert!(rdp.upper >= truth - slack && rdp.upper <= peer * (1.0 + 1e-9), "{row}: {rdp:?}");
}

#[test]
fn epsilon_follows_total_noise_while_the_approximation_holds() {
    let copied = json!([{
        "eta": 0.13, "sigma": 2.0, "S": 1000, "delta": 8e-7, "q": 0.011627553482998907,
        "eps_tan": 0.9910729917151396, "opacus_rdp": {"eps": 0.9298254383719633},
        "truth": {"eps": 0.858102535389756, "abs_err": 1.6e-13},
    }]);
    for row in rows("tan.json", copied, "check") {
        check_noise(&row);
        let ratio = number(&row["truth"], "eps") / number(&row, "eps_tan");
        assert!((0.75..=1.0).contains(&ratio), "{row}: {ratio}");
    }
}

#[test]
fn epsilon_grows_below_the_privacy_wall() {
    let copied = json!([{
        "eta": 0.13, "sigma": 0.3, "S": 1000, "delta": 8e-7, "q": 0.001744133022449836,
        "eps_tan": 0.9910729917151396, "opacus_rdp": {"eps": 33.363591464888806},
        "truth": {"eps": 28.340721060493713, "abs_err": 6.5e-12},
    }]);
    for row in rows("tan.json", copied, "wall") {
        check_noise(&row);
        if number(&row, "sigma") <= 0.3 && number(&row, "q") <= 1.0 {
            let truth = number(&row["truth"], "eps");
            assert!(truth > 5.0 * number(&row, "eps_tan"), "{row}");
        }
    }
}

#[test]
fn published_runs_and_constants_are_reproduced() {
    let copied = json!([{
        "eta": 0.965436458580033, "sigma": 3.0, "S": 2500, "delta": 1e-5, "q": 0.08192,
        "eps_tan": 7.483654934329683, "opacus_rdp": {"eps": 7.098483020816762},
        "truth": {"eps": 6.5788958505771635, "abs_err": 7.2e-14}, "B": 4096, "N": 50_000,
    }]);
    for row in rows("tan.json", copied, "repo_run") {
        check_noise(&row);
        assert_close(number(&row, "B") / number(&row, "N"), number(&row, "q"), 1e-14, &row);
        let plan = RunPlan {
            expected_batch_size: number(&row, "B"),
            noise_multiplier: number(&row, "sigma"),
            steps: number(&row, "S") as u64,
        };
        let small = plan.scaled_down(number(&row, "B") / 256.0).unwrap();
        let q = small.expected_batch_size / number(&row, "N");
        let noise = TotalAmountOfNoise::new(q, small.noise_multiplier, small.steps).unwrap();
        assert_close(noise.eta(), number(&row, "eta"), 1e-12, &row);
    }
    let constants =
        json!([{"eta": 0.95, "eps_tan_paper": 8, "delta": 8e-7, "eps_tan": 8.021456477918328}]);
    for row in rows("tan.json", constants, "paper_constants") {
        let q = number(&row, "eta") * 3.0 * (2.0f64 / 10_000.0).sqrt();
        let noise = TotalAmountOfNoise::new(q, 3.0, 10_000).unwrap();
        let epsilon = noise.approximate_epsilon(number(&row, "delta")).unwrap();
        assert_close(epsilon, number(&row, "eps_tan"), 1e-12, &row);
        assert_close(epsilon, number(&row, "eps_tan_paper"), 1e-2, &row);
    }
}
