//! User-level training and batch clipping, from the command line to the files.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use burn_dp_accountant::correlated_noise::Strategy;
use serde_json::{Value, json};

fn program(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_train"));
    command.args(line.split_whitespace()).current_dir(folder).env_remove("BURN_DP_DATA");
    command
}

fn train(folder: &Path, line: &str) -> Output {
    program(folder, line).output().unwrap()
}

/// Runs the program, which aborts within its checkpoint after `step` steps, and returns what it
/// printed before.
fn interrupted(folder: &Path, line: &str, step: u64) -> String {
    let mut run = program(folder, line);
    let output = run.env("BURN_DP_TEST_ABORT_IN_CHECKPOINT", step.to_string()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "there was no checkpoint after step {step}");
    assert!(!message.contains("error: "), "{message}");
    String::from_utf8(output.stdout).unwrap()
}

/// The files in a folder, by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let file = |entry: std::fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    };
    entries.map(file).collect()
}

/// The message of a run that must be rejected, and whether it left an output folder behind.
fn refusal(folder: &Path, line: &str) -> String {
    let output = train(folder, line);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "`{line}` must be refused");
    assert!(!folder.join("out").exists(), "`{line}` left something behind: {message}");
    message
}

fn figures(folder: &Path, line: &str) -> (Value, String) {
    let output = train(folder, &format!("{line} --output out --json figures.json"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "`{line}` failed: {message}");
    let text = std::fs::read_to_string(folder.join("figures.json")).unwrap();
    (serde_json::from_str(&text).unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// Checks that the statement has a guarantee for two units, which is weaker than for one.
fn assert_group_of_two(folder: &Path) {
    let text = std::fs::read_to_string(folder.join("out/privacy.json")).unwrap();
    let statement: Value = serde_json::from_str(&text).unwrap();
    let (one, two) = (&statement["epsilons"][0], &statement["groups"][0]["epsilon"]);
    assert_eq!((&statement["groups"][0]["units"], &two["delta"]), (&json!(2), &one["delta"]));
    let [one, two] = [one, two].map(|epsilon| epsilon["upper"].as_f64());
    assert!(two.unwrap() > 2.0 * one.unwrap(), "{one:?} {two:?}");
}

/// Sixty roles, some of which say nothing.
fn roles(folder: &Path) {
    let line = |user: usize| {
        let text = "To be, or not to be, that is the question. ".repeat(user % 4);
        format!("{}\n", json!({ "user": format!("PLAY/{user}"), "text": text }))
    };
    let lines: String = (0..60).map(line).collect();
    std::fs::write(folder.join("shakespeare-users.jsonl"), lines).unwrap();
}

const USERS: &str = "shakespeare --federated --data-dir . --users-per-round 20 --rounds 4 \
                     --delta 1e-3 --hidden 8 --embedding 4 --length 20 --evaluate-every 2";

/// The statement that a run wrote.
fn statement(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("out/privacy.txt")).unwrap()
}

#[test]
fn users_are_trained_on_with_a_statement_for_the_user_and_with_plots() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    let (figures, output) = figures(folder.path(), &format!("{USERS} --epsilon 10 --group 2"));
    // The checksums of their names decide.
    assert_eq!(figures["users"], json!([49, 9]));
    assert_eq!((figures["rounds"].as_u64(), figures["private"].as_bool()), (Some(4), Some(true)));
    let epsilon = figures["epsilon"].as_f64().unwrap();
    assert!(epsilon <= 10.0 && epsilon > 9.9, "{epsilon}");
    assert_eq!(figures["measurements"].as_array().unwrap().len(), 2);
    let norms = figures["update_norms"].as_array().unwrap();
    assert!(norms.iter().any(|norm| norm[0] == "embedding.weight"));
    assert!(norms.iter().all(|norm| norm[1].as_f64().unwrap() > 0.0), "{norms:?}");
    let last = &figures["measurements"][1];
    assert_eq!((&last["round"], &last["update_norms"]), (&json!(4), &figures["update_norms"]));
    assert!(output.contains("one user, with all of their examples"), "{output}");
    assert_eq!(figures["test_accuracy"], last["test_accuracy"]);
    let name = figures["dataset"].as_str().unwrap();
    assert!(output.contains(&format!("\nnext-token LSTM on {name}: test accuracy ")), "{output}");
    assert!(output.contains(" at delta = 1e-3, 4 rounds, "), "{output}");
    let announced = output.split("privacy:").next().unwrap();
    assert!(announced.contains("NOT protected: 9 users of --data-dir"), "{output}");
    let said = statement(folder.path());
    assert!(said.contains("federated averaging"));
    assert!(said.contains("About one in ten users of the file"), "{said}");
    assert!(said.contains("The number of users that are trained on"), "{said}");
    assert!(!said.contains("The choice of the first"), "{said}");
    assert_group_of_two(folder.path());
    let thresholds: Vec<_> = (figures["measurements"].as_array().unwrap().iter())
        .map(|measured| measured["threshold"].as_f64().unwrap())
        .collect();
    assert_ne!(thresholds[0], thresholds[1]);
    for name in
        ["model.bpk", "privacy.json", "privacy.txt", "loss.svg", "threshold.svg", "training.svg"]
    {
        assert!(folder.path().join("out").join(name).is_file(), "{name}");
    }
    assert!(!folder.path().join("out/checkpoints").exists());
    let plot = std::fs::read_to_string(folder.path().join("out/update-norms.svg")).unwrap();
    assert!(plot.contains("embedding.weight"));
}

#[test]
fn the_learning_rate_of_the_server_can_be_divided_by_the_threshold() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    let losses = |options: &str| {
        let line = format!("{USERS} --insecure-seed 1 --noise-multiplier 1 {options}");
        let figures = figures(folder.path(), &line).0;
        std::fs::remove_dir_all(folder.path().join("out")).unwrap();
        let measurements = figures["measurements"].as_array().unwrap().clone();
        measurements.iter().map(|measured| measured["test_loss"].clone()).collect::<Vec<_>>()
    };
    let divided = losses("--clipping flat --max-update-norm 0.25 --server-lr-over-threshold");
    assert_eq!(divided, losses("--clipping flat --max-update-norm 0.25 --server-lr 4"));
    assert_ne!(divided, losses("--clipping flat --max-update-norm 0.25"));
    // The threshold changes after each round, and so does the learning rate.
    let adaptive = losses("--max-update-norm 0.25 --server-lr-over-threshold");
    assert_ne!(adaptive, losses("--max-update-norm 0.25 --server-lr 4"));
}

