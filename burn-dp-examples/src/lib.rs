//! Models, data sets and the training program of burn-dp's examples.
//!
//! - [`data`]: synthetic digits, MNIST and other data sets from their files, and batches of them.
//! - [`models`]: the networks of the fast-clipping paper, and others.
//! - [`training`]: the program `train`, which `cargo xtask train` starts.
//! - [`plot`]: figures as SVG.
//! - [`seeded_step`]: a step that is the same on every machine.
//!
//! For browsers, only the data sets and models are compiled.
//!
//! The scenarios in the folder `examples` use the data sets; each is a program to read and to copy.

/// Prints a line on the standard output, like `println!`. If nobody reads it any more (`train |
/// head`), the line is lost and the program continues, because training that panics would lose its
/// last steps.
#[macro_export]
macro_rules! print_line {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// Prints a line on the standard error, like `eprintln!`, with the behavior of [`print_line!`].
#[macro_export]
macro_rules! print_note {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

pub mod data;
#[cfg(not(target_family = "wasm"))]
mod incomplete;
pub mod models;
#[cfg(not(target_family = "wasm"))]
pub mod plot;
pub mod seeded_step;
#[cfg(not(target_family = "wasm"))]
pub mod training;
