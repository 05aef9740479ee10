//! The table of the book: sampler, mechanism and relation, and the accountants of the combination.

use std::fmt::Write;

use burn_dp::clipping::{CountNoise, QuantileClipping};
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig, SamplingScheme};
use burn_dp_accountant::{
    Accountant, AccountantError, DpEvent, Epsilon, ExactAccountant, GdpAccountant,
    NeighboringRelation, PldAccountant, RdpAccountant,
};

const UNITS: usize = 400;
const BATCH: f64 = 20.0;
const STEPS: u64 = 20;
const DELTA: f64 = 1e-5;

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
const RELEASES: [&str; 3] = ["Gaussian", "Gaussian and counts", "Laplace"];

const RELATIONS: [(&str, NeighboringRelation); 3] = [
    ("add or remove", NeighboringRelation::AddOrRemoveOne),
    ("replace", NeighboringRelation::ReplaceOne),
    ("zero out", NeighboringRelation::ReplaceSpecial),
];

fn plan(sampler: &str, counts: bool, noise_multiplier: f64) -> PrivacyPlan {
    let (_, scheme) = SAMPLERS.into_iter().find(|(name, _)| *name == sampler).unwrap();
    let config = PrivacyPlanConfig::new(UNITS, BATCH).with_steps(STEPS).with_sampling(scheme);
    let config = config.with_noise_multiplier(noise_multiplier);
    let counted = QuantileClipping::new(0.5).unwrap().with_count_noise(CountNoise::Share(0.1));
    match counts {
        true => config.with_clipping(counted).init().unwrap(),
        false => config.init().unwrap(),
    }
}

/// Returns the event of the steps of a run.
fn event(sampler: &str, release: &str, noise_multiplier: f64) -> DpEvent {
    match release {
        "Laplace" => {
            let mechanism = plan(sampler, false, 1.0).sampler().unwrap().mechanism();
            mechanism.event(DpEvent::Laplace { noise_multiplier: 2.5 * noise_multiplier })
        }
        release => plan(sampler, release == "Gaussian and counts", noise_multiplier).event(),
    }
}

fn epsilon<A: Accountant>(
    event: &DpEvent,
    relation: NeighboringRelation,
) -> Result<Epsilon, AccountantError> {
    A::new([(event, STEPS)], relation)?.epsilon(DELTA)
}

/// Returns the ε of every accountant that accepts the event of a sampler.
fn accountants(
    sampler: &str,
    event: &DpEvent,
    relation: NeighboringRelation,
) -> Vec<(&'static str, Epsilon)> {
    if !plan(sampler, false, 2.0).sampler().unwrap().mechanism().holds_under(relation) {
        return Vec::new();
    }
    let all = [
        ("PLD", epsilon::<PldAccountant>(event, relation)),
        ("RDP", epsilon::<RdpAccountant>(event, relation)),
        ("GDP", epsilon::<GdpAccountant>(event, relation)),
        ("exact", epsilon::<ExactAccountant>(event, relation)),
    ];
    all.into_iter().filter_map(|(name, found)| Some((name, found.ok()?))).collect()
}

/// Returns the lines of the table.
fn table() -> String {
    let mut table = String::from("| sampler | relation |");
    RELEASES.iter().for_each(|release| write!(table, " {release} |").unwrap());
    table.push_str("\n|---|---|---|---|---|\n");
    for (sampler, _) in SAMPLERS {
        let stated = plan(sampler, false, 2.0).relation();
        for (name, relation) in RELATIONS {
            let of_plans = if relation == stated { "**" } else { "" };
            write!(table, "| {sampler} | {of_plans}{name}{of_plans} |").unwrap();
            for name in RELEASES {
                let found = accountants(sampler, &event(sampler, name, 2.0), relation);
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
    // A package that was unpacked alone has no book.
    let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/samplers.md");
    let Ok(page) = std::fs::read_to_string(book) else { return };
    let table = table();
    assert!(page.contains(&table), "the table of samplers.md must be\n\n{table}");
}

/// Checks every relation and accountant of one sampler and release.
fn check(sampler: &str, name: &str) {
    let [more, event] = [4.0, 2.0].map(|sigma| event(sampler, name, sigma));
    let mut certified = 0;
    for (relation_name, relation) in RELATIONS {
        let found = accountants(sampler, &event, relation);
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
                let less = accountants(sampler, &more, relation);
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
fn check_plan(sampler: &str) {
    let plan = plan(sampler, false, 2.0);
    let stated = plan.epsilon_at_end(DELTA).unwrap();
    let certified = epsilon::<PldAccountant>(&plan.event(), plan.relation()).unwrap();
    assert!(stated >= certified.lower && stated <= certified.upper * (1.0 + 1e-9), "{stated}");
    assert!(stated.is_finite());
}

macro_rules! cells {
    ($($sampler:literal: $gaussian:ident, $counts:ident, $laplace:ident, $plan:ident;)*) => {
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
                check_plan($sampler);
            }

            cells!(@laplace $sampler, $laplace);
        )*
    };
    (@laplace $sampler:literal, none) => {};
    (@laplace $sampler:literal, $name:ident) => {
        #[test]
        fn $name() {
            check($sampler, "Laplace");
        }
    };
}

cells! {
    "Poisson": poisson_gaussian, poisson_counts, poisson_laplace, poisson_plan;
    "truncated Poisson": truncated_poisson_gaussian, truncated_poisson_counts,
        truncated_poisson_laplace, truncated_poisson_plan;
    "fixed size": fixed_size_gaussian, fixed_size_counts, none, fixed_size_plan;
    "with replacement": with_replacement_gaussian, with_replacement_counts, none,
        with_replacement_plan;
    "shuffled": shuffled_gaussian, shuffled_counts, shuffled_laplace, shuffled_plan;
    "shuffled once": shuffled_once_gaussian, shuffled_once_counts, shuffled_once_laplace,
        shuffled_once_plan;
    "cyclic Poisson": cyclic_poisson_gaussian, cyclic_poisson_counts, none, cyclic_poisson_plan;
    "balls in bins": balls_in_bins_gaussian, balls_in_bins_counts, none, balls_in_bins_plan;
    "random allocation": random_allocation_gaussian, random_allocation_counts, none,
        random_allocation_plan;
    "minimum separation": minimum_separation_gaussian, minimum_separation_counts, none,
        minimum_separation_plan;
}

#[test]
fn draws_that_depend_on_each_other_have_no_event_for_a_step() {
    for sampler in ["cyclic Poisson", "balls in bins", "random allocation", "minimum separation"] {
        for (_, relation) in RELATIONS {
            let found = accountants(sampler, &event(sampler, "Laplace", 2.0), relation);
            assert!(found.is_empty(), "{sampler}: {found:?}");
        }
    }
}