#[test]
fn the_budget_of_users_covers_an_earlier_run() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    let (first, _) = figures(folder.path(), &format!("{USERS} --noise-multiplier 4"));
    let ledger = folder.path().join("out/ledger.json");
    std::fs::rename(ledger, folder.path().join("first.json")).unwrap();
    let line = format!("{USERS} --epsilon 10 --earlier-ledger first.json");
    let (second, output) = figures(folder.path(), &line);
    let [first, second] = [first, second].map(|run| run["epsilon"].as_f64().unwrap());
    assert!(first < 9.0 && second <= 10.0 && second > 9.9, "{first} {second}");
    assert!(output.contains("epsilon <= "), "{output}");
    assert!(statement(folder.path()).contains("earlier releases:"));
}

// Without one of them, the next one of the file takes its place.
#[test]
fn the_first_users_of_a_file_are_not_all_that_can_change() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    figures(folder.path(), &format!("{USERS} --noise-multiplier 4 --users 55"));
    let said = statement(folder.path());
    assert!(said.contains("The choice of the first 55 users of the files (--users)"), "{said}");
}

#[test]
fn the_embedding_can_be_the_last_layer_too() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    let line = format!("{USERS} --noise-multiplier 1 --tied");
    let (figures, _) = figures(folder.path(), &line);
    let norms = figures["update_norms"].as_array().unwrap();
    let names: Vec<_> = norms.iter().map(|norm| norm[0].as_str().unwrap()).collect();
    assert!(names.contains(&"embedding.weight") && names.contains(&"output.bias"), "{names:?}");
}

