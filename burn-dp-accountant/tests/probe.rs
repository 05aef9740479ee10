//! probe
use burn_dp_accountant::*;
use std::time::Instant;
#[test]
fn probe() {
    let folder = std::env::var("BURN_DP_GOLDEN").unwrap();
    let text = std::fs::read_to_string(format!("{folder}/epsilon_poisson.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for row in json["rows"].as_array().unwrap() {
        let f = |k: &str| row[k].as_f64().unwrap_or(f64::NAN);
        let (q, s, t, d) = (f("q"), f("sigma"), f("steps"), f("delta"));
        let truth = row["truth"]["eps"].as_f64().unwrap_or(f64::NAN);
        let err = row["truth"]["abs_err"].as_f64().unwrap_or(f64::NAN);
        let ev = DpEvent::dp_sgd_step(q, s);
        let t0 = Instant::now();
        let e = PldAccountant::new([(&ev, t as u64)], NeighboringRelation::AddOrRemoveOne).unwrap().epsilon(d).unwrap();
        let ms = t0.elapsed().as_secs_f64() * 1e3;
        let rel = e.upper / e.lower - 1.0;
        let ok = e.lower <= truth + err && truth - err <= e.upper;
        let t1 = Instant::now();
        let x = ExactAccountant::new([(&ev, t as u64)], NeighboringRelation::AddOrRemoveOne).unwrap().epsilon(d);
        let xms = t1.elapsed().as_secs_f64() * 1e3;
        let text = match x { Ok(x) => format!("{} {x} rel {:.1e} err {:.1e} {xms:.2}", if (x-truth).abs() <= err + 1e-8*truth {"XOK"} else {"XBAD"}, x/truth-1.0, err), Err(e) => format!("XERR {e} {xms:.2}") };
        println!("{text}");
        println!("{} {} q={q:e} s={s} T={t} d={d:e} truth={truth:.9} [{:.9} {:.9}] rel={rel:.2e} {ms:.1}ms grid={:?} {} {:?}", if ok { "ok " } else { "BAD" }, row["id"], e.lower, e.upper, e.grid, if rel > 1e-4 {"WIDE"} else {""}, e.notes);
    }
}
#[test]
fn zz_one() {
    for (q, s, t, d) in [(1e-5, 1.0, 1000000u64, 1e-8), (1e-4, 0.6, 72000, 8e-7), (1e-5,1.0,1000,1e-9),(1e-4, 0.8, 5000, 1e-9), (0.1, 0.5, 1, 1e-6)] {
        let ev = DpEvent::dp_sgd_step(q, s);
        println!("{q} {s} {t}");
        println!("{:?}", PldAccountant::new([(&ev, t)], NeighboringRelation::AddOrRemoveOne).unwrap().epsilon(d).unwrap());
    }
}
