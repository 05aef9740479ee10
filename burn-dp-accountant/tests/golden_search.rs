//! Comparison of private searches with golden tables.
//!
//! A few rows are copied here. The whole table is checked if `BURN_DP_GOLDEN` names its folder or
//! the folder is next to the repository.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod golden_rows;

use burn_dp_accountant::search::PrivateSearch;
use burn_dp_accountant::{
    Accountant, DpEvent, NeighboringRelation, PldAccountant, RdpAccountant, RunCount,
};
use golden_rows::number;
use serde_json::{Value, json};

fn rows(copied: Value, kind: &str) -> Vec<Value> {
    golden_rows::rows(copied, "hyper_parameter_search.json", kind)
}

fn runs(row: &Value) -> RunCount {
    let mean = number(row, "mean");
    match row["shape"].as_f64() {
        Some(shape) => RunCount::TruncatedNegativeBinomial { mean, shape },
        None => RunCount::Poisson { mean },
    }
}

#[test]
fn number_of_runs_has_its_golden_distribution() {
    let copied = json!([
        {"shape": 0, "mean": 3.9086503371292665, "pmf_1_to_6": [0.39086503371292664]},
    ]);
    for row in rows(copied, "tnb_distribution") {
        let runs = runs(&row);
        for (k, truth) in (1..).zip(row["pmf_1_to_6"].as_array().unwrap()) {
            let (found, truth) = (runs.probability(k), truth.as_f64().unwrap());
            assert!((found / truth - 1.0).abs() < 1e-9, "{row} {k}: {found}");
        }
    }
}

fn base(row: &Value) -> DpEvent {
    let base = &row["base"];
    match base["type"].as_str().unwrap() {
        "gaussian" => DpEvent::gaussian(number(base, "sigma")),
        "laplace" => DpEvent::Laplace { noise_multiplier: 1.0 / number(base, "eps0") },
        _ => DpEvent::self_composed(
            DpEvent::dp_sgd_step(number(base, "q"), number(base, "sigma")),
            number(base, "steps") as u64,
        ),
    }
}

#[test]
fn renyi_bound_of_a_search_is_within_its_golden_limits_and_the_default_one_below_it() {
    let copied = json!([{
        "base": {"type": "gaussian", "sigma": 5.0}, "mean": 10, "shape": "inf", "delta": 1e-6,
        "eps": 1.9804037817028843, "eps_exact_base_delta": 1.6130225173929618,
        "eps_single_run_rdp": 0.8999385041732184,
    }, {
        "base": {"type": "gaussian", "sigma": 5.0}, "mean": 10, "shape": 0, "delta": 1e-6,
        "eps": 1.5132523611735296, "eps_continuous_orders": 1.5128502397621866,
        "eps_single_run_rdp": 0.8999385041732184,
    }]);
    for row in rows(copied, "repeat_and_select") {
        let search = PrivateSearch::new(base(&row), runs(&row)).unwrap();
        let relation = NeighboringRelation::AddOrRemoveOne;
        let delta = number(&row, "delta");
        let renyi = RdpAccountant::new([(&search.event(), 1)], relation).unwrap();
        let found = renyi.epsilon(delta).unwrap().upper;
        let peer = number(&row, "eps");
        // A search over continuous orders, with the exact δ of one run for Poisson: at most the
        // peer's value. Which of the golden lower limits there are depends on the row.
        let limit = ["eps_exact_base_delta", "eps_continuous_orders"]
            .iter()
            .find_map(|key| row[*key].as_f64());
        assert!(found <= peer * (1.0 + 1e-9), "{row}: {found}");
        let poisson = row["shape"] == "inf";
        if let Some(limit) = limit {
            // The table optimizes the exact row over a list of orders.
            assert!(found >= limit * (1.0 - 1e-3), "{row}: {found}");
            assert!(found <= limit * (1.0 + 1e-5), "{row}: {found}");
        } else if poisson && row["base"]["type"] == "dpsgd" {
            // The table has no exact δ for sampled runs.
            assert!(found < 0.95 * peer, "{row}: {found}");
        }
        let single = number(&row, "eps_single_run_rdp");
        assert!(found > 0.85 * single, "{row}: {found}");
        // The scores may be equal, and the best of some runs is then as private as one of them.
        let run = PldAccountant::new([(&base(&row), 1)], relation).unwrap();
        let single = run.epsilon(delta).unwrap().lower;
        let best = search.epsilon(relation, delta).unwrap().upper;
        assert!(
            best > single * (1.0 - 1e-3) && best <= found * (1.0 + 1e-3),
            "{row}: {best} {found} {single}"
        );
        let several = number(&row, "mean") > 1.0;
        if several && !poisson && row["base"]["type"] != "laplace" {
            assert!(best < 0.9 * found, "{row}: {best} {found}");
        }
    }
}