#[test]
fn users_are_clipped_by_every_policy() {
    for (policy, stated) in [
        ("flat", "flat"),
        ("per-layer", "per group"),
        ("automatic", "automatic"),
        ("layerwise --public-users", "shakespeare, one of ten speaking roles (not protected, "),
        ("layer-quantile", "quantile"),
        ("zhang --public-users --layer-groups 2", "to the norm of each on public data"),
        ("multipliers --public-users --threshold-decay 0.5", "multiplied"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        roles(folder.path());
        let line = format!("{USERS} --noise-multiplier 1 --clipping {policy}");
        let (figures, output) = figures(folder.path(), &line);
        assert_eq!((&figures["rounds"], &figures["private"]), (&json!(4), &json!(true)));
        assert!(output.contains(stated), "{policy}: {output}");
    }
}

#[test]
fn the_noise_of_rounds_is_correlated_where_each_user_takes_part_seldom() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    Strategy::tree(4).unwrap().save(folder.path().join("tree.json")).unwrap();
    let line = format!("{USERS} --noise-multiplier 1 --clipping flat --correlated-noise tree.json");
    let (figures, output) = figures(folder.path(), &format!("{line} --sampling shuffled-once"));
    assert!(figures["epsilon"].as_f64().unwrap() > 0.0);
    assert!(output.contains("CorrelatedGaussian"), "{output}");
    std::fs::remove_dir_all(folder.path().join("out")).unwrap();
    let error = refusal(folder.path(), &format!("{line} --output out"));
    assert!(error.contains("cyclic Poisson"), "{error}");
}

#[test]
fn the_norms_of_private_users_are_estimated_during_the_training() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    let line = format!("{USERS} --noise-multiplier 1 --track-norms --count-share 0.5");
    let (figures, output) = figures(folder.path(), &line);
    let norms = figures["private_norms"].as_array().unwrap();
    assert_eq!(norms.len(), figures["update_norms"].as_array().unwrap().len());
    assert!(norms.iter().any(|norm| norm[0] == "embedding.weight"));
    // Below the initial value of 0.1.
    assert!(norms.iter().all(|norm| norm[2].as_f64().is_some_and(|median| median != 0.1)));
    assert!(output.contains("quantiles [0.5, 0.9] and means of the norms of"), "{output}");
    for name in ["private-means.svg", "private-medians.svg"] {
        assert!(folder.path().join("out").join(name).is_file(), "{name}");
    }
}

#[test]
fn the_same_insecure_seed_gives_the_same_model_and_no_privacy() {
    let model = |algorithm: &str| {
        let folder = tempfile::tempdir().unwrap();
        roles(folder.path());
        let line =
            format!("{USERS} --noise-multiplier 1 --insecure-seed 3 --algorithm {algorithm}");
        let (figures, _) = figures(folder.path(), &line);
        assert_eq!(figures["private"], false);
        assert!(figures["epsilon"].is_null());
        figures["measurements"][1]["test_loss"].as_f64().unwrap()
    };
    // With one epoch of one batch the two algorithms are the same.
    let averaging = "fed-avg --local-epochs 2";
    assert_eq!(model(averaging), model(averaging));
    assert_ne!(model(averaging), model("fed-sgd"));
}

#[test]
fn rounds_are_on_disk_before_they_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    let line = USERS.replace("--rounds 4", "--rounds 6 --output out --noise-multiplier 1");
    let printed = interrupted(folder.path(), &line, 4);
    let round = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    // The row of round 4 would follow its checkpoint.
    assert_eq!(printed.lines().filter_map(round).collect::<Vec<_>>(), [2], "{printed}");
    let checkpoints = std::fs::read_dir(folder.path().join("out/checkpoints")).unwrap();
    let names = checkpoints.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let complete: Vec<_> = names.filter(|name| name.starts_with("checkpoint-")).collect();
    assert_eq!(complete, [format!("checkpoint-{:020}", 2)]);
}

