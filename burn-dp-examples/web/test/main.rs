//! Runs the page for browsers in Chromium: `cargo xtask test-web`.
//!
//! One training on Flex is interrupted by a reload and by a changed state, a second one on WebGPU
//! by a reload and by the loss of its GPU. The values on the page are compared with native results
//! of this program.

mod outcome;
mod page;

use std::path::PathBuf;
use std::time::Duration;

use burn::data::dataset::Dataset;
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig};
use burn_dp_accountant::Budget;
use burn_dp_examples::data::{digits, idx};
use burn_dp_examples::seeded_step;
use clap::Parser;
use serde_json::{Value, json};

use outcome::{Outcome, ensure};
use page::{Page, Settings};

/// Runs the page for browsers in Chromium.
#[derive(Parser, Debug)]
struct Options {
    /// Address of the page.
    #[arg(long)]
    address: String,
    /// File to which the server writes the path of every request.
    #[arg(long)]
    requests: PathBuf,
    /// Folder for the pictures of the page.
    #[arg(long)]
    figures: PathBuf,
    /// The page was built without WebGPU.
    #[arg(long)]
    flex_only: bool,
}

/// The training on the processor, with the initial settings of the page.
const WHOLE: Settings =
    Settings { backend: "flex", count: 20_000, batch_size: 1_000, epochs: 15, epsilon: 3.0 };

/// A short training that loses its GPU.
const SHORT: Settings =
    Settings { backend: "webgpu", count: 2_000, batch_size: 200, epochs: 4, epsilon: 3.0 };

const DELTA: f64 = 1e-5;

fn main() -> Outcome {
    let options = Options::parse();
    let page = Page::open(&options.address, &options.requests)?;
    passed("the page loads, and has a label for everything", page.check_labels())?;
    passed("a seeded step releases the same bits as natively", seeded(&page))?;
    passed("steps and noise are timed on the processor", cost(&page, "flex", 20))?;
    if !options.flex_only {
        passed("steps and noise are timed on WebGPU", cost(&page, "webgpu", 2))?;
    }
    passed("files of the user are read, and others refused", files(&page))?;
    passed("a private training survives reloads and is accurate", training(&page))?;
    passed("a digit is classified, and the statement names the key", results(&page))?;
    passed("the page fits a phone, light and dark", pictures(&page, &options))?;
    passed("a run that is deleted is gone", page.delete())?;
    passed("images without a run are removed", page.check_unfinished_run_is_removed())?;
    if options.flex_only {
        println!("left out: the page was built without WebGPU");
    } else {
        passed("a training whose GPU is lost continues on the processor", gpu_lost(&page))?;
    }
    passed("nothing was requested after a page was loaded", page.check_requests())
}

fn passed(what: &str, outcome: Outcome) -> Outcome {
    outcome.map_err(|error| format!("{what}: {error}"))?;
    println!("passed: {what}");
    Ok(())
}

/// The plan that the page should have created.
fn plan(settings: &Settings) -> Outcome<PrivacyPlan> {
    let config = PrivacyPlanConfig::new(settings.count, f64::from(settings.batch_size));
    let budget = Budget::new(settings.epsilon, DELTA)?;
    Ok(config.with_epochs(f64::from(settings.epochs)).with_budget(budget).init()?)
}

fn close(found: f64, expected: f64, tolerance: f64) -> bool {
    (found - expected).abs() <= tolerance * expected
}

fn seeded(page: &Page) -> Outcome {
    let found = page.call("seededStep", &Value::Null)?;
    let expected = seeded_step::released_bits()?;
    ensure(found.as_str() == Some(&expected), || "the bits differ".into())
}

/// Prints what privacy costs on a backend.
fn cost(page: &Page, backend: &str, steps: u32) -> Outcome {
    let found = page.call("cost", &json!({ "backend": backend, "steps": steps }))?;
    let number = |value: &Value| value.as_f64().filter(|&number| number > 0.0);
    for network in ["mlp", "cnn"] {
        let times = [&found[network]["private"], &found[network]["ordinary"]].map(number);
        let [Some(private), Some(ordinary)] = times else {
            return Err(format!("no times in {found}").into());
        };
        let ratio = private / ordinary;
        println!("  {network}: {private:.1} ms over {ordinary:.1} ms, {ratio:.2}");
    }
    let noise = number(&found["noise"]).ok_or_else(|| format!("no noise in {found}"))?;
    println!("  noise: {noise:.1} ns a value");
    Ok(())
}

/// IDX files and PNG images of the user are read, and other files are rejected.
fn files(page: &Page) -> Outcome {
    page.set("batch-size", "20")?;
    let folder = tempfile::tempdir()?;
    let digits = digits::splits(0, 1_200, 0).train;
    let [images, labels] =
        ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"].map(|name| folder.path().join(name));
    let header = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let count = digits.len() as u32;
    let mut bytes: Vec<u8> = header(&[idx::IMAGES_MAGIC, count, 28, 28]);
    bytes.extend(digits.items().iter().flat_map(|item| item.image.iter()));
    std::fs::write(&images, bytes)?;
    let mut bytes: Vec<u8> = header(&[idx::LABELS_MAGIC, count]);
    bytes.extend(digits.items().iter().map(|item| item.label as u8));
    std::fs::write(&labels, bytes)?;
    page.choose_files(&[labels, images])?;
    page.wait_for_text("plan-n", "1200", Duration::from_secs(60))?;

    let mut pictures = Vec::new();
    for (number, item) in digits.items().iter().take(40).enumerate() {
        let path = folder.path().join(format!("{}-{number}.png", item.label));
        image::save_buffer(&path, &item.image, 28, 28, image::ExtendedColorType::L8)?;
        pictures.push(path);
    }
    page.choose_files(&pictures)?;
    page.wait_for_text("plan-n", "40", Duration::from_secs(60))?;

    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "no image")?;
    page.choose_files(&[text])?;
    let error = page.text("error")?;
    ensure(error.contains("choose two IDX files"), || format!("the error is \"{error}\""))?;
    page.pick("drawn")
}

