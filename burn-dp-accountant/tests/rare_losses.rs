//! Compositions in which a few rare losses decide: the brackets are narrow, and contain references.
//!
//! The brackets of these configurations of `examples/sweep_accountant.rs` were once wider than
//! 1e-4.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use burn_dp_accountant::{
    Accountant, DpEvent, Epsilon, ExactAccountant, LedgerHeader, NeighboringRelation,
    PldAccountant, PrivacyLedger, RdpAccountant, UnitOfPrivacy,
};

/// `(q, σ, steps, δ)`. In the first 30 the tilt of the saddle point is so large that on the whole
/// line an impossible loss would dominate it; in the last 10 losses differ by orders of magnitude.
const CONFIGURATIONS: [(f64, f64, u64, f64); 40] = [
    (5.069136e-05, 1.664000e+01, 31, 2.525970e-14),
    (7.456543e-06, 3.684988e+01, 37, 3.232176e-07),
    (1.852190e-07, 1.902380e+02, 14626, 1.429276e-13),
    (2.203720e-06, 6.573645e+00, 302, 1.053982e-14),
    (1.522574e-07, 2.621225e+02, 10087, 4.036517e-13),
    (2.629734e-07, 5.701644e+02, 949, 9.978812e-11),
    (1.313333e-07, 8.547025e+00, 3235, 3.315917e-08),
    (2.655612e-07, 1.643641e+01, 46, 3.128442e-06),
    (2.391964e-07, 5.591609e+00, 126, 4.876891e-09),
    (1.343428e-06, 8.783969e+01, 18, 1.319420e-13),
    (1.645327e-05, 8.950168e+02, 214, 6.324301e-15),
    (5.027657e-07, 3.755707e+02, 5264, 6.039234e-09),
    (1.085195e-07, 8.384603e+00, 193, 2.093661e-14),
    (7.828953e-07, 1.168293e+02, 20, 2.589084e-15),
    (3.643326e-06, 6.669003e+00, 533, 6.041694e-14),
    (1.227243e-06, 1.780135e+02, 14222, 1.386981e-12),
    (2.959678e-07, 8.462810e+02, 1116, 1.895441e-15),
    (1.324602e-06, 8.472542e+02, 83, 1.336438e-08),
    (1.980117e-06, 3.777666e+02, 21, 9.737674e-12),
    (1.541320e-06, 3.135926e+01, 112, 2.697393e-06),
    (2.589963e-07, 6.511500e+01, 196222, 2.475153e-12),
    (4.677325e-05, 4.192816e+01, 38, 5.008927e-15),
    (6.980835e-07, 7.847079e+01, 28, 8.713592e-12),
    (1.256968e-07, 1.115491e+01, 4408, 5.402073e-12),
    (1.182185e-06, 2.409954e+02, 784, 2.612213e-08),
    (4.539091e-06, 2.345073e+01, 665, 2.143381e-12),
    (1.052680e-06, 9.708009e+00, 5670, 2.383414e-15),
    (6.424931e-07, 1.022501e+01, 21966, 2.060388e-15),
    (2.807313e-07, 1.317703e+01, 308, 8.731342e-12),
    (8.807914e-07, 1.741263e+02, 27, 1.757260e-15),
    (3.295295e-06, 6.128867e-01, 4, 1.368437e-10),
    (9.848108e-07, 4.846233e-01, 3, 2.003258e-12),
    (1.158954e-07, 4.468620e-01, 2, 3.235393e-14),
    (1.957833e-07, 4.916927e-01, 388372, 5.051845e-14),
    (5.218199e-05, 7.684379e-01, 10, 5.653222e-15),
    (2.777180e-07, 4.593816e-01, 9360964, 4.329019e-09),
    (1.211919e-04, 9.946158e-01, 56, 1.454480e-13),
    (3.266921e-07, 8.346130e-01, 28, 6.559629e-15),
    (2.799340e-04, 1.083232e+00, 50, 8.247846e-13),
    (4.910286e-07, 4.025578e-01, 1139779, 1.523749e-11),
];

/// `(q, σ, δ, ε)` of two releases, by `scripts/reference_rare_losses.py`: direct integration of the
/// divergence, without transforms or grids of losses. Nine digits.
const REFERENCES: [(f64, f64, f64, f64); 4] = [
    (1.159e-7, 0.4469, 3.235e-14, 7.967456581e-2),
    (1.757e-5, 0.7989, 4.248e-10, 4.884386484e-3),
    (1e-6, 0.5, 1e-11, 2.956498359e-2),
    (1e-3, 0.5, 1e-8, 3.434305540),
];