#[test]
fn without_the_plays_the_message_says_what_to_download() {
    let folder = tempfile::tempdir().unwrap();
    let text = refusal(folder.path(), "shakespeare --federated --output out");
    assert!(text.contains("gutenberg.org") && text.contains("--data-dir"), "{text}");
    let text = refusal(folder.path(), &format!("{USERS} --output out"));
    assert!(text.contains("holds no shakespeare-users.jsonl"), "{text}");
}

#[test]
fn a_delta_that_would_publish_a_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    let line = USERS.replace("--delta 1e-3", "--delta 0.1 --output out");
    let text = refusal(folder.path(), &line);
    assert!(text.contains("less than 1 / users"), "{text}");
}

const SETS: &str = "--clipping batch --train-size 560 --public-size 100 --test-size 100 \
                    --mini-set-size 20 --epochs 2 --delta 1e-4";

#[test]
fn mini_sets_are_trained_on_with_batch_norm_and_the_statement_says_what_it_stores() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("digits {SETS} --mini-sets 2 --group 2");
    let (figures, output) = figures(folder.path(), &line);
    assert_eq!(figures["model"], "bn-lenet5");
    // 28 mini-sets of 560 private images, two in a step.
    assert_eq!(figures["steps"], 28);
    assert_eq!(figures["unit"], "one example");
    assert_eq!(figures["relation"], "replace one unit");
    assert_eq!(figures["epochs"].as_array().unwrap().len(), 2);
    assert!(figures["epsilon"].as_f64().unwrap() > 0.0);
    let statement = std::fs::read_to_string(folder.path().join("out/privacy.json")).unwrap();
    let statement: Value = serde_json::from_str(&statement).unwrap();
    let statistics = statement["facts"]["statistics_of_the_saved_model"].as_str().unwrap();
    assert!(statistics.starts_with("of public images"), "{statistics}");
    let learned = statement["facts"]["running_statistics"].as_str().unwrap();
    assert!(learned.starts_with("not learned"), "{learned}");
    let public = statement["facts"]["public_data"].as_str().unwrap();
    let is_named = public.contains("synthetic digits of seed 0") && public.contains("100 items");
    assert!(is_named, "{public}");
    assert_eq!(statement["facts"]["mini_set_size"], "20");
    let sentences = statement["not_covered"].to_string();
    assert!(sentences.contains("The number of examples that are trained on"), "{sentences}");
    assert!(output.contains("sampling 2 of 28 units"), "{output}");
    assert!(output.contains("\nbn-lenet5 on digits: test accuracy "), "{output}");
    assert!(output.contains(" at delta = 1e-4, 28 steps, "), "{output}");
    assert_group_of_two(folder.path());
    assert!(folder.path().join("out/accuracy.svg").is_file());
    assert!(output.contains("plot: out/training.svg"), "{output}");
}

#[test]
fn the_ledger_of_an_earlier_run_is_kept_also_by_a_resumed_run() {
    let folder = tempfile::tempdir().unwrap();
    roles(folder.path());
    let users = format!("{USERS} --noise-multiplier 4");
    let sets = format!("digits {SETS} --mini-sets 2");
    for (line, step, kept) in [(users, 2, "ledger-1.json"), (sets, 14, "ledger-3.json")] {
        figures(folder.path(), &line);
        interrupted(folder.path(), &format!("{line} --output out"), step);
        figures(folder.path(), &format!("{line} --resume"));
        let names = files(&folder.path().join("out"));
        let ledgers = names.keys().filter(|name| name.starts_with("ledger-"));
        assert_eq!(ledgers.max().unwrap(), kept);
    }
}

