//! The table of the book: sampler, mechanism and relation, and the accountants of the combination.

use std::fmt::Write;

use burn_dp::DpError;
use burn_dp::clipping::{CountNoise, QuantileClipping};
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig, SamplingScheme};
use burn_dp_accountant::correlated_noise::Strategy;
use burn_dp_accountant::{
    Accountant, AccountantError, DpEvent, Epsilon, ExactAccountant, GdpAccountant,
    MonteCarloAccountant, NeighboringRelation, PldAccountant, RdpAccountant, Simulation,
};

const UNITS: usize = 400;
const BATCH: f64 = 20.0;
const STEPS: u64 = 20;
/// A simulation needs about 60 / δ samples.
const DELTA: f64 = 1e-3;
const SAMPLES: u64 = 100_000;

/// The samplers, with their names in the table.
const SAMPLERS: [(&str, SamplingScheme); 10] = [
    ("Poisson", SamplingScheme::Poisson),
    ("truncated Poisson", SamplingScheme::TruncatedPoisson { max_batch_size: 100 }),
    ("fixed size", SamplingScheme::FixedSize),
    ("with replacement", SamplingScheme::WithReplacement),
    ("shuffled", SamplingScheme::Shuffled),
    ("shuffled once", SamplingScheme::ShuffledOnce),
    ("cyclic Poisson", SamplingScheme::CyclicPoisson { parts: 4 }),
    ("balls in bins", SamplingScheme::BallsInBins { bins: 20 }),
    ("random allocation", SamplingScheme::RandomAllocation { bins: 20 }),
    ("minimum separation", SamplingScheme::MinSeparation { separation: 4 }),
];

/// The releases, with their names in the table.
const RELEASES: [&str; 4] = ["Gaussian", "Gaussian and counts", "Laplace", BANDS];

/// Sums with correlated noise.
const BANDS: &str = "two bands";

const RELATIONS: [(&str, NeighboringRelation); 3] = [
    ("add or remove", NeighboringRelation::AddOrRemoveOne),
    ("replace", NeighboringRelation::ReplaceOne),
    ("zero out", NeighboringRelation::ReplaceSpecial),
];

fn config(sampler: &str, release: &str, noise_multiplier: f64) -> PrivacyPlanConfig {
    let (_, scheme) = SAMPLERS.into_iter().find(|(name, _)| *name == sampler).unwrap();
    let config = PrivacyPlanConfig::new(UNITS, BATCH).with_steps(STEPS).with_sampling(scheme);
    let config = config.with_noise_multiplier(noise_multiplier);
    let counted = QuantileClipping::new(0.5).unwrap().with_count_noise(CountNoise::Share(0.1));
    match release {
        "Gaussian and counts" => config.with_clipping(counted),
        BANDS => {
            let strategy = Strategy::banded_toeplitz(STEPS, &[1.0, 0.5]).unwrap();
            config.with_correlated_noise(strategy)
        }
        _ => config,
    }
}

fn plan(sampler: &str, release: &str, noise_multiplier: f64) -> PrivacyPlan {
    config(sampler, release, noise_multiplier).init().unwrap()
}

/// Returns the event of the steps of a run, unless the plan rejects it.
fn event(sampler: &str, release: &str, noise_multiplier: f64) -> Option<DpEvent> {
    match release {
        "Laplace" => {
            let mechanism = plan(sampler, "Gaussian", 1.0).sampler().unwrap().mechanism();
            let noise = DpEvent::Laplace { noise_multiplier: 2.5 * noise_multiplier };
            Some(mechanism.event(noise))
        }
        release => Some(config(sampler, release, noise_multiplier).init().ok()?.event()),
    }
}

fn epsilon<A: Accountant>(
    event: &DpEvent,
    relation: NeighboringRelation,
) -> Result<Epsilon, AccountantError> {
    A::new([(event, STEPS)], relation)?.epsilon(DELTA)
}

fn simulated(event: &DpEvent, relation: NeighboringRelation) -> Result<Epsilon, AccountantError> {
    let accountant = MonteCarloAccountant::new([(event, STEPS)], relation)?;
    accountant.with_samples(SAMPLES as usize).epsilon(DELTA)
}

