//! Computes ε of log-uniform configurations and reports widths of the brackets and times.
//!
//! `cargo run -p burn-dp-accountant --example sweep_accountant -- --json FILE [--count N] [--seed S]`
//!
//! The defaults cover q in 1e-7..1, σ in 0.1..1000, up to 1e7 steps and δ in 1e-15..1e-2 with 1,760
//! configurations, one after another; `--only 3,17` computes some of them, and `--relation
//! replace-one` computes all under that relation. A configuration fails if its bracket is wider
//! than 1e-4 (relative) or takes more than one second of processor time; the program then ends with
//! status 1.

use std::time::Instant;

use burn_dp_accountant::{
    AccountantError, DpEvent, Epsilon, LedgerHeader, NeighboringRelation, PrivacyLedger,
    UnitOfPrivacy,
};
use serde_json::{Value, json};

/// Largest relative width of a bracket, and largest time in seconds.
const WIDEST: f64 = 1e-4;
const SLOWEST: f64 = 1.0;

struct Options {
    file: Option<String>,
    count: usize,
    seed: u64,
    /// The configurations to compute; empty means all.
    only: Vec<usize>,
    relation: NeighboringRelation,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options()?;
    let mut generator = Generator(options.seed);
    let mut rows = Vec::new();
    for index in 0..options.count {
        let configuration = Configuration::draw(&mut generator);
        if options.only.is_empty() || options.only.contains(&index) {
            let start = (Instant::now(), cpu_seconds());
            let epsilon = configuration.epsilon(options.relation)?;
            let wall = start.0.elapsed().as_secs_f64();
            let seconds = cpu_seconds().zip(start.1).map_or(wall, |(after, before)| after - before);
            rows.push(Row { index, configuration, epsilon, seconds, wall });
        }
    }
    report(&rows);
    if let Some(file) = options.file {
        let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
        std::fs::write(&file, format!("{:#}\n", Value::from(rows)))?;
    }
    if rows.iter().any(Row::fails) {
        std::process::exit(1);
    }
    Ok(())
}

fn options() -> Result<Options, Box<dyn std::error::Error>> {
    let relation = NeighboringRelation::AddOrRemoveOne;
    let mut options = Options { file: None, count: 1_760, seed: 1, only: Vec::new(), relation };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--help" {
            println!("Options: --json FILE, --count N, --seed N, --only LIST, --relation NAME");
            std::process::exit(0);
        }
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--json" => options.file = Some(value),
            "--count" => options.count = value.parse()?,
            "--seed" => options.seed = value.parse()?,
            "--only" => {
                options.only = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--relation" => {
                options.relation = serde_json::from_value(value.replace('-', "_").into())?
            }
            other => {
                let known = "use --json, --count, --seed, --only, --relation";
                return Err(format!("unknown argument {other}; {known}").into());
            }
        }
    }
    Ok(options)
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Generator(u64);

impl Generator {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        low * (self.uniform() * (high / low).ln()).exp()
    }
}

struct Configuration {
    q: f64,
    sigma: f64,
    steps: u64,
    delta: f64,
}

impl Configuration {
    fn draw(generator: &mut Generator) -> Self {
        Self {
            q: generator.log_uniform(1e-7, 1.0),
            sigma: generator.log_uniform(0.1, 1e3),
            steps: generator.log_uniform(1.0, 1e7) as u64,
            delta: generator.log_uniform(1e-15, 1e-2),
        }
    }

    fn epsilon(&self, relation: NeighboringRelation) -> Result<Epsilon, AccountantError> {
        let mut ledger = PrivacyLedger::new(LedgerHeader::new(UnitOfPrivacy::Example, relation));
        ledger.record_many(&DpEvent::dp_sgd_step(self.q, self.sigma), self.steps)?;
        ledger.epsilon(self.delta)
    }
}

struct Row {
    index: usize,
    configuration: Configuration,
    epsilon: Epsilon,
    /// Time of all threads together, or the time that passed where the system does not say.
    seconds: f64,
    wall: f64,
}

impl Row {
    fn width(&self) -> f64 {
        let Epsilon { lower, upper, .. } = self.epsilon;
        if upper == 0.0 { 0.0 } else { (upper - lower) / upper }
    }

    fn fails(&self) -> bool {
        // NaN fails.
        is_wide(self.width()) || self.seconds > SLOWEST
    }

    fn to_json(&self) -> Value {
        let Configuration { q, sigma, steps, delta } = self.configuration;
        json!({
            "index": self.index, "q": q, "sigma": sigma, "steps": steps, "delta": delta,
            "lower": self.epsilon.lower, "upper": self.epsilon.upper,
            "estimate": self.epsilon.estimate, "method": self.epsilon.method,
            "width": self.width(), "seconds": self.seconds, "wall": self.wall,
            "notes": self.epsilon.notes,
        })
    }
}

/// Prints the distribution of the widths, the slowest configurations and all that fail.
fn report(rows: &[Row]) {
    println!("{} configurations", rows.len());
    let mut widths: Vec<f64> = rows.iter().map(Row::width).collect();
    widths.sort_by(f64::total_cmp);
    let zero = rows.iter().filter(|row| row.epsilon.upper == 0.0).count();
    println!("epsilon is exactly 0: {zero}");
    for (low, high) in [(0.0, 1e-9), (1e-9, 1e-7), (1e-7, 1e-6), (1e-6, 1e-5), (1e-5, WIDEST)] {
        let inside = widths.iter().filter(|w| **w <= high && (**w > low || low == 0.0)).count();
        println!("relative width {low:e} to {high:e}: {inside}");
    }
    let wide = widths.iter().filter(|width| is_wide(**width)).count();
    println!("relative width above {WIDEST:e}: {wide}");
    let mut by_time: Vec<&Row> = rows.iter().collect();
    by_time.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let total: f64 = rows.iter().map(|row| row.seconds).sum();
    println!("total {total:.1} s; median {:.4} s; slowest:", by_time[rows.len() / 2].seconds);
    by_time.iter().take(10).for_each(|row| print(row));
    println!("failed:");
    rows.iter().filter(|row| row.fails()).for_each(print);
}

fn print(row: &Row) {
    let Configuration { q, sigma, steps, delta } = row.configuration;
    println!(
        "{:5} q {q:.3e} sigma {sigma:.3e} steps {steps} delta {delta:.3e}: [{:e}, {:e}] width \
         {:.1e} {:.3} s {:?}",
        row.index,
        row.epsilon.lower,
        row.epsilon.upper,
        row.width(),
        row.seconds,
        row.epsilon.notes,
    );
}

/// Returns the processor time of this process, of all threads together, in steps of 10 ms; `None`
/// where the system does not say.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields after the name, which ends with the last parenthesis: user and system time are the
    // 12th and the 13th of them, in hundredths of a second.
    let mut times = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || times.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / 100.0)
}

/// Whether a bracket is too wide, or has no width.
fn is_wide(width: f64) -> bool {
    width.is_nan() || width > WIDEST
}