#[test]
fn layerwise_thresholds_come_from_public_images() {
    let folder = tempfile::tempdir().unwrap();
    let (figures, output) = figures(folder.path(), &format!("digits {SETS} --policy layerwise"));
    let clipping = figures["clipping"].as_str().unwrap();
    assert!(clipping.contains("conv1") && clipping.contains("public data"), "{clipping}");
    let noise = figures["noise_multiplier"].as_f64().unwrap();
    assert!((noise - 1.0 / 8f64.sqrt()).abs() < 1e-12, "{noise}");
    assert!(output.contains("SampledWithoutReplacement(1 of 28"), "{output}");
}

#[test]
fn thresholds_without_a_master_and_layer_multipliers_are_policies_too() {
    for (policy, words, expected) in [
        ("zhang", "to the norm of each on public data", 1.0 / 8f64.sqrt()),
        ("multipliers", "multiplied by the largest norm on public data", 1.0),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("digits {SETS} --epochs 1 --policy {policy}").replace("--epochs 2", "");
        let (figures, _) = figures(folder.path(), &line);
        let clipping = figures["clipping"].as_str().unwrap();
        assert!(clipping.contains(words), "{clipping}");
        let noise = figures["noise_multiplier"].as_f64().unwrap();
        assert!((noise - expected).abs() < 1e-12, "{noise}");
    }
}

#[test]
fn several_local_steps_and_poisson_sampling_of_mini_sets_are_options() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("digits {SETS} --local-steps 2 --poisson --model lenet5");
    let line = line.replace("--public-size 100", "");
    let (figures, output) = figures(folder.path(), &line);
    assert_eq!(figures["unit"], "one mini-set of examples");
    assert_eq!(figures["model"], "lenet5");
    assert!(output.contains("one mini-set of examples"), "{output}");
    let statement = statement(folder.path());
    assert!(statement.contains("one mini-set removed and another added"), "{statement}");
    assert!(!statement.contains("running statistics: "), "{statement}");
    assert!(!statement.contains("public data:"), "{statement}");
}

#[test]
fn images_of_mini_sets_are_moved_at_random_also_by_a_resumed_run() {
    let plain = format!("digits {SETS} --policy layerwise --insecure-seed 4");
    let line = format!("{plain} --augmentation 2 --crop 2 --mirror");
    let folder = tempfile::tempdir().unwrap();
    let (plain, _) = figures(folder.path(), &plain);
    assert_eq!(plain["augmentation"], Value::Null);
    let folder = tempfile::tempdir().unwrap();
    let (whole, _) = figures(folder.path(), &line);
    assert_eq!((&whole["augmentation"], &whole["crop"]), (&json!(2), &json!(2)));
    // Copies cost no privacy, and they change the result.
    assert_eq!(whole["epsilon"], plain["epsilon"]);
    assert_ne!(whole["test_loss"], plain["test_loss"]);
    let statement = std::fs::read_to_string(folder.path().join("out/privacy.json")).unwrap();
    let statement: Value = serde_json::from_str(&statement).unwrap();
    let fact = statement["facts"]["augmentation"].as_str().unwrap();
    assert!(fact.starts_with("2 copies of each image to train on, shifted by up to 2"), "{fact}");

    let folder = tempfile::tempdir().unwrap();
    interrupted(folder.path(), &format!("{line} --output out"), 56);
    let other = line.replace("--crop 2", "--crop 3");
    let other = train(folder.path(), &format!("{other} --output out --resume"));
    let text = String::from_utf8(other.stderr).unwrap();
    assert!(!other.status.success() && text.contains("--crop was 2 and is now 3"), "{text}");
    let (resumed, _) = figures(folder.path(), &format!("{line} --resume"));
    assert_eq!(resumed["epochs"][0], whole["epochs"][1]);
    assert_eq!(resumed["test_loss"], whole["test_loss"]);
}

#[test]
fn local_steps_and_networks_without_batch_norm_move_images_too() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("digits {SETS} --local-steps 2 --model lenet5 --augmentation 1 --crop 1");
    let (figures, _) = figures(folder.path(), &line.replace("--public-size 100", ""));
    assert_eq!((&figures["augmentation"], &figures["mirror"]), (&json!(1), &json!(false)));
}