/// `(q, σ, steps, δ, ε)` by `scripts/reference_contours.py`: moments from direct integration, and
/// their inversion on two contours, which agree to eleven digits. The first two have losses far
/// below 1, the others losses of nearly one size for each draw of the unit.
const CONTOURS: [(f64, f64, u64, f64, f64); 4] = [
    (7.369624316236221e-7, 0.8199717391523902, 3_683_592, 3.796495526977775e-4, 1.8130467483e-3),
    (1.276565632181292e-4, 436.80194873106643, 3_260, 6.6474407032436355e-6, 1.9111155343e-8),
    (0.7541777555381236, 0.10126175592004737, 2, 1.101396241781566e-12, 1.9309587212e2),
    (0.09762660060649468, 0.10416894045892233, 25, 1.5935721743867181e-10, 7.0316394402e2),
];

/// `(q, σ, steps, δ)` of millions of steps whose losses are so small that the circle of the whole
/// composition has more points than any grid that is allowed.
const LONG_CIRCLES: [(f64, f64, u64, f64); 4] = [
    (3.736484e-05, 2.861691e+02, 6928487, 1.134770e-04),
    (2.125597e-05, 8.133187e+01, 4778269, 2.225489e-04),
    (3.123323e-05, 4.989340e+00, 7783564, 6.665054e-03),
    (1.031984e-01, 2.655961e-01, 7918759, 2.770581e-03),
];

fn epsilon(q: f64, sigma: f64, steps: u64, delta: f64) -> Epsilon {
    let relation = NeighboringRelation::AddOrRemoveOne;
    let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
    ledger.record_many(&DpEvent::dp_sgd_step(q, sigma), steps).unwrap();
    ledger.epsilon(delta).unwrap()
}

#[test]
fn brackets_of_rare_losses_are_narrow() {
    for (q, sigma, steps, delta) in CONFIGURATIONS {
        let epsilon = epsilon(q, sigma, steps, delta);
        let context = format!("{q:e} {sigma:e} {steps} {delta:e}: {epsilon:?}");
        assert!(epsilon.lower <= epsilon.upper, "{context}");
        assert!(epsilon.upper - epsilon.lower <= 1e-4 * epsilon.upper, "{context}");
    }
}

#[test]
fn brackets_on_long_circles_are_narrow_and_contain_the_exact_value() {
    for (q, sigma, steps, delta) in LONG_CIRCLES {
        let bracket = epsilon(q, sigma, steps, delta);
        let relation = NeighboringRelation::AddOrRemoveOne;
        let step = DpEvent::dp_sgd_step(q, sigma);
        let exact = ExactAccountant::new([(&step, steps)], relation).unwrap();
        let exact = exact.epsilon(delta).unwrap().estimate;
        let context = format!("{q:e} {sigma:e} {steps} {delta:e}: {bracket:?} {exact:e}");
        assert!(bracket.lower <= exact && exact <= bracket.upper, "{context}");
        assert!(bracket.upper - bracket.lower <= 1e-4 * bracket.upper, "{context}");
        assert!(bracket.notes.is_empty(), "{context}");
    }
}

#[test]
fn brackets_of_rare_losses_contain_direct_integrals() {
    for (q, sigma, delta, truth) in REFERENCES {
        let epsilon = epsilon(q, sigma, 2, delta);
        let rounding = 2e-9 * truth;
        assert!(
            epsilon.lower <= truth + rounding && truth <= epsilon.upper + rounding,
            "{q:e} {sigma}: {epsilon:?} {truth}"
        );
        assert!(epsilon.upper - epsilon.lower <= 1e-4 * truth, "{q:e} {sigma}: {epsilon:?}");
    }
}

#[test]
fn brackets_contain_inversions_on_contours() {
    for (q, sigma, steps, delta, truth) in CONTOURS {
        let epsilon = epsilon(q, sigma, steps, delta);
        let rounding = 1e-10 * truth;
        assert!(
            epsilon.lower <= truth + rounding && truth <= epsilon.upper + rounding,
            "{q:e} {sigma}: {epsilon:?} {truth}"
        );
        assert!(epsilon.upper - epsilon.lower <= 1e-4 * truth, "{q:e} {sigma}: {epsilon:?}");
        assert!(epsilon.notes.is_empty(), "{q:e} {sigma}: {epsilon:?}");
    }
}

#[test]
fn delta_beyond_the_range_of_numbers_is_next_to_zero_and_not_one() {
    let relation = NeighboringRelation::AddOrRemoveOne;
    let event = DpEvent::gaussian(1.0);
    let rdp = RdpAccountant::new([(&event, 1)], relation).unwrap().delta(50.0).unwrap();
    assert!(rdp.upper < 1e-300, "{rdp:?}");
    // Here e^ε overflows.
    let nothing = PldAccountant::new(std::iter::empty(), relation).unwrap();
    assert_eq!(nothing.delta(800.0).unwrap().upper, 0.0);
    let bounded = DpEvent::EpsilonDelta { epsilon: 1.0, delta: 0.0 };
    let bounded = PldAccountant::new([(&bounded, 3)], relation).unwrap();
    assert_eq!(bounded.delta(800.0).unwrap().upper, 0.0);
}
