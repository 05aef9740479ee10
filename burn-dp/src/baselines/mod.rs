//! Slower ways to the same clipped sum, for benchmarks and oracles.

mod flat;
mod repeated_losses;