#[test]
fn nothing_to_resume_is_refused_with_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("digits {SETS} --resume --output out");
    let text = refusal(folder.path(), &line);
    assert!(text.contains("finds no checkpoint in"), "{text}");

    // The files of a finished run are kept.
    figures(folder.path(), &format!("digits {SETS}"));
    let before = files(&folder.path().join("out"));
    assert!(before.contains_key("model.bpk") && before.contains_key("privacy.json"));
    let output = train(folder.path(), &line);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("finds no checkpoint in"), "{text}");
    let after = files(&folder.path().join("out"));
    assert!(after == before, "left are {:?}", after.keys());
}

#[test]
fn merged_layers_and_decaying_thresholds_are_options_of_mini_sets_also_of_a_resumed_run() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!(
        "digits {SETS} --policy layerwise --layer-groups 3 --threshold-decay 0.5 --insecure-seed 4"
    );
    let (whole, _) = figures(folder.path(), &line);
    let clipping = whole["clipping"].as_str().unwrap();
    assert!(clipping.contains('+') && clipping.contains("times 0.5 every 28 steps"), "{clipping}");
    let noise = whole["noise_multiplier"].as_f64().unwrap();
    assert!((noise - 1.0 / 3f64.sqrt()).abs() < 1e-12, "{noise}");

    let folder = tempfile::tempdir().unwrap();
    // At the end of the second epoch: the last complete checkpoint is from the first.
    interrupted(folder.path(), &format!("{line} --output out"), 56);
    let other = train(folder.path(), &format!("{line} --output out --resume --lr 0.5"));
    let text = String::from_utf8(other.stderr).unwrap();
    assert!(!other.status.success() && text.contains("--lr was 0.025 and is now 0.5"), "{text}");
    let (resumed, _) = figures(folder.path(), &format!("{line} --resume"));
    assert_eq!(resumed["epochs"].as_array().unwrap().len(), 1);
    assert_eq!(resumed["epochs"][0], whole["epochs"][1]);
    assert_eq!((&resumed["steps"], &resumed["clipping"]), (&whole["steps"], &whole["clipping"]));
}

#[test]
fn other_networks_local_adam_and_sparsification_are_options_also_of_a_resumed_run() {
    let folder = tempfile::tempdir().unwrap();
    let sets = SETS.replace("--train-size 560", "--train-size 280");
    let line = format!(
        "digits {sets} --model bn-convnet --local-steps 2 --local-optimizer adam --local-lr 0.01 \
         --sparsify 4 --sparsify-factor 50 --insecure-seed 4"
    );
    let (whole, _) = figures(folder.path(), &line);
    assert_eq!(whole["model"], "bn-convnet");
    let fixed = whole["fixed_share"].as_f64().unwrap();
    assert!(fixed > 0.0 && fixed <= 1.0, "{fixed}");
    let statement = std::fs::read_to_string(folder.path().join("out/privacy.json")).unwrap();
    let statement: Value = serde_json::from_str(&statement).unwrap();
    let facts = &statement["facts"];
    assert!(facts["sparsification"].as_str().unwrap().contains("4 steps"), "{facts}");
    assert!(facts["running_statistics"].as_str().is_some(), "{facts}");

    let folder = tempfile::tempdir().unwrap();
    // At the end of the second epoch: the last complete checkpoint is from the first.
    interrupted(folder.path(), &format!("{line} --output out"), 28);
    let (resumed, _) = figures(folder.path(), &format!("{line} --resume"));
    assert_eq!(resumed["epochs"][0], whole["epochs"][1]);
}

#[test]
fn no_part_of_the_private_images_is_public() {
    let folder = tempfile::tempdir().unwrap();
    let line = SETS.replace("--public-size 100", "--output out");
    let text = refusal(folder.path(), &format!("mnist {line} --data-dir nowhere"));
    assert!(text.contains("--public-data must be given for mnist with BatchNorm"), "{text}");
    assert!(text.contains("`--public-data digits`") && text.contains("lenet5"), "{text}");
}