/// Returns the ε of every accountant that accepts the event of a sampler.
fn accountants(
    sampler: &str,
    event: &DpEvent,
    relation: NeighboringRelation,
) -> Vec<(&'static str, Epsilon)> {
    if !plan(sampler, "Gaussian", 2.0).sampler().unwrap().mechanism().holds_under(relation) {
        return Vec::new();
    }
    let all = [
        ("PLD", epsilon::<PldAccountant>(event, relation)),
        ("RDP", epsilon::<RdpAccountant>(event, relation)),
        ("GDP", epsilon::<GdpAccountant>(event, relation)),
        ("exact", epsilon::<ExactAccountant>(event, relation)),
        ("simulation", simulated(event, relation)),
    ];
    all.into_iter().filter_map(|(name, found)| Some((name, found.ok()?))).collect()
}

/// Returns the lines of the table.
fn table() -> String {
    let mut table = String::from("| sampler | relation |");
    RELEASES.iter().for_each(|release| write!(table, " {release} |").unwrap());
    table.push_str("\n|---|---|---|---|---|---|\n");
    for (sampler, _) in SAMPLERS {
        let stated = plan(sampler, "Gaussian", 2.0).relation();
        for (name, relation) in RELATIONS {
            let of_plans = if relation == stated { "**" } else { "" };
            write!(table, "| {sampler} | {of_plans}{name}{of_plans} |").unwrap();
            for name in RELEASES {
                let event = event(sampler, name, 2.0);
                let found = event.map(|event| accountants(sampler, &event, relation));
                let found = found.unwrap_or_default();
                let names: Vec<String> = found
                    .iter()
                    .map(|(name, epsilon)| match epsilon.upper.is_finite() {
                        true => (*name).to_string(),
                        false => format!("({name})"),
                    })
                    .collect();
                let cell = if names.is_empty() { "-".into() } else { names.join(", ") };
                write!(table, " {cell} |").unwrap();
            }
            table.push('\n');
        }
    }
    table
}

#[test]
fn the_table_of_samplers_in_the_book_is_the_one_of_the_code() {
    // A package that was unpacked on its own has no book.
    let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/samplers.md");
    let Ok(page) = std::fs::read_to_string(book) else { return };
    let table = table();
    assert!(page.contains(&table), "the table of samplers.md must be\n\n{table}");
}

/// Checks every relation and accountant of one sampler and release.
fn check(sampler: &str, name: &str) {
    let [more, event] = [4.0, 2.0].map(|sigma| event(sampler, name, sigma).unwrap());
    let mut certified = 0;
    for (relation_name, relation) in RELATIONS {
        let found = accountants(sampler, &event, relation);
        let less = accountants(sampler, &more, relation);
        for (accountant, epsilon) in &found {
            let context = format!("{sampler}, {name}, {relation_name}, {accountant}: {epsilon:?}");
            assert!(epsilon.estimate > 0.0 && epsilon.lower <= epsilon.upper, "{context}");
            // No bound contradicts another one.
            for (other, bounds) in &found {
                assert!(epsilon.lower <= bounds.upper * (1.0 + 1e-9), "{context}, {other}");
            }
            // More noise, less privacy loss.
            if epsilon.upper.is_finite() {
                certified += 1;
                let less = less.iter().find(|(found, _)| found == accountant).unwrap();
                assert!(less.1.upper < epsilon.upper, "{context}");
            }
        }
        // A neighbor of replace-one is two of add-or-remove: never cheaper.
        if relation == NeighboringRelation::ReplaceOne
            && !accountants(sampler, &event, NeighboringRelation::AddOrRemoveOne).is_empty()
            && let Ok(add) = epsilon::<PldAccountant>(&event, NeighboringRelation::AddOrRemoveOne)
            && let Ok(replace) = epsilon::<PldAccountant>(&event, relation)
        {
            assert!(replace.upper >= add.lower, "{sampler}, {name}");
        }
    }
    assert!(certified > 0, "{sampler}, {name}: no accountant has a bound");
}