/// Reloads the page after this step, until the resumed run repeats steps. Their releases are still
/// in the ledger, and have the same bits again, so that none is skipped. Returns ε before that.
fn repeated(page: &Page, step: u64) -> Outcome<f64> {
    for attempt in 0..5 {
        let made = page.wait_for_unsaved_step(step + 5 * attempt)?;
        let before = page.spent()?;
        page.reload()?;
        let after = page.resume()?;
        ensure(after >= before, || format!("ε fell from {before} to {after}"))?;
        if page.text("message")?.contains("are repeated") {
            page.wait_for_step(made + 10)?;
            let message = page.text("message")?;
            ensure(message.contains("are repeated"), || format!("a repetition: {message}"))?;
            return Ok(after);
        }
    }
    Err("no step was lost in five reloads".into())
}

fn training(page: &Page) -> Outcome {
    let plan = plan(&WHOLE)?;
    page.choose(&WHOLE)?;
    let sigma = page.number("plan-sigma")?;
    ensure(close(sigma, plan.noise_multiplier(), 1e-4), || {
        format!("σ is {sigma}, natively {}", plan.noise_multiplier())
    })?;
    page.start()?;

    let mut lowest = repeated(page, 12)?;

    // With another state, the repetition differs, so the run continues after it. A reload right
    // after a state was stored repeats nothing, and is tried again.
    for attempt in 1.. {
        page.wait_for_unsaved_step(20 + 10 * attempt)?;
        page.reload()?;
        page.change_stored_model()?;
        let resumed = page.resume()?;
        ensure(resumed >= lowest, || format!("ε fell from {lowest} to {resumed}"))?;
        lowest = resumed;
        let skips = page.wait_for_text("message", "stay paid", Duration::from_secs(20));
        if skips.is_ok() {
            break;
        }
        ensure(attempt < 5, || "no step was lost in five reloads".into())?;
    }

    page.wait_until_finished(Duration::from_secs(1200))?;
    let (spent, planned) = (page.spent()?, plan.epsilon_at_end(DELTA)?);
    println!("  ε {spent} in the browser, {planned} natively");
    ensure(close(spent, planned, 1e-6), || format!("ε is {spent}, natively {planned}"))?;
    let accuracy = page.number("accuracy")?;
    println!("  accuracy {accuracy} %, {} a step", page.text("time")?);
    ensure(accuracy >= 90.0, || format!("the accuracy is {accuracy} %"))
}

fn results(page: &Page) -> Outcome {
    page.draw_a_one()?;
    page.wait_for_text("guess", "This is a 1,", Duration::from_secs(30))?;
    page.click("example")?;
    page.wait_for_text("guess", "it was drawn as a", Duration::from_secs(30))?;
    let statement = page.text("statement")?;
    let test = "The images and labels of the test set";
    for part in ["in the storage of the browser", "synthetic digits of the page", test] {
        ensure(statement.contains(part), || format!("no \"{part}\" in {statement}"))?;
    }
    Ok(())
}

fn pictures(page: &Page, options: &Options) -> Outcome {
    std::fs::create_dir_all(&options.figures)?;
    for (name, width, dark) in [("web.png", 900, false), ("web-phone.png", 390, true)] {
        let overflow = page.resize(width, 1200, dark)?;
        ensure(overflow <= 0.0, || format!("{overflow} pixels too wide at {width}"))?;
        std::fs::write(options.figures.join(name), page.picture(width, dark)?)?;
    }
    page.resize(900, 1200, false).map(drop)
}

fn gpu_lost(page: &Page) -> Outcome {
    let plan = plan(&SHORT)?;
    page.choose(&SHORT)?;
    page.start()?;
    // The first step compiles the shaders, and compares the values of the examples.
    page.wait_for_step(3)?;
    repeated(page, 5)?;
    let device = page.text("device")?;
    ensure(device.contains("WebGPU"), || format!("resumed on {device}"))?;
    let before = page.spent()?;
    println!("  {} a step on WebGPU", page.text("time")?);
    page.crash_gpu()?;
    page.wait_for_text("message", "The GPU was lost", Duration::from_secs(60))?;
    page.wait_for_text("device", "Flex", Duration::from_secs(60))?;
    page.wait_until_finished(Duration::from_secs(300))?;
    let (spent, planned) = (page.spent()?, plan.epsilon_at_end(DELTA)?);
    ensure(spent >= before && close(spent, planned, 1e-6), || {
        format!("ε is {spent}, natively {planned}")
    })?;
    page.delete()
}