/// Checks that a plan states what the accountant of its relation says.
fn check_plan(sampler: &str, release: &str) {
    let plan = plan(sampler, release, 2.0);
    let stated = plan.epsilon_at_end(DELTA).unwrap();
    let certified = epsilon::<PldAccountant>(&plan.event(), plan.relation()).unwrap();
    assert!(stated >= certified.lower && stated <= certified.upper * (1.0 + 1e-9), "{stated}");
    assert!(stated.is_finite());
    // A simulation is never worse, and never below the proven bound.
    let simulation = Simulation::new(3).with_samples(SAMPLES).unwrap();
    let with = config(sampler, release, 2.0).with_simulation(simulation).init().unwrap();
    let simulated = with.epsilon_at_end(DELTA).unwrap();
    assert!(simulated >= certified.lower && simulated <= stated, "{simulated} {stated}");
}

macro_rules! cells {
    ($($sampler:literal: $gaussian:ident, $counts:ident, $laplace:ident, $bands:ident,
        $plan:ident;)*) => {
        $(
            #[test]
            fn $gaussian() {
                check($sampler, "Gaussian");
            }

            #[test]
            fn $counts() {
                check($sampler, "Gaussian and counts");
            }

            #[test]
            fn $plan() {
                check_plan($sampler, "Gaussian");
            }

            cells!(@laplace $sampler, $laplace);
            cells!(@bands $sampler, $bands);
        )*
    };
    (@laplace $sampler:literal, none) => {};
    (@laplace $sampler:literal, $name:ident) => {
        #[test]
        fn $name() {
            check($sampler, "Laplace");
        }
    };
    (@bands $sampler:literal, none) => {};
    (@bands $sampler:literal, $name:ident) => {
        #[test]
        fn $name() {
            check($sampler, BANDS);
            check_plan($sampler, BANDS);
        }
    };
}

cells! {
    "Poisson": poisson_gaussian, poisson_counts, poisson_laplace, none, poisson_plan;
    "truncated Poisson": truncated_poisson_gaussian, truncated_poisson_counts,
        truncated_poisson_laplace, none, truncated_poisson_plan;
    "fixed size": fixed_size_gaussian, fixed_size_counts, none, none, fixed_size_plan;
    "with replacement": with_replacement_gaussian, with_replacement_counts, none, none,
        with_replacement_plan;
    "shuffled": shuffled_gaussian, shuffled_counts, shuffled_laplace, shuffled_bands,
        shuffled_plan;
    "shuffled once": shuffled_once_gaussian, shuffled_once_counts, shuffled_once_laplace,
        shuffled_once_bands, shuffled_once_plan;
    "cyclic Poisson": cyclic_poisson_gaussian, cyclic_poisson_counts, none, cyclic_poisson_bands,
        cyclic_poisson_plan;
    "balls in bins": balls_in_bins_gaussian, balls_in_bins_counts, none, balls_in_bins_bands,
        balls_in_bins_plan;
    "random allocation": random_allocation_gaussian, random_allocation_counts, none,
        random_allocation_bands, random_allocation_plan;
    "minimum separation": minimum_separation_gaussian, minimum_separation_counts, none,
        minimum_separation_bands, minimum_separation_plan;
}

#[test]
fn bands_need_a_bound_of_the_participations() {
    for sampler in ["Poisson", "truncated Poisson", "fixed size", "with replacement"] {
        let error = config(sampler, BANDS, 2.0).init().unwrap_err();
        assert!(matches!(error, DpError::InvalidArgument { .. }), "{sampler}: {error}");
        assert!(event(sampler, BANDS, 2.0).is_none(), "{sampler}");
    }
}

#[test]
fn a_simulation_has_bounds_where_bands_end_the_amplification() {
    let relation = NeighboringRelation::AddOrRemoveOne;
    // Balls in bins keep a part of their amplification without a simulation.
    for sampler in ["random allocation", "minimum separation"] {
        let found = accountants(sampler, &event(sampler, BANDS, 2.0).unwrap(), relation);
        let upper = |name: &str| found.iter().find(|(found, _)| *found == name).unwrap().1.upper;
        assert!(upper("simulation") < 0.99 * upper("PLD"), "{sampler}: {found:?}");
    }
}

#[test]
fn draws_that_depend_on_each_other_have_no_event_for_a_step() {
    for sampler in ["cyclic Poisson", "balls in bins", "random allocation", "minimum separation"] {
        for (_, relation) in RELATIONS {
            let laplace = event(sampler, "Laplace", 2.0).unwrap();
            let found = accountants(sampler, &laplace, relation);
            assert!(found.is_empty(), "{sampler}: {found:?}");
        }
    }
}
